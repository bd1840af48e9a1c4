//! Links under BGP: a thread that follows the system's interfaces and tells sessions when the link to a neighbor
//! goes down or comes back.
//!
//! ```text
//! kernel: links, addresses ──> which network holds the neighbor, and is its link up? ──> Speaker: session down, session sought
//! ```
//!
//! A port's mirror has its port's link state, so the same notifications serve a router on live interfaces and one
//! that uses the kernel's interfaces. A neighbor in no connected network is left to its hold timer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use thalweg_config::RouterConfig;
use thalweg_node::speaker::Speaker;
use thalweg_ports::kernel::{
    InterfaceAddress, KernelError, KernelEvent, Link, Monitor, NetworkView, PROTOCOL, Watch,
};

/// How long the thread waits before it checks whether to stop.
const WAIT: Duration = Duration::from_millis(200);

/// The link to a neighbor.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// Through this interface, which is up.
    Up(u32),
    /// Through this interface, which is down or gone.
    Down(u32),
    /// No connected network contains it.
    None,
}

/// Follows links and tells sessions; see the module.
pub(crate) struct BgpLinks {
    monitor: Monitor,
    links: HashMap<u32, Link>,
    addresses: Vec<InterfaceAddress>,
    /// Ports, by the names of their mirrors and interfaces.
    ports: HashMap<String, String>,
    ways: HashMap<IpAddr, Way>,
}

impl BgpLinks {
    /// Starts listening.
    pub(crate) fn new(config: &RouterConfig) -> Result<Self, KernelError> {
        // Opened before the first read, so that no change is missed in between.
        let monitor = Monitor::open(Watch { links: true, addresses: true, neighbors: false, routes: false })?;
        let mut ports = HashMap::new();
        for port in &config.ports {
            let Some(interface) = &port.interface else { continue };
            let names = interface.in_system().map(str::to_owned).into_iter().chain(interface.mirror.clone());
            ports.extend(names.map(|name| (name, port.name.clone())));
        }
        let (links, addresses, ways) = (HashMap::new(), Vec::new(), HashMap::new());
        let mut this = Self { monitor, links, addresses, ports, ways };
        this.read()?;
        Ok(this)
    }

    /// Works until `stop` is set.
    pub(crate) fn run(mut self, speaker: &Speaker, stop: &AtomicBool) {
        let mut failed = false;
        self.notify(speaker, &speaker.direct_neighbors());
        while !stop.load(Ordering::Acquire) {
            match self.read_changes() {
                Ok(any) => {
                    failed = false;
                    // Without notifications too: a reload may have added neighbors, and the next notification may
                    // be that their link is gone.
                    let neighbors = speaker.direct_neighbors();
                    if any || !self.knows(&neighbors) {
                        self.notify(speaker, &neighbors);
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::error!(
                            "cannot read links, so sessions on a dead link end only when their hold timer expires: {error}"
                        );
                    }
                    thread::sleep(WAIT);
                }
            }
        }
    }

    /// Waits for notifications and applies them; returns whether there were any.
    fn read_changes(&mut self) -> Result<bool, KernelError> {
        self.monitor.wait(WAIT).map_err(|source| KernelError::Socket { source })?;
        let mut any = false;
        while let Some(event) = self.monitor.poll_event()? {
            any = true;
            match event {
                KernelEvent::Link(link) => drop(self.links.insert(link.index, link)),
                KernelEvent::LinkGone(index) => drop(self.links.remove(&index)),
                KernelEvent::Address(address) if !self.addresses.contains(&address) => {
                    self.addresses.push(address);
                }
                KernelEvent::AddressGone(address) => self.addresses.retain(|each| *each != address),
                KernelEvent::Overrun => self.read()?,
                _ => {}
            }
        }
        Ok(any)
    }

    fn read(&mut self) -> Result<(), KernelError> {
        let view = NetworkView::read(PROTOCOL)?;
        self.links = view.links.into_iter().map(|link| (link.index, link)).collect();
        self.addresses = view.addresses;
        Ok(())
    }

    /// Whether these are the neighbors whose links are known.
    fn knows(&self, neighbors: &[IpAddr]) -> bool {
        neighbors.len() == self.ways.len() && neighbors.iter().all(|each| self.ways.contains_key(each))
    }

    /// Tells sessions how the links to their neighbors changed.
    fn notify(&mut self, speaker: &Speaker, neighbors: &[IpAddr]) {
        let mut ways = HashMap::new();
        for &neighbor in neighbors {
            let before = self.ways.remove(&neighbor).unwrap_or(Way::None);
            let mut now = self.way(neighbor);
            match (&before, &now) {
                (Way::Up(index), Way::Down(_) | Way::None) => {
                    speaker.handle_link_down(neighbor, &self.what_happened(*index));
                    now = Way::Down(*index);
                }
                (Way::Down(_), Way::Up(_)) => speaker.handle_link_up(neighbor),
                _ => {}
            }
            ways.insert(neighbor, now);
        }
        self.ways = ways;
    }

    /// The link to a neighbor: the interface of the longest connected network that contains it.
    fn way(&self, neighbor: IpAddr) -> Way {
        let holding = self.addresses.iter().filter(|own| own.network.contains(neighbor));
        let Some(own) = holding.max_by_key(|own| own.network.length()) else { return Way::None };
        match self.links.get(&own.interface) {
            Some(link) if link.is_up => Way::Up(own.interface),
            _ => Way::Down(own.interface),
        }
    }

    fn what_happened(&self, index: u32) -> String {
        let Some(link) = self.links.get(&index) else { return "its interface is gone".to_owned() };
        let name = match self.ports.get(&*link.name) {
            Some(port) => format!("port {port}"),
            None => format!("interface {}", link.name),
        };
        match link.is_up {
            true => format!("{name} has no address in the neighbor's network any more"),
            false => format!("link of {name} is down"),
        }
    }
}
