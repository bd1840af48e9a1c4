//! AF_XDP: frames of an interface past the kernel's stack, through memory shared with the kernel.
//!
//! ```text
//!            XDP program (program.rs)                       one region of frames (umem.rs), four rings a queue (rings.rs)
//! interface ─────┤                                          fill ──> kernel ──> receive ──copy──> chunk
//!                │ the socket of the queue                  frame ──copy──> transmit ──> kernel ──> completion
//! ```
//!
//! A program of six instructions, written here and loaded by our own system calls (bpf.rs), runs where frames
//! arrive and hands each to the socket of its receive queue. There is one socket for each queue (socket.rs). The
//! queues are dealt to the receiving halves, of which there are as many as [`XdpOptions::halves`] says, so that
//! several threads receive. The sending half has another socket, at the first queue: if it sent by a socket that
//! also receives, a wait for received frames would send as well, and its result would be lost. All sockets use one
//! region.
//!
//! # Modes
//!
//! The modes are tried in the order of [`XdpOptions::modes`]; the port reports which one it got and why no better
//! one ([`PortFacts::why_not_better`](super::PortFacts)). *Native*: the program runs in the driver, before a socket
//! buffer exists. *Generic*: it runs in the kernel behind any driver. *Zero-copy*: the card writes into the region
//! itself; otherwise the kernel copies. With need-wakeup the kernel is called only when it has work to do.
//!
//! In generic mode the kernel may have merged segments before the program sees them: by GRO, which is switched off
//! while the port is open, or by TSO of a local sender at a veth's other end (`ethtool -K PEER tso off gso off`).
//! The original segments cannot be recovered, so frames longer than the MTU allows are refused and counted.
//!
//! # Jumbo frames
//!
//! A frame of the region has 2048 bytes, or 4096 for an MTU that needs it, of which the kernel reserves 256. Longer
//! frames come and go in several pieces (`XDP_USE_SG`, and a program that declares support); the MTU at opening
//! decides about this. A larger MTU later needs a new port; until then longer frames count as missed.
//!
//! # Checksums
//!
//! A local sender leaves the transport checksum to hardware, and a veth has none: such frames arrive unfinished,
//! and XDP cannot see the mark that says so. [`thalweg_wire::checksum_offload::complete_frame`] says how they are
//! recognized and completed. This happens only on interfaces without a wire.
//!
//! # Merged segments
//!
//! Frames come single. Segments of a TCP flow that follow each other are merged in the chunk, if it takes them
//! (merge.rs), and merged frames leave whole by a packet socket (transmit.rs), which the kernel's transmit path
//! serves with less work for each byte. With zero-copy they are cut, and leave by the ring.
//!
//! # Cleaning up
//!
//! Nothing. Program, map, link and sockets are file descriptors, and go with the process however it ends. What
//! another one holds is an error that names it ([`LiveError::Occupied`]).
//! Of a predecessor that is just being taken apart the end is awaited, two seconds at most.
//!
//! # Bounds
//!
//! The region and the rings have a fixed size. If we are slow, the kernel finds no frame in the fill ring, and
//! counts that: [`RxCounters::missed`](super::RxCounters). If the interface is slow, the transmit ring is full:
//! [`NotTaken::Full`](super::NotTaken). No call waits.
//!
//! # Why frames are copied between region and chunk
//!
//! Ports could share one region, and a forwarded frame could stay in it. `benches/xdp.rs` measured the gain,
//! against the same with copies of at most 64 bytes (two cores of an EPYC guest, Linux 6.18, native copy over a
//! veth, three runs each, other work on the machine). Frames of 60 bytes: nothing visible. Frames of 1514 bytes:
//! about 130 ns in receiving and 80 in sending, of 1,700 ns of the forwarder's CPU time and 3,500 of the machine's.
//! The kernel, which also copies in this mode, would lose a part of that again, because it would find the bytes in
//! no cache. It may pay on a card with zero-copy; there was none to measure.
//!
//! Missing: only one queue sends; SCTP, and the inner packets of tunnels that end at a veth's other end, keep
//! unfinished checksums; frames whose VLAN tag the driver has stripped (`ethtool -K IF rxvlan off` where a card
//! does so).

mod assembler;
mod bpf;
mod driver;
mod ingress;
mod interface;
pub mod offload;
mod program;
mod receive;
mod rings;
mod socket;
mod transmit;
mod umem;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::error::LiveError;
use super::link::LinkFacts;
use super::membership::Promiscuous;
use super::{Port, PortFacts, PortRx, VirtualMacs, is_for};
use crate::kernel::XdpAttachment;
pub(super) use bpf::Link;
use bpf::{Program, SocketMap};
pub use driver::AfXdp;
pub(super) use ingress::{Filter, at_ingress};
use interface::Interface;
use offload::Offload;
use receive::{Queue, Receiver};
use rings::{CompletionRing, TransmitRing};
use socket::{Binding, XdpSocket};
use thalweg_wire::MacAddr;
use transmit::Sender;
use umem::{Frame, Umem};

thalweg_base::words! {
    /// How frames reach us, best first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum XdpMode {
        /// The driver writes into our memory itself.
        NativeZeroCopy => "native zero-copy",
        /// The driver runs the program, and the kernel copies.
        NativeCopy => "native copy",
        /// The kernel runs the program behind any driver, and copies.
        GenericCopy => "generic copy",
    }
}

impl XdpMode {
    fn is_native(self) -> bool {
        self != Self::GenericCopy
    }
}

/// The most receive queues of a port: more than any card has cores to serve.
pub const QUEUES_MAX: u32 = 256;

/// Frames that may wait in each queue: 160 ms at 50,000 a second. A thread that shares its core may have to wait
/// longer than the 40 ms of 2,048 frames, and further frames are lost. Four times the memory cost no measurable
/// time (64 bytes over a veth, 5.6 to 5.9 µs of processor time a packet with 2,048 and with 8,192; one run each).
const RX_FRAMES: u32 = 8192;
/// Of all queues together: 128 MiB, or twice that with large frames.
const RX_FRAMES_IN_ALL: u32 = 1 << 16;
/// Limits of memory reduce a queue no further than this.
const RX_FRAMES_ENOUGH: u32 = 2048;

/// The options of a port.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    pub interface: String,
    /// The modes to try, in order. Exception: if all modes are allowed, flows are offloaded and the interface has
    /// no wire, the generic mode comes first, because socket buffers exist there anyway.
    pub modes: Vec<XdpMode>,
    /// The most receiving halves, at least 1: the interface's receive queues are dealt to them in turn.
    pub halves: usize,
    /// Receive frames for each queue, a power of two: how many frames may wait for us. A port with many queues, or
    /// with a limit on locked memory, gets fewer, but at least 2,048.
    pub rx_frames: u32,
    /// Send frames, a power of two: how many may be in flight.
    pub tx_frames: u32,
    /// The port receives every frame, whatever its destination (promiscuous mode); the host receives none. For
    /// monitoring.
    pub everything: bool,
    /// The addresses of virtual routers that are the port's too; with it the interface becomes promiscuous.
    pub virtual_macs: Option<Arc<VirtualMacs>>,
    /// The flows that the kernel may forward.
    pub offload: Option<Arc<Offload>>,
}

impl XdpOptions {
    /// The default options: all modes, and every frame is ours.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            modes: XdpMode::ALL.to_vec(),
            halves: 1,
            rx_frames: RX_FRAMES,
            tx_frames: 2048,
            everything: false,
            virtual_macs: None,
            offload: None,
        }
    }
}

/// The sizes of a region's frames: two a page, or one.
const FRAME_BYTES: [u32; 2] = [2048, 4096];
/// What the kernel leaves free before a received frame (`XDP_PACKET_HEADROOM`).
const HEADROOM_BYTES: u32 = 256;
/// An Ethernet header with two VLAN tags.
const HEADER_BYTES: u32 = 22;
/// How long, and how many times, to wait for a predecessor's end.
const TIMEOUT: Duration = Duration::from_millis(20);
const TRIES: u32 = 100;

/// Opens a port.
///
/// # Errors
///
/// Fails if there is no such interface, another program has it, rights are missing, or no mode works; then it
/// returns the error of the last mode.
pub fn open(options: &XdpOptions) -> Result<Port, LiveError> {
    let setup = Setup::new(options)?;
    let mut attached = None;
    let mut better = Vec::new();
    let mut last =
        LiveError::BadOption { interface: options.interface.clone(), why: "no XDP mode allowed".into() };
    let mut modes = options.modes.clone();
    if options.offload.is_some() && modes == XdpMode::ALL && setup.interface.has_unfinished_checksums() {
        modes.rotate_right(1);
        better.push(
            "native: flows are forwarded faster behind the driver of an interface without a wire".into(),
        );
    }
    for mode in modes {
        match setup.attempt(mode, &mut attached) {
            Ok((bound, attachment)) => {
                setup.connect(&bound, &attachment.map)?;
                return setup.port(mode, bound, attachment, &better);
            }
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => {
                better.push(format!("{mode}: {}", reason(&error)));
                last = error;
            }
        }
    }
    Err(last)
}

/// Tries modes on an interface, best first, and releases it again. Stops at an error that every mode would have.
/// The program is attached without its sockets, so that frames still reach the kernel's stack; a driver may reset
/// its card all the same.
pub fn probe(interface: &str, modes: &[XdpMode]) -> Vec<(XdpMode, Result<(), LiveError>)> {
    let options = XdpOptions { rx_frames: 64, tx_frames: 64, ..XdpOptions::new(interface) };
    let setup = match Setup::new(&options) {
        Ok(setup) => setup,
        Err(error) => return vec![(XdpMode::NativeZeroCopy, Err(error))],
    };
    let (mut attached, mut found) = (None, Vec::new());
    for &mode in modes {
        let result = setup.attempt(mode, &mut attached).map(|(_, attachment)| attached = Some(attachment));
        let ends = result.as_ref().is_err_and(is_final);
        found.push((mode, result));
        if ends {
            break;
        }
    }
    found
}

/// The number of an interface's receive queues.
///
/// # Errors
///
/// [`LiveError::NoSuchInterface`] if there is no interface of this name.
pub fn receive_queues(interface: &str) -> Result<u32, LiveError> {
    Ok(Interface::find(interface)?.queues().0)
}

/// Whether every other mode would fail too.
fn is_final(error: &LiveError) -> bool {
    match error {
        LiveError::Call { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
        _ => true,
    }
}

fn reason(error: &LiveError) -> String {
    match error {
        LiveError::Call { call, source, .. } => format!("{call}: {source}"),
        other => other.to_string(),
    }
}

/// The common state of the two halves. The program is detached when the last of them is dropped.
#[derive(Debug)]
struct Shared {
    interface: Interface,
    mtu: AtomicU32,
    /// The interface's address as a number.
    mac: AtomicU64,
    frame_bytes: u32,
    multi_buffer: bool,
    is_generic: bool,
    has_unfinished_checksums: bool,
    restore_gro: bool,
    /// Every frame is the port's.
    everything: bool,
    virtual_macs: Option<Arc<VirtualMacs>>,
    _promiscuous: Option<Promiscuous>,
    attachment: Attachment,
}

impl Shared {
    /// Reads the MTU and the address, which may have changed.
    fn refresh(&self) {
        if let Ok(facts) = self.interface.read() {
            self.mtu.store(facts.mtu, Ordering::Relaxed);
            let (mac, before) = (facts.mac, self.mac.swap(facts.mac.to_u64(), Ordering::Relaxed));
            if let Some(offload) = self.attachment.offload.as_ref().filter(|_| before != mac.to_u64()) {
                // If this fails, frames to the new address go through the router: slower, not wrong.
                let _ = offload.set_mac(mac);
            }
        }
    }

    /// Whether the frame is for this port: sent to its address or a group.
    #[inline]
    fn is_ours(&self, frame: &[u8]) -> bool {
        self.everything || is_for(self.mac.load(Ordering::Relaxed), self.virtual_macs.as_deref(), frame)
    }

    fn longest(&self) -> usize {
        (self.mtu.load(Ordering::Relaxed).saturating_add(HEADER_BYTES)) as usize
    }

    /// The longest frame that is passed on.
    fn longest_received(&self) -> usize {
        if self.is_generic { self.longest() } else { usize::MAX }
    }

    /// The longest frame that can be sent.
    fn longest_sent(&self) -> usize {
        if self.multi_buffer { self.longest() } else { self.longest().min(self.frame_bytes as usize) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.restore_gro {
            let _ = self.interface.set_gro(true);
        }
    }
}

/// An attached program with its map.
#[derive(Debug)]
struct Attachment {
    map: SocketMap,
    offload: Option<Arc<Offload>>,
    is_native: bool,
    _link: Link,
}

/// The bound sockets of all queues.
struct Bound {
    umem: Arc<Umem>,
    queues: Vec<Queue>,
    sender: XdpSocket,
    transmit: TransmitRing,
    completion: CompletionRing,
    tx_frames: Vec<Frame>,
}

/// What is known before any mode is tried.
struct Setup<'a> {
    options: &'a XdpOptions,
    interface: Interface,
    mac: MacAddr,
    mtu: u32,
    queues: u32,
    frame_bytes: u32,
    multi_buffer: bool,
}

impl<'a> Setup<'a> {
    fn new(options: &'a XdpOptions) -> Result<Self, LiveError> {
        let name = &options.interface;
        check_options(options)?;
        let interface = Interface::find(name)?;
        let LinkFacts { mac, mtu, far_end, .. } = interface.read()?;
        let why = match far_end {
            Some(_) => {
                "it carries IP packets without Ethernet headers, and AF_XDP needs these: use driver af_packet"
            }
            None if interface.is_over_others() => {
                "it is made over other interfaces, and AF_XDP does not take the segments that these merge: use driver \
                 af_packet"
            }
            None => "",
        };
        if !why.is_empty() {
            return Err(LiveError::BadOption { interface: name.clone(), why: why.to_owned() });
        }
        let queues = interface.queues().0.min(QUEUES_MAX);
        let longest = mtu.saturating_add(HEADER_BYTES);
        let [small, large] = FRAME_BYTES;
        let frame_bytes = if longest <= small - HEADROOM_BYTES { small } else { large };
        let multi_buffer = longest > large - HEADROOM_BYTES;
        Ok(Self { options, interface, mac, mtu, queues, frame_bytes, multi_buffer })
    }

    fn refused(&self, call: &'static str) -> impl Fn(io::Error) -> LiveError + '_ {
        move |source| refused(&self.options.interface, call, source)
    }

    /// Tries one mode. After a failure, `attached` keeps the program for the next mode.
    fn attempt(
        &self,
        mode: XdpMode,
        attached: &mut Option<Attachment>,
    ) -> Result<(Bound, Attachment), LiveError> {
        let attachment = match attached.take() {
            Some(attachment) if attachment.is_native == mode.is_native() => attachment,
            other => {
                drop(other);
                self.attach(mode.is_native())?
            }
        };
        match self.bind_within_limits(mode == XdpMode::NativeZeroCopy) {
            Ok(bound) => Ok((bound, attachment)),
            Err(error) => {
                *attached = Some(attachment);
                Err(error)
            }
        }
    }

    fn attach(&self, is_native: bool) -> Result<Attachment, LiveError> {
        let map = SocketMap::create(self.queues).map_err(self.refused("bpf(MAP_CREATE)"))?;
        let offload = self.options.offload.clone();
        if let Some(offload) = &offload {
            offload.set_mac(self.mac).map_err(self.refused("bpf(MAP_UPDATE_ELEM)"))?;
        }
        // A driver that redirects a frame loses what the kernel knew about its checksum.
        let forgets = is_native && self.interface.has_unfinished_checksums();
        let maps = offload.as_ref().map(|offload| offload.maps(is_native, forgets));
        let slots = program::program(map.descriptor(), maps.as_ref());
        let program =
            Program::load(bpf::XDP, &slots, self.multi_buffer).map_err(self.refused("bpf(PROG_LOAD)"))?;
        let mut tries = 0;
        loop {
            match program.attach(self.interface.index, is_native) {
                Ok(link) => return Ok(Attachment { map, offload, is_native, _link: link }),
                // There is a program already, in this mode or the other.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                    tries += 1;
                    self.make_way(error, tries)?;
                }
                Err(error) => return Err(self.refused("bpf(LINK_CREATE)")(error)),
            }
        }
    }

    /// Deals with another program on the interface: waits for its end if it is ours, or fails with its name.
    fn make_way(&self, error: io::Error, tries: u32) -> Result<(), LiveError> {
        let index = self.interface.index;
        let found = XdpAttachment::read(index).unwrap_or(None);
        let Some(found) = found.filter(|_| tries < TRIES) else {
            // It has just disappeared, or cannot be seen.
            sleep(TIMEOUT);
            return if tries < TRIES { Ok(()) } else { Err(self.refused("bpf(LINK_CREATE)")(error)) };
        };
        let name = bpf::program_name(found.program);
        let link = bpf::link_of(index, found.program);
        let is_ours = name.as_deref() == Some(bpf::XDP.name);
        // A program without a link outlived its process. Ours never do, but removing one of ours is harmless.
        if is_ours && link.is_none() && matches!(found.remove(index), Ok(Ok(()))) {
            return Ok(());
        }
        // A predecessor that was just killed: its link may disappear before its program does.
        if is_ours && tries < TRIES - 1 {
            sleep(TIMEOUT);
            return Ok(());
        }
        let mut holder = format!("it has an XDP program already, number {}", found.program);
        if let Some(name) = name {
            holder += &format!(" ({name})");
        }
        let remedy = match link {
            Some(link) => {
                holder += &format!(", held by BPF link {link}");
                "stop the program that holds it ('bpftool link' says which)"
            }
            None => "take it off with 'ip link set dev INTERFACE xdp off'",
        };
        Err(LiveError::Occupied { interface: self.options.interface.clone(), holder, remedy })
    }

    /// Opens and binds a socket for each queue, with as many frames as memory limits allow.
    fn bind_within_limits(&self, zero_copy: bool) -> Result<Bound, LiveError> {
        let mut rx = self.options.rx_frames;
        while rx > RX_FRAMES_ENOUGH && rx.saturating_mul(self.queues) > RX_FRAMES_IN_ALL {
            rx /= 2;
        }
        loop {
            match self.bind(zero_copy, rx) {
                // Without CAP_IPC_LOCK the region counts as locked memory (RLIMIT_MEMLOCK).
                Err(error)
                    if rx > RX_FRAMES_ENOUGH
                        && matches!(error.errno(), Some(libc::ENOBUFS | libc::ENOMEM)) =>
                {
                    rx /= 2;
                }
                other => return other,
            }
        }
    }

    /// Opens and binds a socket for each queue, with `rx` receive frames each.
    fn bind(&self, zero_copy: bool, rx: u32) -> Result<Bound, LiveError> {
        let tx = self.options.tx_frames;
        let frames = self.queues.saturating_mul(rx).saturating_add(tx);
        let (umem, frames) = Umem::create(frames, self.frame_bytes).map_err(self.refused("mmap"))?;
        let umem = Arc::new(umem);
        let mut frames = frames.into_iter();
        let mut queues: Vec<Queue> = Vec::new();
        let mut completed = None;
        for queue in 0..self.queues {
            let socket = XdpSocket::open().map_err(self.refused("socket(AF_XDP)"))?;
            let ring = self.refused("setsockopt(XDP_RX_RING)");
            let owner = queues.first().map(|first| &first.socket);
            if owner.is_none() {
                socket.register(&umem).map_err(self.refused("setsockopt(XDP_UMEM_REG)"))?;
            }
            let (fill, completion) = socket.memory_rings(rx, tx, &umem).map_err(&ring)?;
            let receive = socket.receive_ring(rx, &umem).map_err(&ring)?;
            completed.get_or_insert(completion);
            let binding = self.binding(queue, zero_copy);
            socket.bind(&binding, owner).map_err(self.refused("bind(AF_XDP)"))?;
            let mut queue = Queue::new(socket, fill, receive);
            queue.fill(frames.by_ref().take(rx as usize));
            queues.push(queue);
        }
        if zero_copy && !queues.iter().all(|queue| queue.socket.is_zero_copy().unwrap_or(false)) {
            let source = io::Error::from(io::ErrorKind::Unsupported);
            return Err(self.refused("bind(AF_XDP)")(source));
        }
        let (Some(first), Some(completion)) = (queues.first(), completed) else {
            return Err(self.refused("ETHTOOL_GCHANNELS")(io::Error::from(io::ErrorKind::NotFound)));
        };
        let sender = XdpSocket::open().map_err(self.refused("socket(AF_XDP)"))?;
        let transmit = sender.transmit_ring(tx).map_err(self.refused("setsockopt(XDP_TX_RING)"))?;
        let binding = self.binding(0, zero_copy);
        sender.bind(&binding, Some(&first.socket)).map_err(self.refused("bind(AF_XDP)"))?;
        Ok(Bound { umem, queues, sender, transmit, completion, tx_frames: frames.collect() })
    }

    /// Directs frames to the sockets from now on.
    fn connect(&self, bound: &Bound, map: &SocketMap) -> Result<(), LiveError> {
        for (number, queue) in (0..).zip(&bound.queues) {
            map.set(number, queue.socket.as_fd()).map_err(self.refused("bpf(MAP_UPDATE_ELEM)"))?;
        }
        Ok(())
    }

    fn binding(&self, queue: u32, zero_copy: bool) -> Binding {
        Binding { interface: self.interface.index, queue, zero_copy, multi_buffer: self.multi_buffer }
    }

    fn port(
        self,
        mode: XdpMode,
        bound: Bound,
        attachment: Attachment,
        better: &[String],
    ) -> Result<Port, LiveError> {
        let name = &self.options.interface;
        let queues = match self.queues {
            1 => String::new(),
            several => format!(", {several} queues"),
        };
        let facts = PortFacts {
            interface: name.clone(),
            index: self.interface.index,
            mac: self.mac,
            far_end: None,
            mtu: self.mtu,
            mode: format!(
                "af_xdp {mode}{queues}{}",
                if attachment.offload.is_some() { ", offload" } else { "" }
            ),
            why_not_better: (!better.is_empty()).then(|| better.join("; ")),
        };
        let is_generic = !mode.is_native();
        // If GRO cannot be switched off, merged segments are refused one by one.
        let restore_gro = is_generic && self.interface.set_gro(false).unwrap_or(false);
        let listen = || {
            Promiscuous::begin(self.interface.index)
                .map_err(self.refused("setsockopt(PACKET_ADD_MEMBERSHIP)"))
        };
        let Self { options, .. } = self;
        let listens = options.everything || options.virtual_macs.is_some();
        let _promiscuous = listens.then(listen).transpose()?;
        let shared = Arc::new(Shared {
            mtu: AtomicU32::new(self.mtu),
            mac: AtomicU64::new(self.mac.to_u64()),
            frame_bytes: self.frame_bytes,
            multi_buffer: self.multi_buffer,
            is_generic,
            has_unfinished_checksums: self.interface.has_unfinished_checksums(),
            restore_gro,
            everything: options.everything,
            virtual_macs: options.virtual_macs.clone(),
            _promiscuous,
            interface: self.interface,
            attachment,
        });
        let Bound { umem, queues, sender, transmit, completion, tx_frames } = bound;
        let copies = mode != XdpMode::NativeZeroCopy;
        let tx = Sender::new(
            sender,
            transmit,
            completion,
            Arc::clone(&umem),
            tx_frames,
            Arc::clone(&shared),
            copies,
        );
        let count = self.options.halves.clamp(1, queues.len().max(1));
        let mut halves: Vec<Vec<Queue>> = (0..count).map(|_| Vec::new()).collect();
        for (number, queue) in queues.into_iter().enumerate() {
            halves[number % count].push(queue);
        }
        let mut rx: Vec<Box<dyn PortRx>> = Vec::with_capacity(count);
        for queues in halves {
            let half = Receiver::new(queues, Arc::clone(&umem), Arc::clone(&shared));
            rx.push(Box::new(half.map_err(|source| refused(name, "epoll", source))?));
        }
        Ok(Port { rx, tx: Box::new(tx), facts })
    }
}

fn check_options(options: &XdpOptions) -> Result<(), LiveError> {
    let refuse = |why| Err(LiveError::BadOption { interface: options.interface.clone(), why });
    const FRAMES: std::ops::RangeInclusive<u32> = 64..=1 << 16;
    for (name, frames) in [("rx_frames", options.rx_frames), ("tx_frames", options.tx_frames)] {
        if !frames.is_power_of_two() || !FRAMES.contains(&frames) {
            return refuse(format!("{name} is {frames}; a power of two from 64 to 65536 was expected"));
        }
    }
    Ok(())
}

fn refused(interface: &str, call: &'static str, source: io::Error) -> LiveError {
    LiveError::Call { interface: interface.to_owned(), call, source }
}

#[cfg(test)]
mod tests;
