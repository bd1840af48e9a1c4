//! DPDK by way of `shim.c`: devices, what they receive, what they send. Everything here is safe to use.
//!
//! Unsafe because DPDK is C; without it there is no such driver. What it brings and what it costs is measured in
//! `docs/drivers.md`.
//!
//! # Who owns what
//!
//! - A [`Device`] owns a port of DPDK, which no other device has, and the memory its frames lie in. Its halves hold it, so it goes last: frames are
//!   given back, the device is stopped and detached, and only then its memory is freed.
//! - A frame's memory is here for as long as the frame is on the list of a half. No reference to it is ever handed out:
//!   frames are copied in and out by the shim, with the length of the slice that they are copied to.
//! - A queue must be used by one thread at a time. [`Device::start`] gives out one receiving and one sending half, and
//!   each wants `&mut self`. They may move between threads.
//! - What is not said to be safe for several threads in DPDK's manual (making, asking and removing devices) is done
//!   under [`CONTROL`].
#![allow(unsafe_code)]

use parking_lot::{Mutex, MutexGuard};
use std::ffi::{CString, c_char, c_int, c_uint};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use thalweg_wire::MacAddr;

/// Frames that are asked for or offered in one call.
pub(super) const BURST: usize = 32;

/// DPDK's memory pools and frames, which only the shim looks into.
#[repr(C)]
struct RawPool {
    _private: [u8; 0],
}
#[repr(C)]
struct RawFrame {
    _private: [u8; 0],
}

/// What a device is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceFacts {
    pub(super) mac: MacAddr,
    /// Largest IP packet.
    pub(super) mtu: u16,
    /// The kernel's interface that it works with, or 0.
    pub(super) interface: u32,
    driver: [u8; 32],
}

impl DeviceFacts {
    /// The name of its driver: `net_af_packet`.
    pub(super) fn driver(&self) -> String {
        let name = self.driver.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// What a device has counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceCounters {
    /// Frames that came and for which there was no room.
    pub(super) missed: u64,
    /// Frames that came damaged.
    pub(super) damaged: u64,
    /// Frames that were taken to be sent, and were not.
    pub(super) unsent: u64,
}

unsafe extern "C" {
    fn tw_dpdk_said(text: *mut u8, room: usize) -> usize;
    fn tw_dpdk_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn tw_dpdk_enter() -> c_int;
    fn tw_dpdk_leave();
    fn tw_dpdk_attach(device: *const c_char, port: *mut u16) -> c_int;
    fn tw_dpdk_detach(port: u16);
    fn tw_dpdk_facts(port: u16, facts: *mut DeviceFacts) -> c_int;
    fn tw_dpdk_configure(port: u16, mtu: u16, room: u32, pool: *mut RawPool) -> c_int;
    fn tw_dpdk_start_port(port: u16, everything: c_int) -> c_int;
    fn tw_dpdk_link(port: u16) -> c_int;
    fn tw_dpdk_counters(port: u16, counters: *mut DeviceCounters);
    fn tw_dpdk_pool(name: *const c_char, count: c_uint, room: u16) -> *mut RawPool;
    fn tw_dpdk_pool_free(pool: *mut RawPool);
    fn tw_dpdk_receive(port: u16, frames: *mut *mut RawFrame, most: u16) -> u16;
    fn tw_dpdk_copy(frame: *const RawFrame, to: *mut u8, room: u32) -> u32;
    fn tw_dpdk_frame(pool: *mut RawPool, bytes: *const u8, length: u16) -> *mut RawFrame;
    fn tw_dpdk_transmit(port: u16, frames: *mut *mut RawFrame, count: u16) -> u16;
    fn tw_dpdk_free(frames: *mut *mut RawFrame, count: c_uint);
}

/// The ports of our devices; the lock is held while a device is made, queried or removed.
static CONTROL: Mutex<Vec<u16>> = Mutex::new(Vec::new());

fn control() -> MutexGuard<'static, Vec<u16>> {
    CONTROL.lock()
}

/// What DPDK said since the last call, as far as it was kept: the last 4 KiB.
pub(super) fn said() -> String {
    let mut text = [0; 4096];
    // SAFETY: the slice has as much room as is said.
    let bytes = unsafe { tw_dpdk_said(text.as_mut_ptr(), text.len()) };
    String::from_utf8_lossy(&text[..bytes.min(text.len())]).into_owned()
}

/// Says that DPDK runs in this process, which [`start`] alone can say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs(());

/// Starts DPDK in this process. To be called once: DPDK refuses a second time. It binds the calling thread to a core.
pub(super) fn start(arguments: Vec<CString>) -> io::Result<Runs> {
    let _control = control();
    let count = arguments.len() as c_int;
    // DPDK keeps pointers to its arguments, and moves them about: they stay for as long as the process.
    let mut pointers: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
    pointers.push(ptr::null_mut());
    let pointers = Box::leak(pointers.into_boxed_slice());
    // SAFETY: as many texts as said, ended by zeros, and behind them a null pointer, all of which stay and are nobody
    // else's.
    match unsafe { tw_dpdk_start(count, pointers.as_mut_ptr()) } {
        0 => Ok(Runs(())),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A thread that DPDK knows, until the thread ends.
struct Known(bool);

impl Drop for Known {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: this thread was made known, and is not yet forgotten.
            unsafe { tw_dpdk_leave() }
        }
    }
}

thread_local! {
    // SAFETY: DPDK runs, since the caller has a device; an unregistered thread may call it, too.
    static KNOWN: Known = Known(unsafe { tw_dpdk_enter() } == 0);
}

/// Makes the calling thread known to DPDK, which speeds up what it does with memory. Only where there is a device.
fn enter() {
    // A thread that is about to end does without.
    let _ = KNOWN.try_with(|_| ());
}

/// Memory for frames.
struct Pool(NonNull<RawPool>);

// SAFETY: DPDK's pools may be used by several threads at once.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Room for `count` frames of up to `room` bytes.
    fn new(count: u32, room: u16) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // DPDK knows pools by name.
        let name = format!("thalweg{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).map_err(io::Error::other)?;
        // SAFETY: the name is a text ended by a zero; DPDK copies it.
        let pool = unsafe { tw_dpdk_pool(name.as_ptr(), count, room) };
        NonNull::new(pool).map(Self).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _control = control();
        // SAFETY: it was made by `tw_dpdk_pool`; device and frames that used it are gone, see the module.
        unsafe { tw_dpdk_pool_free(self.0.as_ptr()) }
    }
}

/// How a device is to work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Largest IP packet; a device that cannot takes less.
    pub(super) mtu: u16,
    /// Bytes of a frame that lie in one piece.
    pub(super) room: u16,
    /// Frames that there is memory for, each way.
    pub(super) frames: u32,
    /// Frames for other neighbors are to come, too.
    pub(super) everything: bool,
}

/// A device that is ours. Detached when it is dropped.
pub(super) struct Device {
    port: u16,
    /// Counters before it was started.
    before: DeviceCounters,
    received: Option<Pool>,
    sent: Option<Pool>,
}

impl Device {
    /// Finds the device on its bus, or makes it.
    pub(super) fn attach(_runs: Runs, device: &str) -> io::Result<Self> {
        let device = CString::new(device).map_err(io::Error::other)?;
        let mut ours = control();
        let mut port = 0;
        // SAFETY: DPDK runs; the device is a text ended by a zero, which is copied, and there is room for the number.
        done(unsafe { tw_dpdk_attach(device.as_ptr(), &raw mut port) })?;
        if ours.contains(&port) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        ours.push(port);
        Ok(Self { port, before: DeviceCounters::default(), received: None, sent: None })
    }

    /// Starts it; its halves. What it is may be different then.
    pub(super) fn start(mut self, wish: Wish) -> io::Result<(Receiver, Sender, Arc<Self>)> {
        let pool = self.received.insert(Pool::new(wish.frames, wish.room)?).0.as_ptr();
        self.sent = Some(Pool::new(wish.frames, wish.room)?);
        {
            let _control = control();
            // SAFETY: the port is attached, and the pool is freed only after it was detached.
            let configured = unsafe { tw_dpdk_configure(self.port, wish.mtu, wish.room.into(), pool) };
            done(configured)?;
            // SAFETY: the port is attached and was configured.
            done(unsafe { tw_dpdk_start_port(self.port, wish.everything.into()) })?;
        }
        self.before = self.all_counters();
        let device = Arc::new(self);
        let receiver = Receiver { device: device.clone(), frames: [ptr::null_mut(); BURST], next: 0, end: 0 };
        let sender = Sender { device: device.clone(), frames: Vec::new() };
        Ok((receiver, sender, device))
    }

    /// What it is now.
    pub(super) fn facts(&self) -> io::Result<DeviceFacts> {
        let mut facts = DeviceFacts::default();
        let _control = control();
        // SAFETY: the port is attached, and there is room for the answer.
        done(unsafe { tw_dpdk_facts(self.port, &raw mut facts) })?;
        Ok(facts)
    }

    /// Whether it has a link.
    pub(super) fn has_link(&self) -> bool {
        let _control = control();
        // SAFETY: the port is attached.
        unsafe { tw_dpdk_link(self.port) != 0 }
    }

    /// What it has counted since it was started.
    pub(super) fn counters(&self) -> DeviceCounters {
        let (now, before) = (self.all_counters(), self.before);
        DeviceCounters {
            missed: now.missed.saturating_sub(before.missed),
            damaged: now.damaged.saturating_sub(before.damaged),
            unsent: now.unsent.saturating_sub(before.unsent),
        }
    }

    fn all_counters(&self) -> DeviceCounters {
        let mut counters = DeviceCounters::default();
        let _control = control();
        // SAFETY: the port is attached, and there is room for the answer.
        unsafe { tw_dpdk_counters(self.port, &raw mut counters) };
        counters
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut ours = control();
        // SAFETY: the port is attached, and nobody uses it: halves hold the device. Its pools are dropped afterwards.
        unsafe { tw_dpdk_detach(self.port) }
        ours.retain(|port| *port != self.port);
    }
}

fn done(errno: c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Receives; the only one that does from this device.
pub(super) struct Receiver {
    device: Arc<Device>,
    frames: [*mut RawFrame; BURST],
    /// Those from `next` to `end` were received and not yet copied.
    next: usize,
    end: usize,
}

// SAFETY: the frames on the list are this half's alone, and DPDK's frames and queues are bound to no thread.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Whether there is a frame, asking the device for up to `most` if none is left of the last time.
    pub(super) fn has_frame(&mut self, most: usize) -> bool {
        if self.next < self.end {
            return true;
        }
        enter();
        self.release();
        let most = most.min(BURST) as u16;
        // SAFETY: the device was started, there is room for `most` frames, and no other thread has this half.
        let count = unsafe { tw_dpdk_receive(self.device.port, self.frames.as_mut_ptr(), most) };
        self.end = usize::from(count.min(most));
        self.end > 0
    }

    /// Copies the next frame to where it begins; its length, or `None` if it does not fit or is no frame. It is done
    /// with in any case.
    pub(super) fn copy_next(&mut self, to: &mut [u8]) -> Option<usize> {
        let frame = *self.frames[..self.end].get(self.next)?;
        self.next += 1;
        let room = u32::try_from(to.len()).unwrap_or(u32::MAX);
        // SAFETY: the frame was received and not given back; at most `room` bytes are written, which the slice has.
        let bytes = unsafe { tw_dpdk_copy(frame, to.as_mut_ptr(), room) };
        (bytes > 0).then_some(bytes as usize)
    }

    /// Gives back what was received last.
    fn release(&mut self) {
        // SAFETY: the frames up to `end` were received, and are given back once.
        unsafe { tw_dpdk_free(self.frames.as_mut_ptr(), self.end as c_uint) };
        (self.next, self.end) = (0, 0);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.release();
    }
}

/// Sends; the only one that does by this device.
pub(super) struct Sender {
    device: Arc<Device>,
    /// Filled, and not yet taken by the device.
    frames: Vec<*mut RawFrame>,
}

// SAFETY: as of the receiving half.
unsafe impl Send for Sender {}

impl Sender {
    /// Puts a frame on the list; whether there was memory for it.
    pub(super) fn push(&mut self, frame: &[u8]) -> bool {
        enter();
        let (Some(pool), Ok(length)) = (&self.device.sent, u16::try_from(frame.len())) else { return false };
        // SAFETY: the pool is there as long as the device, and as many bytes are read as the slice has.
        let frame = unsafe { tw_dpdk_frame(pool.0.as_ptr(), frame.as_ptr(), length) };
        if !frame.is_null() {
            self.frames.push(frame);
        }
        !frame.is_null()
    }

    /// Offers the device the first frames of the list; how many it took.
    pub(super) fn transmit(&mut self) -> usize {
        enter();
        let count = self.frames.len().min(BURST) as u16;
        // SAFETY: the device was started, the first `count` frames are ours, and no other thread has this half.
        let taken = unsafe { tw_dpdk_transmit(self.device.port, self.frames.as_mut_ptr(), count) };
        let taken = usize::from(taken.min(count));
        // These are the device's now.
        self.frames.drain(..taken);
        taken
    }

    /// How many are on the list.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Takes them off.
    pub(super) fn forget(&mut self) {
        // SAFETY: the frames on the list are ours, and are given back once.
        unsafe { tw_dpdk_free(self.frames.as_mut_ptr(), self.frames.len() as c_uint) };
        self.frames.clear();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.forget();
    }
}
