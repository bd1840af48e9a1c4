//! Mirrors: interfaces of the system that stand for ports, so that ping, ssh or another daemon work as if the port were
//! the system's own.
//!
//! A mirror is a TAP interface with its port's address, MAC address, MTU and link state. What comes to the router itself
//! by the port, and is no question for an address of the router, goes to the mirror; what the system sends by the mirror
//! leaves by the port as it is. Questions for the router's own addresses (ARP, Neighbor Solicitation) the router answers
//! itself, so the system need not be asked for each; answers go to both.
//!
//! What goes to all on the port's link goes to the mirror, too: so a DHCP server or client works there, and OSPF. An address
//! that somebody gives a mirror becomes its port's own; who sees to that is in the program (`run/mirror_addresses.rs`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use thalweg_config::PortConfig;
use thalweg_ports::kernel::{add_address, remove_address};
use thalweg_ports::live::tap::{self, TapControl, TapOptions};
use thalweg_ports::live::{LiveClock, LiveError, LiveSource, PortRx, PortTx, SourceOptions, SourceWaker};
use thalweg_wire::MacAddr;

use crate::counters::Counters;
use crate::halves::HalvesSlot;
use crate::outbox::{Outboxes, QueueClock};
use crate::own_ports::OwnTraffic;

/// How long the thread waits for frames before it looks whether it is still wanted.
const WAIT: Duration = Duration::from_millis(200);

/// Frames that a mirror is tried with when its queue is full.
const CHUNK_PACKETS: usize = 64;

struct Mirror {
    port: u16,
    tx: Box<dyn PortTx>,
    /// The interface's number in the system.
    index: u32,
    control: TapControl,
    /// What was given to it; others may have given it more.
    addresses: Vec<IpNet>,
    /// Frames that the system did not take.
    refused: u64,
}

/// What became of a frame for the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The system has it.
    Taken,
    /// Its mirror takes no more, or is gone.
    Refused,
    /// The port has no mirror.
    NoMirror,
}

/// All mirrors, as the host thread has them.
#[derive(Default)]
pub(crate) struct Mirrors {
    mirrors: Vec<Mirror>,
}

/// The halves that the system's frames come from.
pub(crate) type MirrorHalves = Vec<(u16, Box<dyn PortRx>)>;

impl Mirrors {
    /// Makes the mirrors that the configuration asks for.
    pub(crate) fn open(
        ports: &[(u16, &PortConfig, MacAddr, u32)],
    ) -> Result<(Self, MirrorHalves), LiveError> {
        let mut mirrors = Self::default();
        let mut halves = MirrorHalves::new();
        for (port, config, mac, mtu) in ports {
            let Some(name) = config.interface.as_ref().and_then(|interface| interface.mirror.clone()) else {
                continue;
            };
            let options = TapOptions { name: name.clone(), mac: known_mac(*mac), mtu: *mtu, persist: false };
            let (opened, control) = tap::open(&options)?;
            // What programs gave an earlier mirror is theirs to give again.
            let given = config.addresses.iter().filter(|net| !config.learned.contains(net));
            let addresses: Vec<IpNet> = given.copied().collect();
            for net in &addresses {
                if let Err(error) = add_address(opened.facts.index, net.addr(), net.prefix_len()) {
                    tracing::warn!(mirror = name, address = %net, "cannot set the address: {error}");
                }
            }
            tracing::info!(port = config.name, mirror = name, "created the mirror of the port");
            halves.extend(opened.rx.into_iter().map(|rx| (*port, rx)));
            let index = opened.facts.index;
            mirrors.mirrors.push(Mirror {
                port: *port,
                tx: opened.tx,
                index,
                control,
                addresses,
                refused: 0,
            });
        }
        Ok((mirrors, halves))
    }

    /// Has these mirrors, too.
    pub(crate) fn extend(&mut self, others: Self) {
        self.mirrors.extend(others.mirrors);
    }

    /// A port has no mirror any more.
    pub(crate) fn remove(&mut self, port: u16) {
        self.mirrors.retain(|mirror| mirror.port != port);
    }

    /// Gives the port's mirror a frame.
    pub(crate) fn deliver(&mut self, port: u16, frame: &[u8]) -> Delivery {
        let Some(mirror) = self.mirrors.iter_mut().find(|mirror| mirror.port == port) else {
            return Delivery::NoMirror;
        };
        if mirror.tx.push(frame).is_err() || mirror.tx.flush().is_err() {
            mirror.refused += 1;
            return Delivery::Refused;
        }
        Delivery::Taken
    }

    /// Makes a mirror like its port.
    pub(crate) fn copy_state(&mut self, port: u16, is_up: bool, mac: MacAddr, mtu: u32) {
        let Some(mirror) = self.mirrors.iter().find(|mirror| mirror.port == port) else { return };
        let control = &mirror.control;
        let mac = known_mac(mac).map(|mac| control.set_mac(mac));
        for result in mac.into_iter().chain([control.set_mtu(mtu), control.set_carrier(is_up)]) {
            if let Err(error) = result {
                tracing::warn!(mirror = control.name(), "the mirror does not follow its port: {error}");
            }
        }
    }

    /// Gives a mirror these addresses instead of those that it was given before.
    pub(crate) fn set_addresses(&mut self, port: u16, after: Vec<IpNet>) {
        let Some(mirror) = self.mirrors.iter_mut().find(|mirror| mirror.port == port) else { return };
        let before = std::mem::replace(&mut mirror.addresses, after);
        let after = &mirror.addresses;
        let gone = before.iter().filter(|net| !after.contains(net));
        let new = after.iter().filter(|net| !before.contains(net));
        let removed = gone.map(|net| remove_address(mirror.index, net.addr(), net.prefix_len()));
        let added = new.map(|net| add_address(mirror.index, net.addr(), net.prefix_len()));
        for result in removed.chain(added) {
            if let Err(error) = result {
                tracing::warn!(
                    mirror = mirror.control.name(),
                    "the mirror's addresses do not follow its port: {error}"
                );
            }
        }
    }

    /// Each mirror's port, name and frames that the system did not take.
    pub(crate) fn view(&self) -> impl Iterator<Item = (u16, &str, u64)> {
        self.mirrors.iter().map(|mirror| (mirror.port, mirror.control.name(), mirror.refused))
    }
}

/// The MAC address of a port, if it is known: it is not before its interface is there.
fn known_mac(mac: MacAddr) -> Option<MacAddr> {
    (mac != MacAddr::ZERO).then_some(mac)
}

/// Sends what the system sends by mirrors: the body of a thread.
pub(crate) struct Forwarder {
    source: LiveSource,
    queues: Vec<(u16, u16)>,
    /// Mirrors that come and go.
    halves: HalvesSlot,
    outboxes: Outboxes,
    server: Arc<QueueClock>,
    counters: Arc<Counters>,
    class: Arc<AtomicU8>,
    own: OwnTraffic,
}

impl Forwarder {
    /// Of these mirrors.
    pub(crate) fn new(
        (mirrors, halves): (MirrorHalves, HalvesSlot),
        clock: LiveClock,
        outboxes: Outboxes,
        server: Arc<QueueClock>,
        counters: Arc<Counters>,
        class: Arc<AtomicU8>,
        own: OwnTraffic,
    ) -> io::Result<Self> {
        let options = SourceOptions { chunk_packets: CHUNK_PACKETS, ..SourceOptions::default() };
        let queues = mirrors.iter().map(|(port, _)| (*port, 0)).collect();
        let source = LiveSource::new(mirrors, options, clock)?;
        Ok(Self { source, queues, halves, outboxes, server, counters, class, own })
    }

    /// What ends a wait.
    pub(crate) fn waker(&self) -> SourceWaker {
        self.source.waker()
    }

    /// Works until `stop` is set.
    pub(crate) fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.halves.apply(&mut self.source, &mut self.queues);
            match self.source.next_chunk(WAIT) {
                Ok(Some(chunk)) => {
                    let now_ns = self.source.clock().now_ns();
                    let outboxes = self.outboxes.load();
                    for (i, packet) in chunk.packets().iter().enumerate() {
                        let Some(outbox) = outboxes.get(usize::from(packet.port_in)) else { continue };
                        let frame = chunk.frame(i);
                        self.counters.add_own(frame.len() as u64);
                        self.own.sent(frame, now_ns);
                        let mut open = outbox.open();
                        open.send_own(self.class.load(Ordering::Relaxed), frame, now_ns);
                        open.close(now_ns, &self.server);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!("mirrors: {error}");
                    std::thread::sleep(WAIT);
                }
            }
            while let Some(change) = self.source.poll_change() {
                let port = self.counters.name(change.port);
                match change.failed {
                    Some(error) => tracing::warn!(port, "cannot read the mirror: {error}"),
                    None => tracing::info!(port, "reading the mirror again"),
                }
            }
        }
    }
}
