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
//! Nothing. It forwards IPv4 with TCP or UDP, without options, fragments or SYN, FIN and RST, whose header checksum and
//! lengths are right, whose time to live lasts, which fits the next link and was sent to this port's address; of a flow
//! (addresses, ports, protocol, DS field) that was installed under the present generation and whose lease runs.
//! Everything else goes up, also what would have to be dropped or answered: there is one place where packets are
//! dropped, and one that counts why.
//!
//! # How it stays right
//!
//! - **Leases.** A flow is installed for [`LEASE_EPOCHS`] turns of a clock that the router turns
//!   ([`Offload::advance`]). When they are over, the flow's next packet goes up: NAT sessions are kept alive by
//!   it, and whatever has changed is noticed. A router that does not run has no program either.
//! - **Generations.** [`Offload::invalidate`] ends all leases at once. A decision made before is installed under
//!   the old generation and therefore never used: who installs says under which it decided.
//! - **Bounded.** The table is a least-recently-used hash of fixed size in the kernel.
//! - **Counted.** Packets by the port they leave by, one counter for each processor ([`Offload::forwarded`]); octets
//!   are those of the Ethernet header and the IP packet, without padding.
//!
//! Local senders at the other end of a veth leave transport checksums unfinished, and XDP cannot see it. Untranslated
//! packets go on as they are, with the kernel's own mark. Of those that NAT rewrites, one whose checksum field holds
//! just the sum of the pseudo header goes up, where it is completed; so does one finished packet of 65,535.
//!
//! Missing: IPv6; native mode, in which redirection asks more of the other port's driver than can be tried out here.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::assembler::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use super::assembler::{Assembler, Label, Register, Width, context, helper};
use super::bpf::{Map, MapKind};
use super::program::wire_u16;

mod flow;

pub use flow::{Egress, FlowAction, FlowKey};
use flow::{KEY_OCTETS, VALUE_OCTETS, offset};

/// Turns of the clock for which a flow is installed.
pub const LEASE_EPOCHS: u32 = 10;

/// `state`: generation, epoch, the port's address.
const STATE_OCTETS: u32 = 16;
/// `counts`: packets, octets.
const COUNT_OCTETS: u32 = 16;

/// How large the tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadOptions {
    /// Flows at most.
    pub flows: u32,
    /// Ports of the router.
    pub ports: u32,
}

/// Descriptors of the maps that the program names.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffloadMaps {
    pub(super) flows: i32,
    pub(super) state: i32,
    pub(super) counts: i32,
}

/// The flows that one port's program forwards.
#[derive(Debug)]
pub struct Offload {
    flows: Map,
    state: Map,
    counts: Map,
    ports: u32,
    processors: usize,
    now: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    generation: u32,
    epoch: u32,
    mac: [u8; 6],
}

impl State {
    fn octets(self) -> [u8; STATE_OCTETS as usize] {
        let mut octets = [0; STATE_OCTETS as usize];
        octets[..4].copy_from_slice(&self.generation.to_ne_bytes());
        octets[4..8].copy_from_slice(&self.epoch.to_ne_bytes());
        octets[8..14].copy_from_slice(&self.mac);
        octets
    }
}

impl Offload {
    /// Tables without a flow, for a port that is to be opened, as often as its interface comes back.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, for want of rights or memory.
    pub fn create(options: &OffloadOptions) -> io::Result<Self> {
        let offload = Self {
            flows: Map::create(
                MapKind::RecentlyUsed,
                KEY_OCTETS,
                VALUE_OCTETS,
                options.flows,
                "thalweg_flows",
            )?,
            state: Map::create(MapKind::Array, 4, STATE_OCTETS, 1, "thalweg_state")?,
            counts: Map::create(
                MapKind::ArrayByProcessor,
                4,
                COUNT_OCTETS,
                options.ports.max(1),
                "thalweg_counts",
            )?,
            ports: options.ports,
            processors: super::bpf::processors()?,
            now: Mutex::new(State { generation: 1, epoch: 0, mac: [0; 6] }),
        };
        offload.publish(&offload.lock())?;
        Ok(offload)
    }

    pub(super) fn maps(&self) -> OffloadMaps {
        OffloadMaps {
            flows: self.flows.descriptor(),
            state: self.state.descriptor(),
            counts: self.counts.descriptor(),
        }
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
        self.flows.update(key.octets(), &action.value(generation, epoch.wrapping_add(LEASE_EPOCHS)))
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
    pub(super) fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        let mut now = self.lock();
        now.mac = mac;
        self.publish(&now)
    }

    /// Packets and octets forwarded by the kernel so far, by the port they left by.
    pub fn forwarded(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut values = vec![0; self.processors * COUNT_OCTETS as usize];
        let word = |octets: &[u8]| octets.iter().rev().fold(0, |word, octet| word << 8 | u64::from(*octet));
        (0..self.ports)
            .map(|port| {
                self.counts.look_up(&port.to_ne_bytes(), &mut values)?;
                let counts = values.chunks_exact(COUNT_OCTETS as usize);
                Ok(counts.fold((0, 0), |(packets, octets), count| {
                    let (first, second) = count.split_at(8);
                    (packets + word(first), octets + word(second))
                }))
            })
            .collect()
    }

    fn publish(&self, state: &State) -> io::Result<()> {
        self.state.update(&0_u32.to_ne_bytes(), &state.octets())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Where things are in a frame.
const TYPE: i16 = 12;
const VERSION: i16 = 14;
const TRAFFIC_CLASS: i16 = 15;
const TOTAL_LENGTH: i16 = 16;
const FRAGMENT: i16 = 20;
const TIME_TO_LIVE: i16 = 22;
const PROTOCOL: i16 = 23;
const CHECKSUM: i16 = 24;
const SOURCE: i16 = 26;
const DESTINATION: i16 = 30;
const SOURCE_PORT: i16 = 34;
const DESTINATION_PORT: i16 = 36;
const UDP_CHECKSUM: i16 = 40;
const TCP_FLAGS: i16 = 47;
const TCP_CHECKSUM: i16 = 50;
/// Octets up to a UDP header's end.
const UDP_END: i32 = 42;
/// Octets up to the end of a TCP header without options.
const TCP_END: i32 = 54;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// FIN, SYN and RST: the router follows connections.
const TCP_CHANGES: i32 = 7;

// Where things are on the stack.
const STACK_KEY: i16 = -16;
const STACK_LENGTH: i16 = -24;
const STACK_PORT: i16 = -28;

/// Forwards and ends, or goes to `unknown` with the frame as it was. Expects the context in R6 and keeps it there.
pub(super) fn forward(a: &mut Assembler, maps: &OffloadMaps, unknown: Label) {
    a.load(Width::U32, R7, R6, context::DATA);
    a.load(Width::U32, R8, R6, context::DATA_END);
    check_header(a, unknown);
    check_transport(a, unknown);
    look_up(a, maps, unknown);
    check_lease(a, maps, unknown);
    rewrite_transport(a, unknown);
    rewrite_header(a);
    count(a, maps);
    a.load(Width::U32, R1, R9, offset::INTERFACE);
    a.set(R2, 0);
    a.call(helper::REDIRECT);
    a.exit();
}

fn check_header(a: &mut Assembler, unknown: Label) {
    a.jump_unless_present(R7, UDP_END, R8, R4, unknown);
    a.load(Width::U16, R5, R7, TYPE);
    a.jump_unless_equal(R5, wire_u16(0x0800), unknown);
    a.load(Width::U8, R5, R7, VERSION);
    a.jump_unless_equal(R5, 0x45, unknown);
    a.load(Width::U16, R5, R7, FRAGMENT);
    // "Do not fragment" may be set, nothing else.
    a.and(R5, wire_u16(0xbfff) as i32);
    a.jump_unless_equal(R5, 0, unknown);
    a.load(Width::U8, R5, R7, TIME_TO_LIVE);
    a.jump_if_less(R5, 2, unknown);
    a.load(Width::U32, R1, R7, VERSION);
    for word in 1..5 {
        a.load(Width::U32, R5, R7, VERSION + 4 * word);
        a.add_register(R1, R5);
    }
    fold(a, R1, R5);
    a.jump_unless_equal(R1, 0xffff, unknown);
}

/// Leaves the packet's length on the stack.
fn check_transport(a: &mut Assembler, unknown: Label) {
    let known = a.label();
    a.load(Width::U8, R5, R7, PROTOCOL);
    a.set(R3, UDP_END - i32::from(VERSION));
    a.jump_if_equal(R5, UDP, known);
    a.jump_unless_equal(R5, TCP, unknown);
    a.jump_unless_present(R7, TCP_END, R8, R4, unknown);
    a.load(Width::U8, R4, R7, TCP_FLAGS);
    a.and(R4, TCP_CHANGES);
    a.jump_unless_equal(R4, 0, unknown);
    a.set(R3, TCP_END - i32::from(VERSION));
    a.place(known);
    a.load(Width::U16, R2, R7, TOTAL_LENGTH);
    a.swap_16(R2);
    // The verifier wants to see it bounded.
    a.and(R2, 0xffff);
    a.jump_if_greater(R3, R2, unknown);
    a.store(Width::U64, R10, STACK_LENGTH, R2);
    a.copy(R4, R7);
    a.add(R4, VERSION.into());
    a.add_register(R4, R2);
    a.jump_if_greater(R4, R8, unknown);
}

/// Leaves the flow's value in R9.
fn look_up(a: &mut Assembler, maps: &OffloadMaps, unknown: Label) {
    for (width, from, to) in [
        (Width::U32, SOURCE, 0),
        (Width::U32, DESTINATION, 4),
        (Width::U32, SOURCE_PORT, 8),
        (Width::U8, PROTOCOL, 12),
        (Width::U8, TRAFFIC_CLASS, 13),
    ] {
        a.load(width, R5, R7, from);
        a.store(width, R10, STACK_KEY + to, R5);
    }
    a.set(R5, 0);
    a.store(Width::U16, R10, STACK_KEY + 14, R5);
    a.load_map(R1, maps.flows);
    a.copy(R2, R10);
    a.add(R2, STACK_KEY.into());
    a.call(helper::MAP_LOOK_UP);
    a.jump_if_null(R0, unknown);
    a.copy(R9, R0);
}

fn check_lease(a: &mut Assembler, maps: &OffloadMaps, unknown: Label) {
    a.load_map_value(R1, maps.state);
    a.load(Width::U32, R2, R1, 0);
    a.load(Width::U32, R3, R9, offset::GENERATION);
    a.jump_unless_same(R2, R3, unknown);
    a.load(Width::U32, R2, R1, 4);
    a.load(Width::U32, R3, R9, offset::UNTIL_EPOCH);
    a.jump_if_greater(R2, R3, unknown);
    for (width, at) in [(Width::U32, 0), (Width::U16, 4)] {
        a.load(width, R2, R1, 8 + at);
        a.load(width, R3, R7, at);
        a.jump_unless_same(R2, R3, unknown);
    }
    a.load(Width::U64, R2, R10, STACK_LENGTH);
    a.load(Width::U32, R3, R9, offset::MTU);
    a.jump_if_greater(R2, R3, unknown);
}

fn rewrite_transport(a: &mut Assembler, unknown: Label) {
    let (tcp, ports, done) = (a.label(), a.label(), a.label());
    a.load(Width::U32, R3, R9, offset::TRANSLATED);
    a.jump_if_equal(R3, 0, done);
    a.load(Width::U8, R5, R7, PROTOCOL);
    a.jump_if_equal(R5, TCP, tcp);
    a.load(Width::U16, R1, R7, UDP_CHECKSUM);
    // RFC 768: the sender computed none.
    a.jump_if_equal(R1, 0, ports);
    refuse_unfinished(a, unknown);
    let finished = a.label();
    apply(a, offset::TRANSPORT_DELTA);
    a.jump_unless_equal(R1, 0, finished);
    a.set(R1, 0xffff);
    a.place(finished);
    a.store(Width::U16, R7, UDP_CHECKSUM, R1);
    a.jump(ports);
    a.place(tcp);
    a.jump_unless_present(R7, TCP_END, R8, R4, unknown);
    a.load(Width::U16, R1, R7, TCP_CHECKSUM);
    refuse_unfinished(a, unknown);
    apply(a, offset::TRANSPORT_DELTA);
    a.store(Width::U16, R7, TCP_CHECKSUM, R1);
    a.place(ports);
    for (width, from, to) in [
        (Width::U16, offset::SOURCE_PORT, SOURCE_PORT),
        (Width::U16, offset::DESTINATION_PORT, DESTINATION_PORT),
        (Width::U32, offset::SOURCE, SOURCE),
        (Width::U32, offset::DESTINATION, DESTINATION),
    ] {
        a.load(width, R5, R9, from);
        a.store(width, R7, to, R5);
    }
    a.place(done);
}

/// Goes to `unknown` if the checksum in R1 is just the sum of the pseudo header.
fn refuse_unfinished(a: &mut Assembler, unknown: Label) {
    a.load(Width::U64, R2, R10, STACK_LENGTH);
    a.add(R2, i32::from(VERSION) - i32::from(SOURCE_PORT));
    a.swap_16(R2);
    for at in [SOURCE, DESTINATION] {
        a.load(Width::U32, R3, R7, at);
        a.add_register(R2, R3);
    }
    a.load(Width::U8, R3, R7, PROTOCOL);
    a.swap_16(R3);
    a.add_register(R2, R3);
    fold(a, R2, R3);
    a.jump_if_same(R2, R1, unknown);
}

fn rewrite_header(a: &mut Assembler) {
    a.load(Width::U16, R1, R7, CHECKSUM);
    apply(a, offset::HEADER_DELTA);
    a.store(Width::U16, R7, CHECKSUM, R1);
    a.load(Width::U8, R5, R7, TIME_TO_LIVE);
    a.add(R5, -1);
    a.store(Width::U8, R7, TIME_TO_LIVE, R5);
    for at in [0, 4, 8] {
        a.load(Width::U32, R5, R9, offset::ETHERNET + at);
        a.store(Width::U32, R7, at, R5);
    }
}

fn count(a: &mut Assembler, maps: &OffloadMaps) {
    let counted = a.label();
    a.load(Width::U32, R5, R9, offset::PORT);
    a.store(Width::U32, R10, STACK_PORT, R5);
    a.load_map(R1, maps.counts);
    a.copy(R2, R10);
    a.add(R2, STACK_PORT.into());
    a.call(helper::MAP_LOOK_UP);
    a.jump_if_null(R0, counted);
    a.load(Width::U64, R1, R0, 0);
    a.add(R1, 1);
    a.store(Width::U64, R0, 0, R1);
    a.load(Width::U64, R1, R0, 8);
    a.load(Width::U64, R2, R10, STACK_LENGTH);
    a.add_register(R1, R2);
    a.add(R1, VERSION.into());
    a.store(Width::U64, R0, 8, R1);
    a.place(counted);
}

/// Folds a one's complement sum of up to eight 32-bit words to 16 bits.
fn fold(a: &mut Assembler, sum: Register, scratch: Register) {
    a.copy(scratch, sum);
    a.shift_right(scratch, 32);
    a.copy_32(sum, sum);
    a.add_register(sum, scratch);
    for _ in 0..3 {
        a.copy(scratch, sum);
        a.shift_right(scratch, 16);
        a.and(sum, 0xffff);
        a.add_register(sum, scratch);
    }
}

/// Changes the checksum in R1 by the flow's difference at `delta` (RFC 1624, equation 3).
fn apply(a: &mut Assembler, delta: i16) {
    a.xor(R1, 0xffff);
    a.load(Width::U32, R2, R9, delta);
    a.add_register(R1, R2);
    fold(a, R1, R2);
    a.xor(R1, 0xffff);
}

#[cfg(test)]
mod tests;
