//! The few commands of `bpf(2)` that attach a program to an interface: maps, the program, the link.
//!
//! The link is a file descriptor. When it is closed, by us or by the kernel after a kill, the program is detached:
//! nothing of ours outlives the process.
//!
//! Unsafe because `bpf` is a raw system call whose argument is a structure with pointers in it. There is no other
//! way to load a program, so no measurement justifies it; all libraries that wrap it use C.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::assembler::Slot;

// Commands and constants of linux/bpf.h and linux/if_link.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const LINK_GET_FD_BY_ID: libc::c_int = 30;
const LINK_GET_NEXT_ID: libc::c_int = 31;
const LINK_TYPE_XDP: u32 = 6;
const F_XDP_HAS_FRAGS: u32 = 1 << 5;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Where the kernel runs a program: the program's type, that of its links, and the name of our program there, as
/// `bpftool` and `ip -details link` show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hook {
    program_type: u32,
    link_type: u32,
    pub(super) name: &'static str,
}

/// In the driver, or generically behind it.
pub(super) const XDP: Hook = Hook { program_type: 6, link_type: 37, name: "thalweg_xdp" };
/// Traffic control at the interface's ingress, behind its packet sockets (tcx, Linux 6.6).
pub(super) const INGRESS: Hook = Hook { program_type: 3, link_type: 46, name: "thalweg_ingress" };
/// In front of a socket's queue.
pub(super) const FILTER: Hook = Hook { program_type: 1, link_type: 0, name: "thalweg_filter" };

/// How many links of the system are searched for the one on an interface.
const LINKS_MAX: usize = 10_000;
/// The longest message of the verifier about a program that it refuses.
const LOG_BYTES: usize = 16 << 10;

/// Calls `bpf`.
///
/// # Safety
/// `A` must be the command's member of `union bpf_attr`, without padding. The command must be allowed to read or
/// write the memory behind its pointers, for the lengths it names.
unsafe fn bpf<A>(command: libc::c_int, attributes: &mut A) -> io::Result<libc::c_long> {
    let (pointer, length) = (std::ptr::from_mut(attributes), size_of::<A>());
    // SAFETY: `attributes` is live and that long; the caller promises the rest.
    match unsafe { libc::syscall(libc::SYS_bpf, command, pointer, length) } {
        result if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes the descriptor that a command returned.
///
/// # Safety
/// The descriptor was just returned and has no other owner.
unsafe fn owned(descriptor: libc::c_long) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().zip(text.bytes().take(15)) {
        *to = from;
    }
    name
}

fn address_of<T>(slice: &[T]) -> u64 {
    slice.as_ptr().expose_provenance() as u64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKind {
    /// Values by number.
    Array = 2,
    /// An array for each processor.
    ArrayByProcessor = 6,
    /// Values by key; a full map drops the least recently used.
    RecentlyUsed = 9,
    /// Sockets by receive queue.
    Sockets = 17,
}

#[derive(Debug)]
pub(super) struct Map {
    descriptor: OwnedFd,
    key_bytes: usize,
    /// The bytes of a look-up's answer; an array by processor answers with the values of all processors.
    answer_bytes: usize,
    value_bytes: usize,
}

impl Map {
    pub(super) fn create(
        kind: MapKind,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
        called: &str,
    ) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            map_type: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
            map_flags: u32,
            inner_map_fd: u32,
            numa_node: u32,
            map_name: [u8; 16],
        }
        let mut attributes = Attributes {
            map_type: kind as u32,
            key_size: key_bytes,
            value_size: value_bytes,
            max_entries: entries,
            map_flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            map_name: name(called),
        };
        let value_bytes = value_bytes as usize;
        let answer_bytes = match kind {
            MapKind::ArrayByProcessor => value_bytes.next_multiple_of(8) * processors()?,
            _ => value_bytes,
        };
        // SAFETY: the command's member, of 44 bytes without padding; no pointers. It returns a new descriptor.
        let descriptor = unsafe { bpf(MAP_CREATE, &mut attributes).map(|map| owned(map))? };
        Ok(Self { descriptor, key_bytes: key_bytes as usize, answer_bytes, value_bytes })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    pub(super) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        self.access(MAP_UPDATE_ELEM, key, address_of(value))
    }

    pub(super) fn look_up(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        if key.len() != self.key_bytes || value.len() != self.answer_bytes {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        self.access(MAP_LOOKUP_ELEM, key, value.as_mut_ptr().expose_provenance() as u64)
    }

    fn access(&self, command: libc::c_int, key: &[u8], value: u64) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            map_fd: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let mut attributes = Attributes {
            map_fd: self.descriptor() as u32,
            padding: 0,
            key: address_of(key),
            value,
            flags: 0,
        };
        // SAFETY: the member of both commands that use this. The callers have checked that the key is as long as
        // the map's, and the value as long as what the command reads or, being mutably borrowed, writes.
        unsafe { bpf(command, &mut attributes).map(|_| ()) }
    }
}

/// The number of processors that the machine may have, and of values in an array by processor.
pub(super) fn processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|number| number.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// A map from receive queue to socket.
#[derive(Debug)]
pub(super) struct SocketMap(Map);

impl SocketMap {
    pub(super) fn create(queues: u32) -> io::Result<Self> {
        Map::create(MapKind::Sockets, 4, 4, queues, "thalweg_queues").map(Self)
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.descriptor()
    }

    /// Directs the queue's frames to the socket, which must be bound, from now on.
    pub(super) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.0.update(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }
}

/// A program that the kernel has accepted.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

impl Program {
    /// Loads a program. With `fragments` it may see frames that lie in several buffers.
    pub(super) fn load(hook: Hook, slots: &[Slot], fragments: bool) -> io::Result<Self> {
        Self::try_load(hook, slots, fragments, &mut []).or_else(|refusal| {
            // Tries again to learn the reason. If there is none, the first error stands.
            let mut log = vec![0; LOG_BYTES];
            match Self::try_load(hook, slots, fragments, &mut log) {
                Ok(program) => Ok(program),
                Err(_) => Err(with_last_line(refusal, &log)),
            }
        })
    }

    fn try_load(hook: Hook, slots: &[Slot], fragments: bool, log: &mut [u8]) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            prog_type: u32,
            insn_cnt: u32,
            insns: u64,
            license: u64,
            log_level: u32,
            log_size: u32,
            log_buf: u64,
            kern_version: u32,
            prog_flags: u32,
            prog_name: [u8; 16],
            prog_ifindex: u32,
            expected_attach_type: u32,
        }
        let license = c"MIT".to_bytes_with_nul();
        let mut attributes = Attributes {
            prog_type: hook.program_type,
            insn_cnt: slots.len() as u32,
            insns: address_of(slots),
            license: address_of(license),
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buf: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
            kern_version: 0,
            prog_flags: if fragments { F_XDP_HAS_FRAGS } else { 0 },
            prog_name: name(hook.name),
            prog_ifindex: 0,
            expected_attach_type: hook.link_type,
        };
        // SAFETY: the command's member, without padding; the instructions are `insn_cnt` of the kernel's layout,
        // the license ends with a zero, the log is writable for `log_size`. It returns a new descriptor.
        unsafe { bpf(PROG_LOAD, &mut attributes).map(|program| Self(owned(program))) }
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Attaches the program to the interface, in the driver (`native`) or generically behind it.
    pub(super) fn attach(&self, interface: u32, native: bool) -> io::Result<Link> {
        let flags = if native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
        self.link(interface, XDP, flags)
    }

    pub(super) fn link(&self, interface: u32, hook: Hook, flags: u32) -> io::Result<Link> {
        let mut attributes = [self.0.as_raw_fd() as u32, interface, hook.link_type, flags];
        // SAFETY: the command's member; no pointers. It returns a new descriptor.
        unsafe { bpf(LINK_CREATE, &mut attributes).map(|link| Link(owned(link))) }
    }
}

/// Attaches a program to an interface until it is dropped.
#[derive(Debug)]
pub(in crate::live) struct Link(#[allow(dead_code, reason = "held for its end")] OwnedFd);

/// Adds the verifier's last message to an error, without its statistics.
fn with_last_line(error: io::Error, log: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or(&[]));
    match text.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed ")) {
        Some(line) => io::Error::new(error.kind(), format!("{error} (the verifier: {line})")),
        None => error,
    }
}

/// Opens the program or link of this number.
fn by_id(command: libc::c_int, id: u32) -> io::Result<OwnedFd> {
    // Number, where the kernel writes the next number, flags.
    let mut attributes = [id, 0, 0];
    // SAFETY: the member of both commands that use this; no pointers. They return a new descriptor.
    unsafe { bpf(command, &mut attributes).map(|found| owned(found)) }
}

/// The first bytes of the kernel's information about a program or link.
fn info<const BYTES: usize>(descriptor: &OwnedFd) -> io::Result<[u8; BYTES]> {
    #[repr(C)]
    struct Attributes {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut info = [0; BYTES];
    let mut attributes = Attributes {
        bpf_fd: descriptor.as_raw_fd() as u32,
        info_len: BYTES as u32,
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    // SAFETY: the command's member; the kernel writes at most `info_len` bytes to `info`, which is that long.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes)? };
    Ok(info)
}

/// The name of a program by its number; `None` if it is gone or has none.
pub(super) fn program_name(id: u32) -> Option<String> {
    // struct bpf_prog_info has the name at 64.
    const NAME: usize = 64;
    let info: [u8; NAME + 16] = info(&by_id(PROG_GET_FD_BY_ID, id).ok()?).ok()?;
    let name = info[NAME..].split(|&byte| byte == 0).next().filter(|name| !name.is_empty())?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The number of the link that attaches a program to the interface, if there is one.
pub(super) fn link_of(interface: u32, program: u32) -> Option<u32> {
    let mut id = 0;
    for _ in 0..LINKS_MAX {
        let mut attributes = [id, 0];
        // SAFETY: the command's member; no pointers; the kernel writes the second number, which is the next link's.
        unsafe { bpf(LINK_GET_NEXT_ID, &mut attributes).ok()? };
        id = attributes[1];
        let Ok(link) = by_id(LINK_GET_FD_BY_ID, id) else { continue };
        // struct bpf_link_info: type, id, program, padding, then for XDP the interface.
        let Ok(info) = info::<20>(&link) else { continue };
        let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        // An interface in another network namespace may have the same number, so the program must match too.
        if word(0) == LINK_TYPE_XDP && word(16) == interface && word(8) == program {
            return Some(id);
        }
    }
    None
}
