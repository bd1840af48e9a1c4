//! Access lists bound to ports, as a stage over batches, and each worker's counters.

use super::table::{AREAS_MAX, Key, Table};
use super::{AccessList, Action, Rule};
use crate::ingress::be128;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{Batch, DropReason, Packet, PacketFlags};

/// No list on this port.
const NO_LIST: u16 = u16::MAX;

/// The list of each port: by port index, the index of the list. Ports past the end have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclBindings {
    /// For incoming packets.
    pub inbound: Vec<Option<u16>>,
    /// For outgoing packets.
    pub outbound: Vec<Option<u16>>,
}

/// Why lists cannot be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// A list has too many rules.
    #[error("access list {list} has {rules} rules, more than {}", AclSet::RULES_MAX)]
    TooManyRules {
        list: usize,
        /// The list's number of rules.
        rules: usize,
    },
    /// The rules of a list have too many networks, ranges and protocols together.
    #[error("access list {list} has more than {AREAS_MAX} networks and ranges")]
    TooLarge {
        /// The index of the list.
        list: usize,
    },
    /// There are too many lists.
    #[error("{lists} access lists are more than {}", AclSet::LISTS_MAX)]
    TooManyLists {
        /// Their number.
        lists: usize,
    },
    /// A port is bound to a list that does not exist.
    #[error("no access list {list}")]
    NoSuchList {
        /// The index given.
        list: u16,
    },
}

#[derive(Clone, Debug)]
struct List {
    v4: Table<u32>,
    v6: Table<u128>,
    /// Indexed by rule; the last is the default's.
    actions: Vec<Action>,
    /// Index of its first rule's counter.
    first_counter: usize,
}

impl List {
    #[inline(always)]
    fn key_v4(&self, packet: &Packet, l3: &[u8]) -> Key<u32> {
        let Some(header) = l3.first_chunk::<20>() else { return Key::default() };
        let be32 =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        self.v4.key(be32(12), be32(16), packet, l3)
    }

    #[inline(always)]
    fn key_v6(&self, packet: &Packet, l3: &[u8]) -> Key<u128> {
        let Some(header) = l3.first_chunk::<40>() else { return Key::default() };
        self.v6.key(be128(header, 8), be128(header, 24), packet, l3)
    }

    /// Counts a packet for its deciding rule, and applies the rule's action. A packet that only waits to leave is
    /// dropped for good: the host thread must not send it on, nor answer that it is too large.
    #[inline(always)]
    fn act(&self, rule: usize, packet: &mut Packet, counts: &[Cell]) {
        counts[rule].add(u64::from(packet.wire_packets()), packet.wire_ip_bytes());
        match self.actions[rule] {
            Action::Permit => {}
            Action::Deny => packet.drop_for_good(DropReason::AclDenied),
            Action::Reject => {
                packet.flags.set(PacketFlags::REJECT);
                packet.drop_for_good(DropReason::AclDenied);
            }
        }
    }

    /// The place of a packet's deciding rule; one past the last rule is the default's. A packet without its header is
    /// one between addresses of zeros.
    #[inline(always)]
    fn first(&self, packet: &Packet, l3: &[u8]) -> usize {
        let rule = match packet.is_ipv6() {
            true => self.v6.first(&self.key_v6(packet, l3)),
            false => self.v4.first(&self.key_v4(packet, l3)),
        };
        rule.unwrap_or(self.actions.len() - 1)
    }

    /// The same for an IPv4 packet as if it were for this destination.
    fn first_to(&self, packet: &mut Packet, l3: &[u8], destination: SocketAddrV4) -> usize {
        let port = std::mem::replace(&mut packet.dst_port, destination.port());
        let to = u32::from(*destination.ip());
        let rule = self.v4.first(&self.v4.key(address_v4(l3, 12), to, packet, l3));
        packet.dst_port = port;
        rule.unwrap_or(self.actions.len() - 1)
    }

    /// The same as if it came from this source.
    fn first_from(&self, packet: &mut Packet, l3: &[u8], source: SocketAddrV4) -> usize {
        let port = std::mem::replace(&mut packet.src_port, source.port());
        let from = u32::from(*source.ip());
        let rule = self.v4.first(&self.v4.key(from, address_v4(l3, 16), packet, l3));
        packet.src_port = port;
        rule.unwrap_or(self.actions.len() - 1)
    }

    /// A deciding rule and its action.
    fn decision(&self, rule: usize) -> (Option<usize>, Action) {
        ((rule + 1 < self.actions.len()).then_some(rule), self.actions[rule])
    }
}

/// The IPv4 address at a place of a header.
fn address_v4(l3: &[u8], at: usize) -> u32 {
    let bytes = l3.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// All lists and the ports they are bound to, compiled. It never changes: a reload compiles another one with
/// another version, and replaces it.
#[derive(Clone, Debug, Default)]
pub struct AclSet {
    version: u64,
    lists: Vec<List>,
    inbound: Vec<u16>,
    outbound: Vec<u16>,
    counters: usize,
    asks_for_push: bool,
}

impl AclSet {
    /// The most rules of a list.
    pub const RULES_MAX: usize = 16_384;
    /// The most lists.
    pub const LISTS_MAX: usize = 4096;

    /// Compiles lists. `version` distinguishes the counters of this set from those of others.
    pub fn compile(lists: &[AccessList], bindings: &AclBindings, version: u64) -> Result<Self, AclError> {
        if lists.len() > Self::LISTS_MAX {
            return Err(AclError::TooManyLists { lists: lists.len() });
        }
        let bind = |ports: &[Option<u16>]| -> Result<Vec<u16>, AclError> {
            let known = |list: u16| usize::from(list) < lists.len();
            if let Some(list) = ports.iter().flatten().copied().find(|list| !known(*list)) {
                return Err(AclError::NoSuchList { list });
            }
            // Without a binding the stage has nothing to do, which the empty list shows at once.
            let bound = ports.iter().any(Option::is_some);
            Ok(if bound { ports.iter().map(|list| list.unwrap_or(NO_LIST)).collect() } else { Vec::new() })
        };
        let (inbound, outbound) = (bind(&bindings.inbound)?, bind(&bindings.outbound)?);
        let asks_for_push = lists.iter().flat_map(|list| &list.rules).any(Rule::asks_for_push);
        let mut set = Self { version, lists: Vec::new(), inbound, outbound, counters: 0, asks_for_push };
        for (place, list) in lists.iter().enumerate() {
            let rules = list.rules.len();
            if rules > Self::RULES_MAX {
                return Err(AclError::TooManyRules { list: place, rules });
            }
            let too_large = AclError::TooLarge { list: place };
            set.lists.push(List {
                v4: Table::new(&list.rules).ok_or(too_large)?,
                v6: Table::new(&list.rules).ok_or(too_large)?,
                actions: list.rules.iter().map(|r| r.action).chain([list.default]).collect(),
                first_counter: set.counters,
            });
            set.counters += rules + 1;
        }
        Ok(set)
    }

    /// Whether no port has a list.
    pub fn is_idle(&self) -> bool {
        self.inbound.is_empty() && self.outbound.is_empty()
    }

    /// Whether a rule asks for TCP's PSH, which only the last of several merged segments may have.
    pub fn asks_for_push(&self) -> bool {
        self.asks_for_push
    }

    /// The version it was compiled with.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Bytes of all tables.
    pub fn memory_bytes(&self) -> usize {
        self.lists.iter().map(|list| list.v4.memory_bytes() + list.v6.memory_bytes()).sum()
    }

    /// Whether some port filters incoming packets.
    pub fn has_inbound(&self) -> bool {
        !self.inbound.is_empty()
    }

    /// Applies the lists of the ingress ports of a batch's live packets.
    pub fn process_in(&self, batch: &mut Batch<'_>, counts: &mut AclCounts) {
        counts.match_version(self);
        self.find_in(batch, |packet, list, rule| self.act(packet, list, rule, counts));
    }

    /// Passes each live packet whose ingress port has a list, with the list, and the index of the deciding rule in it:
    /// one past the last for the default. Counts nothing.
    pub fn find_in(&self, batch: &mut Batch<'_>, found: impl FnMut(&mut Packet, u16, usize)) {
        self.find(batch, &self.inbound, |packet| packet.port_in, found);
    }

    /// Applies the lists of the egress ports of a batch's packets, those included that leave later because they wait
    /// for their neighbor or are to be cut.
    pub fn process_out(&self, batch: &mut Batch<'_>, counts: &mut AclCounts) {
        counts.match_version(self);
        let port = |packet: &Packet| packet.port_out;
        self.find(batch, &self.outbound, port, |packet, list, rule| self.act(packet, list, rule, counts));
    }

    #[inline(always)]
    fn find(
        &self,
        batch: &mut Batch<'_>,
        bindings: &[u16],
        port: impl Fn(&Packet) -> u16,
        mut found: impl FnMut(&mut Packet, u16, usize),
    ) {
        if bindings.is_empty() {
            return;
        }
        for place in 0..batch.len() {
            let packet = &batch.packets()[place];
            let number = bindings.get(usize::from(port(packet))).copied().unwrap_or(NO_LIST);
            if let Some(list) = self.lists.get(usize::from(number)).filter(|_| packet.is_leaving()) {
                let (packet, l3) = batch.packet_and_l3(place);
                let rule = list.first(packet, l3);
                found(packet, number, rule);
            }
        }
    }

    #[inline(always)]
    fn act(&self, packet: &mut Packet, list: u16, rule: usize, counts: &AclCounts) {
        let list = &self.lists[usize::from(list)];
        list.act(rule, packet, &counts.cells.counts[list.first_counter..][..list.actions.len()]);
    }

    /// Applies the list of a live IPv4 packet's ingress port, and those of the ports that it `leaves_by`, as if it
    /// were for this destination. Rules count only the packets that they drop here; permitted packets are counted
    /// at their own look-up.
    pub fn judge_as(
        &self,
        packet: &mut Packet,
        l3: &[u8],
        destination: SocketAddrV4,
        leaves_by: impl Fn(u16) -> bool,
        counts: &mut AclCounts,
    ) {
        counts.match_version(self);
        let inbound = self.inbound.get(usize::from(packet.port_in)).copied();
        let outbound =
            (0u16..).zip(&self.outbound).filter(|(port, _)| leaves_by(*port)).map(|(_, list)| *list);
        for list in inbound.into_iter().chain(outbound).filter(|list| *list != NO_LIST) {
            let Some(list) = self.lists.get(usize::from(list)) else { continue };
            let rule = list.first_to(packet, l3, destination);
            if list.actions[rule] != Action::Permit && packet.is_alive() {
                list.act(rule, packet, &counts.cells.counts[list.first_counter..][..list.actions.len()]);
            }
        }
    }

    /// The index of a list's deciding rule for a packet (`None`: the default) and its action; `None` if there is no
    /// such list. Counts nothing.
    pub fn decide(&self, list: u16, packet: &Packet, l3: &[u8]) -> Option<(Option<usize>, Action)> {
        let list = self.lists.get(usize::from(list))?;
        Some(list.decision(list.first(packet, l3)))
    }

    /// The same for a packet as if it came from this IPv4 endpoint.
    pub fn decide_as_from(
        &self,
        list: u16,
        packet: &mut Packet,
        l3: &[u8],
        source: SocketAddrV4,
    ) -> Option<(Option<usize>, Action)> {
        let list = self.lists.get(usize::from(list))?;
        Some(list.decision(list.first_from(packet, l3, source)))
    }

    /// The counters of a list: those of its rules in order, then the default's. Empty if `counts` has another
    /// version or there is no such list.
    pub fn counts_of(&self, list: usize, counts: &AclCounts) -> Vec<RuleCount> {
        let list = self.lists.get(list).filter(|_| counts.cells.version == self.version);
        let cells = list.and_then(|list| {
            counts.cells.counts.get(list.first_counter..list.first_counter + list.actions.len())
        });
        cells.unwrap_or_default().iter().map(Cell::get).collect()
    }
}

/// The packets that matched a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCount {
    pub packets: u64,
    /// Bytes from the IP header on.
    pub bytes: u64,
}

/// The counters of one version of the lists. Only one worker writes them, so that counting needs no locked
/// instruction; other threads may read them concurrently.
#[derive(Debug, Default)]
pub struct AclCells {
    version: u64,
    counts: Box<[Cell]>,
}

#[derive(Debug, Default)]
struct Cell {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Cell {
    #[inline(always)]
    fn add(&self, packets: u64, bytes: u64) {
        // Not fetch_add: there is no other writer.
        self.packets.store(self.packets.load(Ordering::Relaxed) + packets, Ordering::Relaxed);
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    fn get(&self) -> RuleCount {
        let [packets, bytes] = [&self.packets, &self.bytes].map(|cell| cell.load(Ordering::Relaxed));
        RuleCount { packets, bytes }
    }
}

/// One worker's counters, or the sum of several. They belong to one version of the lists, and restart at zero with
/// the first batch that meets another one.
#[derive(Debug, Default)]
pub struct AclCounts {
    cells: Arc<AclCells>,
}

impl AclCounts {
    /// Counters for this set, all zero.
    pub fn new(set: &AclSet) -> Self {
        Self::of_version(set.version, set.counters)
    }

    /// Counters for something else that is counted like rules: `count` of them, in one version.
    pub fn of_version(version: u64, count: usize) -> Self {
        Self { cells: Arc::new(AclCells { version, counts: (0..count).map(|_| Cell::default()).collect() }) }
    }

    /// Counts a packet at a place; ignores a place that there is not.
    #[inline(always)]
    pub fn count(&self, place: usize, bytes: u64) {
        if let Some(cell) = self.cells.counts.get(place) {
            cell.add(1, bytes);
        }
    }

    /// Counts all that a frame merges.
    #[inline(always)]
    pub fn count_packet(&self, place: usize, packet: &Packet) {
        if let Some(cell) = self.cells.counts.get(place) {
            cell.add(packet.wire_packets().into(), packet.wire_ip_bytes());
        }
    }

    /// All counters, by place.
    pub fn all(&self) -> Vec<RuleCount> {
        self.cells.counts.iter().map(Cell::get).collect()
    }

    /// The same counters, for reading while they are written.
    pub fn shared(&self) -> Arc<AclCells> {
        Arc::clone(&self.cells)
    }

    #[inline(always)]
    fn match_version(&mut self, set: &AclSet) {
        if self.cells.version != set.version || self.cells.counts.len() != set.counters {
            *self = Self::new(set);
        }
    }

    /// Adds another worker's counters if they are of the same version.
    pub fn merge(&mut self, other: &AclCells) {
        if self.cells.version != other.version || self.cells.counts.len() != other.counts.len() {
            return;
        }
        for (mine, theirs) in self.cells.counts.iter().zip(&other.counts) {
            let RuleCount { packets, bytes } = theirs.get();
            mine.add(packets, bytes);
        }
    }
}
