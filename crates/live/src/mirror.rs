//! Mirrors: TAP interfaces that stand for ports, so that ping, ssh or a routing daemon work as if the kernel owned
//! the port.
//!
//! A mirror has its port's address, MAC address, MTU and link state. Packets for the router that arrive at the port
//! go to the mirror; what the kernel sends through the mirror leaves through the port unchanged, unless the firewall
//! has rules about the router itself and denies it. The router itself answers requests for its own addresses (ARP,
//! Neighbor Solicitation), so the kernel need not be asked; replies from neighbors go to both.
//!
//! Broadcast and multicast on the port's link go to the mirror too, so DHCP and OSPF work there. If a program adds
//! an address to a mirror, the port owns that address as well; the program crate handles that
//! (`run/mirror_addresses.rs`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use thalweg_base::Chunk;
use thalweg_config::PortConfig;
use thalweg_ports::kernel::{add_address, remove_address};
use thalweg_ports::live::tap::{self, TapControl, TapOptions};
use thalweg_ports::live::{LiveClock, LiveError, LiveSource, PortRx, PortTx, SourceOptions, SourceWaker};
use thalweg_wire::MacAddr;

use crate::capture::Seen;
use crate::counters::Counters;
use crate::halves::HalvesSlot;
use crate::outbox::{Outboxes, QueueClock};
use crate::own_ports::OwnTraffic;
use crate::punt::LinkChange;

/// How long the thread waits for frames between checks of its stop flag.
const WAIT: Duration = Duration::from_millis(200);

const CHUNK_PACKETS: usize = 64;

struct Mirror {
    port: u16,
    tx: Box<dyn PortTx>,
    /// The kernel's interface index.
    index: u32,
    control: TapControl,
    /// Addresses that the router set; other programs may have added more.
    addresses: Vec<IpNet>,
    /// Frames that the kernel did not take.
    refused: u64,
}

/// What became of a frame for a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The kernel has it.
    Taken,
    /// The mirror is full or gone.
    Refused,
    /// The port has no mirror.
    NoMirror,
}

/// All mirrors; the host thread owns them.
#[derive(Default)]
pub(crate) struct Mirrors {
    mirrors: Vec<Mirror>,
}

/// The receiving halves of mirrors, by port.
pub(crate) type MirrorHalves = Vec<(u16, Box<dyn PortRx>)>;

impl Mirrors {
    /// Creates the configured mirrors.
    pub(crate) fn open(
        ports: &[(u16, &PortConfig, MacAddr, u32)],
    ) -> Result<(Self, MirrorHalves), LiveError> {
        let mut mirrors = Self::default();
        let mut halves = MirrorHalves::new();
        for (port, config, mac, mtu) in ports {
            let Some(name) = config.interface.as_ref().and_then(|interface| interface.mirror.clone()) else {
                continue;
            };
            let options = TapOptions { mac: known_mac(*mac), mtu: *mtu, ..TapOptions::new(&name) };
            let (opened, control) = tap::open(&options)?;
            // Addresses that programs added to an earlier mirror are theirs to add again.
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

    pub(crate) fn extend(&mut self, others: Self) {
        self.mirrors.extend(others.mirrors);
    }

    pub(crate) fn remove(&mut self, port: u16) {
        self.mirrors.retain(|mirror| mirror.port != port);
    }

    /// Passes a frame to the port's mirror.
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

    /// Copies a port's link state, MAC address and MTU to its mirror. On a port without a link layer, programs ask
    /// nobody for a MAC address.
    pub(crate) fn copy_state(&mut self, LinkChange { port, is_up, mac, far_end, mtu }: LinkChange) {
        let Some(mirror) = self.mirrors.iter().find(|mirror| mirror.port == port) else { return };
        let control = &mirror.control;
        let mac = known_mac(mac).map(|mac| control.set_mac(mac));
        let asks = control.set_asks(far_end.is_none());
        for result in mac.into_iter().chain([asks, control.set_mtu(mtu), control.set_carrier(is_up)]) {
            if let Err(error) = result {
                tracing::warn!(mirror = control.name(), "the mirror does not follow its port: {error}");
            }
        }
    }

    /// Replaces the addresses that the router set on a mirror.
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

    /// Each mirror's port, name and number of frames that the kernel did not take.
    pub(crate) fn view(&self) -> impl Iterator<Item = (u16, &str, u64)> {
        self.mirrors.iter().map(|mirror| (mirror.port, mirror.control.name(), mirror.refused))
    }
}

/// A port's MAC address is zero until its interface exists.
fn known_mac(mac: MacAddr) -> Option<MacAddr> {
    (mac != MacAddr::ZERO).then_some(mac)
}

/// Sends the frames that the kernel sends through mirrors, on a thread of its own.
pub(crate) struct Forwarder {
    source: LiveSource,
    queues: Vec<(u16, u16)>,
    halves: HalvesSlot,
    outboxes: Outboxes,
    queue_clock: Arc<QueueClock>,
    counters: Arc<Counters>,
    class: Arc<AtomicU8>,
    own: OwnTraffic,
}

impl Forwarder {
    pub(crate) fn new(
        (mirrors, halves): (MirrorHalves, HalvesSlot),
        clock: LiveClock,
        outboxes: Outboxes,
        queue_clock: Arc<QueueClock>,
        counters: Arc<Counters>,
        class: Arc<AtomicU8>,
        own: OwnTraffic,
    ) -> io::Result<Self> {
        let options = SourceOptions { chunk_packets: CHUNK_PACKETS, ..SourceOptions::default() };
        let queues = mirrors.iter().map(|(port, _)| (*port, 0)).collect();
        let source = LiveSource::new(mirrors, options, clock)?;
        Ok(Self { source, queues, halves, outboxes, queue_clock, counters, class, own })
    }

    /// Ends a wait for frames.
    pub(crate) fn waker(&self) -> SourceWaker {
        self.source.waker()
    }

    pub(crate) fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.halves.apply(&mut self.source, &mut self.queues);
            match self.source.next_chunk(WAIT) {
                Ok(Some(chunk)) => self.send(chunk),
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

    fn send(&mut self, mut chunk: Chunk) {
        let now_ns = self.source.clock().now_ns();
        let outboxes = self.outboxes.load();
        let refused = self.own.judge(&mut chunk);
        for (i, packet) in chunk.packets().iter().enumerate() {
            let Some(outbox) = outboxes.get(usize::from(packet.port_in)) else { continue };
            let (frame, class) = (chunk.frame(i), self.class.load(Ordering::Relaxed));
            self.counters.add_own(frame.len() as u64);
            if let Some(reason) = refused.get(i).copied().flatten() {
                self.counters.drop_seen(reason, &Seen::leaving(packet.port_in, class, frame));
                continue;
            }
            self.own.sent(frame, now_ns);
            let mut open = outbox.open();
            open.send_own(class, frame, now_ns);
            open.close(now_ns, &self.queue_clock);
        }
    }
}
