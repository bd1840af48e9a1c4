//! System calls that the standard library does not offer: pinning a thread, its priority and its processor time, a
//! clock that other processes share, and returning free memory.
//!
//! Unsafe because all are C calls; each is one call, with a pointer to a local variable or none.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::time::Duration;

/// Pins the calling thread to `core` (numbered as Linux does). Fails if the core does not exist or the process may
/// not use it.
pub(crate) fn pin_current_thread(core: usize) -> io::Result<()> {
    if core >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "core number beyond what the kernel takes"));
    }
    // SAFETY: cpu_set_t is a plain array of integers, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `core` is below CPU_SETSIZE, checked above.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the pointer is to a live set of the size given; 0 names the calling thread.
    match unsafe { libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether threads of this process can be pinned to a core. Tries it on a short-lived thread.
pub fn core_is_usable(core: usize) -> io::Result<()> {
    let probe = std::thread::Builder::new().spawn(move || pin_current_thread(core))?;
    probe.join().unwrap_or_else(|_| Err(io::Error::other("the thread that tried it failed")))
}

/// The core that the calling thread runs on; `None` if the kernel does not say.
pub(crate) fn current_core() -> Option<usize> {
    // SAFETY: no pointers.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Gives the calling thread real-time priority (SCHED_RR). Threads that it starts are ordinary. Fails if the process
/// lacks the right.
pub(crate) fn set_real_time(priority: i32) -> io::Result<()> {
    // SAFETY: sched_param is a plain struct of integers, for which all zeroes is valid.
    let mut parameters: libc::sched_param = unsafe { mem::zeroed() };
    parameters.sched_priority = priority;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a live struct; 0 names the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the calling thread has real-time priority.
pub(crate) fn is_real_time() -> bool {
    // SAFETY: no pointers; 0 names the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    policy >= 0 && policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_RR
}

/// Gives the calling thread a fair share of its core, by its nice value, in slices of so many nanoseconds; kernels before
/// 6.12 have one length for all. Threads that it starts are ordinary. Fails if the process lacks the right.
pub(crate) fn set_fair(nice: i32, slice_ns: u64) -> io::Result<()> {
    let attributes = SchedulingAttributes {
        size: ATTRIBUTES_BYTES,
        policy: libc::SCHED_OTHER.unsigned_abs(),
        flags: RESET_ON_FORK,
        nice,
        priority: 0,
        runtime_ns: slice_ns,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the pointer is to a live struct of the size that it says; 0 names the calling thread, and no flags.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct sched_attr` in its first version.
#[repr(C)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const ATTRIBUTES_BYTES: u32 = 48;
const _: () = assert!(size_of::<SchedulingAttributes>() == 48);

/// `SCHED_FLAG_RESET_ON_FORK`.
const RESET_ON_FORK: u64 = 1;

/// The processor time of the calling thread, or zero if the kernel does not say.
pub fn thread_cpu_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The monotonic clock, which reads the same in all processes of the machine.
pub fn monotonic_time() -> Duration {
    clock(libc::CLOCK_MONOTONIC)
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    match unsafe { libc::clock_gettime(which, &mut time) } {
        0 => Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)),
        _ => Duration::ZERO,
    }
}

/// Has the allocator give memory of a megabyte and more back to the system as soon as it is freed. By itself, glibc
/// keeps ever larger pieces for reuse: each freed table raises the size, up to 32 MB, below which tables share pages
/// with what is small and lives on. A table is then slower to make, by the faults of its pages.
pub fn give_back_large_tables() {
    // SAFETY: no pointers; the allocator takes its own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}

/// Returns freed memory to the system, on a short-lived thread. glibc keeps free pages in the arena of the thread
/// that allocated them: after a large table is gone, all of it. Threads that allocate meanwhile may wait some
/// milliseconds for their arena, so call this when the load is low.
pub fn release_free_memory() -> io::Result<()> {
    let release = || {
        // SAFETY: no pointers; the allocator takes its own locks.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0);
        }
    };
    std::thread::Builder::new().name("memory".to_owned()).spawn(release).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_not_there_is_an_error() {
        assert!(pin_current_thread(1023).is_err(), "this machine has 1024 cores?");
        assert!(pin_current_thread(usize::MAX).is_err());
    }

    #[test]
    fn processor_time_grows_with_work() {
        let before = thread_cpu_time();
        let mut x = 1u64;
        while thread_cpu_time() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(thread_cpu_time() > before);
    }
}
