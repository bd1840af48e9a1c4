//! NAT events as records without packets, which a dataset keeps: those that an importer makes of their messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_wire::ip_protocol::{ICMP, ICMPV6};

use super::nat::{NatEvent, NatSession, Quota};

use crate::record::{Counters, Event, FlowKey, FlowRecord, NO_INTERFACE, Translation};

/// What an event tells about; 0 for what it does not.
struct Told {
    event: Event,
    time_ns: u64,
    protocol: u8,
    src: (IpAddr, u16),
    dst: (IpAddr, u16),
    /// Source and destination behind NAT, as far as they differ.
    post_src: (IpAddr, u16),
    post_dst: (IpAddr, u16),
    block_end: Option<u16>,
}

impl NatEvent {
    /// The record that tells of it. Its meter is not in it.
    pub fn record(&self) -> FlowRecord {
        let told = self.told();
        let is_icmp = matches!(told.protocol, ICMP | ICMPV6);
        let key = FlowKey {
            src: told.src.0,
            dst: told.dst.0,
            // Of ICMP a record has type and code in place of ports.
            src_port: if is_icmp { 0 } else { told.src.1 },
            dst_port: told.dst.1,
            protocol: told.protocol,
            traffic_class: 0,
            ingress: NO_INTERFACE,
            vlan: 0,
            mpls_label: None,
        };
        let counters = Counters { first_ns: told.time_ns, last_ns: told.time_ns, ..Counters::default() };
        let mut record = FlowRecord::new(key, counters, None);
        let translation = Translation {
            src: told.post_src.0,
            dst: told.post_dst.0,
            src_port: told.post_src.1,
            dst_port: told.post_dst.1,
        };
        record.translation = Some(translation).filter(|after| {
            let before =
                Translation { src: key.src, dst: key.dst, src_port: key.src_port, dst_port: key.dst_port };
            *after != before
        });
        record.details.event = Some(told.event);
        record.details.ingress_vrf = self.vrf();
        record.details.nat_block_end = told.block_end;
        record
    }

    fn told(&self) -> Told {
        let nobody = |like: IpAddr| match like {
            IpAddr::V4(_) => (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0),
            IpAddr::V6(_) => (IpAddr::from(Ipv6Addr::UNSPECIFIED), 0),
        };
        let alone = |event, time_ns, src: (IpAddr, u16), post_src| {
            let dst = nobody(src.0);
            Told { event, time_ns, protocol: 0, src, dst, post_src, post_dst: dst, block_end: None }
        };
        let someone = nobody(Ipv4Addr::UNSPECIFIED.into());
        match *self {
            Self::Session { time_ns, session } => told_of(time_ns, &session),
            Self::Binding { time_ns, created, protocol, src, post_src, .. } => {
                let event = if created { Event::NatBindingBegin } else { Event::NatBindingEnd };
                Told { protocol, ..alone(event, time_ns, src, (post_src.0.into(), post_src.1)) }
            }
            Self::PortBlock { time_ns, allocated, subscriber, public, ports, .. } => {
                let event = if allocated { Event::NatBlockBegin } else { Event::NatBlockEnd };
                let block_end = Some(ports.1);
                Told { block_end, ..alone(event, time_ns, (subscriber, 0), (public.into(), ports.0)) }
            }
            Self::PortsExhausted { time_ns, public, protocol } => {
                let told = alone(Event::NatPortsExhausted, time_ns, someone, (public.into(), 0));
                Told { protocol, ..told }
            }
            Self::AddressesExhausted { time_ns, .. } => {
                alone(Event::NatAddressesExhausted, time_ns, someone, someone)
            }
            Self::QuotaExceeded { time_ns, quota, .. } => {
                let src = match quota {
                    Quota::Subscriber(address, _) => (address, 0),
                    Quota::Sessions | Quota::Bindings | Quota::Subscribers | Quota::Fragments => someone,
                };
                alone(Event::NatQuotaExceeded, time_ns, src, src)
            }
        }
    }
}

fn told_of(time_ns: u64, session: &NatSession) -> Told {
    let NatSession { created, protocol, src, src_port, post_src, post_src_port, .. } = *session;
    let NatSession { dst, dst_port, post_dst, post_dst_port, .. } = *session;
    Told {
        event: if created { Event::NatSessionBegin } else { Event::NatSessionEnd },
        time_ns,
        protocol,
        src: (src, src_port),
        dst: (dst, dst_port),
        post_src: (post_src.into(), post_src_port),
        post_dst: (post_dst.into(), post_dst_port),
        block_end: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{ExportOptions, Exporter, Transport, Version};
    use crate::import::Importer;
    use proptest::prelude::*;
    use thalweg_wire::netflow::decode::Source;

    const SECOND_NS: u64 = 1_000_000_000;

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<u32>().prop_map(|bits| Ipv4Addr::from(bits | 1).into()),
            any::<u64>().prop_map(|bits| Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(bits)).into()),
        ]
    }

    fn event() -> impl Strategy<Value = NatEvent> {
        let time = (1..1u64 << 40).prop_map(|ms| ms * 1_000_000);
        let vrf = proptest::option::of(0..9u32);
        let public = (1..u32::MAX).prop_map(Ipv4Addr::from);
        let port = 1..u16::MAX;
        let protocol = prop_oneof![Just(1u8), Just(6), Just(17), Just(58)];
        (
            time,
            vrf,
            (address(), address()),
            (public.clone(), public),
            (port.clone(), port.clone(), port),
            protocol,
            any::<bool>(),
            0..7u8,
        )
            .prop_map(
                |(time_ns, vrf, (src, dst), (post_src, post_dst), (a, b, c), protocol, created, kind)| {
                    match kind {
                        0 | 1 => {
                            let dst = if dst.is_ipv6() == src.is_ipv6() { dst } else { src };
                            let session = NatSession {
                                created,
                                protocol,
                                vrf,
                                src,
                                src_port: a,
                                post_src,
                                post_src_port: b,
                                dst,
                                dst_port: c,
                                post_dst,
                                post_dst_port: c,
                            };
                            NatEvent::Session { time_ns, session }
                        }
                        2 => NatEvent::Binding {
                            time_ns,
                            created,
                            protocol,
                            vrf,
                            src: (src, a),
                            post_src: (post_src, b),
                        },
                        3 => {
                            let ports = (a, a.saturating_add(511));
                            NatEvent::PortBlock {
                                time_ns,
                                allocated: created,
                                vrf,
                                subscriber: src,
                                public: post_src,
                                ports,
                                pool: 3,
                            }
                        }
                        4 => NatEvent::PortsExhausted { time_ns, public: post_src, protocol },
                        5 => NatEvent::AddressesExhausted { time_ns, pool: 1 },
                        _ => {
                            let quotas = [
                                Quota::Sessions,
                                Quota::Bindings,
                                Quota::Subscriber(src, vrf),
                                Quota::Subscribers,
                                Quota::Fragments,
                            ];
                            NatEvent::QuotaExceeded { time_ns, quota: quotas[usize::from(a % 5)], limit: 9 }
                        }
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn records_are_those_of_the_importer(event in event()) {
            let options = ExportOptions::new(Version::Ipfix, Transport::Stream);
            let mut exporter = Exporter::new(&options).unwrap();
            let now_ns = 1_800_000_000 * SECOND_NS;
            exporter.handle_connected(now_ns);
            exporter.handle_nat_events(&[event], now_ns);
            exporter.flush(now_ns);
            let (mut importer, mut message, mut told) = (Importer::default(), Vec::new(), Vec::new());
            while exporter.poll_message(&mut message).is_some() {
                let from = Source { exporter: 1, is_stream: true };
                importer.handle_message(from, &message, 0, &mut told).unwrap();
            }
            let [mut told] = told[..] else { panic!("{told:?}") };
            told.exporter = Default::default();
            prop_assert_eq!(told, event.record());
        }
    }
}
