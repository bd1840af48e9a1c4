//! Log lines of the speaker. Each event is logged once, with the neighbor and the reason in words. Events that
//! others can cause at will are logged once in an interval, with a count.

use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_base::Throttle;
use thalweg_bgp::peer::Millis;
use thalweg_bgp::session::Event;
use thalweg_wire::bgp::Family;

use super::Stranger;
use super::restart_progress::Released;

/// Minimum time between two lines about connections of strangers.
const STRANGERS_MS: u64 = 1000;

/// Minimum time between two lines about signatures.
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

/// Connections from addresses that are not neighbors, and failed accepts. Any host that reaches a listening socket
/// can cause thousands.
#[derive(Default)]
pub(super) struct Strangers {
    count: AtomicU64,
    refused: Mutex<(Throttle, Option<(SocketAddr, Stranger)>)>,
    failed: Mutex<(Throttle, Option<io::Error>)>,
    /// Accepting failed and must be tried again.
    accept_again: AtomicBool,
}

impl Strangers {
    pub(super) fn refused(&self, remote: SocketAddr, why: Stranger, now: Millis) {
        self.count.fetch_add(1, Ordering::Relaxed);
        note(&self.refused, (remote, why));
        self.log_refused(now);
    }

    pub(super) fn accept_failed(&self, error: io::Error, now: Millis) {
        note(&self.failed, error);
        self.accept_again.store(true, Ordering::Release);
        self.log_failed(now);
    }

    /// Logs what was held back by the throttle, if a line is due. Returns whether to accept again.
    pub(super) fn log_pending(&self, now: Millis) -> bool {
        self.log_refused(now);
        self.log_failed(now);
        self.accept_again.swap(false, Ordering::AcqRel)
    }

    fn log_refused(&self, now: Millis) {
        match due(&self.refused, now) {
            None => {}
            Some((1, (remote, why))) => tracing::warn!(%remote, "connection refused: {why}"),
            Some((count, (remote, why))) => {
                tracing::warn!(%remote, count, "{count} connections refused; the last one: {why}");
            }
        }
    }

    fn log_failed(&self, now: Millis) {
        if let Some((count, error)) = due(&self.failed, now) {
            tracing::error!(count, "cannot accept connections: {error}; the router tries again");
        }
    }

    /// Whether nothing is held back and accepting works.
    pub(super) fn is_calm(&self) -> bool {
        let is_told = self.refused.lock().1.is_none() && self.failed.lock().1.is_none();
        is_told && !self.accept_again.load(Ordering::Acquire)
    }

    /// Connections refused so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Keeps the latest event for the next line.
fn note<T>(waiting: &Mutex<(Throttle, Option<T>)>, what: T) {
    let mut waiting = waiting.lock();
    waiting.0.note(1);
    waiting.1 = Some(what);
}

/// The number of events and the latest one, if a line is due.
fn due<T>(waiting: &Mutex<(Throttle, Option<T>)>, now: Millis) -> Option<(u64, T)> {
    let mut waiting = waiting.lock();
    let count = waiting.0.due(now.0, STRANGERS_MS)?;
    Some((count, waiting.1.take()?))
}

/// Segments that the kernel dropped because of their signature. Sockets are not told of them.
#[derive(Default)]
pub(super) struct Signatures {
    known: Option<[u64; 3]>,
    dropped: [u64; 3],
    throttle: Throttle,
}

impl Signatures {
    /// Takes the kernel's totals; `without_session` names the neighbors that have a password and no session.
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
    tracing::warn!(
        neighbor,
        "cannot change the password of the listening sockets, so the old one still holds: {error}"
    );
}

pub(super) fn hops_not_limited(neighbor: &str, error: &io::Error) {
    tracing::warn!(neighbor, "cannot set the TTL of what it is sent: {error}");
}

pub(super) fn end_of_rib(neighbor: &str, family: Family) {
    tracing::info!(neighbor, %family, "End-of-RIB received");
}

pub(super) fn selecting(family: Family, why: Released, missing: &[IpAddr]) {
    match why {
        Released::EndOfRib => {
            tracing::info!(%family, "restart: neighbors have sent their tables; selecting routes")
        }
        Released::Timer => tracing::warn!(
            %family,
            "restart: selecting routes, although these neighbors sent no End-of-RIB in time: {missing:?}"
        ),
    }
}

pub(super) fn restart_is_over() {
    tracing::info!("restart: routes are selected and announced");
}

pub(super) fn lagging(neighbor: &str) {
    tracing::debug!(
        neighbor,
        "the neighbor reads more slowly than routes change; it gets the difference later"
    );
}

pub(super) fn asked_for_validity(neighbor: &str, offers_refresh: bool) {
    match offers_refresh {
        true => tracing::info!(
            neighbor,
            "VRPs changed: the neighbor is asked for its routes; with `keep_rejected = \"all\"` it is not"
        ),
        false => tracing::warn!(
            neighbor,
            "VRPs changed, and the neighbor offers no route refresh: some of its routes are judged by earlier VRPs; keep \
             them (`keep_rejected = \"all\"`) or reset the session"
        ),
    }
}

pub(super) fn panicked(neighbor: &str, what: &str) {
    tracing::error!(neighbor, "a bug in this program ended the session: {what}; please report it");
}
