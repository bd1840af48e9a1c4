//! TAP: an interface of the host whose cable ends in the router.
//!
//! ```text
//! host's stack (ping, ssh, BIRD) ── interface `name` ══ cable ══ Port { rx, tx } ── the router
//! ```
//!
//! It serves where the host itself is a neighbor of the router, and as the host's side of a port (a mirror):
//! [`TapControl`] changes the interface's address, MTU and link state together with the port's.
//!
//! A mirror has no offloads: the kernel finishes checksums and cuts segments before we read a frame, and checks those
//! of frames we write. A port has them ([`TapOptions::merged`]): TCP passes in frames of up to 64 KiB in both
//! directions, which gives virtual machines and containers behind the interface their speed. Each frame is one `read`
//! or `write`; there is no ring.
//!
//! # When the interface is deleted
//!
//! Both halves notice, and the next call of either creates it again, with the same address, MTU and state (its IP
//! addresses are lost). Frames in between are lost and counted.
//!
//! Missing: several queues; merged segments of UDP.

use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use thalweg_base::{ChunkBuilder, LinkType, uninterrupted};
use thalweg_wire::MacAddr;

use super::driver::{Driver, Opened, Probed, Request};
use super::intake::{Destination, Intake, LARGE_BYTES, Took};
use super::link::Links;
use super::segment::{self, OFFLOAD_BYTES, Opening};
use super::system::{self, InterfaceCall, InterfaceRequest, TunNumber};
use super::{LiveError, NotTaken, Port, PortFacts, PortRx, PortTx, RxCounters, TxCounters};

const DEVICE: &str = "/dev/net/tun";
const ETHERNET: usize = 14;
/// What the kernel leaves to us if segments stay merged.
const OFFLOADS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;

/// The options of a TAP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// Up to 15 bytes. If a TAP of this name exists and no program is attached, it is taken over.
    pub name: String,
    /// The host's address on the cable; `None` lets the kernel choose one.
    pub mac: Option<MacAddr>,
    /// The largest IP packet in bytes.
    pub mtu: u32,
    /// The interface stays, without a carrier, when the port is closed.
    pub persist: bool,
    /// The host hands over merged segments and unfinished checksums, and takes both. Chunks that do not take merged
    /// segments get them cut.
    pub merged: bool,
}

impl TapOptions {
    /// An interface with Ethernet's usual MTU, which is removed with the port.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), mac: None, mtu: 1500, persist: false, merged: false }
    }
}

/// Creates the interface and sets it up. Needs `CAP_NET_ADMIN`.
pub fn open(options: &TapOptions) -> Result<(Port, TapControl), LiveError> {
    let links = Links::open().map_err(LiveError::call(&options.name, "socket"))?;
    let TapOptions { mac, mtu, persist, merged, .. } = *options;
    let wish = Wish { mac, mtu, up: true, carrier: true, asks: true, persist };
    let made = Mutex::new(Made { file: None, generation: 0, wish });
    let shared = Arc::new(Shared { name: options.name.clone(), merged, links, made });
    let (file, generation) = shared.attach(0)?;
    let facts = shared.links.read(&options.name)?;
    let rx = TapRx {
        shared: Arc::clone(&shared),
        file: Arc::clone(&file),
        generation,
        gone: false,
        intake: Intake::new(),
    };
    let tx =
        TapTx { shared: Arc::clone(&shared), file, generation, down: false, counters: TxCounters::default() };
    let facts = PortFacts {
        interface: options.name.clone(),
        index: facts.index,
        mac: facts.mac,
        far_end: None,
        mtu: facts.mtu,
        mode: "tap".to_owned(),
        why_not_better: None,
    };
    Ok((Port { rx: vec![Box::new(rx)], tx: Box::new(tx), facts }, TapControl { shared }))
}

/// Whether TAP interfaces are available: the device exists and may be opened. Creating one also needs
/// `CAP_NET_ADMIN`, which this does not test.
pub fn probe() -> Result<(), LiveError> {
    OpenOptions::new().read(true).write(true).open(DEVICE).map(drop).map_err(LiveError::call("tap", DEVICE))
}

/// The driver of ports that are TAP interfaces.
pub struct Tap;

impl Driver for Tap {
    fn open(&self, request: &Request) -> Result<Opened, LiveError> {
        let options =
            TapOptions { mtu: request.mtu.into(), merged: true, ..TapOptions::new(&request.interface) };
        let (port, control) = open(&options)?;
        Ok(Opened { held: Some(Box::new(control)), ..Opened::from(port) })
    }

    fn probe(&self, _: &Request) -> Result<Probed, LiveError> {
        probe().map(|()| Probed { mode: "tap".to_owned(), ..Probed::default() })
    }
}

/// Changes the interface. Changes also apply if the interface has to be created again.
#[derive(Clone)]
pub struct TapControl {
    shared: Arc<Shared>,
}

impl TapControl {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Changes the interface's MTU.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), LiveError> {
        self.shared.made.lock().wish.mtu = mtu;
        self.shared.links.set_mtu(&self.shared.name, mtu)
    }

    /// Changes the host's address on the cable. The same again would make the host forget its neighbors, and what waits
    /// for them, such as the first SYN of a session.
    pub fn set_mac(&self, mac: MacAddr) -> Result<(), LiveError> {
        let Shared { name, links, made, .. } = &*self.shared;
        made.lock().wish.mac = Some(mac);
        match links.read(name) {
            Ok(facts) if facts.mac == mac => Ok(()),
            _ => links.set_mac(name, mac),
        }
    }

    /// Sets whether the host asks for MAC addresses on it.
    pub fn set_asks(&self, asks: bool) -> Result<(), LiveError> {
        self.shared.made.lock().wish.asks = asks;
        self.shared.links.set_asks(&self.shared.name, asks)
    }

    /// Sets the interface administratively up or down.
    pub fn set_up(&self, up: bool) -> Result<(), LiveError> {
        self.shared.made.lock().wish.up = up;
        self.shared.links.set_up(&self.shared.name, up)
    }

    /// Plugs the cable in or out: the host sees the link come up or go down.
    pub fn set_carrier(&self, carrier: bool) -> Result<(), LiveError> {
        let mut made = self.shared.made.lock();
        made.wish.carrier = carrier;
        match &made.file {
            Some(file) => system::tun_set_carrier(file.as_fd(), carrier)
                .map_err(LiveError::call(&self.shared.name, "TUNSETCARRIER")),
            None => Ok(()),
        }
    }
}

/// The common state of the halves and the control.
struct Shared {
    name: String,
    merged: bool,
    links: Links,
    made: Mutex<Made>,
}

struct Made {
    file: Option<Arc<File>>,
    /// Counts the interfaces created, so that the half that notices second takes the one that the first has
    /// created.
    generation: u64,
    wish: Wish,
}

#[derive(Clone, Copy)]
struct Wish {
    mac: Option<MacAddr>,
    mtu: u32,
    up: bool,
    carrier: bool,
    asks: bool,
    persist: bool,
}

impl Shared {
    /// The interface after the one of `generation`; creates it if it does not exist yet.
    fn attach(&self, generation: u64) -> Result<(Arc<File>, u64), LiveError> {
        let mut made = self.made.lock();
        if made.generation == generation {
            // Closed first: if the old one still exists, it blocks its successor.
            made.file = None;
            made.file = Some(Arc::new(self.make(made.wish)?));
            made.generation += 1;
        }
        match &made.file {
            Some(file) => Ok((Arc::clone(file), made.generation)),
            None => Err(LiveError::NoSuchInterface { interface: self.name.clone() }),
        }
    }

    fn make(&self, wish: Wish) -> Result<File, LiveError> {
        let name = &self.name;
        let mut request = InterfaceRequest::named(name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE)
            .map_err(LiveError::call(name, "open(/dev/net/tun)"))?;
        let (header, offloads) = if self.merged { (libc::IFF_VNET_HDR, OFFLOADS) } else { (0, 0) };
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI | header) as u16;
        request.value[..2].copy_from_slice(&flags.to_ne_bytes());
        system::interface_call(file.as_fd(), InterfaceCall::TunAttach, &mut request)
            .map_err(LiveError::call(name, "TUNSETIFF"))?;
        if self.merged {
            // The interface's previous user may have had longer ones.
            system::tun_set_header_bytes(file.as_fd(), OFFLOAD_BYTES)
                .map_err(LiveError::call(name, "TUNSETVNETHDRSZ"))?;
        }
        if let Some(mac) = wish.mac {
            self.links.set_mac(name, mac)?;
        }
        self.links.set_mtu(name, wish.mtu)?;
        self.links.set_asks(name, wish.asks)?;
        self.links.set_up(name, wish.up)?;
        // The interface's previous user may have left offloads enabled.
        for (what, value, call) in [
            (TunNumber::Offload, offloads, "TUNSETOFFLOAD"),
            (TunNumber::Persist, wish.persist.into(), "TUNSETPERSIST"),
        ] {
            system::tun_set(file.as_fd(), what, value).map_err(LiveError::call(name, call))?;
        }
        system::tun_set_carrier(file.as_fd(), wish.carrier)
            .map_err(LiveError::call(name, "TUNSETCARRIER"))?;
        Ok(file)
    }

    fn mtu(&self) -> usize {
        self.made.lock().wish.mtu as usize
    }
}

/// Whether the error means that the interface no longer exists.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADFD | libc::ENODEV | libc::ENXIO))
}

fn attach_error(error: LiveError) -> io::Error {
    match error {
        LiveError::Call { source, .. } => source,
        _ => io::Error::from_raw_os_error(libc::ENODEV),
    }
}

struct TapRx {
    shared: Arc<Shared>,
    file: Arc<File>,
    generation: u64,
    gone: bool,
    intake: Intake,
}

impl TapRx {
    /// Reads frames behind offload headers.
    fn receive_merged(&mut self, mtu: usize, limit: usize, to: &mut Destination<'_>) -> io::Result<()> {
        let Self { file, intake, gone, .. } = self;
        let before = to.into.len();
        // Refused frames count too, so that a flood of them cannot keep the thread here.
        for _ in 0..limit {
            if to.into.len() - before >= limit {
                break;
            }
            let took = match intake.take_held(mtu, to) {
                Some(took) => took,
                None => {
                    let read = |buffer: &mut [u8]| uninterrupted(|| (&**file).read(buffer));
                    match intake.read(LARGE_BYTES, (None, mtu), to, |_| true, read) {
                        Ok(took) => took,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => {
                            *gone = is_gone(&error);
                            return Err(error);
                        }
                    }
                }
            };
            match took {
                Took::It => {}
                Took::TooLong => _ = intake.refuse(),
                Took::Nothing | Took::NoRoom => break,
            }
        }
        Ok(())
    }
}

impl PortRx for TapRx {
    fn receive(
        &mut self,
        port: u16,
        now_ns: u64,
        limit: usize,
        into: &mut ChunkBuilder,
    ) -> io::Result<usize> {
        if self.gone {
            (self.file, self.generation) = self.shared.attach(self.generation).map_err(attach_error)?;
            self.gone = false;
        }
        let mtu = self.shared.mtu();
        if self.shared.merged {
            let before = into.len();
            let mut to = Destination { port, now_ns, into };
            self.receive_merged(mtu, limit, &mut to)?;
            return Ok(into.len() - before);
        }
        let counters = &mut self.intake.counters;
        // One more byte, to detect a frame that is too long.
        let room = mtu + segment::LINK_HEADER_BYTES_MAX + 1;
        let mut taken = 0;
        // Refused frames count too, so that a flood of them cannot keep the thread here.
        for _ in 0..limit.min(ChunkBuilder::PACKETS_MAX - into.len()) {
            let at = into.next_frame_offset();
            let Some(buffer) = into.buffer_mut().get_mut(at..at + room) else { break };
            let bytes = match (&*self.file).read(buffer) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.gone = is_gone(&error);
                    return Err(error);
                }
            };
            if bytes < ETHERNET || bytes > mtu + segment::link_header_bytes(&buffer[..bytes]) {
                counters.refused += 1;
                continue;
            }
            into.push(at, bytes, bytes as u32, now_ns, LinkType::Ethernet, port, 0);
            counters.frames += 1;
            counters.bytes += bytes as u64;
            taken += 1;
        }
        Ok(taken)
    }

    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    fn counters(&mut self) -> RxCounters {
        self.intake.counters
    }
}

struct TapTx {
    shared: Arc<Shared>,
    file: Arc<File>,
    generation: u64,
    down: bool,
    counters: TxCounters,
}

impl TapTx {
    /// Counts what became of a frame that is `packets` packets of `bytes` bytes on a wire.
    fn count(&mut self, written: io::Result<()>, packets: usize, bytes: usize) -> Result<(), NotTaken> {
        match written {
            Ok(()) => {
                self.counters.frames += packets as u64;
                self.counters.bytes += bytes as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(NotTaken::Full),
            Err(error) if is_gone(&error) || error.raw_os_error() == Some(libc::EIO) => {
                self.down = true;
                Err(NotTaken::Down)
            }
            // Not an Ethernet frame, or no memory for it.
            Err(_) => {
                self.counters.failed += packets as u64;
                Ok(())
            }
        }
    }
}

impl PortTx for TapTx {
    fn push(&mut self, frame: &[u8]) -> Result<(), NotTaken> {
        if self.down {
            return Err(NotTaken::Down);
        }
        if frame.len() > self.shared.mtu() + segment::link_header_bytes(frame) {
            return Err(NotTaken::TooLong);
        }
        let written = match self.shared.merged {
            false => uninterrupted(|| (&*self.file).write(frame)),
            true => {
                let parts = [IoSlice::new(&[0; OFFLOAD_BYTES]), IoSlice::new(frame)];
                uninterrupted(|| (&*self.file).write_vectored(&parts))
            }
        };
        self.count(written.map(drop), 1, frame.len())
    }

    fn push_merged(&mut self, frame: &[u8], segment_bytes: u16) -> Result<(), NotTaken> {
        if self.down {
            return Err(NotTaken::Down);
        }
        if !self.shared.merged {
            return Err(NotTaken::Merged);
        }
        let opening = Opening::new(frame, segment_bytes).map_err(|_| NotTaken::Merged)?;
        if opening.longest() > self.shared.mtu() + segment::link_header_bytes(frame) {
            return Err(NotTaken::TooLong);
        }
        let parts = [IoSlice::new(opening.bytes()), IoSlice::new(&frame[opening.rest_at()..])];
        let written = uninterrupted(|| (&*self.file).write_vectored(&parts));
        self.count(written.map(drop), opening.count(), opening.wire_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.down {
            return Ok(());
        }
        match self.shared.links.read(&self.shared.name) {
            Ok(facts) if facts.is_up => {
                // Up again, perhaps as a new interface.
                let generation = self.shared.made.lock().generation;
                if generation != self.generation {
                    (self.file, self.generation) =
                        self.shared.attach(self.generation).map_err(attach_error)?;
                }
                self.down = false;
                Ok(())
            }
            Ok(_) => Err(io::Error::from_raw_os_error(libc::ENETDOWN)),
            Err(_) => {
                (self.file, self.generation) = self.shared.attach(self.generation).map_err(attach_error)?;
                self.down = false;
                Ok(())
            }
        }
    }

    fn counters(&mut self) -> TxCounters {
        self.counters
    }
}

impl std::fmt::Debug for TapControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TapControl").field("name", &self.shared.name).finish_non_exhaustive()
    }
}
