//! What a router would get of its interfaces: asked without starting anything.
//!
//! Each way of driving an interface is tried as opening the port would try it, and let go of again. Frames go on to the
//! system meanwhile. What is wrong is a finding that says what to do about it, never a failure: the machine that a
//! configuration is checked on need not be the one it is for.

use std::net::IpAddr;

use thalweg_config::{Driver, InterfaceConfig, PortConfig};
use thalweg_ports::kernel::{InterfaceAddress, NetworkView};
use thalweg_ports::live::dpdk;
use thalweg_ports::live::link::Links;
use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::xdp;
use thalweg_ports::live::{LiveError, tap};
use thalweg_wire::MacAddr;

use crate::interface_lock::InterfaceLock;
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
        preflight.findings.push(holder);
        return preflight;
    }
    if interface.driver == Driver::Dpdk {
        device(config, mbufs, &mut preflight);
        return preflight;
    }
    if interface.driver == Driver::Tap {
        match tap::probe() {
            Ok(()) => preflight.mode = Some("tap".to_owned()),
            Err(error) => preflight.findings.push(error.to_string()),
        }
        return preflight;
    }
    link(config, &interface.name, &mut preflight);
    preflight.findings.extend(leftover_addresses(interface));
    match interface.driver {
        Driver::Auto if carries_vlans => {
            packet(interface, &mut preflight);
            preflight.why_not_better =
                preflight.mode.as_ref().map(|_| crate::open::TAGS_ARE_TAKEN_OFF.to_owned());
        }
        Driver::AfPacket => packet(interface, &mut preflight),
        Driver::AfXdp => {
            if let Err(why) = af_xdp(interface, &mut preflight) {
                preflight.findings.push(format!("{why} (driver auto would go on with AF_PACKET)"));
            }
        }
        Driver::Auto | Driver::Tap | Driver::Dpdk => {
            if let Err(why) = af_xdp(interface, &mut preflight) {
                packet(interface, &mut preflight);
                preflight.why_not_better =
                    preflight.mode.as_ref().map(|_| format!("AF_XDP does not work: {why}"));
            }
        }
    }
    preflight
}

/// Writes over its file when it is opened.
const EMPTIES_A_FILE: &str = "tx_pcap=";

fn device(config: &PortConfig, mbufs: u32, preflight: &mut PortPreflight) {
    let Some(options) = crate::open::dpdk_options(config, mbufs) else { return };
    if dpdk::IS_BUILT_IN && options.device.contains(EMPTIES_A_FILE) {
        preflight.mode = Some("dpdk net_pcap (not tried: that would empty its file)".to_owned());
        return;
    }
    match dpdk::open(&options) {
        Ok((port, mut link)) => {
            preflight.mode = Some(port.facts.mode);
            preflight.why_not_better = port.facts.why_not_better;
            if !link.read().is_ok_and(|facts| facts.has_carrier) {
                preflight.findings.push(format!("{} has no link", options.name()));
            }
            if port.facts.mtu < config.mtu.into() {
                preflight.findings.push(format!(
                    "{} takes packets of {} bytes, the configuration says {}: the smaller counts",
                    options.name(),
                    port.facts.mtu,
                    config.mtu
                ));
            }
        }
        Err(error) => preflight.findings.push(error.to_string()),
    }
}

/// The interface itself: is it there, up, and as large as the configuration would have it?
fn link(config: &PortConfig, name: &str, preflight: &mut PortPreflight) {
    let PortPreflight { findings, mac, .. } = preflight;
    let facts = match Links::open() {
        Ok(links) => links.read(name),
        Err(error) => return findings.push(format!("no socket to ask about interfaces with: {error}")),
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

fn packet(interface: &InterfaceConfig, preflight: &mut PortPreflight) {
    // Not exclusive: the system would be deaf for a moment.
    let queues = interface.queues.map_or(1, usize::from);
    let usual = PacketOptions::new(&interface.name);
    let options = PacketOptions { exclusive: false, ring_frames: 16, queues, ..usual };
    match packet::open(&options) {
        Ok(port) => preflight.mode = Some(port.facts.mode),
        Err(error) => preflight.findings.push(error.to_string()),
    }
}

/// AF_XDP has the queues that the interface has, whatever is wanted.
fn fewer_queues(interface: &InterfaceConfig) -> Option<String> {
    let (name, wanted) = (&interface.name, u32::from(interface.queues?));
    let has = xdp::receive_queues(name).ok().filter(|has| *has < wanted)?;
    Some(format!(
        "{name} has {has} receive queues, not {wanted}: `ethtool -L {name} combined {wanted}` (or `rx {wanted}`) where it \
         can have more, or driver af_packet"
    ))
}

/// The best mode of AF_XDP, or why there is none.
fn af_xdp(interface: &InterfaceConfig, preflight: &mut PortPreflight) -> Result<(), LiveError> {
    if !interface.own_mac {
        return Err(crate::open::no_own_mac(&interface.name));
    }
    let mut worse = Vec::new();
    let mut last = None;
    for (mode, result) in xdp::probe(&interface.name, &crate::open::modes(interface)) {
        match result {
            Ok(()) => {
                preflight.mode = Some(format!("af_xdp {mode}"));
                preflight.why_not_better = (!worse.is_empty()).then(|| worse.join("; "));
                preflight.findings.extend(fewer_queues(interface));
                return Ok(());
            }
            Err(error) => {
                worse.push(format!("{mode}: {error}"));
                last = Some(error);
            }
        }
    }
    last.map_or(Ok(()), Err)
}
