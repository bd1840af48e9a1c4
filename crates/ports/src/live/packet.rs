//! AF_PACKET: any Ethernet interface as a port, shared memory for receiving, batched calls for sending.
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
//! - **Slots, not blocks.** The ring is TPACKET_V2: a frame is handed over when it is there. TPACKET_V3 gathers frames
//!   in blocks and hands a block over when it is full or a timer of whole milliseconds has run out; at low rates each
//!   packet waits for that timer, which is the complaint one finds about routers built on it. What V3 saves, memory
//!   for small frames, a router has.
//! - **No transmit ring.** The kernel sends a ring's frames without copying them and marks their slots free when the
//!   packet's owner changes, which on virtual interfaces is long before its last reader is done: a slot that is
//!   used again then changes a packet that is still waiting in somebody's socket. `sendmmsg` copies; 64 frames share
//!   the call.
//! - **Frames as on a wire.** The kernel puts an offload header in front of each frame (PACKET_VNET_HDR): unfinished
//!   checksums are finished here, super-segments cut ([`super::segment`]), VLAN tags that were taken off put back.
//!   Frames longer than a slot come by the socket's own queue, in order (PACKET_COPY_THRESH).
//! - **The interface is the router's.** A program of two instructions at the interface's ingress drops what the
//!   ring has seen ([`PacketOptions::exclusive`]), so that the host does not answer or forward the same packets again.
//!   The kernel removes it when the port is closed, also by `kill -9`.
//! - **Several queues are several sockets** in one group, among which the kernel deals flows out (PACKET_FANOUT_HASH): by
//!   addresses and ports without regard to direction, tags looked through. All fragments of a packet, the first too, and
//!   what is not IP, are dealt out by what addresses they have, so fragments stay together, and apart from the rest of
//!   their flow. The kernel could put fragments together first (PACKET_FANOUT_FLAG_DEFRAG); a router would then send
//!   packets that nobody sent. It could pass what finds a ring full to another ring (PACKET_FANOUT_FLAG_ROLLOVER); a flow
//!   would then come by two queues, out of order, when it matters most. A full ring loses packets instead, and counts.
//! - **No queueing in the kernel** (PACKET_QDISC_BYPASS): queues are the router's own business. What the interface may
//!   hold is bounded by the socket's buffer, [`SEND_BUFFER_BYTES`]; then `push` says that there is no room.
//!
//! # Interfaces that go
//!
//! An interface that is down or gone is an error of `receive` and `flush`; both halves look for it when called again,
//! and attach anew to an interface that comes back under the same name, with another number.
//!
//! Missing: segments merged on sending, hardware timestamps.

pub(super) mod exclusive;
mod receive;
mod ring;
mod transmit;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::driver::{Driver, Opened, Probed, Request};
use super::link::{LinkFacts, Links};
use super::{LiveError, Port, PortFacts, PortRx};
use exclusive::Exclusive;
use receive::{Fanout, PacketRx};
use transmit::PacketTx;

pub use receive::{QUEUES_MAX, RECEIVE_QUEUE_BYTES};
use thalweg_wire::MacAddr;
pub use transmit::{PENDING_FRAMES_MAX, SEND_BUFFER_BYTES};

/// How a port is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// The interface's name.
    pub interface: String,
    /// The port's own address: frames to it, and to groups, are the port's. `None` takes the interface's. If it is
    /// another one, the interface is made to listen to everything.
    pub mac: Option<MacAddr>,
    /// The port receives every frame, no matter its destination (promiscuous mode). For monitoring.
    pub everything: bool,
    /// Receiving halves, 1 to [`QUEUES_MAX`]; the kernel spreads flows over them by a symmetric hash.
    pub queues: usize,
    /// Slots of each half's ring, rounded up to a power of two: frames that can wait. 4,096 are 7 ms at 0.6 million
    /// a second.
    pub ring_frames: usize,
    /// The host's own stack gets nothing of what arrives.
    pub exclusive: bool,
    /// Sends past the kernel's queueing discipline.
    pub bypass_queueing: bool,
}

impl PacketOptions {
    /// An interface as the router's own, with one queue.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            mac: None,
            everything: false,
            queues: 1,
            ring_frames: 4096,
            exclusive: true,
            bypass_queueing: true,
        }
    }
}

/// AF_PACKET as a driver of ports.
pub struct AfPacket;

impl AfPacket {
    fn options(request: &Request) -> PacketOptions {
        PacketOptions { mac: request.mac, queues: request.queues, ..PacketOptions::new(&request.interface) }
    }
}

impl Driver for AfPacket {
    fn open(&self, request: &Request) -> Result<Opened, LiveError> {
        open(&Self::options(request)).map(Opened::from)
    }

    fn probe(&self, request: &Request) -> Result<Probed, LiveError> {
        // Not exclusive: the system would be deaf for a moment.
        let options =
            PacketOptions { exclusive: false, ring_frames: 16, mac: None, ..Self::options(request) };
        open(&options).map(|port| Probed { mode: port.facts.mode, ..Probed::default() })
    }
}

/// Opens a port. The interface may be down; it must exist. Needs `CAP_NET_RAW`.
pub fn open(options: &PacketOptions) -> Result<Port, LiveError> {
    let links = Links::open().map_err(LiveError::call(&options.interface, "socket"))?;
    let facts = links.read(&options.interface)?;
    let mac = options.mac.unwrap_or(facts.mac);
    let exclusive = options.exclusive.then(|| Exclusive::attach(facts.index));
    let why_not_better = match &exclusive {
        Some(Err(error)) => Some(format!("the host's stack still receives its packets: {error}")),
        _ => None,
    };
    let shared = Arc::new(Shared {
        interface: options.interface.clone(),
        mac: AtomicU64::new(mac.to_u64()),
        follows: options.mac.is_none(),
        everything: options.everything,
        promiscuous: options.everything || mac != facts.mac,
        exclusive: options.exclusive,
        attached: Mutex::new(Attached {
            index: facts.index,
            _exclusive: exclusive.and_then(Result::ok),
            fanout: None,
        }),
    });
    let queues = options.queues.clamp(1, QUEUES_MAX);
    let mut rx: Vec<Box<dyn PortRx>> = Vec::with_capacity(queues);
    for _ in 0..queues {
        let half = PacketRx::open(Arc::clone(&shared), &facts, options.ring_frames, queues > 1)?;
        rx.push(Box::new(half));
    }
    let tx = Box::new(PacketTx::open(&options.interface, &facts, options.bypass_queueing)?);
    Ok(Port { rx, tx, facts: port_facts(options, &facts, queues, why_not_better) })
}

fn port_facts(
    options: &PacketOptions,
    facts: &LinkFacts,
    queues: usize,
    why_not_better: Option<String>,
) -> PortFacts {
    let mode = if queues > 1 { format!("af_packet {queues} queues") } else { "af_packet".to_owned() };
    PortFacts {
        interface: options.interface.clone(),
        index: facts.index,
        mac: options.mac.unwrap_or(facts.mac),
        mtu: facts.mtu,
        mode,
        why_not_better,
    }
}

/// What the receiving halves of a port have in common.
struct Shared {
    interface: String,
    /// The port's address, as [`number_of`] has it.
    mac: AtomicU64,
    /// It is the interface's, whatever that is.
    follows: bool,
    /// Frames for others are the port's too.
    everything: bool,
    promiscuous: bool,
    exclusive: bool,
    attached: Mutex<Attached>,
}

/// What belongs to the interface as it is now, and goes with it.
struct Attached {
    index: u32,
    /// Does its work by being there.
    _exclusive: Option<Exclusive>,
    fanout: Option<Fanout>,
}
