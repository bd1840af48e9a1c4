//! Builds a router and its frames, and times each stage while they pass.

use super::clock::ticks;
use super::{Load, Metering, Options, Workload};
use crate::workload::destinations::Kind;
use crate::workload::flood::Flood;
use crate::workload::frames::{Chunks, Endpoint};
use crate::workload::nat::{NatOptions, NatSessions, TooFewEndpoints};
use ipnet::Ipv4Net;
use std::fmt;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{CHUNK_PACKETS_DEFAULT, Chunk, PacketSample};
use thalweg_config::{ConfigErrors, RouterConfig};
use thalweg_exec::{Plan, Scope};
use thalweg_flow::export::NatEvent;
use thalweg_flow::{FlowRecord, MeterOptions, PacketSampling};
use thalweg_node::BuildError;
use thalweg_node::plan::{RecordOutlet, RouterPlan, Scratch};

/// The file the table is written to.
const ROUTE_FILE: &str = "routes.txt";
/// Chunks laid out before the clock runs: 16,000 frames in 1600-packet chunks are 3 MB with their descriptors,
/// about what waits in the rings of a network card.
const CHUNKS_AT_ONCE: usize = 10;
/// Time between two packets.
const GAP_NS: u64 = 1_000;
/// Sessions per public address, of its 64,512 ports: the hash does not spread them evenly.
const SESSIONS_PER_ADDRESS: u32 = 48_000;

const PORTS: &str = r#"
[ports.core]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
default_mac = "02:00:00:00:01:01"

[ports.edge]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24"]
default_mac = "02:00:00:00:01:02"
"#;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The table cannot be written.
    #[error("cannot write {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    /// The generated configuration does not load: a bug in this module.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The router cannot be built.
    #[error(transparent)]
    Router(#[from] BuildError),
    /// The sessions do not fit: a bug in this module.
    #[error(transparent)]
    Sessions(#[from] TooFewEndpoints),
    /// A packet was not forwarded, so the measurement would be of something else.
    #[error("workload {workload}: a packet was not forwarded: {reason}")]
    Dropped {
        workload: String,
        /// Why the first such packet was dropped.
        reason: String,
    },
}

/// Ticks per packet of one round: the median over chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTicks {
    /// By stage.
    pub stages: Vec<f64>,
    /// All stages together.
    pub all: f64,
}

/// A router and the source of its frames.
pub struct Bed {
    load: Load,
    plan: RouterPlan,
    scratch: Scratch,
    routes: usize,
    prefixes: Vec<Ipv4Net>,
    sessions: Option<NatSessions>,
    outlet: Arc<Nowhere>,
}

impl fmt::Debug for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bed").field("load", &self.load).field("routes", &self.routes).finish()
    }
}

impl Bed {
    /// Builds a router over `table` (if the workload uses it) and opens its sessions. Leaves the table in `folder`.
    pub fn new(
        load: impl Into<Load>,
        table: &[Ipv4Net],
        seed: u64,
        folder: &Path,
    ) -> Result<Self, StageError> {
        let load = load.into();
        let workload = load.workload;
        let full = matches!(workload, Workload::FullTable | Workload::FullTableZipf);
        if full {
            write_routes(table, folder)?;
        }
        let text = configuration(workload);
        let config = RouterConfig::from_text("router.toml", &text, folder)?;
        let outlet = Arc::<Nowhere>::default();
        let plan = RouterPlan::from_config(&config, None)?;
        let plan = metered(plan, load.metering, seed, Arc::clone(&outlet))?;
        let scratch = plan.scratch();
        let everywhere = Ipv4Net::new(Ipv4Addr::new(20, 0, 0, 0), 6).unwrap_or_default();
        let (routes, prefixes) = if full { (table.len(), table.to_vec()) } else { (1, vec![everywhere]) };
        let mut bed = Self { load, plan, scratch, routes, prefixes, sessions: None, outlet };
        if workload.sessions() > 0 {
            bed.open(seed)?;
        }
        Ok(bed)
    }

    /// The workload that its packets have, and what is metered.
    pub fn load(&self) -> Load {
        self.load
    }

    /// The packets that were sampled so far.
    pub fn samples(&self) -> u64 {
        self.outlet.samples.load(Ordering::Relaxed)
    }

    /// The number of routes in the router's table.
    pub fn routes(&self) -> usize {
        self.routes
    }

    /// The stages' names, in order.
    pub fn stages(&self) -> Vec<String> {
        self.plan.stages().iter().map(|stage| stage.name.clone()).collect()
    }

    fn open(&mut self, seed: u64) -> Result<(), StageError> {
        let sessions = self.load.workload.sessions();
        let mut made = sessions_of(self.load.workload, sessions, seed)?;
        let unopened = made.clone();
        for mut chunk in Chunks::new(&mut unopened.openers(), u64::from(sessions), CHUNK_PACKETS_DEFAULT, 0) {
            let mut ignored = vec![0; self.plan.stages().len()];
            walk(&self.plan, &mut self.scratch, &mut chunk, 0.0, &mut ignored);
            self.all_forwarded(&chunk)?;
            made.learn(&chunk);
        }
        self.sessions = Some(made);
        Ok(())
    }

    /// Runs one round: new frames, made before the clock runs, pass all stages.
    pub fn round(
        &mut self,
        options: &Options,
        reading_ticks: f64,
        seed: u64,
    ) -> Result<StageTicks, StageError> {
        let mut of_chunks = Vec::with_capacity(options.chunks);
        let mut left = options.chunks.max(1);
        while left > 0 {
            let set = left.min(CHUNKS_AT_ONCE);
            for mut chunk in
                self.frames((set * options.chunk_packets) as u64, options.chunk_packets, seed ^ left as u64)
            {
                let mut spent = vec![0; self.plan.stages().len()];
                walk(&self.plan, &mut self.scratch, &mut chunk, reading_ticks, &mut spent);
                self.all_forwarded(&chunk)?;
                let packets = chunk.packets().len().max(1) as f64;
                of_chunks.push(spent.into_iter().map(|ticks| ticks as f64 / packets).collect::<Vec<f64>>());
            }
            left -= set;
        }
        Ok(medians(&of_chunks))
    }

    /// Chunks in memory.
    fn frames(&self, packets: u64, chunk_packets: usize, seed: u64) -> Vec<Chunk> {
        let kind = if self.load.workload == Workload::FullTableZipf { Kind::Zipf } else { Kind::Inside };
        match &self.sessions {
            Some(sessions) => {
                Chunks::new(&mut sessions.traffic_from(seed), packets, chunk_packets, GAP_NS).collect()
            }
            None => {
                // RFC 2544 reserves 198.18.0.0/15 for benchmarks.
                let from = Endpoint { address: 0xc612_0001, port: 5000 };
                let mut flood = Flood::new(kind, &self.prefixes, seed, from, 0);
                Chunks::new(&mut flood, packets, chunk_packets, GAP_NS).collect()
            }
        }
    }

    fn all_forwarded(&self, chunk: &Chunk) -> Result<(), StageError> {
        match chunk.packets().iter().find(|packet| !packet.is_alive()) {
            None => Ok(()),
            Some(packet) => Err(StageError::Dropped {
                workload: self.load.to_string(),
                reason: packet.drop_reason().map_or_else(String::new, |reason| reason.name().to_owned()),
            }),
        }
    }
}

/// Takes records and samples, and forgets them.
#[derive(Default)]
struct Nowhere {
    samples: AtomicU64,
}

impl RecordOutlet for Nowhere {
    fn take(&self, records: &mut Vec<FlowRecord>) {
        records.clear();
    }

    fn take_nat_events(&self, events: &mut Vec<NatEvent>, _dropped: u64) {
        events.clear();
    }

    fn take_samples(&self, samples: &mut Vec<PacketSample>) {
        self.samples.fetch_add(samples.drain(..).len() as u64, Ordering::Relaxed);
    }

    fn flush(&self) {}
}

fn metered(
    plan: RouterPlan,
    metering: Metering,
    seed: u64,
    outlet: Arc<Nowhere>,
) -> Result<RouterPlan, StageError> {
    let sampling = match metering {
        Metering::None => return Ok(plan),
        Metering::Flows => None,
        Metering::Sflow(one_in) => Some(PacketSampling { rate: one_in.get(), ..PacketSampling::default() }),
    };
    let metered = plan.with_flows(&MeterOptions::default(), seed, outlet);
    Ok(metered.map_err(|error| BuildError::Flows(error.to_string()))?.with_samples(sampling, seed))
}

/// Runs a chunk through all stages as the serial model does, and adds each stage's ticks to `spent`.
pub(crate) fn walk(
    plan: &RouterPlan,
    scratch: &mut Scratch,
    chunk: &mut Chunk,
    reading_ticks: f64,
    spent: &mut [u64],
) {
    let reading = reading_ticks as u64;
    let mut timed = |stage: usize, work: &mut dyn FnMut()| {
        let begin = ticks();
        work();
        spent[stage] += ticks().wrapping_sub(begin).saturating_sub(reading);
    };
    let stages = plan.stages();
    plan.admit(chunk, 0);
    let mut stage = 0;
    while let Some(spec) = stages.get(stage) {
        match spec.scope {
            Scope::Batches => {
                let row = stages[stage..].iter().take_while(|spec| spec.scope == Scope::Batches).count();
                for batch in 0..plan.batches(stage, chunk) {
                    for at in stage..stage + row {
                        timed(at, &mut || plan.run_batch(at, chunk, batch, 0, scratch));
                    }
                }
                stage += row;
                continue;
            }
            Scope::Whole | Scope::Ordered => timed(stage, &mut || plan.run_whole(stage, chunk, scratch)),
            Scope::PerShard => timed(stage, &mut || {
                plan.run_shards(stage, chunk, 0..plan.shard_groups(), scratch);
                if plan.crosses(stage, chunk) {
                    plan.run_crossing(stage, chunk, scratch);
                }
            }),
        }
        stage += 1;
    }
}

/// The median over chunks of each stage, and of their sum.
pub(crate) fn medians(chunks: &[Vec<f64>]) -> StageTicks {
    let median = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let stages = chunks.first().map_or(0, Vec::len);
    StageTicks {
        stages: (0..stages).map(|at| median(chunks.iter().map(|chunk| chunk[at]).collect())).collect(),
        all: median(chunks.iter().map(|chunk| chunk.iter().sum()).collect()),
    }
}

/// Sessions of a workload, of which it may have room for fewer: from inside hosts of 10.0.0.0/14 to outside hosts of
/// 20.0.0.0/8, half of their packets inward.
pub(crate) fn sessions_of(workload: Workload, sessions: u32, seed: u64) -> Result<NatSessions, StageError> {
    let options = NatOptions {
        sessions,
        inside: Ipv4Net::new(Ipv4Addr::new(10, 0, 0, 0), 14).unwrap_or_default(),
        outside: Ipv4Net::new(Ipv4Addr::new(20, 0, 0, 0), 8).unwrap_or_default(),
        inside_port: 0,
        outside_port: 1,
        translates: matches!(workload, Workload::Nat(_)),
        inward_percent: 50,
        seed,
    };
    Ok(NatSessions::new(options)?)
}

/// A firewall that lets only the inside port begin connections, by the last of so many rules; the others match nothing.
pub(crate) fn firewall(rules: u32, [inside, outside]: [&str; 2], states_max: u32) -> String {
    let mut text = format!(
        "\n[firewall]\npolicy = \"deny\"\noutside = \"outside\"\nstates_max = {states_max}\nhalf_open_max = 0\n\
         \n[firewall.zones]\ninside = [\"{inside}\"]\noutside = [\"{outside}\"]\n"
    );
    let deny = (1..rules).map(|n| format!("action = \"deny\"\ndestination = \"{}\"\n", unused_network(n)));
    for rule in deny.chain(["action = \"permit\"\n".to_owned()]) {
        text += &format!("\n[[firewall.rules]]\nfrom = \"inside\"\nto = \"outside\"\n{rule}");
    }
    text
}

/// The `n`-th network that no packet goes to.
pub(crate) fn unused_network(n: u32) -> Ipv4Net {
    Ipv4Net::new(Ipv4Addr::from(0x6400_0000 + (n << 8)), 24).unwrap_or_default()
}

fn write_routes(table: &[Ipv4Net], folder: &Path) -> Result<(), StageError> {
    let path = folder.join(ROUTE_FILE);
    let mut text = String::new();
    for net in table {
        let _ = writeln!(text, "{net}"); // writing to a string does not fail
    }
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|source| StageError::File { path, source })
}

/// The configuration for a workload.
pub(crate) fn configuration(workload: Workload) -> String {
    let mut text = PORTS.to_owned();
    match workload {
        Workload::FullTable | Workload::FullTableZipf => {
            let _ = write!(
                text,
                "\n[routing]\nfiles = [\"{ROUTE_FILE}\"]\ndefault_next_hops = [\"192.0.2.11\", \"192.0.2.12\", \
                 \"198.51.100.11\", \"198.51.100.12\"]\n"
            );
        }
        Workload::OneRoute | Workload::Nat(_) | Workload::Firewall { .. } => {
            text += "\n[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"198.51.100.11\"\n";
        }
    }
    let sessions = workload.sessions();
    // Sessions do not spread evenly over shards.
    let sessions_max = sessions + sessions / 16 + 8192;
    if sessions > 0 {
        text += "\n[[routes]]\nprefix = \"10.0.0.0/14\"\nvia = \"192.0.2.11\"\n";
    }
    if let Workload::Firewall { rules, .. } = workload {
        text += &firewall(rules, ["core", "edge"], sessions_max);
    }
    if let Workload::Nat(_) = workload {
        let addresses = sessions.div_ceil(SESSIONS_PER_ADDRESS).max(4);
        let first = u32::from(Ipv4Addr::new(203, 0, 113, 0));
        let list: Vec<String> =
            (0..addresses).map(|i| format!("\"{}\"", Ipv4Addr::from(first + i))).collect();
        let _ = write!(
            text,
            "\n[nat]\noutside = \"edge\"\ninside = [\"core\"]\naddresses = [{}]\nport_selection = \"hash\"\n\
             sessions_max = {sessions_max}\nhost_sessions_max = 0\nhost_sessions_per_second = 0\n",
            list.join(", ")
        );
    }
    text
}
