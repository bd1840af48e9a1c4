//! NAT events in exporters' terms (RFC 8158).

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use super::NatStage;
use thalweg_base::Chunk;
use thalweg_dataplane::nat::{Happening, NatEvent as Event, NatLogging};
use thalweg_flow::export::{NatEvent, NatSession, Quota};

use std::ops::Range;

use super::{RecordOutlet, RouterPlan};

/// The receiver of NAT events, and which events it gets.
#[derive(Clone)]
pub(super) struct NatLog {
    outlet: Arc<dyn RecordOutlet>,
    logging: NatLogging,
    /// Whether there are several VRFs, so that events say which.
    names_vrfs: bool,
}

impl NatLog {
    /// Translates the packets of some groups, and reports the events.
    pub(super) fn run_groups(
        &self,
        stage: &NatStage,
        chunk: &mut Chunk,
        groups: Range<usize>,
        group_count: usize,
        events: &mut Vec<NatEvent>,
    ) {
        let mut take = |event| events.push(self.exported(&event));
        let dropped = stage.run_groups_and_log(chunk, groups, group_count, &mut take);
        self.hand_over(events, dropped);
    }

    /// Reports pending events of shards that saw no packets.
    pub(super) fn drain(&self, stage: &NatStage) {
        let mut events = Vec::new();
        let dropped = stage.hand_out_events(&mut |event| events.push(self.exported(&event)));
        self.hand_over(&mut events, dropped);
    }

    fn hand_over(&self, events: &mut Vec<NatEvent>, dropped: u64) {
        if !events.is_empty() || dropped > 0 {
            self.outlet.take_nat_events(events, dropped);
        }
    }

    fn exported(&self, event: &Event) -> NatEvent {
        let time_ns = event.time_ns;
        let named = |vrf: u16| self.names_vrfs.then(|| vrf.into());
        match event.what {
            Happening::Session { created, protocol, vrf, inside, public, remote: Some(remote) } => {
                let (protocol, vrf) = (protocol.number(), named(vrf));
                let session = NatSession { vrf, ..session(created, protocol, inside, public, remote) };
                NatEvent::Session { time_ns, session }
            }
            Happening::Session { created, protocol, vrf, inside, public, remote: None } => {
                NatEvent::Binding {
                    time_ns,
                    created,
                    protocol: protocol.number(),
                    vrf: named(vrf),
                    src: (inside.ip(), inside.port()),
                    post_src: (*public.ip(), public.port()),
                }
            }
            Happening::Block { allocated, vrf, subscriber, public, ports, pool } => {
                NatEvent::PortBlock { time_ns, allocated, vrf: named(vrf), subscriber, public, ports, pool }
            }
            Happening::PortsExhausted { public, protocol } => {
                NatEvent::PortsExhausted { time_ns, public, protocol: protocol.number() }
            }
            Happening::BlocksExhausted { pool } => NatEvent::AddressesExhausted { time_ns, pool },
            Happening::TableFull { limit } => {
                let of_sessions = self.logging == NatLogging::Sessions;
                let quota = if of_sessions { Quota::Sessions } else { Quota::Bindings };
                NatEvent::QuotaExceeded { time_ns, quota, limit }
            }
            Happening::SubscriberLimit { vrf, subscriber, limit } => {
                NatEvent::QuotaExceeded { time_ns, quota: Quota::Subscriber(subscriber, named(vrf)), limit }
            }
        }
    }
}

/// Destinations are equal on both sides, because only sources are translated. For ICMP echo the identifier is the
/// port of both ends, as in the packets.
fn session(
    created: bool,
    protocol: u8,
    inside: SocketAddr,
    public: SocketAddrV4,
    remote: SocketAddrV4,
) -> NatSession {
    NatSession {
        created,
        protocol,
        vrf: None,
        src: inside.ip(),
        src_port: inside.port(),
        post_src: *public.ip(),
        post_src_port: public.port(),
        dst: IpAddr::V4(*remote.ip()),
        dst_port: remote.port(),
        post_dst: *remote.ip(),
        post_dst_port: remote.port(),
    }
}

impl RouterPlan {
    /// The same plan with a log of NAT's events, if there is NAT.
    pub fn with_nat_events(mut self, logging: NatLogging, outlet: Arc<dyn RecordOutlet>) -> Self {
        let names_vrfs = self.router.vrfs.is_some();
        if let Some(nat) = &self.nat {
            nat.stage.set_logging(Some(logging));
            self.nat_log = Some(NatLog { outlet, logging, names_vrfs });
        }
        self
    }

    /// Reports pending events. Called a few times a second, and at the end.
    pub fn send_nat_events(&self) {
        if let (Some(log), Some(nat)) = (&self.nat_log, &self.nat) {
            log.drain(&nat.stage);
            log.outlet.flush();
        }
    }

    /// Reports the remaining sessions and flows. No packet may be in the plan, and none may follow.
    pub fn end(&self) {
        self.send_end_of_nat();
        if let Some(flows) = self.flows() {
            flows.flush();
        }
    }

    /// Reports all sessions and blocks as if they ended now. No packet may be in the plan, and none may follow.
    pub fn send_end_of_nat(&self) {
        if let (Some(_), Some(nat)) = (&self.nat_log, &self.nat) {
            nat.stage.log_end_of_all();
            self.send_nat_events();
        }
    }
}
