//! What the log says. Each event once, with the neighbour and the reason in words; what others can make happen as often
//! as they like, once in an interval, with a count.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_base::Throttle;
use thalweg_bgp::peer::Millis;
use thalweg_bgp::session::Event;
use thalweg_wire::bgp::Family;

use super::lock;

/// The least time between two lines about connections of strangers.
const STRANGERS_MS: u64 = 1000;

/// The least time between two lines about signatures.
const SIGNATURES_MS: u64 = 60_000;

pub(super) fn session(neighbor: &str, event: &Event) {
    match (event.is_problem(), event) {
        (true, _) => tracing::warn!(neighbor, "{event}"),
        (false, Event::Up(_) | Event::Stopped(_) | Event::Routes { .. }) => {
            tracing::info!(neighbor, "{event}")
        }
        (false, _) => tracing::debug!(neighbor, "{event}"),
    }
}

/// Connections that are nobody's: anybody who reaches a listening socket can make thousands.
#[derive(Default)]
pub(super) struct Strangers {
    count: AtomicU64,
    waiting: Mutex<(Throttle, Option<(SocketAddr, String)>)>,
}

impl Strangers {
    /// One was refused, for this reason.
    pub(super) fn refused(&self, remote: SocketAddr, why: String, now: Millis) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut waiting = lock(&self.waiting);
        waiting.0.note(1);
        waiting.1 = Some((remote, why));
        drop(waiting);
        self.tell(now);
    }

    /// Says so, unless that was said a moment ago; what was not said yet is, when this is called again.
    pub(super) fn tell(&self, now: Millis) {
        let mut waiting = lock(&self.waiting);
        let Some(count) = waiting.0.due(now.0, STRANGERS_MS) else { return };
        let Some((remote, why)) = waiting.1.take() else { return };
        drop(waiting);
        match count {
            1 => tracing::warn!(%remote, "connection refused: {why}"),
            count => tracing::warn!(%remote, count, "{count} connections refused; the last: {why}"),
        }
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Segments that the kernel dropped because of their signature. Sockets do not hear of them.
#[derive(Default)]
pub(super) struct Signatures {
    known: Option<[u64; 3]>,
    dropped: [u64; 3],
    throttle: Throttle,
}

impl Signatures {
    /// Looks at what was dropped until now; `without_session`: who has a password and no session.
    pub(super) fn look(
        &mut self,
        faults: [u64; 3],
        now: Millis,
        without_session: impl FnOnce() -> Vec<String>,
    ) {
        let before = self.known.replace(faults).unwrap_or(faults);
        for (dropped, (now, before)) in self.dropped.iter_mut().zip(faults.into_iter().zip(before)) {
            let more = now.saturating_sub(before);
            *dropped += more;
            self.throttle.note(more);
        }
        let Some(count) = self.throttle.due(now.0, SIGNATURES_MS) else { return };
        let [wrong, missing, unexpected] = std::mem::take(&mut self.dropped);
        let names = match without_session() {
            names if names.is_empty() => "none".to_owned(),
            names => names.join(", "),
        };
        tracing::warn!(
            "the kernel dropped {count} TCP segments because of their MD5 signature: {wrong} with a wrong one, \
             {missing} without the one expected, {unexpected} with one where none is expected; check passwords at both \
             ends (neighbors with a password and no session: {names})"
        );
    }
}

pub(super) fn password_stays(neighbor: &str, error: &io::Error) {
    tracing::warn!(neighbor, "the listening sockets keep a password that is not right any more: {error}");
}

pub(super) fn accept_failed(error: &io::Error) {
    tracing::error!("cannot take in a connection: {error}");
}

pub(super) fn end_of_rib(neighbor: &str, family: Family) {
    tracing::info!(neighbor, %family, "has sent its whole table");
}

pub(super) fn lagging(neighbor: &str) {
    tracing::debug!(neighbor, "reads more slowly than routes change; it will get the difference later");
}

pub(super) fn panicked(neighbor: &str, what: &str) {
    tracing::error!(neighbor, "a mistake in this program ended the session: {what}; please report it");
}
