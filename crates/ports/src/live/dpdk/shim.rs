//! A safe interface to DPDK by way of `shim.c`: devices, receiving and sending.
//!
//! Unsafe because DPDK is C; there is no other way to this driver. `docs/drivers.md` has its measured gain and
//! cost.
//!
//! # Ownership
//!
//! - A [`Device`] owns a port of DPDK, which no other device has, and the memory of its frames. Its halves hold it,
//!   so it is dropped last: frames are returned, the device is stopped and detached, and only then its memory is
//!   freed.
//! - A frame's memory stays valid as long as the frame is on a half's list. No reference to it ever leaves this
//!   module: the shim copies frames in and out, within the length of the given slice.
//! - One thread at a time may use a queue. [`Device::start`] returns one receiving and one sending half, and each
//!   needs `&mut self`. They may move between threads.
//! - Calls that DPDK's manual does not declare safe for several threads (creating, querying and removing devices)
//!   are made under [`CONTROL`].
#![allow(unsafe_code)]

use parking_lot::{Mutex, MutexGuard};
use std::ffi::{CString, c_char, c_int, c_uint};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use thalweg_wire::MacAddr;

/// Frames received or sent in one call.
pub(super) const BURST: usize = 32;

/// DPDK's memory pools and frames, which are opaque outside the shim.
#[repr(C)]
struct RawPool {
    _private: [u8; 0],
}
#[repr(C)]
struct RawFrame {
    _private: [u8; 0],
}

/// The properties of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceFacts {
    pub(super) mac: MacAddr,
    /// The largest IP packet in bytes.
    pub(super) mtu: u16,
    /// The index of the kernel interface that it uses, or 0.
    pub(super) interface: u32,
    driver: [u8; 32],
}

impl DeviceFacts {
    /// The name of its driver, such as `net_af_packet`.
    pub(super) fn driver(&self) -> String {
        let name = self.driver.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// A device's own counters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceCounters {
    /// Frames received without a free buffer for them.
    pub(super) missed: u64,
    pub(super) damaged: u64,
    /// Frames accepted for sending and not sent.
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

/// The ports of our devices. The lock is held while a device is created, queried or removed.
static CONTROL: Mutex<Vec<u16>> = Mutex::new(Vec::new());

fn control() -> MutexGuard<'static, Vec<u16>> {
    CONTROL.lock()
}

/// DPDK's log output since the last call, of which the last 4 KiB are kept.
pub(super) fn said() -> String {
    let mut text = [0; 4096];
    // SAFETY: the slice is as long as `text.len()` says.
    let bytes = unsafe { tw_dpdk_said(text.as_mut_ptr(), text.len()) };
    String::from_utf8_lossy(&text[..bytes.min(text.len())]).into_owned()
}

/// The proof that DPDK runs in this process; only [`start`] makes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs(());

/// Starts DPDK in this process and pins the calling thread to a core. DPDK refuses a second call.
pub(super) fn start(arguments: Vec<CString>) -> io::Result<Runs> {
    let _control = control();
    let count = arguments.len() as c_int;
    // DPDK keeps pointers to its arguments and reorders them, so they must stay valid for the whole process.
    let mut pointers: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
    pointers.push(ptr::null_mut());
    let pointers = Box::leak(pointers.into_boxed_slice());
    // SAFETY: `count` texts, each ended by a zero, and a null pointer behind them. All of them live forever and
    // belong to DPDK alone.
    match unsafe { tw_dpdk_start(count, pointers.as_mut_ptr()) } {
        0 => Ok(Runs(())),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Whether the thread is registered with DPDK; dropped when the thread ends.
struct Known(bool);

impl Drop for Known {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: this thread is registered.
            unsafe { tw_dpdk_leave() }
        }
    }
}

thread_local! {
    // SAFETY: DPDK runs, since the caller has a device; an unregistered thread may make this call.
    static KNOWN: Known = Known(unsafe { tw_dpdk_enter() } == 0);
}

/// Registers the calling thread with DPDK, which speeds up its memory functions. The caller must have a device.
fn enter() {
    // Fails only in a thread that is about to end, which does without.
    let _ = KNOWN.try_with(|_| ());
}

/// Memory for frames.
struct Pool(NonNull<RawPool>);

// SAFETY: several threads may use a pool of DPDK at once.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Room for `count` frames of up to `room` bytes.
    fn new(count: u32, room: u16) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // DPDK finds pools by name, so names must differ.
        let name = format!("thalweg{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).map_err(io::Error::other)?;
        // SAFETY: the name ends with a zero; DPDK copies it.
        let pool = unsafe { tw_dpdk_pool(name.as_ptr(), count, room) };
        NonNull::new(pool).map(Self).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _control = control();
        // SAFETY: `tw_dpdk_pool` made it, and its device and frames are gone (see the module).
        unsafe { tw_dpdk_pool_free(self.0.as_ptr()) }
    }
}

/// The wanted settings of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// The largest IP packet in bytes; a device that cannot take it gets a smaller MTU.
    pub(super) mtu: u16,
    /// Bytes of a frame that lie in one piece.
    pub(super) room: u16,
    /// Frame buffers for each direction.
    pub(super) frames: u32,
    /// Receive frames to other addresses too.
    pub(super) everything: bool,
}

/// A device that belongs to this process. Detached when dropped.
pub(super) struct Device {
    port: u16,
    /// Counters before the start.
    before: DeviceCounters,
    received: Option<Pool>,
    sent: Option<Pool>,
}

impl Device {
    /// Finds the device on its bus, or creates it.
    pub(super) fn attach(_runs: Runs, device: &str) -> io::Result<Self> {
        let device = CString::new(device).map_err(io::Error::other)?;
        let mut ours = control();
        let mut port = 0;
        // SAFETY: DPDK runs; it copies the device's text, which ends with a zero, and `port` has room for the
        // number.
        done(unsafe { tw_dpdk_attach(device.as_ptr(), &raw mut port) })?;
        if ours.contains(&port) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        ours.push(port);
        Ok(Self { port, before: DeviceCounters::default(), received: None, sent: None })
    }

    /// Starts the device and returns its halves. Starting may change the device's facts.
    pub(super) fn start(mut self, wish: Wish) -> io::Result<(Receiver, Sender, Arc<Self>)> {
        let pool = self.received.insert(Pool::new(wish.frames, wish.room)?).0.as_ptr();
        self.sent = Some(Pool::new(wish.frames, wish.room)?);
        {
            let _control = control();
            // SAFETY: the port is attached, and the pool is freed only after the port is detached.
            let configured = unsafe { tw_dpdk_configure(self.port, wish.mtu, wish.room.into(), pool) };
            done(configured)?;
            // SAFETY: the port is attached and configured.
            done(unsafe { tw_dpdk_start_port(self.port, wish.everything.into()) })?;
        }
        self.before = self.all_counters();
        let device = Arc::new(self);
        let receiver = Receiver { device: device.clone(), frames: [ptr::null_mut(); BURST], next: 0, end: 0 };
        let sender = Sender { device: device.clone(), frames: Vec::new() };
        Ok((receiver, sender, device))
    }

    pub(super) fn facts(&self) -> io::Result<DeviceFacts> {
        let mut facts = DeviceFacts::default();
        let _control = control();
        // SAFETY: the port is attached, and there is room for the answer.
        done(unsafe { tw_dpdk_facts(self.port, &raw mut facts) })?;
        Ok(facts)
    }

    pub(super) fn has_link(&self) -> bool {
        let _control = control();
        // SAFETY: the port is attached.
        unsafe { tw_dpdk_link(self.port) != 0 }
    }

    /// Its counters since the start.
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
        // SAFETY: the port is attached and unused, because its halves hold the device. Its pools are dropped after
        // this.
        unsafe { tw_dpdk_detach(self.port) }
        ours.retain(|port| *port != self.port);
    }
}

fn done(errno: c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// The only receiver of a device.
pub(super) struct Receiver {
    device: Arc<Device>,
    frames: [*mut RawFrame; BURST],
    /// Frames `next..end` were received and not yet copied.
    next: usize,
    end: usize,
}

// SAFETY: only this half uses the frames on its list, and DPDK's frames and queues are bound to no thread.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Whether there is a frame. If none is left, asks the device for up to `most`.
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

    /// Copies the next frame into `to` and returns its length, or `None` if it does not fit or is invalid. Either
    /// way the frame is consumed.
    pub(super) fn copy_next(&mut self, to: &mut [u8]) -> Option<usize> {
        let frame = *self.frames[..self.end].get(self.next)?;
        self.next += 1;
        let room = u32::try_from(to.len()).unwrap_or(u32::MAX);
        // SAFETY: the frame was received and not returned; at most `room` bytes are written, and the slice is that
        // long.
        let bytes = unsafe { tw_dpdk_copy(frame, to.as_mut_ptr(), room) };
        (bytes > 0).then_some(bytes as usize)
    }

    /// Returns the frames received last.
    fn release(&mut self) {
        // SAFETY: the frames up to `end` were received, and are returned once.
        unsafe { tw_dpdk_free(self.frames.as_mut_ptr(), self.end as c_uint) };
        (self.next, self.end) = (0, 0);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.release();
    }
}

/// The only sender of a device.
pub(super) struct Sender {
    device: Arc<Device>,
    /// Filled, and not yet taken by the device.
    frames: Vec<*mut RawFrame>,
}

// SAFETY: as for the receiving half.
unsafe impl Send for Sender {}

impl Sender {
    /// Puts a frame on the list. Returns false if there is no memory for it.
    pub(super) fn push(&mut self, frame: &[u8]) -> bool {
        enter();
        let (Some(pool), Ok(length)) = (&self.device.sent, u16::try_from(frame.len())) else { return false };
        // SAFETY: the pool lives as long as the device, and as many bytes are read as the slice has.
        let frame = unsafe { tw_dpdk_frame(pool.0.as_ptr(), frame.as_ptr(), length) };
        if !frame.is_null() {
            self.frames.push(frame);
        }
        !frame.is_null()
    }

    /// Offers the device the first frames of the list. Returns how many it took.
    pub(super) fn transmit(&mut self) -> usize {
        enter();
        let count = self.frames.len().min(BURST) as u16;
        // SAFETY: the device was started, the first `count` frames are ours, and no other thread has this half.
        let taken = unsafe { tw_dpdk_transmit(self.device.port, self.frames.as_mut_ptr(), count) };
        let taken = usize::from(taken.min(count));
        // The device owns these now.
        self.frames.drain(..taken);
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Frees all frames on the list.
    pub(super) fn forget(&mut self) {
        // SAFETY: the frames on the list are ours, and are returned once.
        unsafe { tw_dpdk_free(self.frames.as_mut_ptr(), self.frames.len() as c_uint) };
        self.frames.clear();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.forget();
    }
}
