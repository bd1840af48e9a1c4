//! Drives the speaker with one thread, one turn at a time, in an order that follows from the seed. For recording
//! memory accesses, not for timing.

use std::sync::Arc;
use std::time::Instant;

use mio::Token;
use thalweg_exec::control_plane::{ControlPlane, Notice, SchedulingKind, Wakers};
use thalweg_node::speaker::{Speaker, SpeakerWorker};

use super::{InMemoryError, World, all_up, speaker_of, table};
use crate::bgp::caches::{At, END, PAUSE, mark, turn_mark};
use crate::bgp::daemon::{Advertise, DAEMON_AS};
use crate::bgp::feed::Cast;
use crate::bgp::message::Stream;
use crate::bgp::monitor::Monitor;
use crate::bgp::order::{Arrival, Mix, Run, order};
use crate::bgp::scenario::Scenario;

/// Sessions come up within a few rounds; more than this is a bug.
const ROUNDS_MAX: usize = 1000;

/// Plays a scenario's last phase in a realistic order of the neighbors' messages, and marks turns; returns the
/// number of UPDATEs.
///
/// Errors name sessions that did not come up, or routes that are wrong at the end.
pub(crate) fn alone(scenario: &Scenario, seed: u64) -> Result<u64, InMemoryError> {
    let world = Arc::new(World::new(scenario).map_err(InMemoryError::system("socket pairs"))?);
    let speaker = speaker_of(scenario, &world, SchedulingKind::Serial, Advertise::None, false)?;
    let poll = mio::Poll::new().map_err(InMemoryError::system("a poller"))?;
    let mut player = Player { speaker: &speaker, worker: speaker.worker(), sessions: Vec::new(), now_ms: 0 };
    player.bring_up(&poll, scenario.neighbors.count + 1)?;
    let phase = scenario.phases.last().ok_or(InMemoryError::NoPhase)?;
    let mut monitor = Monitor::new(DAEMON_AS);
    monitor.expect(phase.expected.iter().copied(), phase.marks, phase.goal);
    let mut said = vec![0; phase.streams.len()];
    for run in order(&phase.streams, Mix::Mix1.way(), Arrival { file: &scenario.arrival, seed }) {
        let mut parts = vec![Stream::default(); world.peers.len()];
        parts[run.peer] = part(&phase.streams[run.peer], said[run.peer], run);
        said[run.peer] += run.messages;
        world.feed.load(Cast::new(parts, &[run]), u64::MAX, |peer| world.peers[peer].announce_readable());
        while player.turn(run.peer) {}
        if !world.feed.is_read() {
            return Err(InMemoryError::NotRead(run.peer));
        }
    }
    mark(END);
    monitor.take_table(table(&speaker)?, Instant::now());
    if monitor.reached().is_none() {
        return Err(InMemoryError::not_converged(&monitor));
    }
    Ok(phase.updates() as u64)
}

/// The messages of a run, behind those already sent.
fn part(stream: &Stream, said: usize, run: Run) -> Stream {
    let begin = said.checked_sub(1).map_or(0, |last| stream.ends[last]);
    let ends: Vec<usize> = stream.ends[said..said + run.messages].iter().map(|end| end - begin).collect();
    let length = ends.last().copied().unwrap_or_default();
    Stream { bytes: stream.bytes[begin..begin + length].to_vec(), ends, ..Stream::default() }
}

struct Player<'s> {
    speaker: &'s Speaker,
    worker: SpeakerWorker,
    /// In the order in which the neighbors connected, which is their numbering.
    sessions: Vec<usize>,
    now_ms: u64,
}

impl Player<'_> {
    fn bring_up(&mut self, poll: &mio::Poll, wanted: usize) -> Result<(), InMemoryError> {
        let failed = |error| InMemoryError::System { what: "registering", error };
        self.speaker.begin(1, Wakers::default());
        self.speaker.attach_listeners(poll.registry(), Token(usize::MAX)).map_err(failed)?;
        for _ in 0..ROUNDS_MAX {
            self.speaker.accept(&mut self.worker, self.now_ms);
            while let Some(notice) = self.speaker.poll_notice() {
                if let Notice::Opened(session) = notice {
                    self.speaker.attach(session, poll.registry(), Token(session)).map_err(failed)?;
                    self.sessions.push(session);
                }
            }
            for neighbor in 0..self.sessions.len() {
                self.turn(neighbor);
            }
            if all_up(self.speaker, wanted) {
                return Ok(());
            }
        }
        Err(InMemoryError::NotUp)
    }

    /// Does a thread's work for a ready session; returns whether there was any.
    fn turn(&mut self, neighbor: usize) -> bool {
        let session = self.sessions[neighbor];
        self.now_ms += 1;
        self.speaker.ready(session, true, true);
        mark(turn_mark(neighbor, At::Reading));
        let reading = self.speaker.read(&mut self.worker, session, self.now_ms);
        mark(turn_mark(neighbor, At::Table));
        if let Some(batch) = &reading.batch {
            for shard in (0..self.speaker.shards()).filter(|shard| self.speaker.touches(batch, *shard)) {
                self.speaker.apply(&mut self.worker, shard, batch, self.now_ms);
            }
        }
        mark(PAUSE);
        self.speaker.export(&mut self.worker, 0, true, self.now_ms);
        self.speaker.write(&mut self.worker, session, self.now_ms);
        reading.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bgp::table::{Neighbors, Packing};

    #[test]
    fn one_thread_comes_to_the_expected_routes() {
        let neighbors =
            Neighbors { count: 4, address: std::net::Ipv4Addr::new(127, 0, 1, 1), as_number: 64_600 };
        let mut scenario = Scenario::overlap(300, Packing::Real, neighbors, 7);
        let updates = scenario.phases[0].updates() as u64;
        assert_eq!(alone(&scenario, 7).unwrap(), updates);
        scenario.phases[0].expected[3].1 ^= 2;
        let error = alone(&scenario, 7).unwrap_err().to_string();
        assert!(error.contains("of 300 prefixes 299 are right"), "{error}");
    }
}
