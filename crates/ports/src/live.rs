//! Packets on live interfaces: what every driver offers.
//!
//! ```text
//! PortRx::receive ──> ChunkBuilder ──Chunk──> stages ──> egress queues ──frame──> PortTx::push, flush
//! ```
//!
//! A port is opened by its driver and comes in two halves, because two threads use it: one receives for all ports and
//! cuts chunks, one sends. Nothing here blocks: a half that has nothing to do says so, and its file descriptor
//! becomes readable when it has. Whatever a driver cannot take or give is counted where it happened.
//!
//! A frame is an Ethernet frame without its check sequence. A driver hands up what was on the wire: checksums that the
//! kernel meant to leave to hardware are filled in, and segments that the kernel had merged are cut again, before
//! anybody sees them.
//!
//! Drivers: [`packet`] (AF_PACKET, every Ethernet interface), [`tap`] (the router as the peer of an interface of the
//! host), [`xdp`] (AF_XDP), [`dpdk`] (optional). [`LiveSource`] receives for any number of halves and cuts chunks.

#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
pub mod dpdk;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
pub mod link;
#[cfg(target_os = "linux")]
mod membership;
#[cfg(target_os = "linux")]
pub mod packet;
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
pub use driver::{Driver, Held, Opened, Probed, Request};
#[cfg(target_os = "linux")]
pub use error::LiveError;
#[cfg(target_os = "linux")]
pub use source::{LiveSource, NAP, PortChange, RETRY_EVERY, SPIN_FOR, SourceOptions, SourceWaker};

use std::io;
use std::os::fd::RawFd;
use thalweg_base::ChunkBuilder;
use thalweg_wire::MacAddr;

/// The drivers, by their names in the configuration.
#[cfg(target_os = "linux")]
pub static DRIVERS: [(&str, &dyn Driver); 4] =
    [("af_xdp", &xdp::AfXdp), ("af_packet", &packet::AfPacket), ("tap", &tap::Tap), ("dpdk", &dpdk::Dpdk)];

/// A port that was opened.
pub struct Port {
    /// Where frames come from: one half for each queue, at least one. The frames of a flow, both directions of it
    /// included where the port sees both, come by one of them.
    pub rx: Vec<Box<dyn PortRx>>,
    /// Where frames go.
    pub tx: Box<dyn PortTx>,
    /// What was found and agreed on.
    pub facts: PortFacts,
}

/// Whether a frame is for the neighbor with this MAC address, given as a number: sent to it, or to a group. One that is too short to say is
/// handed up, and dropped by name.
#[cfg(target_os = "linux")]
#[inline]
fn is_for(mac: u64, frame: &[u8]) -> bool {
    frame.first_chunk::<6>().is_none_or(|to| MacAddr(*to).is_group() || MacAddr(*to).to_u64() == mac)
}

/// What opening a port came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// The interface's name.
    pub interface: String,
    /// The interface's number.
    pub index: u32,
    /// Its address.
    pub mac: MacAddr,
    /// Largest IP packet it takes.
    pub mtu: u32,
    /// The driver that serves it, and how: `af_xdp native copy`, `af_packet`, `tap`.
    pub mode: String,
    /// Why it is not a better mode, if there is one.
    pub why_not_better: Option<String>,
}

/// What a receiving half has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Frames handed up.
    pub frames: u64,
    pub bytes: u64,
    /// Frames that were there and could not be taken: the ring was full, memory ran out.
    pub missed: u64,
    /// Frames that could not be handed up as they were: too long, or cut.
    pub refused: u64,
    /// Frames for another neighbor, which a switch that floods or an interface that listens to everything brings: not
    /// the router's business, and not among `frames`.
    pub foreign: u64,
}

/// What a sending half has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Frames that the interface took.
    pub frames: u64,
    pub bytes: u64,
    /// Frames that it did not take: down, gone, or refused one by one.
    pub failed: u64,
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// There is no room now. After a [`PortTx::flush`] there may be.
    Full,
    /// It will never be taken: longer than the interface allows.
    TooLong,
    /// The interface is down or gone. [`PortTx::flush`] says when it is back.
    Down,
}

/// The half that receives.
pub trait PortRx: Send {
    /// Appends frames that are there to the chunk, at most `limit` and as many as have room, as arrived at `now_ns` by
    /// port `port`; how many. Where the kernel knows better when a frame came, that time counts.
    ///
    /// An error means that the interface is down or gone; every call returns it until the interface is back: to call again
    /// now and then is how to find out. What was appended before stays.
    fn receive(&mut self, port: u16, now_ns: u64, limit: usize, into: &mut ChunkBuilder)
    -> io::Result<usize>;

    /// Becomes readable when there is something to receive. May be another one after [`receive`](Self::receive) has
    /// failed: the interface may have gone and come back.
    fn fd(&self) -> RawFd;

    /// Whether nothing tells when there is something to receive: the half has to be asked again and again, and its
    /// [`fd`](Self::fd) is none (-1).
    fn is_polled(&self) -> bool {
        false
    }

    /// Counters now.
    fn counters(&mut self) -> RxCounters;
}

/// The half that sends.
pub trait PortTx: Send {
    /// Takes a frame to be sent with the next [`flush`](Self::flush), or sooner.
    fn push(&mut self, frame: &[u8]) -> Result<(), NotTaken>;

    /// Makes the interface send what was pushed, as far as it goes without waiting. An error says that the interface
    /// is down or gone; frames it had taken may be lost and are counted as failed.
    fn flush(&mut self) -> io::Result<()>;

    /// Frames taken and neither sent nor failed yet: a later [`flush`](Self::flush) will send them.
    fn pending(&self) -> usize {
        0
    }

    /// Another half that sends by the same port, for another thread; `None` where a driver has none. What each of them
    /// takes leaves in order; between two of them there is none. Each counts its own.
    fn another(&mut self) -> Option<Box<dyn PortTx>> {
        None
    }

    /// Counters now.
    fn counters(&mut self) -> TxCounters;
}
