//! Handles received frames: answers requests, and learns from replies within limits.

use super::arp;
use super::config::is_neighbor_address;
use super::entry::{Entry, NeighborState as State};
use super::frame::Frame;
use super::nd::{self, Message, Received};
use super::store::Key;
use super::{Ignored, NeighborTable, PortIdentity, Unreachable};
use crate::rate_limit::Rate;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_wire::arp::{ArpOperation, ArpRepr, ArpView};
use thalweg_wire::{EtherType, MacAddr};

/// The minimum time between two defenses of an address (RFC 5227 2.4 c, DEFEND_INTERVAL).
const DEFENSES: Rate = Rate { interval_ns: 10_000_000_000, burst: 1 };
/// The minimum time between router advertisements to all (RFC 4861 10, MIN_DELAY_BETWEEN_RAS), and the longest
/// random delay of solicited ones (MAX_RA_DELAY_TIME).
const ADVERTISEMENTS_APART_NS: u64 = 3_000_000_000;
const ADVERTISEMENT_DELAY_MAX_MS: u32 = 500;

/// What a message says about a neighbor.
#[derive(Clone, Copy, Debug)]
struct Said {
    mac: Option<MacAddr>,
    /// It answers a solicitation, so both directions work.
    solicited: bool,
    /// Its MAC address replaces another.
    overrides: bool,
    /// It may be a new neighbor, because it asked for one of our addresses.
    may_be_new: bool,
    is_router: Option<bool>,
}

impl<P: AsRef<[u8]>> NeighborTable<P> {
    /// Handles an ARP frame from a port: a complete Ethernet frame, with or without a VLAN tag.
    pub fn handle_arp(&mut self, port: u16, frame: &[u8], now_ns: u64) -> Result<(), Ignored> {
        let result = self.receive_arp(port, frame, now_ns);
        self.count(result)
    }

    /// Handles a frame with an ICMPv6 packet from a port. Returns [`Ignored::NotNeighborDiscovery`] for other
    /// packets, such as echo requests, which the caller handles.
    pub fn handle_nd(&mut self, port: u16, frame: &[u8], now_ns: u64) -> Result<(), Ignored> {
        let result = self.receive_nd(port, frame, now_ns);
        if result == Err(Ignored::NotNeighborDiscovery) { result } else { self.count(result) }
    }

    fn count(&mut self, result: Result<(), Ignored>) -> Result<(), Ignored> {
        match result {
            Ok(()) => self.counters.heard += 1,
            Err(why) => self.counters.ignored[why.index()] += 1,
        }
        result
    }

    /// The checks that ARP and Neighbor Discovery have in common.
    fn open<'a>(&self, port: u16, frame: &'a [u8]) -> Result<(PortIdentity, Frame<'a>), Ignored> {
        let identity = self.port(port).ok_or(Ignored::PortDown)?.clone();
        let frame = Frame::parse(frame).map_err(|_| Ignored::Malformed)?;
        if frame.vlan.is_some() && frame.vlan != identity.vlan {
            return Err(Ignored::WrongVlan);
        }
        if identity.has_mac(frame.source) {
            return Err(Ignored::OwnFrame);
        }
        if !frame.source.is_unicast() {
            return Err(Ignored::InvalidMac);
        }
        Ok((identity, frame))
    }

    fn receive_arp(&mut self, port: u16, frame: &[u8], now_ns: u64) -> Result<(), Ignored> {
        let (identity, frame) = self.open(port, frame)?;
        if frame.ether_type != EtherType::ARP {
            return Err(Ignored::NotArp);
        }
        if !identity.has_mac(frame.destination) && !frame.destination.is_broadcast() {
            return Err(Ignored::NotForUs);
        }
        let arp = ArpView::new(frame.payload).map(ArpRepr::from).map_err(|_| Ignored::NotArp)?;
        check_mac(&identity, arp.sender_mac)?;
        let for_us = identity.answers_for(arp.target.into());
        let asks_us = for_us && arp.operation == ArpOperation::Request;
        if identity.answers_for(arp.sender.into()) {
            self.defend(port, &identity, arp.sender.into(), now_ns);
            return Err(Ignored::AddressConflict);
        }
        // RFC 5227 2.1.1: a host probes whether the address is free, and it is not.
        let is_probe = arp.sender == Ipv4Addr::UNSPECIFIED;
        let sender = (port, IpAddr::V4(arp.sender));
        if !is_probe && self.store.get(sender).is_none() && !identity.is_on_link(sender.1) {
            // A host may ask in the name of an address that it has elsewhere, of a service on its loopback interface
            // for example, as Linux does: it gets an answer but is not learned.
            if asks_us && is_neighbor_address(sender.1) {
                self.reply_arp(port, &identity, &arp);
            }
            return Err(Ignored::NotOnLink);
        }
        if asks_us {
            self.reply_arp(port, &identity, &arp);
        }
        if is_probe {
            return if asks_us { Ok(()) } else { Err(Ignored::NotForUs) };
        }
        let answers_us = for_us
            && arp.operation == ArpOperation::Reply
            && identity.has_mac(arp.target_mac)
            && identity.has_mac(frame.destination);
        let said = Said {
            mac: Some(arp.sender_mac),
            solicited: answers_us,
            overrides: true,
            may_be_new: asks_us,
            is_router: None,
        };
        let unknown = if answers_us { Ignored::Unasked } else { Ignored::NotForUs };
        self.learn(sender, said, unknown, now_ns)
    }

    fn reply_arp(&mut self, port: u16, identity: &PortIdentity, arp: &ArpRepr) {
        let reply = ArpRepr {
            operation: ArpOperation::Reply,
            sender_mac: identity.mac_of(arp.target.into()),
            sender: arp.target,
            target_mac: arp.sender_mac,
            target: arp.sender,
        };
        self.counters.replies_sent += 1;
        self.send(port, arp::frame(&reply, arp.sender_mac, identity.vlan));
    }

    fn receive_nd(&mut self, port: u16, frame: &[u8], now_ns: u64) -> Result<(), Ignored> {
        let (identity, frame) = self.open(port, frame)?;
        if frame.ether_type != EtherType::IPV6 {
            return Err(Ignored::NotNeighborDiscovery);
        }
        let received = Received::parse(frame.payload)?;
        let to_us = identity.has_mac(frame.destination) || frame.destination.0[..2] == [0x33, 0x33];
        let to_ours = received.destination.is_multicast() || identity.owns(received.destination.into());
        if !to_us || !to_ours {
            return Err(Ignored::NotForUs);
        }
        let source = received.source;
        match received.message {
            Message::Solicitation { target, source_mac } => {
                let from = source_mac.unwrap_or(frame.source);
                self.receive_solicitation(port, &identity, (source, target), (source_mac, from), now_ns)
            }
            Message::Advertisement { target, target_mac, router, solicited, overrides } => {
                if identity.owns(target.into()) {
                    self.defend(port, &identity, target.into(), now_ns);
                    return Err(Ignored::AddressConflict);
                }
                if let Some(mac) = target_mac {
                    check_mac(&identity, mac)?;
                }
                let said = Said {
                    mac: target_mac,
                    solicited,
                    overrides,
                    may_be_new: false,
                    is_router: Some(router),
                };
                self.learn((port, target.into()), said, Ignored::Unasked, now_ns)
            }
            Message::RouterSolicitation { source_mac } => {
                self.receive_router_solicitation(port, &identity, source, source_mac, now_ns)
            }
        }
    }

    /// Handles a neighbor solicitation (RFC 4861 7.2.3 and 7.2.4).
    fn receive_solicitation(
        &mut self,
        port: u16,
        identity: &PortIdentity,
        (source, target): (Ipv6Addr, Ipv6Addr),
        (source_mac, reply_to): (Option<MacAddr>, MacAddr),
        now_ns: u64,
    ) -> Result<(), Ignored> {
        if !identity.owns(target.into()) {
            return Err(Ignored::NotForUs);
        }
        if source.is_unspecified() {
            // Duplicate address detection: tell all that the address is taken.
            self.announce(port, identity, target.into());
            return Ok(());
        }
        if identity.owns(source.into()) {
            self.defend(port, identity, source.into(), now_ns);
            return Err(Ignored::AddressConflict);
        }
        if !identity.is_on_link(source.into()) {
            return Err(Ignored::NotOnLink);
        }
        check_mac(identity, reply_to)?;
        self.counters.replies_sent += 1;
        self.send(port, nd::advertisement_frame(identity, target, source, reply_to, true));
        let Some(mac) = source_mac else { return Ok(()) };
        let said =
            Said { mac: Some(mac), solicited: false, overrides: true, may_be_new: true, is_router: None };
        self.learn((port, source.into()), said, Ignored::NotForUs, now_ns)
    }

    /// Handles a router solicitation (RFC 4861 6.2.6).
    fn receive_router_solicitation(
        &mut self,
        port: u16,
        identity: &PortIdentity,
        source: Ipv6Addr,
        source_mac: Option<MacAddr>,
        now_ns: u64,
    ) -> Result<(), Ignored> {
        let wait_ns = u64::from(self.chance.below(ADVERTISEMENT_DELAY_MAX_MS)) * 1_000_000;
        let Some(state) = self.ports.get_mut(&port) else { return Err(Ignored::PortDown) };
        if !identity.router_advertisements {
            return Err(Ignored::NotForUs);
        }
        let apart_ns = state.advertised_ns.map_or(0, |sent| sent.saturating_add(ADVERTISEMENTS_APART_NS));
        state.advertise_ns = state.advertise_ns.min(now_ns.saturating_add(wait_ns).max(apart_ns));
        let Some(mac) = source_mac else { return Ok(()) };
        check_mac(identity, mac)?;
        if !identity.is_on_link(source.into()) {
            return Err(Ignored::NotOnLink);
        }
        let said = Said {
            mac: Some(mac),
            solicited: false,
            overrides: true,
            may_be_new: true,
            is_router: Some(false),
        };
        self.learn((port, source.into()), said, Ignored::NotForUs, now_ns)
    }

    /// Defends one of our addresses that another neighbor uses, at a limited rate.
    fn defend(&mut self, port: u16, identity: &PortIdentity, address: IpAddr, now_ns: u64) {
        let may = self.ports.get_mut(&port).is_some_and(|port| port.defenses.take(DEFENSES, now_ns));
        if may {
            self.announce(port, identity, address);
        }
    }

    /// Updates an entry according to RFC 4861 7.2.3, 7.2.5 and appendix C; returns `unknown` if there is none and
    /// none is created.
    fn learn(&mut self, key: Key, said: Said, unknown: Ignored, now_ns: u64) -> Result<(), Ignored> {
        let Some(entry) = self.store.get(key) else {
            let (true, Some(mac)) = (said.may_be_new, said.mac) else { return Err(unknown) };
            if !self.admit_resolved(key.0, false) {
                return Err(Ignored::TableFull);
            }
            self.store.insert(key, Entry::new(State::Incomplete, mac, false, now_ns));
            self.set_mac(key, mac, now_ns);
            self.set_stale(key, now_ns);
            self.note_router(key, said.is_router);
            return Ok(());
        };
        let (state, known, is_wanted) = (entry.state, entry.mac, entry.is_wanted);
        let other = said.mac.filter(|&mac| mac != known);
        let locked =
            entry.changed_ns.is_some_and(|at| now_ns.saturating_sub(at) < self.config.change_lock_ns);
        match state {
            State::Static if other.is_some() => return Err(Ignored::AddressConflict),
            State::Static => {}
            State::Incomplete | State::Failed => {
                let Some(mac) = said.mac else { return Err(Ignored::Malformed) };
                if !is_wanted && !self.admit_resolved(key.0, true) {
                    // Waiting packets are still forwarded, but the neighbor is not stored.
                    self.release(key, mac);
                    self.remove(key, Unreachable::NoAnswer);
                    return Err(Ignored::TableFull);
                }
                self.set_mac(key, mac, now_ns);
                if said.solicited {
                    self.set_reachable(key, now_ns)
                } else {
                    self.set_stale(key, now_ns)
                }
                self.release(key, mac);
            }
            _ if other.is_some() && !said.overrides => {
                // 7.2.5 I: the old address is kept, but no longer trusted.
                if state == State::Reachable {
                    self.set_stale(key, now_ns);
                }
                return Ok(());
            }
            _ if other.is_some() && locked => {
                if matches!(state, State::Reachable | State::Stale) {
                    self.set_stale(key, now_ns);
                    self.used(key.0, key.1, now_ns);
                }
                return Err(Ignored::ChangedTooOften);
            }
            _ => {
                if let Some(mac) = other {
                    self.set_mac(key, mac, now_ns);
                }
                if said.solicited {
                    self.set_reachable(key, now_ns);
                } else if other.is_some() {
                    self.set_stale(key, now_ns);
                }
            }
        }
        self.note_router(key, said.is_router);
        Ok(())
    }

    fn note_router(&mut self, key: Key, is_router: Option<bool>) {
        if let Some(is_router) = is_router {
            self.store.update(key, |entry| entry.is_router = is_router);
        }
    }
}

fn check_mac(identity: &PortIdentity, mac: MacAddr) -> Result<(), Ignored> {
    match mac {
        mac if identity.has_mac(mac) => Err(Ignored::OwnFrame),
        mac if !mac.is_unicast() => Err(Ignored::InvalidMac),
        _ => Ok(()),
    }
}
