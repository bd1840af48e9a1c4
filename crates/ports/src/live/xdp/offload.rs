//! Flows that the kernel forwards for us.
//!
//! A packet that goes up to a program and down again pays for two crossings and a new socket buffer, and on links
//! without hardware those cost more than everything a router does. So the router decides about a flow once, and the
//! XDP program does the same to the flow's next packets where they come in: it looks the flow up, rewrites
//! what the router would have rewritten, and redirects the frame to the port it leaves by.
//!
//! ```text
//!                    ┌─ a flow, its lease runs ──> rewrite ──> count ──> out by the other port
//! frame ──> program ─┤
//!                    └─ anything else ──> socket ──> the router ──installs, for a lease──> flows
//! ```
//!
//! # What the program decides
//!
//! Nothing. It forwards IPv4 and IPv6 with TCP or UDP, without options, extension headers, fragments or SYN, FIN and
//! RST, whose header checksum and lengths are right, whose time to live lasts, which fits the next link and was sent to
//! this port's address; of a flow (addresses, ports, protocol, DS field) that was installed under the present
//! generation and whose lease runs. Everything else goes up, also what would have to be dropped or answered: there is
//! one place where packets are dropped, and one that counts why.
//!
//! # How it stays right
//!
//! - **Leases.** A flow is installed for some turns ([`Offload::set_lease`]) of a clock that the router turns
//!   ([`Offload::advance`]). When they are over, the flow's next packet goes up: NAT sessions are kept alive by
//!   it, and whatever has changed is noticed. A router that does not run has no program either.
//! - **Generations.** [`Offload::invalidate`] ends all leases at once. A decision made before is installed under
//!   the old generation and therefore never used: who installs says under which it decided.
//! - **Bounded.** The table is a least-recently-used hash of fixed size in the kernel.
//! - **Counted.** Packets by the port they leave by, one counter for each processor ([`Offload::forwarded`]); bytes
//!   are those of the Ethernet header and the IP packet, without padding.
//!
//! Local senders at the other end of a veth leave transport checksums unfinished, and XDP cannot see it. Untranslated
//! packets go on as they are, with the kernel's own mark. Of those that NAT rewrites, one whose checksum field holds
//! just the sum of the pseudo header goes up, where it is completed; so does one finished packet of 65,535. In native
//! mode on such an interface that is so for all packets, because the mark does not survive redirection.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::bpf::{Map, MapKind};

mod emit;
mod flow;

pub(super) use emit::forward;
pub use flow::{Egress, FlowAction, FlowKey};
use flow::{KEY_V4_BYTES, KEY_V6_BYTES, VALUE_V4_BYTES, VALUE_V6_BYTES};
use thalweg_wire::MacAddr;

/// `state`: generation, epoch, the port's address.
const STATE_BYTES: u32 = 16;
/// `counts`: packets, bytes.
const COUNT_BYTES: u32 = 16;

/// How large the tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadOptions {
    /// Flows at most, of IPv4 and of IPv6 each.
    pub flows: u32,
    /// Ports of the router.
    pub ports: u32,
}

/// Descriptors of the maps that the program names.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffloadMaps {
    pub(super) flows_v4: i32,
    pub(super) flows_v6: i32,
    pub(super) state: i32,
    pub(super) counts: i32,
    /// Frames whose checksum somebody else was to finish must not be redirected at all.
    pub(super) needs_finished_checksums: bool,
}

/// The flows that one port's program forwards.
#[derive(Debug)]
pub struct Offload {
    flows_v4: Map,
    flows_v6: Map,
    state: Map,
    counts: Map,
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
    /// Tables without a flow, for a port that is to be opened, as often as its interface comes back.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, for want of rights or memory.
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
                options.ports.max(1),
                "thalweg_counts",
            )?,
            ports: options.ports,
            processors: super::bpf::processors()?,
            is_native: AtomicBool::new(false),
            lease_epochs: AtomicU32::new(0),
            now: Mutex::new(State { generation: 1, epoch: 0, mac: MacAddr::ZERO }),
        };
        offload.publish(&offload.lock())?;
        Ok(offload)
    }

    /// For a program that is to run there.
    pub(super) fn maps(&self, is_native: bool, needs_finished_checksums: bool) -> OffloadMaps {
        self.is_native.store(is_native, Ordering::Relaxed);
        OffloadMaps {
            needs_finished_checksums,
            flows_v4: self.flows_v4.descriptor(),
            flows_v6: self.flows_v6.descriptor(),
            state: self.state.descriptor(),
            counts: self.counts.descriptor(),
        }
    }

    /// Whether the program runs in the port's driver. Then frames can only go to ports whose drivers take them
    /// ([`DriverFeatures`](crate::kernel::DriverFeatures)): the caller that installs flows ensures that.
    pub fn is_native(&self) -> bool {
        self.is_native.load(Ordering::Relaxed)
    }

    /// Under which generation decisions are made now. Ask before the packet is looked at.
    pub fn generation(&self) -> u32 {
        self.lock().generation
    }

    /// Has the flow forwarded for a lease, as was decided under `generation`.
    pub fn install(&self, key: &FlowKey, action: &FlowAction, generation: u32) -> io::Result<()> {
        let State { generation: present, epoch, .. } = *self.lock();
        if generation != present {
            return Ok(());
        }
        let value = action.value(generation, epoch.saturating_add(self.lease_epochs.load(Ordering::Relaxed)));
        match key {
            FlowKey::V4(bytes) => self.flows_v4.update(bytes, &value),
            FlowKey::V6(bytes) => self.flows_v6.update(bytes, &value[..VALUE_V6_BYTES as usize]),
        }
    }

    /// From now on flows are installed for so many turns of the clock, without this for none beyond the present. Those that are
    /// installed keep their leases.
    pub fn set_lease(&self, epochs: u32) {
        self.lease_epochs.store(epochs, Ordering::Relaxed);
    }

    /// Turns the clock of leases.
    pub fn advance(&self) -> io::Result<()> {
        let mut now = self.lock();
        now.epoch = now.epoch.wrapping_add(1);
        self.publish(&now)
    }

    /// Ends all leases.
    pub fn invalidate(&self) -> io::Result<()> {
        let mut now = self.lock();
        now.generation = now.generation.wrapping_add(1);
        self.publish(&now)
    }

    /// The port has another address.
    pub(super) fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        let mut now = self.lock();
        now.mac = mac;
        self.publish(&now)
    }

    /// Packets and bytes forwarded by the kernel so far, by the port they left by.
    pub fn forwarded(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut values = vec![0; self.processors * COUNT_BYTES as usize];
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        (0..self.ports)
            .map(|port| {
                self.counts.look_up(&port.to_ne_bytes(), &mut values)?;
                let counts = values.chunks_exact(COUNT_BYTES as usize);
                Ok(counts.fold((0, 0), |(packets, bytes), count| {
                    let (first, second) = count.split_at(8);
                    (packets + word(first), bytes + word(second))
                }))
            })
            .collect()
    }

    fn publish(&self, state: &State) -> io::Result<()> {
        self.state.update(&0_u32.to_ne_bytes(), &state.bytes())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.now.lock()
    }
}

#[cfg(test)]
mod tests;
