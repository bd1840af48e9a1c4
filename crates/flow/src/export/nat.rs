//! NAT events (RFC 8158): data records with a template for each kind of event.

use super::shape::{DATA_TEMPLATES, TemplateField, field};
use std::net::{IpAddr, Ipv4Addr};
use thalweg_wire::netflow::element::*;

/// Elements that only these records use.
const NAT_QUOTA_EXCEEDED_EVENT: u16 = 466;
const MAX_SESSION_ENTRIES: u16 = 471;
const MAX_BIB_ENTRIES: u16 = 472;
const MAX_ENTRIES_PER_USER: u16 = 473;
const MAX_SUBSCRIBERS: u16 = 474;
const MAX_FRAGMENTS_PENDING_REASSEMBLY: u16 = 475;

const FIRST_TEMPLATE: u16 = 512;
/// Kinds of records, each with its template: half of them say the subscriber's VRF.
const KINDS: u16 = 28;

/// A NAT session, NAT44 or NAT64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatSession {
    /// Whether the session began; otherwise it ended.
    pub created: bool,
    pub protocol: u8,
    /// The subscriber's VRF, if there are several.
    pub vrf: Option<u32>,
    /// The subscriber's address.
    pub src: IpAddr,
    /// The subscriber's port.
    pub src_port: u16,
    /// Source address after translation.
    pub post_src: Ipv4Addr,
    pub post_src_port: u16,
    /// Destination address as the subscriber sees it, of the same family as `src`.
    pub dst: IpAddr,
    /// Destination port as the subscriber sees it.
    pub dst_port: u16,
    /// Destination address after translation.
    pub post_dst: Ipv4Addr,
    pub post_dst_port: u16,
}

/// A limit that was reached (RFC 8158, table 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    Sessions,
    Bindings,
    /// Sessions or bindings of one subscriber, in its VRF if there are several.
    Subscriber(IpAddr, Option<u32>),
    Subscribers,
    /// Fragments that wait for others.
    Fragments,
}

/// An event of a NAT. `time_ns` is in nanoseconds since the epoch; messages have milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatEvent {
    /// A session began or ended.
    Session { time_ns: u64, session: NatSession },
    /// A binding (RFC 8158: BIB entry) began or ended: it maps an inside endpoint to its public endpoint for
    /// any destination.
    Binding {
        time_ns: u64,
        /// Whether it began; otherwise it ended.
        created: bool,
        protocol: u8,
        /// The subscriber's VRF, if there are several.
        vrf: Option<u32>,
        /// The subscriber's address and port.
        src: (IpAddr, u16),
        /// Address and port after translation.
        post_src: (Ipv4Addr, u16),
    },
    /// A subscriber received a block of ports or returned it.
    PortBlock {
        time_ns: u64,
        allocated: bool,
        /// The subscriber's VRF, if there are several.
        vrf: Option<u32>,
        subscriber: IpAddr,
        public: Ipv4Addr,
        /// First and last port.
        ports: (u16, u16),
        /// The pool that the public address is in.
        pool: u32,
    },
    /// All ports of a public address are in use.
    PortsExhausted {
        time_ns: u64,
        /// The exhausted address.
        public: Ipv4Addr,
        protocol: u8,
    },
    /// All addresses of a pool are in use.
    AddressesExhausted { time_ns: u64, pool: u32 },
    QuotaExceeded {
        time_ns: u64,
        quota: Quota,
        /// The value of the limit.
        limit: u32,
    },
}

impl NatEvent {
    /// Shifts its time, to correct a clock that is ahead or behind.
    pub fn shift_time(&mut self, shift_ns: i64) {
        let (Self::Session { time_ns, .. }
        | Self::Binding { time_ns, .. }
        | Self::PortBlock { time_ns, .. }
        | Self::PortsExhausted { time_ns, .. }
        | Self::AddressesExhausted { time_ns, .. }
        | Self::QuotaExceeded { time_ns, .. }) = self;
        *time_ns = time_ns.saturating_add_signed(shift_ns);
    }

    /// The subscriber's VRF, if the event concerns one and there are several.
    pub(super) fn vrf(&self) -> Option<u32> {
        match self {
            Self::Session { session, .. } => session.vrf,
            Self::Binding { vrf, .. } | Self::PortBlock { vrf, .. } => *vrf,
            Self::QuotaExceeded { quota: Quota::Subscriber(_, vrf), .. } => *vrf,
            Self::PortsExhausted { .. } | Self::AddressesExhausted { .. } | Self::QuotaExceeded { .. } => {
                None
            }
        }
    }

    /// The subscriber, if the event concerns one.
    pub fn subscriber(&self) -> Option<IpAddr> {
        match self {
            Self::Session { session, .. } => Some(session.src),
            Self::Binding { src, .. } => Some(src.0),
            Self::PortBlock { subscriber, .. } => Some(*subscriber),
            Self::QuotaExceeded { quota: Quota::Subscriber(subscriber, _), .. } => Some(*subscriber),
            Self::PortsExhausted { .. } | Self::AddressesExhausted { .. } | Self::QuotaExceeded { .. } => {
                None
            }
        }
    }
}

/// The fields of a record, in order: element, bytes and value go to the function.
struct Fields<F>(F);

impl<F: FnMut(TemplateField, u128)> Fields<F> {
    fn put(&mut self, element: u16, bytes: u16, value: impl Into<u128>) {
        (self.0)(field(element, bytes), value.into());
    }

    fn head(&mut self, time_ns: u64, event: u8) {
        self.put(OBSERVATION_TIME_MILLISECONDS, 8, time_ns / 1_000_000);
        self.put(NAT_EVENT, 1, event);
    }

    /// The subscriber's address, behind its VRF.
    fn source(&mut self, vrf: Option<u32>, address: IpAddr) {
        if let Some(vrf) = vrf {
            self.put(INGRESS_VRFID, 4, vrf);
        }
        self.address(SOURCE_IPV4_ADDRESS, SOURCE_IPV6_ADDRESS, address);
    }

    fn address(&mut self, ipv4: u16, ipv6: u16, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.put(ipv4, 4, v4.to_bits()),
            IpAddr::V6(v6) => self.put(ipv6, 16, v6.to_bits()),
        }
    }

    /// Puts the fields of an event; returns its kind of record, from 0. Those that say a VRF follow the others.
    fn event(&mut self, event: &NatEvent) -> u16 {
        self.fields(event) + if event.vrf().is_some() { KINDS / 2 } else { 0 }
    }

    fn fields(&mut self, event: &NatEvent) -> u16 {
        match *event {
            NatEvent::Session { time_ns, session } => self.session(time_ns, &session),
            NatEvent::Binding { time_ns, created, protocol, vrf, src, post_src } => {
                let is_ipv6 = src.0.is_ipv6();
                self.head(time_ns, if is_ipv6 { 10 } else { 8 } + u8::from(!created));
                self.put(PROTOCOL_IDENTIFIER, 1, protocol);
                self.source(vrf, src.0);
                self.put(SOURCE_TRANSPORT_PORT, 2, src.1);
                self.put(POST_NAT_SOURCE_IPV4_ADDRESS, 4, post_src.0.to_bits());
                self.put(POST_NAPT_SOURCE_TRANSPORT_PORT, 2, post_src.1);
                12 + u16::from(is_ipv6)
            }
            NatEvent::PortBlock { time_ns, allocated, vrf, subscriber, public, ports, pool } => {
                self.head(time_ns, if allocated { 16 } else { 17 });
                self.source(vrf, subscriber);
                self.put(POST_NAT_SOURCE_IPV4_ADDRESS, 4, public.to_bits());
                self.put(PORT_RANGE_START, 2, ports.0);
                self.put(PORT_RANGE_END, 2, ports.1);
                self.put(NAT_POOL_ID, 4, pool);
                2 + u16::from(subscriber.is_ipv6())
            }
            NatEvent::PortsExhausted { time_ns, public, protocol } => {
                self.head(time_ns, 12);
                self.put(POST_NAT_SOURCE_IPV4_ADDRESS, 4, public.to_bits());
                self.put(PROTOCOL_IDENTIFIER, 1, protocol);
                4
            }
            NatEvent::AddressesExhausted { time_ns, pool } => {
                self.head(time_ns, 3);
                self.put(NAT_POOL_ID, 4, pool);
                5
            }
            NatEvent::QuotaExceeded { time_ns, quota, limit } => {
                self.head(time_ns, 13);
                let (code, element, kind) = match quota {
                    Quota::Sessions => (1u32, MAX_SESSION_ENTRIES, 6),
                    Quota::Bindings => (2, MAX_BIB_ENTRIES, 7),
                    Quota::Subscriber(address, _) => {
                        (3, MAX_ENTRIES_PER_USER, 8 + u16::from(address.is_ipv6()))
                    }
                    Quota::Subscribers => (4, MAX_SUBSCRIBERS, 10),
                    Quota::Fragments => (5, MAX_FRAGMENTS_PENDING_REASSEMBLY, 11),
                };
                self.put(NAT_QUOTA_EXCEEDED_EVENT, 4, code);
                self.put(element, 4, limit);
                if let Quota::Subscriber(address, vrf) = quota {
                    self.source(vrf, address);
                }
                kind
            }
        }
    }

    fn session(&mut self, time_ns: u64, session: &NatSession) -> u16 {
        let is_64 = session.src.is_ipv6() || session.dst.is_ipv6();
        let wide = |address: IpAddr| match address {
            IpAddr::V4(v4) if is_64 => v4.to_ipv6_mapped().into(),
            address => address,
        };
        self.head(time_ns, if is_64 { 6 } else { 4 } + u8::from(!session.created));
        self.put(PROTOCOL_IDENTIFIER, 1, session.protocol);
        self.source(session.vrf, wide(session.src));
        self.put(SOURCE_TRANSPORT_PORT, 2, session.src_port);
        self.put(POST_NAT_SOURCE_IPV4_ADDRESS, 4, session.post_src.to_bits());
        self.put(POST_NAPT_SOURCE_TRANSPORT_PORT, 2, session.post_src_port);
        self.address(DESTINATION_IPV4_ADDRESS, DESTINATION_IPV6_ADDRESS, wide(session.dst));
        self.put(DESTINATION_TRANSPORT_PORT, 2, session.dst_port);
        self.put(POST_NAT_DESTINATION_IPV4_ADDRESS, 4, session.post_dst.to_bits());
        self.put(POST_NAPT_DESTINATION_TRANSPORT_PORT, 2, session.post_dst_port);
        u16::from(is_64)
    }
}

/// Appends the event's record; returns the number of its template.
pub(super) fn write(event: &NatEvent, out: &mut Vec<u8>) -> u16 {
    let put = |field: TemplateField, value: u128| {
        out.extend_from_slice(&value.to_be_bytes()[16 - usize::from(field.bytes)..]);
    };
    FIRST_TEMPLATE + Fields(put).event(event)
}

/// The template of such events.
pub(super) fn template(event: &NatEvent) -> Vec<TemplateField> {
    let mut fields = Vec::new();
    Fields(|field, _| fields.push(field)).event(event);
    fields
}

const _: () = assert!(FIRST_TEMPLATE + KINDS <= DATA_TEMPLATES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_says_what_is_written() {
        let four: IpAddr = "10.0.0.1".parse().unwrap();
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        let public = Ipv4Addr::new(192, 0, 2, 1);
        let session = |vrf, src, dst| NatSession {
            created: true,
            protocol: 6,
            vrf,
            src,
            src_port: 1,
            post_src: public,
            post_src_port: 2,
            dst,
            dst_port: 3,
            post_dst: public,
            post_dst_port: 4,
        };
        let quota = |quota| NatEvent::QuotaExceeded { time_ns: 0, quota, limit: 7 };
        let block = |vrf, subscriber| NatEvent::PortBlock {
            time_ns: 0,
            allocated: true,
            vrf,
            subscriber,
            public,
            ports: (1024, 2047),
            pool: 0,
        };
        let binding = |vrf, address| NatEvent::Binding {
            time_ns: 0,
            created: true,
            protocol: 17,
            vrf,
            src: (address, 1),
            post_src: (public, 2),
        };
        let events = |vrf| {
            [
                NatEvent::Session { time_ns: 0, session: session(vrf, four, four) },
                NatEvent::Session { time_ns: 0, session: session(vrf, six, six) },
                block(vrf, four),
                block(vrf, six),
                NatEvent::PortsExhausted { time_ns: 0, public, protocol: 17 },
                NatEvent::AddressesExhausted { time_ns: 0, pool: 1 },
                quota(Quota::Sessions),
                quota(Quota::Bindings),
                quota(Quota::Subscriber(four, vrf)),
                quota(Quota::Subscriber(six, vrf)),
                quota(Quota::Subscribers),
                quota(Quota::Fragments),
                binding(vrf, four),
                binding(vrf, six),
            ]
        };
        let (plain, in_vrf) = (events(None), events(Some(3)));
        assert_eq!(plain.len() + in_vrf.len(), usize::from(KINDS));
        for (event, number) in plain.iter().chain(&in_vrf).zip(FIRST_TEMPLATE..) {
            let mut record = Vec::new();
            let names = template(event).iter().any(|field| field.element == INGRESS_VRFID);
            assert_eq!(names, event.vrf().is_some());
            let of_kind =
                if names { number } else { FIRST_TEMPLATE + (number - FIRST_TEMPLATE) % (KINDS / 2) };
            assert_eq!(write(event, &mut record), of_kind);
            let bytes: u16 = template(event).iter().map(|field| field.bytes).sum();
            assert_eq!(usize::from(bytes), record.len(), "{event:?}");
        }
    }
}
