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

/// A NAT session, NAT44 or NAT64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatSession {
    /// Whether the session began; otherwise it ended.
    pub created: bool,
    pub protocol: u8,
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
    /// Sessions or bindings of one subscriber.
    Subscriber(IpAddr),
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
        /// The subscriber's address and port.
        src: (IpAddr, u16),
        /// Address and port after translation.
        post_src: (Ipv4Addr, u16),
    },
    /// A subscriber received a block of ports or returned it.
    PortBlock {
        time_ns: u64,
        allocated: bool,
        subscriber: IpAddr,
        public: Ipv4Addr,
        /// First and last port.
        ports: (u16, u16),
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

    /// The subscriber, if the event concerns one.
    pub fn subscriber(&self) -> Option<IpAddr> {
        match self {
            Self::Session { session, .. } => Some(session.src),
            Self::Binding { src, .. } => Some(src.0),
            Self::PortBlock { subscriber, .. } => Some(*subscriber),
            Self::QuotaExceeded { quota: Quota::Subscriber(subscriber), .. } => Some(*subscriber),
            Self::PortsExhausted { .. } | Self::AddressesExhausted { .. } | Self::QuotaExceeded { .. } => {
                None
            }
        }
    }
}

/// Record layouts, each with its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Session44,
    Session64,
    PortBlock4,
    PortBlock6,
    PortsExhausted,
    AddressesExhausted,
    QuotaSessions,
    QuotaBindings,
    QuotaSubscriber4,
    QuotaSubscriber6,
    QuotaSubscribers,
    QuotaFragments,
    Binding44,
    Binding64,
}

impl Layout {
    pub(super) const ALL: [Self; 14] = [
        Self::Session44,
        Self::Session64,
        Self::PortBlock4,
        Self::PortBlock6,
        Self::PortsExhausted,
        Self::AddressesExhausted,
        Self::QuotaSessions,
        Self::QuotaBindings,
        Self::QuotaSubscriber4,
        Self::QuotaSubscriber6,
        Self::QuotaSubscribers,
        Self::QuotaFragments,
        Self::Binding44,
        Self::Binding64,
    ];

    pub(super) fn template_id(self) -> u16 {
        FIRST_TEMPLATE + self as u16
    }

    /// The fields of the template, in the order of [`write`].
    pub(super) fn fields(self) -> Vec<TemplateField> {
        let mut fields = vec![field(OBSERVATION_TIME_MILLISECONDS, 8), field(NAT_EVENT, 1)];
        let quota = |limit| [field(NAT_QUOTA_EXCEEDED_EVENT, 4), field(limit, 4)];
        let source = match self {
            Self::Session64 | Self::Binding64 | Self::PortBlock6 | Self::QuotaSubscriber6 => {
                field(SOURCE_IPV6_ADDRESS, 16)
            }
            _ => field(SOURCE_IPV4_ADDRESS, 4),
        };
        match self {
            Self::Session44 | Self::Session64 => fields.extend([
                field(PROTOCOL_IDENTIFIER, 1),
                source,
                field(SOURCE_TRANSPORT_PORT, 2),
                field(POST_NAT_SOURCE_IPV4_ADDRESS, 4),
                field(POST_NAPT_SOURCE_TRANSPORT_PORT, 2),
                match self {
                    Self::Session64 => field(DESTINATION_IPV6_ADDRESS, 16),
                    _ => field(DESTINATION_IPV4_ADDRESS, 4),
                },
                field(DESTINATION_TRANSPORT_PORT, 2),
                field(POST_NAT_DESTINATION_IPV4_ADDRESS, 4),
                field(POST_NAPT_DESTINATION_TRANSPORT_PORT, 2),
            ]),
            Self::Binding44 | Self::Binding64 => fields.extend([
                field(PROTOCOL_IDENTIFIER, 1),
                source,
                field(SOURCE_TRANSPORT_PORT, 2),
                field(POST_NAT_SOURCE_IPV4_ADDRESS, 4),
                field(POST_NAPT_SOURCE_TRANSPORT_PORT, 2),
            ]),
            Self::PortBlock4 | Self::PortBlock6 => fields.extend([
                source,
                field(POST_NAT_SOURCE_IPV4_ADDRESS, 4),
                field(PORT_RANGE_START, 2),
                field(PORT_RANGE_END, 2),
            ]),
            Self::PortsExhausted => {
                fields.extend([field(POST_NAT_SOURCE_IPV4_ADDRESS, 4), field(PROTOCOL_IDENTIFIER, 1)]);
            }
            Self::AddressesExhausted => fields.push(field(NAT_POOL_ID, 4)),
            Self::QuotaSessions => fields.extend(quota(MAX_SESSION_ENTRIES)),
            Self::QuotaBindings => fields.extend(quota(MAX_BIB_ENTRIES)),
            Self::QuotaSubscriber4 | Self::QuotaSubscriber6 => {
                fields.extend(quota(MAX_ENTRIES_PER_USER));
                fields.push(source);
            }
            Self::QuotaSubscribers => fields.extend(quota(MAX_SUBSCRIBERS)),
            Self::QuotaFragments => fields.extend(quota(MAX_FRAGMENTS_PENDING_REASSEMBLY)),
        }
        fields
    }
}

/// Appends the record of an event; returns its layout.
pub(super) fn write(event: &NatEvent, out: &mut Vec<u8>) -> Layout {
    match event {
        NatEvent::Session { time_ns, session } => write_session(*time_ns, session, out),
        NatEvent::Binding { time_ns, created, protocol, src, post_src } => {
            // RFC 8158, table 2: 8 and 9 for NAT44, 10 and 11 for NAT64.
            head(*time_ns, if src.0.is_ipv6() { 10 } else { 8 } + u8::from(!created), out);
            out.push(*protocol);
            put_address(src.0, out);
            out.extend_from_slice(&src.1.to_be_bytes());
            out.extend_from_slice(&post_src.0.octets());
            out.extend_from_slice(&post_src.1.to_be_bytes());
            if src.0.is_ipv6() { Layout::Binding64 } else { Layout::Binding44 }
        }
        NatEvent::PortBlock { time_ns, allocated, subscriber, public, ports } => {
            head(*time_ns, if *allocated { 16 } else { 17 }, out);
            put_address(*subscriber, out);
            out.extend_from_slice(&public.octets());
            out.extend_from_slice(&ports.0.to_be_bytes());
            out.extend_from_slice(&ports.1.to_be_bytes());
            if subscriber.is_ipv6() { Layout::PortBlock6 } else { Layout::PortBlock4 }
        }
        NatEvent::PortsExhausted { time_ns, public, protocol } => {
            head(*time_ns, 12, out);
            out.extend_from_slice(&public.octets());
            out.push(*protocol);
            Layout::PortsExhausted
        }
        NatEvent::AddressesExhausted { time_ns, pool } => {
            head(*time_ns, 3, out);
            out.extend_from_slice(&pool.to_be_bytes());
            Layout::AddressesExhausted
        }
        NatEvent::QuotaExceeded { time_ns, quota, limit } => write_quota(*time_ns, *quota, *limit, out),
    }
}

fn write_session(time_ns: u64, session: &NatSession, out: &mut Vec<u8>) -> Layout {
    let is_64 = session.src.is_ipv6() || session.dst.is_ipv6();
    // RFC 8158, table 2: 4 and 5 for NAT44, 6 and 7 for NAT64.
    head(time_ns, if is_64 { 6 } else { 4 } + u8::from(!session.created), out);
    let put = |address: IpAddr, out: &mut Vec<u8>| match address {
        IpAddr::V4(v4) if is_64 => put_address(IpAddr::V6(v4.to_ipv6_mapped()), out),
        address => put_address(address, out),
    };
    out.push(session.protocol);
    put(session.src, out);
    out.extend_from_slice(&session.src_port.to_be_bytes());
    out.extend_from_slice(&session.post_src.octets());
    out.extend_from_slice(&session.post_src_port.to_be_bytes());
    put(session.dst, out);
    out.extend_from_slice(&session.dst_port.to_be_bytes());
    out.extend_from_slice(&session.post_dst.octets());
    out.extend_from_slice(&session.post_dst_port.to_be_bytes());
    if is_64 { Layout::Session64 } else { Layout::Session44 }
}

fn write_quota(time_ns: u64, quota: Quota, limit: u32, out: &mut Vec<u8>) -> Layout {
    let (code, layout) = match quota {
        Quota::Sessions => (1u32, Layout::QuotaSessions),
        Quota::Bindings => (2, Layout::QuotaBindings),
        Quota::Subscriber(IpAddr::V4(_)) => (3, Layout::QuotaSubscriber4),
        Quota::Subscriber(IpAddr::V6(_)) => (3, Layout::QuotaSubscriber6),
        Quota::Subscribers => (4, Layout::QuotaSubscribers),
        Quota::Fragments => (5, Layout::QuotaFragments),
    };
    head(time_ns, 13, out);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&limit.to_be_bytes());
    if let Quota::Subscriber(address) = quota {
        put_address(address, out);
    }
    layout
}

fn head(time_ns: u64, event: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&(time_ns / 1_000_000).to_be_bytes());
    out.push(event);
}

fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
}

const _: () = assert!(FIRST_TEMPLATE + Layout::ALL.len() as u16 <= DATA_TEMPLATES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_says_what_is_written() {
        let four: IpAddr = "10.0.0.1".parse().unwrap();
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        let public = Ipv4Addr::new(192, 0, 2, 1);
        let session = |src, dst| NatSession {
            created: true,
            protocol: 6,
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
        let block = |subscriber| NatEvent::PortBlock {
            time_ns: 0,
            allocated: true,
            subscriber,
            public,
            ports: (1024, 2047),
        };
        let binding = |address| NatEvent::Binding {
            time_ns: 0,
            created: true,
            protocol: 17,
            src: (address, 1),
            post_src: (public, 2),
        };
        let events = [
            NatEvent::Session { time_ns: 0, session: session(four, four) },
            NatEvent::Session { time_ns: 0, session: session(six, six) },
            block(four),
            block(six),
            NatEvent::PortsExhausted { time_ns: 0, public, protocol: 17 },
            NatEvent::AddressesExhausted { time_ns: 0, pool: 1 },
            quota(Quota::Sessions),
            quota(Quota::Bindings),
            quota(Quota::Subscriber(four)),
            quota(Quota::Subscriber(six)),
            quota(Quota::Subscribers),
            quota(Quota::Fragments),
            binding(four),
            binding(six),
        ];
        for (event, layout) in events.iter().zip(Layout::ALL) {
            let mut record = Vec::new();
            assert_eq!(write(event, &mut record), layout);
            let bytes: u16 = layout.fields().iter().map(|field| field.bytes).sum();
            assert_eq!(usize::from(bytes), record.len(), "{layout:?}");
        }
    }
}
