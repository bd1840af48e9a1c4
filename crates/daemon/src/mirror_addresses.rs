//! A thread that follows the addresses that programs (a DHCP client, `ip addr add`) give to mirrors. Each becomes
//! its port's own, with its network, as if it were configured, for as long as the mirror has it; it also becomes a
//! public address of NAT, if NAT uses the outside port's addresses.
//!
//! Notifications of the kernel only trigger a read; the mirrors' addresses at that time count. Link-local addresses
//! are left to the system.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_config::{LearnedAddress, RouterConfig};
use thalweg_ports::kernel::{KernelError, Monitor, NetworkView, Watch};
use thalweg_ports::live::link::Links;

use crate::error::MirrorError;
use crate::reload::{Configurations, Learned};

/// Interval at which the kernel's notifications are read.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Interval at which mirrors are read without a notification, because some may have been lost.
const READ_EVERY: Duration = Duration::from_secs(10);

/// Follows mirrors' addresses; see the module.
struct MirrorAddresses {
    configurations: Arc<Configurations>,
    monitor: Monitor,
    links: Links,
    /// Refused addresses that were logged.
    refused: Vec<LearnedAddress>,
    /// The last failure, to log it only once.
    failed: Option<String>,
}

/// Follows the mirrors of the configuration in force until `stop` is set.
pub(crate) fn follow(configurations: Arc<Configurations>, stop: Arc<AtomicBool>) -> Result<(), MirrorError> {
    let watch = Watch { addresses: true, ..Watch::default() };
    let monitor = Monitor::open(watch)?;
    let links = Links::open()?;
    let this = MirrorAddresses { configurations, monitor, links, refused: Vec::new(), failed: None };
    thread::Builder::new().name("addresses".to_owned()).spawn(move || this.run(&stop))?;
    Ok(())
}

/// Ports with a mirror, and the mirrors' names.
fn mirrors(config: &RouterConfig) -> impl Iterator<Item = (&str, &str)> {
    let ports = config.ports.iter();
    ports.filter_map(|port| Some((port.name.as_str(), port.interface.as_ref()?.mirror.as_deref()?)))
}

impl MirrorAddresses {
    fn run(mut self, stop: &AtomicBool) {
        let mut read_at = Instant::now();
        while !stop.load(Ordering::Acquire) {
            if self.read_changes() || Instant::now() >= read_at {
                read_at = Instant::now() + READ_EVERY;
                self.look();
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn read_changes(&mut self) -> bool {
        let mut any = false;
        loop {
            match self.monitor.poll_event() {
                Ok(Some(_)) => any = true,
                Ok(None) => return any,
                // Notifications were lost, so mirrors must be read.
                Err(_) => return true,
            }
        }
    }

    fn look(&mut self) {
        let links = &self.links;
        let mut failed = None;
        let found = |config: &RouterConfig| {
            given_to_mirrors(config, links).unwrap_or_else(|error| {
                failed = Some(error.to_string());
                learned_of(config)
            })
        };
        match self.configurations.learn(found) {
            Ok(Some(learned)) => self.log(learned),
            Ok(None) => {}
            Err(error) => failed = Some(error.to_string()),
        }
        if let Some(why) = failed.as_ref().filter(|why| self.failed.as_ref() != Some(why)) {
            tracing::error!("cannot apply the addresses of mirrors: {why}");
        }
        self.failed = failed;
    }

    fn log(&mut self, learned: Learned) {
        for LearnedAddress { port, address } in &learned.come {
            tracing::info!(port, "took over {address} from the mirror");
        }
        for LearnedAddress { port, address } in &learned.gone {
            tracing::info!(port, "removed {address}, which is gone from the mirror");
        }
        for (LearnedAddress { port, address }, why) in &learned.refused {
            if !self.refused.iter().any(|each| each.port == *port && each.address == *address) {
                tracing::warn!(port, "cannot take over {address} from the mirror: {why}");
            }
        }
        self.refused = learned.refused.into_iter().map(|(address, _)| address).collect();
    }
}

/// The mirrors' addresses that the configuration has not given them.
fn given_to_mirrors(config: &RouterConfig, links: &Links) -> Result<Vec<LearnedAddress>, KernelError> {
    let by_index: HashMap<u32, &str> =
        mirrors(config).filter_map(|(port, mirror)| Some((links.index(mirror).ok()?, port))).collect();
    let configured = |port: &str, address: IpAddr| {
        let port = config.ports.iter().find(|each| each.name == port);
        port.is_some_and(|port| {
            port.addresses.iter().any(|net| net.addr() == address && !port.learned.contains(net))
        })
    };
    let found = NetworkView::read_addresses()?.into_iter().filter_map(|each| {
        let port = *by_index.get(&each.interface)?;
        let is_news = !is_link_local(each.address) && !configured(port, each.address);
        LearnedAddress::new(port, each.address, each.network.length()).filter(|_| is_news)
    });
    Ok(found.collect())
}

/// The addresses applied so far.
fn learned_of(config: &RouterConfig) -> Vec<LearnedAddress> {
    let all = config.ports.iter().flat_map(|port| port.learned.iter().map(|address| (&port.name, *address)));
    all.map(|(port, address)| LearnedAddress { port: port.clone(), address }).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
