//! Finds out how the router would drive its interfaces, without starting it.
//!
//! Each driver is tried as opening the port would try it, and released again; the kernel still gets the frames
//! meanwhile. A problem becomes a finding that says what to do about it, and never an error: a configuration may be
//! checked on another machine than its own.

use std::net::IpAddr;

use thalweg_config::{Driver, InterfaceConfig, PortConfig};
use thalweg_ports::kernel::{InterfaceAddress, NetworkView};
use thalweg_ports::live::Probed;
use thalweg_ports::live::link::Links;
use thalweg_wire::MacAddr;

use crate::interface_lock::InterfaceLock;
use crate::open::{NO_VLANS, by_driver, request};
use crate::port_mac::PortMac;

/// What opening a port would yield on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPreflight {
    /// The driver and its mode; `None` if the port could not be opened.
    pub mode: Option<String>,
    /// Why no better mode works.
    pub why_not_better: Option<String>,
    /// The MAC address that the router would use, if it can be known.
    pub mac: Option<MacAddr>,
    /// Its packets have no Ethernet headers: all go to the far end.
    pub is_bare: bool,
    /// Problems and surprises, and what to do about them.
    pub findings: Vec<String>,
}

/// Tries to drive a port's interface. Run it in the router's network namespace and with its privileges. Where
/// AF_XDP is tried, a driver may reset its card.
///
/// DPDK must have been started ([`crate::start_dpdk`]), with `mbufs` as for the router. `carries_vlans`: other
/// ports are VLANs of this one.
pub fn preflight(
    config: &PortConfig,
    interface: &InterfaceConfig,
    carries_vlans: bool,
    mbufs: u32,
) -> PortPreflight {
    let mut preflight = PortPreflight::default();
    if let Some(Err(holder)) = interface.exclusive().map(InterfaceLock::look) {
        preflight.findings.push(holder.to_string());
        return preflight;
    }
    if interface.driver.takes_interface() {
        link(config, &interface.name, &mut preflight);
        preflight.findings.extend(leftover_addresses(interface));
        if preflight.is_bare && carries_vlans {
            preflight.findings.push(format!("{}: {NO_VLANS}", interface.name));
        }
    }
    let request = request(config, interface, 1, mbufs);
    let probed = by_driver(
        interface.driver,
        carries_vlans,
        &interface.name,
        |driver| driver.probe(&request),
        |probed, why| probed.why_not_better = Some(why),
    );
    match probed {
        Ok(Probed { mode, why_not_better, findings }) => {
            (preflight.mode, preflight.why_not_better) = (Some(mode), why_not_better);
            preflight.findings.extend(findings);
        }
        Err(why) if interface.driver == Driver::AfXdp => {
            preflight.findings.push(format!("{why} (driver auto falls back to AF_PACKET)"));
        }
        Err(why) => preflight.findings.push(why.to_string()),
    }
    preflight
}

/// Checks that the interface exists, is up, and has the configured MTU.
fn link(config: &PortConfig, name: &str, preflight: &mut PortPreflight) {
    let PortPreflight { findings, mac, is_bare, .. } = preflight;
    let facts = match Links::open() {
        Ok(links) => links.read(name),
        Err(error) => return findings.push(format!("cannot open a socket to query interfaces: {error}")),
    };
    match facts {
        // The drivers have reported it.
        Err(_) => {}
        Ok(facts) => {
            *mac = Some(PortMac::of(config).with(facts.mac));
            *is_bare = facts.far_end.is_some();
            if !facts.is_up {
                findings.push(format!("{name} is switched off: `ip link set {name} up`"));
            } else if !facts.has_carrier {
                findings
                    .push(format!("{name} has no carrier: is its cable plugged in, and its other end up?"));
            }
            if facts.mtu < config.mtu.into() {
                findings.push(format!(
                    "{name} takes packets of {} bytes, the configuration says {}: the smaller counts \
                     (`ip link set {name} mtu {1}`, or `mtu = {0}` for the port)",
                    facts.mtu, config.mtu
                ));
            }
        }
    }
}

/// Addresses that the kernel still has on an interface whose frames the router takes: programs that use them would
/// send past the router and receive nothing.
pub(crate) fn leftover_addresses(interface: &InterfaceConfig) -> Vec<String> {
    let index = |name: &str| Links::open().ok()?.index(name).ok();
    // A TAP's addresses belong to the other end of the cable.
    let name = interface.in_system().filter(|_| interface.driver != Driver::Tap);
    let Some((name, index)) = name.and_then(|name| Some((name, index(name)?))) else { return Vec::new() };
    let stand_in = match &interface.mirror {
        Some(mirror) => format!("the mirror {mirror} has the port's"),
        None => "`mirror = true` gives the system an interface with the port's".to_owned(),
    };
    let addresses = NetworkView::read_addresses().unwrap_or_default().into_iter();
    let is_left = |each: &InterfaceAddress| each.interface == index && !is_link_local(each.address);
    let finding = |each: InterfaceAddress| {
        let net = format!("{}/{}", each.address, each.network.length());
        format!(
            "the system still has {net} on {name}, and hears nothing there; {stand_in}: `ip addr del {net} dev {name}`"
        )
    };
    addresses.filter(is_left).map(finding).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
