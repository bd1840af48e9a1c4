//! Packets on live interfaces: the interface of all drivers.
//!
//! ```text
//! PortRx::receive ──> ChunkBuilder ──Chunk──> stages ──> egress queues ──frame──> PortTx::push, flush
//! ```
//!
//! A driver opens a port as halves, because different threads use them: one receives for all ports and forms
//! chunks, one sends. Nothing here blocks: a half that has nothing to do returns, and its file descriptor becomes
//! readable when there is work again. A driver counts whatever it cannot receive or send.
//!
//! A frame is an Ethernet frame without its check sequence. A driver passes on what was on the wire: it computes
//! checksums that the kernel left to hardware, and cuts segments that the kernel merged, before any stage sees
//! them. If the chunk takes merged segments ([`ChunkBuilder::take_merged`]), most frames of TCP stay whole
//! ([`segment`]), and drivers that can send them whole do so ([`PortTx::push_merged`]).
//!
//! Drivers: [`packet`] (AF_PACKET, every Ethernet interface, and interfaces without a link layer), [`tap`] (the router as
//! the peer of an interface of the host), [`xdp`] (AF_XDP), [`dpdk`] (optional), [`capture`] (plays a file).
//! [`LiveSource`] receives from any number of halves and forms chunks.

#[cfg(target_os = "linux")]
mod bare;
#[cfg(target_os = "linux")]
pub mod capture;
#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
pub mod dpdk;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod intake;
#[cfg(target_os = "linux")]
pub mod link;
#[cfg(target_os = "linux")]
mod membership;
#[cfg(target_os = "linux")]
mod merge;
#[cfg(target_os = "linux")]
pub mod packet;
mod passing;
#[cfg(target_os = "linux")]
pub mod reopen;
pub mod segment;
#[cfg(target_os = "linux")]
mod source;
#[cfg(target_os = "linux")]
mod system;
#[cfg(target_os = "linux")]
pub mod tap;
#[cfg(target_os = "linux")]
pub mod xdp;

#[cfg(target_os = "linux")]
pub use clock::{LiveClock, WallShift, wall_ns};
#[cfg(target_os = "linux")]
pub use driver::{Driver, Held, Opened, Playback, Probed, Request};
#[cfg(target_os = "linux")]
pub use error::LiveError;
#[cfg(target_os = "linux")]
pub use source::{LiveSource, NAP, PortChange, RETRY_EVERY, SPIN_FOR, SourceOptions, SourceWaker};

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::ChunkBuilder;
use thalweg_wire::MacAddr;

/// The drivers, by their names in the configuration.
#[cfg(target_os = "linux")]
pub static DRIVERS: [(&str, &dyn Driver); 5] = [
    ("af_xdp", &xdp::AfXdp),
    ("af_packet", &packet::AfPacket),
    ("tap", &tap::Tap),
    ("dpdk", &dpdk::Dpdk),
    ("capture", &capture::Capture),
];

/// An open port.
pub struct Port {
    /// Receiving halves: one for each queue, at least one. All frames of a flow arrive at one of them, also those
    /// of the other direction if the port receives both.
    pub rx: Vec<Box<dyn PortRx>>,
    pub tx: Box<dyn PortTx>,
    /// What opening the port found out.
    pub facts: PortFacts,
}

/// Whether a frame is for the port with this MAC address, given as a number: sent to it, to a group, or to a virtual
/// router. A frame too short for an address passes, and is dropped by name later.
#[cfg(target_os = "linux")]
#[inline]
fn is_for(mac: u64, shared: Option<&VirtualMacs>, frame: &[u8]) -> bool {
    let is_own = |to: &[u8; 6]| MacAddr(*to).is_group() || MacAddr(*to).to_u64() == mac;
    frame.first_chunk::<6>().is_none_or(|to| is_own(to) || shared.is_some_and(|shared| shared.has(*to)))
}

/// The MAC addresses of virtual routers (RFC 9568 7.3) that a port has at present.
#[derive(Debug, Default)]
pub struct VirtualMacs([AtomicU64; 8]);

impl VirtualMacs {
    /// The word and the bit of an address; `None` for addresses of others.
    fn place([a, b, c, d, family, id]: [u8; 6]) -> Option<(usize, u64)> {
        let family = usize::from(family).checked_sub(1).filter(|family| *family < 2)?;
        let is_virtual = [a, b, c, d] == [0, 0, 0x5e, 0];
        is_virtual.then(|| (family * 4 + usize::from(id / 64), 1 << (id % 64)))
    }

    /// Sets whether frames to the address are the port's.
    pub fn set(&self, mac: MacAddr, is_ours: bool) {
        let Some((word, bit)) = Self::place(mac.0) else { return };
        match is_ours {
            true => self.0[word].fetch_or(bit, Ordering::Relaxed),
            false => self.0[word].fetch_and(!bit, Ordering::Relaxed),
        };
    }

    fn has(&self, mac: [u8; 6]) -> bool {
        Self::place(mac).is_some_and(|(word, bit)| self.0[word].load(Ordering::Relaxed) & bit != 0)
    }
}

/// The properties of a port as opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    pub interface: String,
    pub index: u32,
    pub mac: MacAddr,
    /// As in [`link::LinkFacts`].
    pub far_end: Option<MacAddr>,
    /// The largest IP packet that it takes, in bytes.
    pub mtu: u32,
    /// The driver and its mode: `af_xdp native copy`, `af_packet`, `tap`.
    pub mode: String,
    /// Why the mode is not a better one, if there is one.
    pub why_not_better: Option<String>,
}

/// The counters of a receiving half since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Frames passed on.
    pub frames: u64,
    pub bytes: u64,
    /// Frames that arrived and were lost: the ring was full, or memory ran out.
    pub missed: u64,
    /// Frames that could not be passed on: too long, cut or damaged.
    pub refused: u64,
    /// Frames for other addresses, which arrive from a switch that floods or in promiscuous mode. They do not
    /// concern the router, and are not among `frames`.
    pub foreign: u64,
}

/// The counters of a sending half since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Frames that the interface took.
    pub frames: u64,
    pub bytes: u64,
    /// Frames that the interface did not take: it was down or gone, or refused them.
    pub failed: u64,
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// There is no room now. After a [`PortTx::flush`] there may be.
    Full,
    /// The frame is longer than the interface allows, and will never be taken.
    TooLong,
    /// The interface is down or gone. [`PortTx::flush`] finds out when it is back.
    Down,
    /// The port sends only single frames: the caller cuts this one.
    Merged,
}

/// The receiving half of a port.
pub trait PortRx: Send {
    /// Appends waiting frames to the chunk, as received by port `port` at `now_ns`: at most `limit`, and as many as
    /// fit. Returns how many.
    ///
    /// An error means that the interface is down or gone. Every call returns it until the interface is back, so the
    /// caller retries now and then. Frames appended before the error stay in the chunk.
    fn receive(&mut self, port: u16, now_ns: u64, limit: usize, into: &mut ChunkBuilder)
    -> io::Result<usize>;

    /// Appends frames that wait behind those of other flows, of which the last [`receive`](Self::receive) left some:
    /// few, and never one before another of its flow. Returns how many.
    fn receive_passing(
        &mut self,
        _port: u16,
        _now_ns: u64,
        _limit: usize,
        _into: &mut ChunkBuilder,
    ) -> usize {
        0
    }

    /// The descriptor that becomes readable when there are frames. It may change after [`receive`](Self::receive)
    /// has failed, because the interface may have been created again.
    fn fd(&self) -> RawFd;

    /// Whether frames arrive unannounced: then the caller polls the half, and [`fd`](Self::fd) is -1.
    fn is_polled(&self) -> bool {
        false
    }

    /// The present counters.
    fn counters(&mut self) -> RxCounters;
}

/// The sending half of a port.
pub trait PortTx: Send {
    /// Takes a frame, to be sent by the next [`flush`](Self::flush) at the latest.
    fn push(&mut self, frame: &[u8]) -> Result<(), NotTaken>;

    /// Takes a frame that merges segments of a TCP flow, with up to `segment_bytes` of payload each, and counts it as
    /// its segments. `frame` is as [`thalweg_base::Chunk::egress_frame`] has it; its checksum means nothing.
    fn push_merged(&mut self, _frame: &[u8], _segment_bytes: u16) -> Result<(), NotTaken> {
        Err(NotTaken::Merged)
    }

    /// Makes the interface send the pushed frames, as far as possible without waiting. An error means that the
    /// interface is down or gone; frames that it had taken may be lost, and count as failed.
    fn flush(&mut self) -> io::Result<()>;

    /// Frames taken and neither sent nor failed yet: a later [`flush`](Self::flush) sends them.
    fn pending(&self) -> usize {
        0
    }

    /// Another sending half of the same port, for another thread; `None` if the driver has none. Each half keeps
    /// the order of its frames, with no order between halves, and has counters of its own.
    fn another(&mut self) -> Option<Box<dyn PortTx>> {
        None
    }

    /// The present counters.
    fn counters(&mut self) -> TxCounters;
}
