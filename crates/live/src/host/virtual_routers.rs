//! Takes part in virtual routers (VRRP): sends what [`VirtualRouters`] asks for, and has an Active one's addresses.
//!
//! While a virtual router is Active, its MAC address is among those whose frames the port takes, its addresses lead to
//! this router, and the neighbor table answers for them and has announced them. For everything else they are addresses
//! of other hosts.

use std::net::IpAddr;
use std::sync::Arc;

use thalweg_dataplane::ip_packet::IpPacket;
use thalweg_dataplane::neighbor::PortIdentity;
use thalweg_dataplane::vrrp::{VirtualRouterView, VrrpConfig, VrrpOutput, VrrpState};
use thalweg_ports::live::VirtualMacs;
use thalweg_wire::ethernet::EthernetRepr;
use thalweg_wire::vrrp::{GROUP_V4, GROUP_V6};
use thalweg_wire::{EtherType, MacAddr, ndp};

use super::Host;
use crate::mirror::Delivery;
use crate::punt::Punt;

/// By port, the addresses of virtual routers whose frames the driver takes.
pub(crate) type PortMacs = Vec<(u16, Arc<VirtualMacs>)>;

impl Host {
    /// The virtual routers.
    pub fn virtual_routers(&self) -> impl Iterator<Item = &VirtualRouterView> {
        self.virtual_routers.view()
    }

    /// Adapts the virtual routers of a port to its state.
    pub(super) fn follow_port(&mut self, port: u16, now_ns: u64) {
        let of_port: Vec<(usize, bool)> = self
            .virtual_routers
            .configs()
            .enumerate()
            .filter(|(_, config)| config.port == port)
            .map(|(place, config)| (place, config.is_ipv6()))
            .collect();
        for (place, is_ipv6) in of_port {
            let source = self.neighbors.port(port).and_then(|identity| source_of(identity, is_ipv6));
            self.virtual_routers.set_source(place, source, now_ns);
        }
        self.work_off_virtual_routers(now_ns);
    }

    pub(super) fn run_virtual_routers(&mut self, now_ns: u64) {
        if let Some(standby) = &self.parts.standby {
            self.virtual_routers.hold(standby.holds());
        }
        self.virtual_routers.handle_timer(now_ns);
        self.work_off_virtual_routers(now_ns);
    }

    /// Tells others that this router stops.
    pub(super) fn stop_virtual_routers(&mut self, now_ns: u64) {
        self.virtual_routers.stop(now_ns);
        self.work_off_virtual_routers(now_ns);
    }

    /// Returns whether the packet is an advertisement of a virtual router here.
    pub(super) fn is_advertisement(&mut self, punt: &Punt, now_ns: u64) -> bool {
        let is_ours = self.virtual_routers.handle_packet(punt.port_in, punt.ip_packet(), now_ns);
        self.work_off_virtual_routers(now_ns);
        is_ours
    }

    /// What becomes of a packet for an address that is only a virtual router's; `None` for others. Programs cannot use
    /// such an address; the router itself answers if the virtual router accepts.
    pub(super) fn offer_virtual(&mut self, punt: &Punt, now_ns: u64) -> Option<Delivery> {
        let destination = IpPacket::parse(punt.ip_packet())?.destination;
        let active = self.virtual_routers.view().filter(|view| view.state == VrrpState::Active);
        let of = active.map(|view| &view.config).find(|config| config.addresses.contains(&destination))?;
        let (port, accept) = (of.port, of.accept);
        let is_own = |(own, _): &(IpAddr, u8)| *own == destination;
        if self.neighbors.port(port).is_some_and(|identity| identity.addresses.iter().any(is_own)) {
            return None;
        }
        if !accept {
            return Some(Delivery::NoMirror);
        }
        if let Some(answer) = self.parts.icmp.answer(punt.ip_packet(), punt.came_to_one(), now_ns) {
            self.inject(punt.port_in, answer);
        }
        Some(Delivery::Taken)
    }

    fn work_off_virtual_routers(&mut self, now_ns: u64) {
        while let Some(output) = self.virtual_routers.poll_output() {
            match output {
                VrrpOutput::Send { place, packet } => {
                    let of =
                        self.virtual_routers.configs().nth(place).map(|of| (of.port, of.mac(), of.is_ipv6()));
                    let Some((port, source, is_ipv6)) = of else { continue };
                    let destination = group_mac(is_ipv6);
                    let header =
                        EthernetRepr { destination, source, ether_type: EtherType::of_packet(&packet) };
                    let frame = [&header.encode()[..], &packet].concat();
                    self.parts.counters.add_own(frame.len() as u64);
                    self.send_own(port, &frame, now_ns);
                }
                VrrpOutput::Changed { place, state } => {
                    let Some(config) = self.virtual_routers.configs().nth(place).cloned() else { continue };
                    self.take_state(&config, state, now_ns);
                }
            }
        }
        if let Some(standby) = &self.parts.standby {
            standby.set_active(self.virtual_routers.is_any_active());
        }
    }

    fn take_state(&mut self, config: &VrrpConfig, state: VrrpState, now_ns: u64) {
        let (port, mac, is_active) = (config.port, config.mac(), state == VrrpState::Active);
        let name = self.parts.counters.name(port);
        tracing::info!(port = name, vrid = config.id, "the virtual router is {state}");
        for (_, macs) in self.parts.virtual_macs.iter().filter(|(of, _)| *of == port) {
            macs.set(mac, is_active);
        }
        for address in &config.addresses {
            self.parts.tables.set_virtual(port, *address, is_active);
        }
        let Some(identity) = self.parts.identities.get_mut(usize::from(port)) else { return };
        identity.virtual_addresses.retain(|(_, of)| *of != mac);
        if is_active {
            identity.virtual_addresses.extend(config.addresses.iter().map(|address| (*address, mac)));
        }
        let identity = identity.clone();
        // A port that is down gets its identity when it comes up.
        if self.neighbors.port(port).is_some() {
            self.neighbors.set_port(port, Some(identity), now_ns);
        }
    }
}

/// The address from which a virtual router advertises (RFC 9568 5.1.1.1, 5.1.2.1).
fn source_of(identity: &PortIdentity, is_ipv6: bool) -> Option<IpAddr> {
    match is_ipv6 {
        true => identity.link_local().map(IpAddr::V6),
        false => identity.addresses.iter().map(|(own, _)| *own).find(IpAddr::is_ipv4),
    }
}

fn group_mac(is_ipv6: bool) -> MacAddr {
    let [_, _, _, last] = GROUP_V4.octets();
    if is_ipv6 { ndp::group_mac(GROUP_V6) } else { MacAddr([1, 0, 0x5e, 0, 0, last]) }
}
