//! What the log says. Each event once, with the neighbour and the reason in words.

use std::io;
use std::net::{IpAddr, SocketAddr};

use thalweg_bgp::session::Event;
use thalweg_wire::bgp::Family;

use super::restart::Released;

pub(super) fn session(neighbor: &str, event: &Event) {
    match (event.is_problem(), event) {
        (true, _) => tracing::warn!(neighbor, "{event}"),
        (false, Event::Up(_) | Event::Stopped(_)) => tracing::info!(neighbor, "{event}"),
        (false, _) => tracing::debug!(neighbor, "{event}"),
    }
}

pub(super) fn connect_failed(neighbor: &str, error: &io::Error) {
    tracing::debug!(neighbor, "cannot connect: {error}");
}

pub(super) fn refused(neighbor: &str, why: &str) {
    tracing::debug!(neighbor, "connection refused: {why}");
}

pub(super) fn password_stays(neighbor: &str, error: &io::Error) {
    tracing::warn!(neighbor, "the listening sockets keep a password that is not right any more: {error}");
}

pub(super) fn stranger(remote: SocketAddr) {
    tracing::warn!(%remote, "connection refused: no neighbour is configured at this address");
}

pub(super) fn accept_failed(error: &io::Error) {
    tracing::error!("cannot take in a connection: {error}");
}

pub(super) fn end_of_rib(neighbor: &str, family: Family) {
    tracing::info!(neighbor, %family, "has sent its whole table");
}

pub(super) fn selecting(family: Family, why: Released, missing: &[IpAddr]) {
    match why {
        Released::EndOfRib => {
            tracing::info!(%family, "restart: neighbors have sent their tables; selecting routes")
        }
        Released::Timer => tracing::warn!(
            %family,
            "restart: selecting routes without those of neighbors that sent no End-of-RIB in time: {missing:?}"
        ),
    }
}

pub(super) fn restart_is_over() {
    tracing::info!("restart: routes are selected and neighbors are sent them");
}

pub(super) fn lagging(neighbor: &str) {
    tracing::debug!(neighbor, "reads more slowly than routes change; it will get the difference later");
}

pub(super) fn panicked(neighbor: &str, what: &str) {
    tracing::error!(neighbor, "a mistake in this program ended the session: {what}; please report it");
}
