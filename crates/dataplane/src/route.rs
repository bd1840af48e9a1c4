//! Routing: looks up the destination, chooses among equal paths, decrements the TTL, and writes the Ethernet header
//! of the next hop.
//!
//! The look-up yields the id of a *next-hop group*, which is a run of *adjacencies*. An adjacency is either a
//! ready-made rewrite (port, MAC addresses) or the reason why packets end here (no route, blackhole, local ...), so
//! the hot path has one shape and one table. Neighbors are host routes to an adjacency of their own, so the same
//! look-up resolves the next hop's MAC address.
//!
//! The symmetric flow hash chooses among equal-cost paths. It is equal for all packets of a flow, so a flow takes
//! one path, as RFC 2992 asks; fragments are hashed without ports.
//!
//! An earlier stage may have chosen the group: a routing rule, or NAT with several outside ports, which must know the
//! port first.
//!
//! A packet that needs an ICMP error, fragmentation or a neighbor's MAC address is dropped here with that reason;
//! on live ports the host thread (`thalweg-live`) then acts on it.

use crate::ingress::be128;
use crate::lpm::{Fib4, Fib6, Lpm, NEXT_HOP_MAX};
use arc_swap::ArcSwap;
use std::hint::select_unpredictable;
use std::sync::Arc;
use thalweg_base::{BATCH_PACKETS, Batch, DropReason, NO_PORT, Packet};
use thalweg_wire::ethernet::EthernetRepr;
use thalweg_wire::{EtherType, MacAddr};

/// What to do with a packet that matched a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjacency {
    Forward {
        port: u16,
        destination_mac: MacAddr,
        source_mac: MacAddr,
        /// The largest IP packet that the port takes.
        mtu_bytes: u32,
    },
    /// To a neighbor or network whose MAC address is not known yet: dropped as `neighbor-unresolved` until the host
    /// thread resolves it.
    Glean {
        /// The neighbor's port.
        port: u16,
    },
    /// To an address of the router itself: dropped as `local`, for the host.
    Local {
        /// The port with the address.
        port: u16,
    },
    /// Dropped for this reason.
    Drop(DropReason),
}

impl Adjacency {
    /// The port of the path, if it has one.
    pub fn port(self) -> Option<u16> {
        match self {
            Adjacency::Forward { port, .. } | Adjacency::Glean { port } | Adjacency::Local { port } => {
                Some(port)
            }
            Adjacency::Drop(_) => None,
        }
    }
}

/// An adjacency in the form that the hot path reads.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Rewrite {
    /// The Ethernet header of an IPv4 packet.
    header: [u8; 14],
    drop_code: u8,
    port: u16,
    /// 0 if packets end here: every packet is larger.
    mtu_bytes: u32,
}

impl From<Adjacency> for Rewrite {
    fn from(adjacency: Adjacency) -> Self {
        let dropped = |reason: DropReason, port: u16| Rewrite {
            header: [0; 14],
            drop_code: reason as u8,
            port,
            mtu_bytes: 0,
        };
        match adjacency {
            Adjacency::Forward { port, destination_mac, source_mac, mtu_bytes } => {
                let header = EthernetRepr {
                    destination: destination_mac,
                    source: source_mac,
                    ether_type: EtherType::IPV4,
                };
                Rewrite { header: header.encode(), drop_code: 0, port, mtu_bytes }
            }
            Adjacency::Glean { port } => dropped(DropReason::NeighborUnresolved, port),
            Adjacency::Local { port } => dropped(DropReason::Local, port),
            Adjacency::Drop(reason) => dropped(reason, NO_PORT),
        }
    }
}

impl Rewrite {
    fn adjacency(&self) -> Adjacency {
        let [a, b, c, d, e, f, source_mac @ .., _, _] = self.header;
        match DropReason::from_code(self.drop_code) {
            None => Adjacency::Forward {
                port: self.port,
                destination_mac: MacAddr([a, b, c, d, e, f]),
                source_mac: MacAddr(source_mac),
                mtu_bytes: self.mtu_bytes,
            },
            Some(DropReason::NeighborUnresolved) => Adjacency::Glean { port: self.port },
            Some(DropReason::Local) => Adjacency::Local { port: self.port },
            Some(reason) => Adjacency::Drop(reason),
        }
    }
}

/// A next-hop group: `kept` adjacencies from `first`, of which the first `count` are in use and the others are
/// backups. Half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
struct Group {
    /// A copy of its first adjacency: nearly always the only one, and then found by one load.
    head: Rewrite,
    first: u32,
    count: u16,
    kept: u16,
}

impl Group {
    /// The range of the group in `rewrites`, backups included.
    fn range(self) -> std::ops::Range<usize> {
        self.first as usize..self.first as usize + usize::from(self.kept)
    }
}

/// The ports that a group leads to, for checks of packets that come from there.
#[derive(Clone, Copy, Debug)]
struct Leads {
    /// The port of all its paths that have one, or of the first of them; [`NO_PORT`] if none has.
    port: u16,
    /// Whether other paths lead to other ports.
    more: bool,
    is_default: bool,
}

impl Leads {
    fn of(paths: impl Iterator<Item = Adjacency>) -> Self {
        let mut ports = paths.filter_map(|path| path.port());
        let port = ports.next().unwrap_or(NO_PORT);
        Self { port, more: ports.any(|other| other != port), is_default: false }
    }
}

/// Unused adjacencies, beyond half of all, that are tolerated before a compaction.
const UNUSED_MAX: usize = 256;

/// All next-hop groups. Id 0 is "no route".
#[derive(Clone, Debug)]
pub struct NextHops {
    groups: Vec<Group>,
    rewrites: Vec<Rewrite>,
    /// Indexed like `groups`, but separate, because forwarding does not read it.
    leads: Vec<Leads>,
    /// Adjacencies in gaps, left by groups that shrank or moved.
    unused: usize,
    /// The MTUs of ports.
    mtus: Vec<u32>,
}

impl Default for NextHops {
    fn default() -> Self {
        let mut hops =
            Self { groups: Vec::new(), rewrites: Vec::new(), leads: Vec::new(), unused: 0, mtus: Vec::new() };
        hops.push(&[Adjacency::Drop(DropReason::NoRoute)]);
        hops
    }
}

impl NextHops {
    /// The most groups besides "no route".
    pub const GROUPS_MAX: usize = NEXT_HOP_MAX as usize;

    /// A table with only "no route".
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a group of equal paths; `None` if there are too many groups or no path.
    pub fn add(&mut self, paths: &[Adjacency]) -> Option<u16> {
        let fits = u16::try_from(paths.len()).is_ok();
        if paths.is_empty() || !fits || self.groups.len() > Self::GROUPS_MAX {
            return None;
        }
        Some(self.push(paths))
    }

    /// Adds a group for a default route (of length zero). It is never shared with other routes: a reverse path
    /// check that disregards default routes recognizes it by its id.
    pub fn add_default(&mut self, paths: &[Adjacency]) -> Option<u16> {
        let id = self.add(paths)?;
        self.leads[usize::from(id)].is_default = true;
        Some(id)
    }

    /// Replaces the paths of a group, and its backups, which carry no packets but count in reverse path checks. A
    /// default route's group stays one. Returns `false` if there is no such group, no path, or too many.
    pub fn set(&mut self, id: u16, paths: &[Adjacency], standby: &[Adjacency]) -> bool {
        let at = usize::from(id);
        let sizes = (u16::try_from(paths.len()), u16::try_from(paths.len() + standby.len()));
        let (Ok(count), Ok(kept)) = sizes else { return false };
        if at == 0 || at >= self.groups.len() || paths.is_empty() {
            return false;
        }
        let all = || paths.iter().chain(standby).copied();
        self.leads[at] = Leads { is_default: self.leads[at].is_default, ..Leads::of(all()) };
        let before = self.groups[at];
        let (head, new) = (Rewrite::from(paths[0]), all().map(Rewrite::from));
        if kept <= before.kept {
            self.groups[at] = Group { head, first: before.first, count, kept };
            self.unused += usize::from(before.kept - kept);
            for (slot, rewrite) in self.rewrites[before.range()].iter_mut().zip(new) {
                *slot = rewrite;
            }
        } else {
            self.groups[at] = Group { head, first: self.rewrites.len() as u32, count, kept };
            self.unused += usize::from(before.kept);
            self.rewrites.extend(new);
        }
        if self.unused > self.rewrites.len() / 2 + UNUSED_MAX {
            self.close_gaps();
        }
        true
    }

    /// Sets the MTU of a port, for those who ask for it without a path.
    pub fn set_mtu(&mut self, port: u16, mtu_bytes: u32) {
        let place = usize::from(port);
        self.mtus.resize(self.mtus.len().max(place + 1), u32::MAX);
        self.mtus[place] = mtu_bytes;
    }

    /// The MTU of a port; of an unknown one the largest number.
    #[inline(always)]
    pub fn mtu_of(&self, port: u16) -> u32 {
        self.mtus.get(usize::from(port)).copied().unwrap_or(u32::MAX)
    }

    /// Compacts the adjacencies in use.
    fn close_gaps(&mut self) {
        let mut together = Vec::with_capacity(self.rewrites.len() - self.unused);
        for group in &mut self.groups {
            let from = group.range();
            group.first = together.len() as u32;
            together.extend_from_slice(&self.rewrites[from]);
        }
        self.rewrites = together;
        self.unused = 0;
    }

    fn push(&mut self, paths: &[Adjacency]) -> u16 {
        self.leads.push(Leads::of(paths.iter().copied()));
        // The caller has checked that it fits.
        let count = paths.len() as u16;
        let (head, first) = (Rewrite::from(paths[0]), self.rewrites.len() as u32);
        let group = Group { head, first, count, kept: count };
        self.rewrites.extend(paths.iter().map(|&a| Rewrite::from(a)));
        self.groups.push(group);
        (self.groups.len() - 1) as u16
    }

    /// Groups in the table, "no route" included.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Always false: there is always "no route".
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether one of the group's paths leads out of `port`, so that packets from its destinations may arrive
    /// there. Unresolved networks and neighbors count, and so do the router's own addresses; a blackhole leads
    /// nowhere.
    #[inline(always)]
    pub fn leads_out_of(&self, id: u16, port: u16) -> bool {
        let leads = self.leads[usize::from(id)];
        leads.port == port && port != NO_PORT || leads.more && self.any_path_by(id, port)
    }

    #[cold]
    fn any_path_by(&self, id: u16, port: u16) -> bool {
        self.rewrites[self.groups[usize::from(id)].range()].iter().any(|path| path.port == port)
    }

    /// Whether the group leads out of any port; the group of a default route counts only if `through_default`.
    #[inline(always)]
    pub fn leads_out(&self, id: u16, through_default: bool) -> bool {
        let leads = self.leads[usize::from(id)];
        leads.port != NO_PORT && (through_default || !leads.is_default)
    }

    /// The group's paths in use; those of "no route" if there is no such group.
    pub fn paths(&self, id: u16) -> impl Iterator<Item = Adjacency> + '_ {
        let group = self.groups.get(usize::from(id)).copied().unwrap_or(self.groups[0]);
        let in_use = self.rewrites[group.range()].iter().take(group.count.into());
        in_use.map(|rewrite| rewrite.adjacency())
    }

    #[inline(always)]
    fn select(&self, id: u16, flow_hash: u32) -> &Rewrite {
        // An unknown id means no route.
        let group = self.groups.get(usize::from(id)).unwrap_or(&self.groups[0]);
        if group.count == 1 {
            return &group.head;
        }
        &self.rewrites[(group.first + member(group.count.into(), flow_hash)) as usize]
    }

    /// Whether a flow's packets find no route at a number.
    #[inline(always)]
    pub fn leads_nowhere(&self, id: u16, flow_hash: u32) -> bool {
        DropReason::from_code(self.select(id, flow_hash).drop_code) == Some(DropReason::NoRoute)
    }

    /// The index of the path, out of `count` equal ones, that a flow takes.
    pub fn member_of(count: usize, flow_hash: u32) -> usize {
        member(count as u32, flow_hash) as usize
    }
}

#[inline(always)]
fn member(count: u32, flow_hash: u32) -> u32 {
    ((u64::from(flow_hash) * u64::from(count)) >> 32) as u32
}

/// The table of next hops, shared between readers and its one writer: a snapshot, replaced as a whole.
///
/// Readers look up prefixes first and load the snapshot after that; the writer publishes the meaning of a number
/// before the first prefix that uses it. So a reader never meets a number that its snapshot lacks.
#[derive(Clone, Debug, Default)]
pub struct SharedNextHops(Arc<ArcSwap<NextHops>>);

impl SharedNextHops {
    /// Replaces the table.
    pub fn publish(&self, hops: NextHops) {
        self.0.store(Arc::new(hops));
    }

    /// The present table.
    pub fn load(&self) -> Arc<NextHops> {
        self.0.load_full()
    }
}

impl From<NextHops> for SharedNextHops {
    fn from(hops: NextHops) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(hops)))
    }
}

/// The routing stage. It has no state of its own: it reads the tables and writes packets.
#[derive(Clone)]
pub struct Router {
    /// The numbers of the configuration's targets, in its order.
    pub targets: Arc<[u16]>,
    /// IPv4 routes; a writer may change them concurrently.
    pub fib4: Arc<Fib4>,
    /// IPv6 routes, likewise.
    pub fib6: Arc<Fib6>,
    /// The meaning of the numbers in the tables.
    pub next_hops: SharedNextHops,
}

impl Router {
    /// Routes every live packet of the batch (at most [`BATCH_PACKETS`]).
    pub fn process(&self, batch: &mut Batch<'_>) {
        self.run::<false>(batch);
    }

    /// The same; a packet for which an earlier stage has chosen a number goes there.
    pub fn process_chosen(&self, batch: &mut Batch<'_>) {
        self.run::<true>(batch);
    }

    /// The number of one of the configuration's targets; 0 if there is no such target.
    pub fn number_of(&self, target: Option<u32>) -> u16 {
        let place = target.and_then(|target| usize::try_from(target).ok());
        place.and_then(|place| self.targets.get(place).copied()).unwrap_or(0)
    }

    /// The number by which an IPv4 packet will be routed, and the port of its path; [`NO_PORT`] if it has none.
    pub fn way_of(&self, packet: &Packet, destination: u32) -> (u16, u16) {
        let hop = if packet.next_hop == 0 { self.fib4.lookup(destination) } else { packet.next_hop };
        (hop, self.next_hops.0.load().select(hop, packet.flow_hash).port)
    }

    #[inline(always)]
    fn run<const MAY_BE_CHOSEN: bool>(&self, batch: &mut Batch<'_>) {
        // Dropped and IPv6 packets are looked up too, with whatever bytes are there: cheaper than sorting them out.
        let mut addresses = [0u32; BATCH_PACKETS];
        let mut hops = [0u16; BATCH_PACKETS];
        let mut any_ipv6 = false;
        batch.each_ip_header::<20>(|i, packet, header| {
            any_ipv6 |= packet.is_alive() & packet.is_ipv6();
            addresses[i % BATCH_PACKETS] = destination(header);
        });
        let count = batch.len().min(BATCH_PACKETS);
        self.fib4.lookup_batch(&addresses[..count], &mut hops[..count]);
        let next_hops = self.next_hops.0.load();
        batch.each_egress_header::<34>(|i, packet, header| {
            if packet.is_alive() & !packet.is_ipv6() {
                let hop = chosen_or::<MAY_BE_CHOSEN>(packet, hops[i % BATCH_PACKETS]);
                forward_ipv4(&next_hops, packet, header, hop);
            }
        });
        if any_ipv6 {
            self.process_ipv6::<MAY_BE_CHOSEN>(batch);
        }
    }

    fn process_ipv6<const MAY_BE_CHOSEN: bool>(&self, batch: &mut Batch<'_>) {
        let mut addresses = [0u128; BATCH_PACKETS];
        let mut members = [0u16; BATCH_PACKETS];
        let mut count = 0;
        for i in 0..batch.len() {
            let (packet, l3) = batch.packet_and_l3(i);
            if let (true, true, Some(header)) = (packet.is_alive(), packet.is_ipv6(), l3.first_chunk::<40>())
            {
                addresses[count] = be128(header, 24);
                members[count] = i as u16;
                count += 1;
            }
        }
        let mut hops = [0u16; BATCH_PACKETS];
        self.fib6.lookup_batch(&addresses[..count], &mut hops[..count]);
        let next_hops = self.next_hops.0.load();
        for (&i, &hop) in members[..count].iter().zip(&hops) {
            let hop = chosen_or::<MAY_BE_CHOSEN>(&batch.packets()[usize::from(i)], hop);
            forward_ipv6(&next_hops, batch, usize::from(i), hop);
        }
    }
}

/// The number that an earlier stage has chosen for a packet, otherwise that of the look-up.
#[inline(always)]
fn chosen_or<const MAY_BE_CHOSEN: bool>(packet: &Packet, found: u16) -> u16 {
    if MAY_BE_CHOSEN { select_unpredictable(packet.next_hop != 0, packet.next_hop, found) } else { found }
}

/// The destination of an IPv4 header.
#[inline(always)]
fn destination(header: &[u8; 20]) -> u32 {
    u32::from_be_bytes([header[16], header[17], header[18], header[19]])
}

#[inline(always)]
fn forward_ipv4(next_hops: &NextHops, packet: &mut Packet, header: &mut [u8; 34], hop: u16) {
    // TTL, protocol and checksum as one word, the TTL lowest.
    let Some(word) = header[22..].first_chunk_mut() else { return };
    let before = u32::from_le_bytes(*word);
    let Some(rewrite) = admit(next_hops, packet, hop, before as u8) else { return };
    // RFC 1624 for a TTL that goes down by one: the sum of the header falls by 0x0100, so its complement rises by
    // as much, with end-around carry. The checksum's first byte is the lower one here, so the carry out of it lands
    // in place, and only the carry out of the second must be brought around. A checksum of all ones becomes zero by
    // one carry more: no sum of a header has such a complement (RFC 1624 3).
    let (_, carry) = before.overflowing_add(2 << 16);
    let raised = before.wrapping_add((1 + u32::from(carry)) << 16);
    *word = (raised - 1).to_le_bytes();
    header[..14].copy_from_slice(&rewrite.header);
}

#[inline(always)]
fn forward_ipv6(next_hops: &NextHops, batch: &mut Batch<'_>, i: usize, hop: u16) {
    let (packet, frame) = batch.packet_and_egress(i);
    let Some(header) = frame.first_chunk_mut::<54>() else { return };
    let Some(rewrite) = admit(next_hops, packet, hop, header[21]) else { return };
    header[..14].copy_from_slice(&rewrite.header);
    header[12..14].copy_from_slice(&EtherType::IPV6.to_be_bytes());
    header[21] -= 1;
}

/// Decides whether the packet may leave, and with which rewrite.
#[inline(always)]
fn admit<'h>(next_hops: &'h NextHops, packet: &mut Packet, hop: u16, ttl: u8) -> Option<&'h Rewrite> {
    packet.next_hop = hop;
    let rewrite = next_hops.select(hop, packet.flow_hash);
    if ((ttl <= 1) | (packet.ip_len > rewrite.mtu_bytes)) && !fits_cut(rewrite, packet, ttl) {
        refuse(rewrite, packet, ttl);
        return None;
    }
    packet.port_out = rewrite.port;
    Some(rewrite)
}

/// Whether the packet may leave because it merges several, each of which fits.
#[cold]
fn fits_cut(rewrite: &Rewrite, packet: &Packet, ttl: u8) -> bool {
    ttl > 1 && packet.wire_ip_len_max() <= rewrite.mtu_bytes
}

/// Sets the reason why a packet may not leave.
#[cold]
fn refuse(rewrite: &Rewrite, packet: &mut Packet, ttl: u8) {
    let ends_here = DropReason::from_code(rewrite.drop_code);
    let otherwise = if ttl <= 1 { DropReason::TtlExpired } else { DropReason::MtuExceeded };
    packet.drop_for(ends_here.unwrap_or(otherwise));
    if packet.is_detained() {
        // It will leave by this port after all.
        packet.port_out = rewrite.port;
    }
}

#[cfg(test)]
mod tests;
