//! AF_PACKET: any interface of Ethernet frames or IP packets as a port, shared memory for receiving, batched calls for
//! sending.
//!
//! ```text
//!            kernel                 |             here
//! interface ──> slot slot slot slot ┼─> look at status, copy the frame, give the slot back        (receive, no call)
//!                 (shared ring)     |
//! interface <── sendmmsg, 64 frames ┼── frames pushed, in one buffer                              (one call a batch)
//! ```
//!
//! # Choices
//!
//! - **Slots, not blocks.** The ring is TPACKET_V2, which hands over each frame when it arrives. TPACKET_V3 gathers
//!   frames in blocks and hands a block over when it is full or a timer of whole milliseconds expires. At low rates
//!   each packet waits for that timer, a common complaint about routers built on it. V3 saves memory for small
//!   frames, which a router does not lack.
//! - **No transmit ring.** The kernel sends a ring's frames without copying them and frees their slots when the
//!   packet's owner changes, which on virtual interfaces is long before its last reader is done. Reusing such a
//!   slot changes a packet that still waits in another program's socket. `sendmmsg` copies; 64 frames share the
//!   call.
//! - **Merged segments whole, other frames as on a wire.** An offload header is in front of each frame in both
//!   directions (PACKET_VNET_HDR). The port finishes unfinished checksums, restores VLAN tags that were stripped, and
//!   cuts merged segments ([`super::segment`]) unless the chunk takes them whole; then it reads them right into the
//!   chunk, and sends them whole, without another copy. The kernel cuts what the interface cannot send. Frames longer
//!   than a slot arrive in order through the socket's own queue (PACKET_COPY_THRESH).
//! - **Interfaces without a link layer too.** Their packets get an Ethernet header on their way in (`super::bare`).
//!   What leaves names its protocol, since some of these interfaces (PPP, GRE) cannot tell it from the packet.
//! - **The interface belongs to the router.** A program of two instructions at the interface's ingress drops what
//!   the ring has seen ([`PacketOptions::exclusive`]), so that the host does not answer or forward the same packets
//!   again. The kernel removes it when the port is closed, also after `kill -9`.
//! - **Several queues are several sockets** in one group, over which the kernel spreads flows (PACKET_FANOUT_HASH):
//!   by addresses and ports, without regard to direction, behind tags. All fragments of a packet, even the first,
//!   and all packets that are not IP are spread by their addresses alone, so fragments stay together but apart from
//!   the rest of their flow. Two flags of the group are not used. PACKET_FANOUT_FLAG_DEFRAG would reassemble
//!   fragments first, and the router would send packets that no host sent. PACKET_FANOUT_FLAG_ROLLOVER would move
//!   packets from a full ring to another ring; a flow would then arrive in two queues, out of order, under the
//!   highest load. A full ring loses packets instead, and counts them.
//! - **No queueing in the kernel** (PACKET_QDISC_BYPASS): the router has queues of its own. The socket's buffer,
//!   [`SEND_BUFFER_BYTES`], bounds what the interface may hold; when it is full, `push` reports that there is no
//!   room.
//!
//! # Interfaces that disappear
//!
//! If an interface is down or gone, `receive` and `flush` fail. Both halves look for it at the next call, and
//! attach to an interface that comes back under the same name with another number.
//!
//! Missing: merged segments of UDP, hardware timestamps.

pub(super) mod exclusive;
mod receive;
mod ring;
pub(super) mod transmit;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::driver::{Driver, Opened, Probed, Request};
use super::link::{LinkFacts, Links};
use super::xdp::offload::Offload;
use super::{LiveError, Port, PortFacts, PortRx, VirtualMacs};
use exclusive::Exclusive;
use receive::{Fanout, PacketRx};
use transmit::PacketTx;

pub use receive::{QUEUES_MAX, RECEIVE_QUEUE_BYTES};
use thalweg_wire::MacAddr;
pub use transmit::{PENDING_FRAMES_MAX, SEND_BUFFER_BYTES};

/// The options of a port.
#[derive(Clone, Debug)]
pub struct PacketOptions {
    pub interface: String,
    /// The port's own address: the port receives frames to it and to groups. `None` takes the interface's address.
    /// With an address other than the interface's, the interface becomes promiscuous.
    pub mac: Option<MacAddr>,
    /// The addresses of virtual routers that are the port's too; with it the interface becomes promiscuous.
    pub virtual_macs: Option<Arc<VirtualMacs>>,
    /// The port receives every frame, whatever its destination (promiscuous mode). For monitoring.
    pub everything: bool,
    /// Receiving halves, 1 to [`QUEUES_MAX`]; the kernel spreads flows over them by a symmetric hash.
    pub queues: usize,
    /// Slots of each half's ring, rounded up to a power of two: the frames that can wait. 4,096 last 7 ms at 0.6
    /// million frames a second. A ring has 128 MiB at most.
    pub ring_frames: usize,
    /// The host's own stack receives none of the packets.
    pub exclusive: bool,
    /// The flows that the kernel forwards. Needs `exclusive`.
    pub offload: Option<Arc<Offload>>,
    /// Sends past the kernel's queueing discipline.
    pub bypass_queueing: bool,
}

impl PacketOptions {
    /// An interface that belongs to the router, with one queue.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            mac: None,
            virtual_macs: None,
            everything: false,
            queues: 1,
            ring_frames: 4096,
            exclusive: true,
            offload: None,
            bypass_queueing: true,
        }
    }
}

/// The driver of ports that use AF_PACKET.
pub struct AfPacket;

impl AfPacket {
    fn options(request: &Request) -> PacketOptions {
        PacketOptions {
            mac: request.mac,
            virtual_macs: request.virtual_macs.clone(),
            queues: request.queues,
            offload: request.offload.clone(),
            ..PacketOptions::new(&request.interface)
        }
    }
}

impl Driver for AfPacket {
    fn open(&self, request: &Request) -> Result<Opened, LiveError> {
        open(&Self::options(request)).map(Opened::from)
    }

    fn probe(&self, request: &Request) -> Result<Probed, LiveError> {
        // Not exclusive: the system would be deaf for a moment.
        let options = PacketOptions {
            exclusive: false,
            offload: None,
            ring_frames: 16,
            mac: None,
            ..Self::options(request)
        };
        open(&options).map(|port| Probed { mode: port.facts.mode, ..Probed::default() })
    }
}

/// Opens a port. The interface must exist, but may be down. Needs `CAP_NET_RAW`.
pub fn open(options: &PacketOptions) -> Result<Port, LiveError> {
    let links = Links::open().map_err(LiveError::call(&options.interface, "socket"))?;
    let facts = links.read(&options.interface)?;
    let mac = options.mac.unwrap_or(facts.mac);
    let (exclusive, why_not_better) = take_over(options, &facts);
    let forwards = exclusive.as_ref().is_some_and(Exclusive::forwards);
    let shared = Arc::new(Shared {
        interface: options.interface.clone(),
        mac: AtomicU64::new(0),
        follows: options.mac.is_none(),
        everything: options.everything,
        promiscuous: facts.far_end.is_none()
            && (options.everything || mac != facts.mac || options.virtual_macs.is_some()),
        virtual_macs: options.virtual_macs.clone(),
        exclusive: options.exclusive,
        offload: options.offload.clone().filter(|_| forwards),
        lost_before: AtomicU64::new(0),
        attached: Mutex::new(Attached { index: facts.index, exclusive, fanout: None }),
    });
    shared.set_mac(mac);
    let queues = options.queues.clamp(1, QUEUES_MAX);
    let mut rx: Vec<Box<dyn PortRx>> = Vec::with_capacity(queues);
    for _ in 0..queues {
        let half = PacketRx::open(Arc::clone(&shared), &facts, options.ring_frames, queues > 1)?;
        rx.push(Box::new(half));
    }
    let tx = Box::new(PacketTx::open(&options.interface, &facts, options.bypass_queueing)?);
    let mut facts = port_facts(options, &facts, queues, why_not_better);
    facts.mode += if forwards { ", offload" } else { "" };
    Ok(Port { rx, tx, facts })
}

/// Keeps the host's stack from the interface's packets, and has the kernel forward flows if it can. Says what it cannot.
fn take_over(options: &PacketOptions, facts: &LinkFacts) -> (Option<Exclusive>, Option<String>) {
    if !options.exclusive {
        return (None, None);
    }
    let bare = "flows are not offloaded: the interface has no link layer".to_owned();
    let (offload, no_offload) = match options.offload.as_deref() {
        Some(_) if facts.far_end.is_some() => (None, Some(bare)),
        offload => (offload, None),
    };
    let (taken, no_offload) = match Exclusive::attach(facts.index, offload) {
        Err(error) if offload.is_some() => {
            (Exclusive::attach(facts.index, None), Some(format!("flows are not offloaded: {error}")))
        }
        taken => (taken, no_offload),
    };
    match taken {
        Ok(exclusive) => (Some(exclusive), no_offload),
        Err(error) => (None, Some(format!("the host's stack still receives its packets: {error}"))),
    }
}

fn port_facts(
    options: &PacketOptions,
    facts: &LinkFacts,
    queues: usize,
    why_not_better: Option<String>,
) -> PortFacts {
    let several = if queues > 1 { format!(" {queues} queues") } else { String::new() };
    let bare = if facts.far_end.is_some() { ", IP without a link layer" } else { "" };
    let mode = format!("af_packet{several}{bare}");
    PortFacts {
        interface: options.interface.clone(),
        index: facts.index,
        mac: options.mac.unwrap_or(facts.mac),
        far_end: facts.far_end,
        mtu: facts.mtu,
        mode,
        why_not_better,
    }
}

/// The common state of a port's receiving halves.
struct Shared {
    interface: String,
    /// The port's address as a number.
    mac: AtomicU64,
    /// The port has the interface's address, even if that changes.
    follows: bool,
    /// Frames to other addresses are the port's too.
    everything: bool,
    promiscuous: bool,
    virtual_macs: Option<Arc<VirtualMacs>>,
    exclusive: bool,
    /// The flows that the kernel forwards.
    offload: Option<Arc<Offload>>,
    /// Its lost frames that are in a half's counter already.
    lost_before: AtomicU64,
    attached: Mutex<Attached>,
}

/// State that is bound to the interface of the present number.
struct Attached {
    index: u32,
    /// Keeps the host's stack from the packets as long as it exists.
    exclusive: Option<Exclusive>,
    fanout: Option<Fanout>,
}
