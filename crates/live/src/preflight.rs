//! How the router would drive its interfaces, found out without starting it.
//!
//! Each way of driving an interface is tried as opening the port would try it, and let go of again. Frames go on to the
//! system meanwhile. What is wrong is a finding that says what to do about it, never a failure: the machine that a
//! configuration is checked on need not be the one it is for.

use std::net::IpAddr;

use thalweg_config::{Driver, InterfaceConfig, PortConfig};
use thalweg_ports::kernel::{InterfaceAddress, NetworkView};
use thalweg_ports::live::Probed;
use thalweg_ports::live::link::Links;
use thalweg_wire::MacAddr;

use crate::interface_lock::InterfaceLock;
use crate::open::{by_driver, request};
use crate::port_mac::PortMac;

/// What a port would come to here and now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPreflight {
    /// The driver, and how it would work; `None` if the port could not be opened.
    pub mode: Option<String>,
    /// Why it is not a better mode.
    pub why_not_better: Option<String>,
    /// The MAC address that the router would have there, if it can be known.
    pub mac: Option<MacAddr>,
    /// What is in the way, or will surprise, and what to do about it.
    pub findings: Vec<String>,
}

/// Asks the system about a port's interface. Of use in the network namespace that the router is to run in, with its
/// rights. Where AF_XDP is tried, a driver may reset its card.
///
/// DPDK has to be started before ([`crate::start_dpdk`]), with `mbufs` as for the router.
/// `carries_vlans` says that other ports are VLANs of this one.
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

/// The interface itself: is it there, up, and as large as the configuration would have it?
fn link(config: &PortConfig, name: &str, preflight: &mut PortPreflight) {
    let PortPreflight { findings, mac, .. } = preflight;
    let facts = match Links::open() {
        Ok(links) => links.read(name),
        Err(error) => return findings.push(format!("cannot open a socket to query interfaces: {error}")),
    };
    match facts {
        // Said by the drivers.
        Err(_) => {}
        Ok(facts) => {
            *mac = Some(PortMac::of(config).with(facts.mac));
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

/// Addresses that the system still has on an interface whose frames the router takes: programs use them, send past the
/// router, and hear nothing.
pub(crate) fn leftover_addresses(interface: &InterfaceConfig) -> Vec<String> {
    let index = |name: &str| Links::open().ok()?.index(name).ok();
    // A TAP's is at the other end of the cable.
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
