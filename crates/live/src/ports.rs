//! The ports of a live router: opens one, and holds what the router keeps of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use thalweg_config::{PortConfig, RouterConfig};
use thalweg_ports::live::link::ReadLink;
use thalweg_ports::live::reopen::OpenedLater;
use thalweg_ports::live::xdp::offload::Offload;
use thalweg_ports::live::{Held, LiveError, Opened, PortFacts, PortTx, VirtualMacs};

use crate::interface_lock::InterfaceLock;
use crate::lanes::QueueRx;
use crate::offload::flows_of;
use crate::open::{OpenError, OpenedPort, Shared, open_port, wait_for};
use crate::port_mac::PortMac;
use crate::preflight::leftover_addresses;

/// What the router keeps of a port until the port is removed.
pub(crate) struct PortState {
    pub(crate) name: String,
    /// The VLAN of a sub-interface.
    vlan: Option<u16>,
    mac: PortMac,
    /// How the port was opened; for a VLAN, its parent.
    pub(crate) facts: PortFacts,
    /// What has been found since of a port that started without its interface.
    pub(crate) later: Option<OpenedLater>,
    /// The largest IP packet that the configuration allows, in bytes.
    pub(crate) mtu: Arc<AtomicU32>,
    /// Locks on the interface; none for a VLAN.
    _held: (Option<InterfaceLock>, Option<Held>),
}

impl PortState {
    /// The state of a VLAN on `parent`.
    pub(crate) fn sub_interface(config: &PortConfig, parent: &PortState, vlan: u16) -> Self {
        let facts = PortFacts {
            mode: format!("{}, VLAN {vlan}", parent.facts.mode),
            why_not_better: None,
            ..parent.facts.clone()
        };
        Self::new(config, facts, parent.later.clone(), (None, None))
    }

    fn new(
        config: &PortConfig,
        facts: PortFacts,
        later: Option<OpenedLater>,
        held: (Option<InterfaceLock>, Option<Held>),
    ) -> Self {
        Self {
            name: config.name.clone(),
            vlan: config.sub_interface.map(|sub| sub.vlan),
            mac: PortMac::of(config),
            facts,
            later,
            mtu: Arc::new(AtomicU32::new(config.mtu.into())),
            _held: held,
        }
    }

    /// How the port was opened, including an interface that appeared later.
    pub(crate) fn facts_now(&self) -> PortFacts {
        let found = self.later.as_ref().map(OpenedLater::facts).filter(|found| found.index != 0);
        let Some(found) = found else { return self.facts.clone() };
        let mode = self.vlan.map(|vlan| format!("{}, VLAN {vlan}", found.mode));
        let mac = self.mac.with(found.mac);
        PortFacts { mac, mode: mode.unwrap_or_else(|| found.mode.clone()), ..found }
    }
}

/// Whether other ports are sub-interfaces of this one.
pub(crate) fn carries_vlans(config: &RouterConfig, port: u16) -> bool {
    config.ports.iter().any(|other| other.sub_interface.is_some_and(|sub| sub.parent == port))
}

/// By port number; `None` for a removed port.
pub(crate) type PortStates = Vec<Option<Arc<PortState>>>;

/// A port with an interface of its own, just opened.
pub(crate) struct OpenPort {
    pub(crate) halves: Vec<QueueRx>,
    /// The first lane's sending half, and those of further lanes.
    pub(crate) tx: (Box<dyn PortTx>, Vec<Box<dyn PortTx>>),
    pub(crate) link: Option<Box<dyn ReadLink>>,
    pub(crate) offload: Option<Arc<Offload>>,
    pub(crate) state: PortState,
}

/// Locks the port's interface for this router; `None` if the port has no interface of its own.
pub(crate) fn claim(config: &PortConfig) -> Result<Option<InterfaceLock>, OpenError> {
    let interface = config.interface.as_ref().filter(|_| config.sub_interface.is_none());
    let Some(name) = interface.and_then(|interface| interface.exclusive()) else { return Ok(None) };
    let claimed = |holder| OpenError::Claimed { port: config.name.clone(), holder };
    InterfaceLock::take(name).map(Some).map_err(claimed)
}

/// Opens a claimed port, with one sending half per lane if the driver has that many.
pub(crate) fn open(
    config: &RouterConfig,
    index: u16,
    lanes: usize,
    claim: Option<InterfaceLock>,
    virtual_macs: Option<Arc<VirtualMacs>>,
) -> Result<OpenPort, OpenError> {
    let port_config = &config.ports[usize::from(index)];
    let carries_vlans = carries_vlans(config, index);
    let offload = flows_of(config, port_config, carries_vlans);
    let shared = (offload.clone(), virtual_macs);
    let opened = open_port(config, port_config, lanes, carries_vlans, shared.clone())
        .or_else(|why| wait_instead(why, port_config, lanes, carries_vlans, shared))?;
    let OpenedPort { opened: Opened { mut port, link, held }, later } = opened;
    if later.is_none() {
        port.facts.mac = PortMac::of(port_config).with(port.facts.mac);
        log_opened(port_config, &port.facts);
    }
    let of = port.rx.len() as u16;
    let workers = port_config.interface.as_ref().and_then(|interface| interface.queue_workers.as_ref());
    let queue = |(queue, rx): (u16, _)| {
        let worker = workers.and_then(|workers| workers.get(usize::from(queue))).copied();
        QueueRx { port: index, queue, of, worker, rx }
    };
    let halves = (0..).zip(port.rx).map(queue).collect();
    let others = (1..lanes).map_while(|_| port.tx.another()).collect();
    let state = PortState::new(port_config, port.facts, later, (claim, held));
    Ok(OpenPort { halves, tx: (port.tx, others), link, offload, state })
}

/// A missing interface must not stop the other ports: if nothing else is wrong, the port waits for its interface.
fn wait_instead(
    why: OpenError,
    config: &PortConfig,
    lanes: usize,
    carries_vlans: bool,
    shared: Shared,
) -> Result<OpenedPort, OpenError> {
    let OpenError::Port { source: LiveError::NoSuchInterface { interface }, .. } = &why else {
        return Err(why);
    };
    tracing::warn!(
        port = config.name,
        "interface {interface} does not exist yet; the port comes up when it appears"
    );
    wait_for(config, lanes, carries_vlans, shared).ok_or(why)
}

fn log_opened(config: &PortConfig, facts: &PortFacts) {
    tracing::info!(
        port = config.name,
        interface = facts.interface,
        mode = facts.mode,
        why_not_better = facts.why_not_better,
        "open"
    );
    if let Some(interface) = &config.interface {
        for finding in leftover_addresses(interface) {
            tracing::warn!(port = config.name, "{finding}");
        }
    }
}

/// The longest frame of these ports, in bytes.
pub(crate) fn frame_bytes_max<'s>(states: impl Iterator<Item = &'s PortState>) -> usize {
    /// An Ethernet header and two tags.
    const OVERHEAD: usize = 14 + 8;
    states.map(|state| state.facts.mtu).max().unwrap_or(1500) as usize + OVERHEAD
}
