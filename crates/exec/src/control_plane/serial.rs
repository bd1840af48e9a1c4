//! `serial`: one thread does everything in rounds. It reads and applies all that is ready, then exports and writes
//! what changed. Because it reads everything before it exports, a route that many neighbors announce at the same
//! moment is not sent many times.

use std::io;
use std::sync::atomic::AtomicBool;

use super::machine::Machine;
use super::seat::Seat;
use super::thread::{Poller, stopped};
use super::{ControlPlane, Notice, Share};

pub(super) fn run<C: ControlPlane>(control: &C, machine: &Machine, stop: &AtomicBool) -> io::Result<()> {
    let (seat, mut poller, wakers) = Seat::master(machine, control)?;
    seat.occupy(|| wakers.wake_all(), || rounds(control, machine, &mut poller, stop))
}

fn rounds<C: ControlPlane>(
    control: &C,
    machine: &Machine,
    poller: &mut Poller,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut worker = control.worker();
    let (mut due_ms, mut busy) = (0, true);
    while !stopped(stop) {
        poller.poll(control, machine, busy, due_ms)?;
        let now = machine.now_ms();
        for _ in 0..poller.turns().len() {
            let Some(session) = poller.turns().next() else { break };
            if read_and_apply(control, &mut worker, session, now) {
                poller.turns().want(session);
            }
            control.write(&mut worker, session, now);
        }
        let last = poller.turns().is_empty();
        let exported = control.export(&mut worker, 0, last, now);
        busy = poller.housekeeping(control, &mut worker, Share::ALL, &mut due_ms, now) | exported.held;
        if exported.grew || busy {
            control.write_share(&mut worker, Share::ALL, now);
        }
        while let Some(notice) = control.poll_notice() {
            match notice {
                Notice::Opened(session) => poller.sockets().attach(control, session)?,
                Notice::Closed(_) => continue,
                Notice::Sooner(_) => {}
            }
            due_ms = 0;
        }
    }
    Ok(())
}

/// Reads a session and applies the batch to every shard it touches. Returns whether there may be more to read.
pub(super) fn read_and_apply<C: ControlPlane>(
    control: &C,
    worker: &mut C::Worker,
    session: usize,
    now: u64,
) -> bool {
    let reading = control.read(worker, session, now);
    if let Some(batch) = reading.batch {
        for shard in 0..control.shards() {
            if control.touches(&batch, shard) {
                control.apply(worker, shard, &batch, now);
            }
        }
    }
    reading.more
}
