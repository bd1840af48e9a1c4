//! Flows that the kernel forwards for us.
//!
//! A packet that goes up to a program and down again pays for two crossings and a new socket buffer, and on links
//! without hardware those cost more than all work of a router. So the router decides about a flow once, and a program in
//! the kernel does the same to the flow's next packets where they arrive: it looks the flow up, rewrites what the
//! router would have rewritten, and redirects the frame to its egress port. By AF_XDP it is the port's XDP program; by
//! AF_PACKET two programs share the work (`ingress.rs`).
//!
//! ```text
//!                    ┌─ a flow with a valid lease ──> rewrite ──> count ──> out by the other port
//! frame ──> program ─┤
//!                    └─ anything else ──> socket ──> the router ──installs, for a lease──> flows
//! ```
//!
//! # What the program decides
//!
//! Nothing. It forwards IPv4 and IPv6 packets with TCP or UDP, without options, extension headers, fragments or
//! SYN, FIN and RST, if header checksum and lengths are right, the time to live lasts, the packet fits the next
//! link and the frame was sent to this port's address. The packet's flow (addresses, ports, protocol, DS field)
//! must have been installed under the present generation, with a lease that has not expired. Everything else goes
//! to the router, even what must be dropped or answered: only the router drops packets, and counts why.
//!
//! # How it stays right
//!
//! - **Leases.** A flow is installed for some ticks ([`Offload::set_lease`]) of a clock that the router advances
//!   ([`Offload::advance`]). When they are over, the flow's next packet goes to the router: it keeps NAT sessions
//!   alive and reveals whatever has changed. If the router does not run, neither does its program. Leases of many
//!   flows end together, six times per lease: a packet that comes up alone wakes the router, and that costs
//!   more than ten that come together.
//! - **Generations.** [`Offload::invalidate`] ends all leases at once. [`Offload::install`] is told the generation
//!   of the decision, so a decision made before is never used.
//! - **Bounded.** The table is a least-recently-used hash of fixed size in the kernel.
//! - **Counted.** Packets by egress port, one counter for each processor ([`Offload::forwarded`]). Bytes are those
//!   of the Ethernet header and the IP packet, without padding.
//!
//! Local senders at the other end of a veth leave transport checksums unfinished, and XDP cannot see that.
//! Untranslated packets continue as they are, with the kernel's own mark. A packet that NAT rewrites goes to the
//! router if its checksum field holds exactly the sum of the pseudo header; the router completes it. (So does one
//! finished packet of 65,535.) In native mode on such an interface this applies to all packets, because the mark
//! does not survive redirection.

use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::bpf::{Map, MapKind};

mod emit;
mod flow;
mod ingress;

pub(super) use emit::forward;
pub use flow::{Egress, FlowAction, FlowKey};
use flow::{KEY_V4_BYTES, KEY_V6_BYTES, VALUE_V4_BYTES, VALUE_V6_BYTES};
pub(super) use ingress::{filter, ingress};
use thalweg_wire::MacAddr;

/// `state`: generation, epoch, the port's address.
const STATE_BYTES: u32 = 16;
/// `counts`: packets, bytes.
const COUNT_BYTES: u32 = 16;
const NOTE_BYTES: u32 = 8;
/// Points in time per lease at which leases end.
const ENDINGS: u32 = 6;

/// The sizes of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadOptions {
    /// The most flows of IPv4 and of IPv6, each.
    pub flows: u32,
    /// The number of the router's ports.
    pub ports: u32,
}

/// Descriptors of the maps that the program uses.
#[derive(Clone, Copy, Debug)]
pub(in crate::live) struct OffloadMaps {
    pub(super) flows_v4: i32,
    pub(super) flows_v6: i32,
    pub(super) state: i32,
    pub(super) counts: i32,
    /// Of `counts`: frames that the ingress had to drop.
    pub(super) lost_at: i32,
    /// What the filter has decided about the present frame, by processor.
    pub(super) notes: i32,
    /// Frames with an unfinished checksum must not be redirected at all.
    pub(super) needs_finished_checksums: bool,
}

/// The flows that one port's program forwards.
#[derive(Debug)]
pub struct Offload {
    flows_v4: Map,
    flows_v6: Map,
    state: Map,
    counts: Map,
    notes: Map,
    ports: u32,
    processors: usize,
    is_native: AtomicBool,
    lease_epochs: AtomicU32,
    now: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    generation: u32,
    epoch: u32,
    mac: MacAddr,
}

impl State {
    fn bytes(self) -> [u8; STATE_BYTES as usize] {
        let mut bytes = [0; STATE_BYTES as usize];
        bytes[..4].copy_from_slice(&self.generation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.epoch.to_ne_bytes());
        bytes[8..14].copy_from_slice(&self.mac.0);
        bytes
    }
}

impl Offload {
    /// Empty tables for a port, to be used each time its interface comes back.
    ///
    /// # Errors
    ///
    /// The kernel refuses, for lack of rights or memory.
    pub fn create(options: &OffloadOptions) -> io::Result<Self> {
        let flows = |name, key, value| Map::create(MapKind::RecentlyUsed, key, value, options.flows, name);
        let offload = Self {
            flows_v4: flows("thalweg_flows", KEY_V4_BYTES, VALUE_V4_BYTES)?,
            flows_v6: flows("thalweg_flows6", KEY_V6_BYTES, VALUE_V6_BYTES)?,
            state: Map::create(MapKind::Array, 4, STATE_BYTES, 1, "thalweg_state")?,
            counts: Map::create(
                MapKind::ArrayByProcessor,
                4,
                COUNT_BYTES,
                options.ports + 1,
                "thalweg_counts",
            )?,
            notes: Map::create(MapKind::ArrayByProcessor, 4, NOTE_BYTES, 1, "thalweg_notes")?,
            ports: options.ports,
            processors: super::bpf::processors()?,
            is_native: AtomicBool::new(false),
            lease_epochs: AtomicU32::new(0),
            now: Mutex::new(State { generation: 1, epoch: 0, mac: MacAddr::ZERO }),
        };
        offload.publish(&offload.now.lock())?;
        Ok(offload)
    }

    /// The maps for a program that is about to be loaded.
    pub(in crate::live) fn maps(&self, is_native: bool, needs_finished_checksums: bool) -> OffloadMaps {
        self.is_native.store(is_native, Ordering::Relaxed);
        OffloadMaps {
            needs_finished_checksums,
            flows_v4: self.flows_v4.descriptor(),
            flows_v6: self.flows_v6.descriptor(),
            state: self.state.descriptor(),
            counts: self.counts.descriptor(),
            // A router has fewer than 65,536 ports.
            lost_at: i32::try_from(self.ports).unwrap_or(i32::MAX),
            notes: self.notes.descriptor(),
        }
    }

    /// Whether the program runs in the port's driver. Then frames may only go to ports whose drivers accept them
    /// ([`DriverFeatures`](crate::kernel::DriverFeatures)); the caller that installs flows ensures that.
    pub fn is_native(&self) -> bool {
        self.is_native.load(Ordering::Relaxed)
    }

    /// The generation of decisions made now. Read it before examining the packet.
    pub fn generation(&self) -> u32 {
        self.now.lock().generation
    }

    /// Lets the kernel forward the flow for a lease. Does nothing if `generation`, under which the action was
    /// decided, has ended.
    pub fn install(&self, key: &FlowKey, action: &FlowAction, generation: u32) -> io::Result<()> {
        let State { generation: present, epoch, .. } = *self.now.lock();
        if generation != present {
            return Ok(());
        }
        let value = action.value(generation, last_epoch(epoch, self.lease_epochs.load(Ordering::Relaxed)));
        match key {
            FlowKey::V4(bytes) => self.flows_v4.update(bytes, &value),
            FlowKey::V6(bytes) => self.flows_v6.update(bytes, &value[..VALUE_V6_BYTES as usize]),
        }
    }

    /// Sets the longest lease of flows installed from now on, in ticks of the clock; at first it is zero, which is
    /// valid for the present tick only. Installed flows keep their leases.
    pub fn set_lease(&self, epochs: u32) {
        self.lease_epochs.store(epochs, Ordering::Relaxed);
    }

    /// Advances the clock of leases by one tick.
    pub fn advance(&self) -> io::Result<()> {
        let mut now = self.now.lock();
        now.epoch = now.epoch.wrapping_add(1);
        self.publish(&now)
    }

    /// Ends all leases.
    pub fn invalidate(&self) -> io::Result<()> {
        let mut now = self.now.lock();
        now.generation = now.generation.wrapping_add(1);
        self.publish(&now)
    }

    /// Changes the port's address.
    pub(in crate::live) fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        let mut now = self.now.lock();
        now.mac = mac;
        self.publish(&now)
    }

    /// Packets and bytes that the kernel has forwarded so far, by egress port.
    pub fn forwarded(&self) -> io::Result<Vec<(u64, u64)>> {
        (0..self.ports).map(|port| self.counted(port)).collect()
    }

    /// Frames of known flows that were lost, because their flow was forgotten that very moment or memory was short.
    pub(in crate::live) fn lost(&self) -> io::Result<u64> {
        self.counted(self.ports).map(|(frames, _)| frames)
    }

    fn counted(&self, number: u32) -> io::Result<(u64, u64)> {
        let mut values = vec![0; self.processors * COUNT_BYTES as usize];
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.counts.look_up(&number.to_ne_bytes(), &mut values)?;
        let counts = values.chunks_exact(COUNT_BYTES as usize);
        Ok(counts.fold((0, 0), |(packets, bytes), count| {
            let (first, second) = count.split_at(8);
            (packets + word(first), bytes + word(second))
        }))
    }

    fn publish(&self, state: &State) -> io::Result<()> {
        self.state.update(&0_u32.to_ne_bytes(), &state.bytes())
    }
}

/// The last tick of a lease that begins now.
fn last_epoch(now: u32, lease: u32) -> u32 {
    let end = now.saturating_add(lease);
    end - end % (lease / ENDINGS).max(1)
}

#[cfg(test)]
mod tests;
