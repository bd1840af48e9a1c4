//! `/metrics`: the router's views as samples.
//!
//! Names and labels are for ever. A series exists from the start, with 0, and no series is about a prefix, a flow, a
//! host or a MAC address: their number is not ours to bound.

mod bgp;
mod flows;
mod packets;

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use thalweg_node::control::{
    AclRuleView, BgpNeighborView, BgpRequest, Client, ClientError, CountersView, FirewallCountersView,
    FlowCacheView, ForwardingView, GatewayCheckView, MemoryView, NatCountersView, PacketRequest, PolicerView,
    PortView, QueueView, RefusalKind, Request, RibView, RpkiView, StandbyView, StatusView, VirtualRouterView,
};

use crate::answer::Outlet;
use crate::counters::Counters;
use crate::exposition::{Exposition, OPEN, PLAIN};
use crate::problem::Problem;
use crate::router::connect;

/// A scrape within this time of another gets the same text.
const CACHED_FOR: Duration = Duration::from_secs(1);

/// Makes the text, at most once a second in each format.
pub(crate) struct Metrics {
    router: PathBuf,
    version: &'static str,
    counters: Arc<Counters>,
    /// By format.
    cached: [Mutex<Option<(Instant, Bytes)>>; 2],
}

/// Metrics that take one value each from a view: name, help, value.
pub(crate) type Each<View, Value = u64> = (&'static str, &'static str, fn(&View) -> Value);

/// All that the router says of itself; `None` where it has no such part.
#[derive(Default)]
pub(crate) struct Views {
    pub(crate) status: Option<StatusView>,
    pub(crate) counters: Option<CountersView>,
    pub(crate) ports: Option<Vec<PortView>>,
    pub(crate) checks: Option<Vec<GatewayCheckView>>,
    pub(crate) virtual_routers: Option<Vec<VirtualRouterView>>,
    pub(crate) standby: Option<StandbyView>,
    pub(crate) queues: Option<Vec<QueueView>>,
    pub(crate) policers: Option<Vec<PolicerView>>,
    pub(crate) acls: Option<Vec<AclRuleView>>,
    pub(crate) nat: Option<NatCountersView>,
    pub(crate) firewall: Option<FirewallCountersView>,
    pub(crate) flows: Option<FlowCacheView>,
    pub(crate) forwarding: Option<ForwardingView>,
    pub(crate) neighbors: Option<Vec<BgpNeighborView>>,
    pub(crate) rib: Option<RibView>,
    pub(crate) rpki: Option<RpkiView>,
    pub(crate) memory: Option<MemoryView>,
}

impl Metrics {
    pub(crate) fn new(router: PathBuf, version: &'static str, counters: Arc<Counters>) -> Self {
        Self { router, version, counters, cached: Default::default() }
    }

    /// The content type of a format.
    pub(crate) fn kind(is_open: bool) -> &'static str {
        if is_open { OPEN } else { PLAIN }
    }

    /// Answers a scrape: the body of a thread.
    pub(crate) fn answer(&self, is_open: bool, mut outlet: Outlet) {
        // Scrapes at the same time wait for one.
        let mut cached = self.cached[usize::from(is_open)].lock();
        let fresh = cached.as_ref().filter(|(at, _)| at.elapsed() < CACHED_FOR).map(|(_, text)| text.clone());
        let result = match fresh {
            Some(text) => Ok(text),
            None => self.text(is_open).inspect(|text| *cached = Some((Instant::now(), text.clone()))),
        };
        drop(cached);
        let result = result.map(|text| {
            // Who is gone needs no answer.
            let _ = outlet.write(&text);
        });
        outlet.end(result);
    }

    fn text(&self, is_open: bool) -> Result<Bytes, Problem> {
        let views = Views::of(&mut connect(&self.router)?)?;
        let mut text = Exposition::new(is_open);
        views.write(&mut text, self.version);
        self.counters.write(&mut text);
        Ok(text.finish().into())
    }
}

impl Views {
    fn of(router: &mut Client) -> Result<Self, Problem> {
        let packets = Request::Packets;
        Ok(Self {
            status: one(router, &Request::Status)?,
            counters: one(router, &packets(PacketRequest::Counters))?,
            ports: all(router, &packets(PacketRequest::Ports))?,
            checks: all(router, &packets(PacketRequest::GatewayChecks))?,
            virtual_routers: all(router, &packets(PacketRequest::VirtualRouters))?,
            standby: one(router, &packets(PacketRequest::Standby))?,
            queues: all(router, &packets(PacketRequest::Queues))?,
            policers: all(router, &packets(PacketRequest::Policers))?,
            acls: all(router, &packets(PacketRequest::AccessLists))?,
            nat: one(router, &packets(PacketRequest::NatCounters))?,
            firewall: one(router, &packets(PacketRequest::FirewallCounters))?,
            flows: one(router, &packets(PacketRequest::FlowCache))?,
            forwarding: one(router, &Request::Forwarding)?,
            neighbors: all(router, &Request::Bgp(BgpRequest::Neighbors))?,
            rib: one(router, &Request::Bgp(BgpRequest::Rib))?,
            rpki: one(router, &Request::Bgp(BgpRequest::Rpki))?,
            memory: one(router, &Request::Bgp(BgpRequest::Memory))?,
        })
    }

    pub(crate) fn write(&self, text: &mut Exposition, version: &str) {
        if let Some(status) = &self.status {
            write_status(text, status, version);
        }
        packets::write(text, self);
        flows::write(text, self);
        bgp::write(text, self);
    }
}

/// All views; `None` if the router has no such part, or cannot say now.
fn all<V: DeserializeOwned>(router: &mut Client, request: &Request) -> Result<Option<Vec<V>>, Problem> {
    match router.views(request) {
        Ok(views) => Ok(Some(views)),
        Err(ClientError::Refused { kind: RefusalKind::Absent | RefusalKind::Refused, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn one<V: DeserializeOwned>(router: &mut Client, request: &Request) -> Result<Option<V>, Problem> {
    Ok(all(router, request)?.and_then(|views| views.into_iter().next()))
}

fn write_status(text: &mut Exposition, status: &StatusView, version: &str) {
    let build = [("version", status.version.as_str()), ("commit", &status.commit), ("web_version", version)];
    text.gauge("build_info", "1, with the version of the program and what it was built from.")
        .sample(&build, 1u64);
    text.gauge("uptime_seconds", "Time since the router started.").sample(&[], status.uptime_s);
    text.gauge("config_age_seconds", "Time since the configuration in force was applied.")
        .sample(&[], status.config_age_s);
    text.gauge("config_reload_success", "Whether the last reload of the configuration was applied.")
        .sample(&[], status.reload_refused.is_none());
    text.gauge("problems", "Problems that `thalweg show status` names.")
        .sample(&[], u64::try_from(status.problems.len()).unwrap_or(u64::MAX));
    text.gauge("process_resident_memory_bytes", "Resident memory of the router's process.")
        .sample(&[], status.memory_bytes);
    text.counter("process_cpu_seconds", "Processor time of the router's process.")
        .sample(&[], seconds(status.cpu_ms));
    text.gauge("process_open_fds", "Open file descriptors of the router's process.")
        .sample(&[], status.open_files);
    text.gauge("process_threads", "Threads of the router's process.").sample(&[], status.threads);
    if let Some(nat) = &status.nat {
        text.gauge("nat_sessions", "NAT sessions.").sample(&[], nat.sessions);
        text.gauge("nat_sessions_max", "NAT sessions that fit.").sample(&[], nat.sessions_max);
    }
}

impl Counters {
    fn write(&self, text: &mut Exposition) {
        text.counter("web_requests", "HTTP requests.").sample(&[], self.requests.load(Ordering::Relaxed));
        text.counter("web_connections", "HTTP connections accepted.")
            .sample(&[], self.connections.load(Ordering::Relaxed));
        let mut problems =
            text.counter("web_problems", "Requests that were answered with a problem document.");
        for (kind, number) in self.problems() {
            problems.sample(&[("kind", kind)], number);
        }
        let mut cuts = text.counter("web_connections_cut", "Connections refused or ended by the server.");
        for (reason, number) in self.cuts() {
            cuts.sample(&[("reason", reason)], number);
        }
    }
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests;
