//! Measures NAT, or the firewall, in memory: its stage in the router's whole plan.
//!
//! RFC 9693's two phases without interfaces. *Opening*: a packet of every session, each from an endpoint of its own; all
//! must be translated, no two to the same public endpoint (by a firewall: all must pass). *Validating*: a reply to every
//! session, which must arrive at the endpoint it belongs to. Only then does a figure count. *Established*: packets of
//! both directions over random sessions. *Tear-down*: the packet clock jumps past the last session's timeout, and the
//! table is emptied.
//!
//! Memory is the growth of the process while the table is made: all of it is allocated and touched then.

use crate::stages::clock::Calibration;
use crate::stages::measure::{configuration, sessions_of, walk};
use crate::stages::{StageError, Workload};
use crate::workload::frames::Chunks;
use crate::workload::nat::NatSessions;
use std::path::Path;
use std::time::Instant;
use thalweg_base::{CHUNK_PACKETS_DEFAULT, Chunk, DropReason};
use thalweg_config::RouterConfig;
use thalweg_exec::Plan;
use thalweg_node::Routes;
use thalweg_node::plan::{RouterPlan, Scratch};

/// Longer than a UDP session's timeout.
const LATER_NS: u64 = 400 * 1_000_000_000;
/// From this size on, a table's memory shows in the size of the process.
const SHOWS_FROM: u32 = 1_000_000;
const PAGE_BYTES: u64 = 4096;

/// The results of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRun {
    /// Ticks of the stage per session opened.
    pub set_up_ticks: f64,
    /// Ticks of the whole router per session opened.
    pub set_up_all_ticks: f64,
    /// Ticks of the stage per packet of established sessions; median over chunks.
    pub established_ticks: f64,
    /// Ticks of the whole router per packet of established sessions; median over chunks.
    pub established_all_ticks: f64,
    pub tear_down_s: f64,
    /// Growth of the process per session that the table has room for; `None` if the table is too small to tell.
    pub bytes_per_session: Option<f64>,
}

/// Why a round does not count.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The router cannot be built.
    #[error(transparent)]
    Router(#[from] StageError),
    /// A phase did not have the required result.
    #[error("with {sessions} sessions {found}")]
    Invalid {
        /// How many sessions there should have been.
        sessions: u32,
        found: String,
    },
}

/// A router with an empty table.
struct Keeper {
    plan: RouterPlan,
    scratch: Scratch,
    /// The place of the stage that is measured.
    stage: usize,
    workload: Workload,
    bytes: u64,
    reading_ticks: f64,
}

/// The name of the stage that has a workload's sessions.
pub(super) fn stage_of(workload: Workload) -> &'static str {
    if matches!(workload, Workload::Firewall { .. }) { "firewall" } else { "nat" }
}

impl Keeper {
    fn new(workload: Workload, room: Option<u32>, reading_ticks: f64) -> Result<Self, MemoryError> {
        let text = configuration(workload);
        let mut config =
            RouterConfig::from_text("router.toml", &text, Path::new("")).map_err(StageError::Config)?;
        if let (Some(nat), Some(room)) = (&mut config.nat, room) {
            nat.sessions_max = room;
        }
        if let (Some(firewall), Some(room)) = (&mut config.firewall, room) {
            firewall.firewall.states_max = room;
        }
        let routes = Routes::build(&config).map_err(StageError::Router)?;
        let before = resident_bytes();
        let plan = RouterPlan::with_routes(&config, &routes, None).map_err(StageError::Router)?;
        let bytes = resident_bytes().saturating_sub(before);
        let name = stage_of(workload);
        let stage = plan.stages().iter().position(|stage| stage.name == name).unwrap_or(0);
        Ok(Self { scratch: plan.scratch(), plan, stage, workload, bytes, reading_ticks })
    }

    /// Sessions in the table, and packets that found it full.
    fn counts(&self) -> (u64, u64) {
        match self.workload {
            Workload::Firewall { .. } => {
                let counters = self.plan.firewall_counters().unwrap_or_default();
                (counters.states_active, counters.table_full)
            }
            _ => {
                let counters = self.plan.nat_counters().unwrap_or_default();
                (counters.sessions_active, counters.table_full)
            }
        }
    }

    /// Runs a chunk through the router; returns the ticks of the stage and of all stages.
    fn pass(&mut self, chunk: &mut Chunk) -> (u64, u64) {
        let mut spent = vec![0; self.plan.stages().len()];
        walk(&self.plan, &mut self.scratch, chunk, self.reading_ticks, &mut spent);
        (spent.get(self.stage).copied().unwrap_or(0), spent.iter().sum())
    }

    fn invalid(&self, found: String) -> MemoryError {
        MemoryError::Invalid { sessions: self.workload.sessions(), found }
    }
}

/// Runs one round with the workload's sessions, and `packets` packets over established ones.
pub fn measure(
    workload: Workload,
    packets: u64,
    seed: u64,
    clock: &Calibration,
) -> Result<MemoryRun, MemoryError> {
    let sessions = workload.sessions();
    let mut made = sessions_of(workload, sessions, seed)?;
    let unopened = made.clone();
    let mut keeper = Keeper::new(workload, None, clock.reading_ticks)?;

    let (mut of_stage, mut of_all) = (0, 0);
    for mut chunk in Chunks::new(&mut unopened.openers(), u64::from(sessions), CHUNK_PACKETS_DEFAULT, 0) {
        let (ticks, all) = keeper.pass(&mut chunk);
        (of_stage, of_all) = (of_stage + ticks, of_all + all);
        made.learn(&chunk);
    }
    drop(unopened);
    let (opened, shared) = (made.established(), made.shared_endpoints());
    if opened != made.len() || shared != 0 {
        return Err(keeper.invalid(format!("{opened} were opened, {shared} shared a public endpoint")));
    }

    let answered = keeper.answered(&made);
    if answered != made.len() {
        return Err(keeper.invalid(format!("{answered} replies came to where they belong")));
    }

    let mut established = Vec::new();
    for mut chunk in Chunks::new(&mut made.traffic_from(seed), packets, CHUNK_PACKETS_DEFAULT, 0) {
        let (ticks, all) = keeper.pass(&mut chunk);
        let count = chunk.packets().len().max(1) as f64;
        established.push(vec![ticks as f64 / count, (all - ticks.min(all)) as f64 / count]);
    }
    let medians = crate::stages::measure::medians(&established);

    let (before, _) = keeper.counts();
    let tear_down_s = keeper.tear_down(&made)?;
    if before != u64::from(sessions) {
        return Err(keeper.invalid(format!("{before} were in the table")));
    }
    let room = f64::from(sessions) + f64::from(sessions) / 16.0 + 8192.0;
    Ok(MemoryRun {
        set_up_ticks: of_stage as f64 / f64::from(sessions),
        set_up_all_ticks: of_all as f64 / f64::from(sessions),
        established_ticks: medians.stages.first().copied().unwrap_or(0.0),
        established_all_ticks: medians.all,
        tear_down_s,
        // A small table may fit into memory that the allocator has kept.
        bytes_per_session: (sessions >= SHOWS_FROM).then(|| keeper.bytes as f64 / room),
    })
}

impl Keeper {
    /// Sends a reply to every session; returns how many came to where they belong.
    fn answered(&mut self, sessions: &NatSessions) -> usize {
        let count = sessions.len() as u64;
        let replies = &mut sessions.replies();
        let chunks = Chunks::new(replies, count, CHUNK_PACKETS_DEFAULT, 0);
        let mut answered = 0;
        for mut chunk in chunks {
            self.pass(&mut chunk);
            answered += sessions.answered(&chunk);
        }
        answered
    }

    /// Empties the table by advancing the clock; returns the seconds it took.
    fn tear_down(&mut self, sessions: &NatSessions) -> Result<f64, MemoryError> {
        // A later chunk with one packet that opens no session carries the clock, only as far as the stage that
        // reads it.
        let arrival = self.plan.stages().iter().position(|stage| stage.name == "arrival").unwrap_or(0);
        let Some(mut chunk) = Chunks::new(&mut sessions.replies(), 1, 1, 0).next() else { return Ok(0.0) };
        chunk.clock_ns += LATER_NS;
        self.plan.admit(&mut chunk, 0);
        self.plan.run_whole(arrival, &mut chunk, &mut self.scratch);
        let begin = Instant::now();
        let (after, _) = self.counts();
        let elapsed_s = begin.elapsed().as_secs_f64();
        match after {
            0 => Ok(elapsed_s),
            left => Err(self.invalid(format!("{left} were left after their time"))),
        }
    }
}

/// How far a table can be filled. All sessions in it lived on when others were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    pub room: u32,
    /// Sessions before the first that found its shard full.
    pub before_first_refusal: u32,
    /// Sessions in the table at the end.
    pub held: u32,
}

/// Opens more sessions than there is room for, half as many again: only those that do not fit may be refused, for that
/// reason, and are counted; the others live on. `like` says what has the table.
pub fn fill(like: Workload, room: u32, seed: u64, clock: &Calibration) -> Result<Fill, MemoryError> {
    let offered = room + room / 2;
    let workload = match like {
        Workload::Firewall { rules, .. } => Workload::Firewall { rules, states: offered },
        _ => Workload::Nat(offered),
    };
    let mut made = sessions_of(workload, offered, seed)?;
    let unopened = made.clone();
    let mut keeper = Keeper::new(workload, Some(room), clock.reading_ticks)?;
    let (mut opened, mut first) = (0, None);
    for mut chunk in Chunks::new(&mut unopened.openers(), u64::from(offered), CHUNK_PACKETS_DEFAULT, 0) {
        keeper.pass(&mut chunk);
        made.learn(&chunk);
        for packet in chunk.packets() {
            match packet.drop_reason() {
                None => opened += 1,
                Some(DropReason::NatTableFull | DropReason::FirewallTableFull) => {}
                Some(other) => return Err(keeper.invalid(format!("one was dropped as {}", other.name()))),
            }
        }
        if opened < chunk.first_packet_number as u32 - 1 + chunk.packets().len() as u32 {
            let lost =
                chunk.packets().iter().filter(|packet| !packet.is_alive()).map(|packet| packet.index).min();
            first = first.or(lost.map(|index| chunk.first_packet_number as u32 - 1 + u32::from(index)));
        }
    }
    let (held, refused) = keeper.counts();
    if (held, held + refused) != (u64::from(opened), u64::from(offered)) {
        return Err(keeper.invalid(format!("{held} were held and {refused} counted as refused")));
    }
    let lived = keeper.answered(&made);
    if lived as u64 != u64::from(opened) {
        return Err(keeper.invalid(format!("{lived} of {opened} lived on when the table was full")));
    }
    Ok(Fill { room, before_first_refusal: first.unwrap_or(offered), held: opened })
}

/// The resident memory of this process.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_validated_and_measured() {
        let clock = Calibration { ticks_per_ns: 1.0, core_cycles_per_ns: None, reading_ticks: 0.0 };
        let firewall = |rules| Workload::Firewall { rules, states: 5_000 };
        for workload in [Workload::Nat(1), Workload::Nat(5_000), firewall(1), firewall(300)] {
            let run = measure(workload, 3200, 7, &clock).unwrap();
            assert!(run.set_up_ticks <= run.set_up_all_ticks, "{run:?}");
            assert!(run.established_ticks <= run.established_all_ticks, "{run:?}");
            assert!(run.tear_down_s >= 0.0 && run.bytes_per_session.is_none());
        }
    }

    #[test]
    fn a_full_table_holds_what_it_has_room_for() {
        let clock = Calibration { ticks_per_ns: 1.0, core_cycles_per_ns: None, reading_ticks: 0.0 };
        for like in [Workload::Nat(1), Workload::Firewall { rules: 3, states: 1 }] {
            let fill = fill(like, 6_400, 3, &clock).unwrap();
            // Sixty-four shards of a hundred: with half as many again, hardly one is not full.
            assert_eq!(fill.room, 6_400);
            assert!(fill.held <= fill.room && fill.held > 6_300, "{fill:?}");
            assert!((1_000..6_400).contains(&fill.before_first_refusal), "{fill:?}");
        }
    }
}
