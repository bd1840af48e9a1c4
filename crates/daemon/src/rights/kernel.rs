//! Landlock and seccomp: the system calls by which a process denies itself files and other system calls.
//!
//! Unsafe because these are C calls that take pointers; every function here is safe to call with any arguments.
//! Landlock has three calls (landlock(7)) and seccomp a program of a few instructions (seccomp(2)), so both are here
//! rather than behind libraries. No measurement justifies this: there is no other way.
//!
//! The list of refused system calls names what a router has no use for and an intruder has. It is not a list of what
//! is allowed, because that breaks with the next C library.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What a rule allows for a file, or for all files below a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// To read, make, change and remove files, folders and sockets.
    Write,
    /// To read, write and control.
    Device,
}

// Landlock's rights, by number: execute, write file, read file, read folder, remove folder, remove file, make device,
// folder, file, socket, pipe, block device, link; then refer (version 2), truncate (3), control of devices (5).
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_FOLDER: u64 = 1 << 3;
const REMOVE: u64 = 1 << 4 | 1 << 5;
const MAKE: u64 = 1 << 7 | 1 << 8 | 1 << 9 | 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const CONTROL: u64 = 1 << 15;
/// The rights that a file can have; others are of folders.
const OF_FILES: u64 = WRITE_FILE | READ_FILE | TRUNCATE | CONTROL;

impl Access {
    fn rights(self) -> u64 {
        match self {
            Self::Read => READ_FILE | READ_FOLDER,
            Self::Write => READ_FILE | READ_FOLDER | WRITE_FILE | TRUNCATE | REMOVE | MAKE | REFER,
            Self::Device => READ_FILE | WRITE_FILE | CONTROL,
        }
    }
}

/// The rights that a version of Landlock knows; what is not allowed of them is denied.
fn rights_of(version: u32) -> u64 {
    (1 << match version {
        1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    }) - 1
}

const VERSION_ONLY: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The version of the kernel's Landlock.
pub(super) fn landlock_version() -> io::Result<u32> {
    // SAFETY: with this flag the call takes no pointer and only returns the version.
    let version = call(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u64>(), 0usize, VERSION_ONLY)
    })?;
    u32::try_from(version).map_err(io::Error::other)
}

/// Denies this thread, and threads that it starts, all files but these. Paths that do not exist are left out.
pub(super) fn restrict_files(rules: &[(&Path, Access)]) -> io::Result<()> {
    let handled = rights_of(landlock_version()?);
    // SAFETY: the kernel reads the given 8 bytes, the first and only required field of its structure.
    let ruleset = call(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<u64>(), 0u32)
    })?;
    let ruleset = i32::try_from(ruleset).map_err(io::Error::other)?;
    // SAFETY: the descriptor is new and has no other owner.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset) };
    for (path, access) in rules {
        let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path) else { continue };
        let allowed = access.rights() & handled & if is_folder(&file)? { u64::MAX } else { OF_FILES };
        let rule = PathBeneath { allowed, parent: file.as_raw_fd() };
        // SAFETY: the kernel reads one such structure, and both descriptors are open.
        call(unsafe {
            let rule = &raw const rule;
            libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), RULE_PATH_BENEATH, rule, 0u32)
        })?;
    }
    // SAFETY: no pointers.
    call(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) }).map(drop)
}

fn is_folder(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.is_dir())
}

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// What every process may not do.
const REFUSED: &[(&str, libc::c_long)] = calls!(
    // Other programs.
    SYS_execve SYS_execveat SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev
    // What the file system and the process's namespaces are.
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_move_mount SYS_open_tree SYS_fsopen SYS_fsmount
    SYS_fsconfig SYS_mount_setattr SYS_unshare SYS_setns SYS_open_by_handle_at SYS_quotactl
    // The kernel and the machine.
    SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_kexec_file_load SYS_reboot SYS_swapon
    SYS_swapoff SYS_acct SYS_syslog SYS_sethostname SYS_setdomainname
    SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex
    // Where the kernel had its faults.
    SYS_userfaultfd SYS_perf_event_open SYS_io_uring_setup SYS_keyctl SYS_add_key SYS_request_key SYS_personality
);

/// What only this architecture has.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[(&str, libc::c_long)] = calls!(SYS_iopl SYS_ioperm SYS_modify_ldt);
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[(&str, libc::c_long)] = &[];

/// AUDIT_ARCH_* of this architecture: calls by another one's numbers are refused.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// From here on x86-64 has the numbers of x32, a second set of the same calls.
const X32: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// Instructions of classic BPF: load a word, jump by a constant, return a constant.
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Whether the kernel has such filters, and how many calls [`restrict_calls`] would refuse.
pub(super) fn refusable_calls() -> io::Result<usize> {
    if ARCHITECTURE == 0 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "no filter for this architecture"));
    }
    std::fs::metadata("/proc/sys/kernel/seccomp/actions_avail").map(|_| refused().count())
}

fn refused() -> impl Iterator<Item = (&'static str, libc::c_long)> {
    REFUSED.iter().chain(REFUSED_HERE).map(|(name, number)| (name.trim_start_matches("SYS_"), *number))
}

/// Refuses these system calls to this thread, and to threads that it starts, with EPERM.
pub(super) fn restrict_calls() -> io::Result<()> {
    let instruction = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let refuse = || instruction(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs());
    // The refusal that follows is for what is so, or for what is not so: the other skips it.
    let so = |code, k| libc::sock_filter { jf: 1, ..instruction(code, k) };
    let not_so = |code, k| libc::sock_filter { jt: 1, ..instruction(code, k) };
    let mut program = vec![instruction(LOAD, ARCH), not_so(IF_EQUAL, ARCHITECTURE), refuse()];
    program.extend([instruction(LOAD, NUMBER), so(IF_AT_LEAST, X32), refuse()]);
    for (_, number) in refused() {
        let number = u32::try_from(number).map_err(io::Error::other)?;
        program.extend([so(IF_EQUAL, number), refuse()]);
    }
    program.push(instruction(RETURN, libc::SECCOMP_RET_ALLOW));
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads a `sock_fprog` and `len` instructions, which live until the end of this function.
    call(unsafe {
        let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
        libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program).into()
    })
    .map(drop)
}

/// Makes each of these calls with arguments that mean nothing, and says whether it was refused.
pub(super) fn try_calls() -> impl Iterator<Item = (&'static str, bool)> {
    const NOTHING: libc::c_long = -1;
    refused().map(|(name, number)| {
        // SAFETY: -1 is no address, no descriptor, no process and no command of any of these calls, so each fails
        // before it does anything; personality(-1) only asks.
        let done =
            call(unsafe { libc::syscall(number, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING) });
        (name, done.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM)))
    })
}

fn call(answer: libc::c_long) -> io::Result<libc::c_long> {
    match answer {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}
