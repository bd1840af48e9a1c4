//! NAT as a stage: all shards, and the walk over a chunk that prefetches their cache lines.
//!
//! Shards are in cells ([`Exclusion`]), each of which is entered once per chunk. The walk is a pipeline of blocks of
//! packets: for each block it first prefetches the frames, then the index lines of their endpoints, then the sessions
//! in those lines, and only then translates. Each step is a loop of its own over a block, so that it keeps what it
//! needs in registers. Packets of hosts that need no session are translated before, if there are any.

use super::config::{NatConfig, NatConfigError};
use super::endpoint::End;
use super::events::{NatEvent, NatLogging};
use super::hairpin;
use super::layout::{Layout, group_shards};
use super::one_to_one::OneToOne;
use super::own::{OwnFlow, OwnPort};
use super::pools::PoolInfo;
use super::shard::{BareInfo, EndedBy, NatCounters, NatShard, SessionInfo, Sought};
use super::subscribers::BlockInfo;
use crate::helpers::Helpers;
use crate::records::{number, place, seconds};
use crate::standby::{Cells, Here, Shards};
use arc_swap::{ArcSwapOption, Guard};
use std::net::Ipv4Addr;
use std::ops::{DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use thalweg_base::{Batch, Chunk, Exclusion, Exclusive, OneThread, Packet, PacketFlags, Translated};
use thalweg_wire::ip_protocol::ICMP;

/// Packets of a block. A line is prefetched one to two blocks before its use.
const BLOCK: usize = 8;
/// Steps that a block passes after its frames were prefetched.
const STEPS: usize = 3;
/// Records visited before other threads may enter the shard: 64 KiB.
const SLICE: usize = 1024;

/// All shards of one NAT: those of the first outside port, then those of the second.
#[derive(Debug)]
pub struct NatStage<E: Exclusion = OneThread> {
    shards: Box<[E::Cell<NatShard>]>,
    /// By outside port.
    layouts: Box<[Arc<Layout>]>,
    /// Hosts that need no session.
    one_to_one: ArcSwapOption<OneToOne>,
    /// Whether there are IPv6 hosts inside.
    nat64: bool,
    /// The bits of [`Helpers`].
    helpers: AtomicU8,
}

impl<E: Exclusion> NatStage<E> {
    /// Makes the shards of this configuration, with all memory allocated; errors as [`NatConfig::validate`] does.
    pub fn new(config: &NatConfig) -> Result<Self, NatConfigError> {
        config.validate()?;
        let outsides: Vec<NatConfig> = config.outsides().collect();
        let layouts: Box<[_]> = outsides.iter().map(|outside| Arc::new(Layout::new(outside))).collect();
        let each = outsides.iter().zip(&layouts);
        let shards = each.flat_map(|(outside, layout)| {
            (0..outside.shards).map(move |n| Exclusive::new(NatShard::new(Arc::clone(layout), n, outside)))
        });
        let one_to_one = ArcSwapOption::from_pointee(OneToOne::new(config));
        let (nat64, helpers) = (config.nat64.is_some(), AtomicU8::new(config.helpers.bits()));
        let this = Self { shards: shards.collect(), layouts: layouts.clone(), one_to_one, nat64, helpers };
        this.tell_ports(config);
        Ok(this)
    }

    /// Tells shards the port where packets for their addresses are expected, if there are several.
    pub(super) fn tell_ports(&self, config: &NatConfig) {
        let ports: Vec<u16> = config.outside_ports().collect();
        let each = self.shards.chunks(self.shards_each()).zip(&ports);
        for (shards, port) in each.filter(|_| ports.len() > 1) {
            shards.iter().for_each(|shard| shard.enter().set_outside(*port));
        }
    }

    /// Changes which hosts have public addresses of their own, and the helpers.
    pub(super) fn set_one_to_one(&self, config: &NatConfig) {
        self.one_to_one.store(OneToOne::new(config).map(Arc::new));
        self.helpers.store(config.helpers.bits(), Ordering::Relaxed);
    }

    pub(super) fn helpers(&self) -> Helpers {
        Helpers::from_bits(self.helpers.load(Ordering::Relaxed))
    }

    /// The geometry of an outside port.
    pub(super) fn layout(&self, outside: usize) -> &Layout {
        &self.layouts[outside]
    }

    /// Which hosts have.
    pub(super) fn one_to_one(&self) -> Guard<Option<Arc<OneToOne>>> {
        self.one_to_one.load()
    }

    /// The number of shards of one outside port.
    pub(super) fn shards_each(&self) -> usize {
        self.shards.len() / self.layouts.len()
    }

    /// The geometry of the outside port with a public address of a VRF, and the number of its first shard.
    pub(super) fn owner(&self, vrf: u8, public: Ipv4Addr) -> Option<(&Layout, usize)> {
        let has = |layout: &Arc<Layout>| layout.vrf == vrf && layout.is_public(public.into());
        let place = self.layouts.iter().position(has)?;
        Some((&self.layouts[place], place * self.shards_each()))
    }

    /// The number of the shard that is found for a public address of a VRF; the first one's if there is no such address.
    pub(super) fn number_of(&self, vrf: u8, public: u32, shard: impl FnOnce(&Layout) -> u16) -> usize {
        let (layout, first) = self.owner(vrf, public.into()).unwrap_or((&self.layouts[0], 0));
        first + usize::from(shard(layout))
    }

    pub(super) fn shards(&self) -> &[E::Cell<NatShard>] {
        &self.shards
    }

    /// Number of shards, rounded up to a power of two.
    pub fn shard_count(&self) -> usize {
        self.shards.len().next_power_of_two()
    }

    /// Translates the packets of `groups` out of `group_count` (see [`super::group_shards`]) at the chunk's clock:
    /// the source of those labeled `NAT_OUT`, the destination of those labeled `NAT_IN`. Hairpins are both, and
    /// wait for [`Self::run_crossing`].
    ///
    /// It uses the chunk's shard index if that was built for `group_count` groups and not all of them are
    /// requested; otherwise it walks the chunk and skips other groups' packets.
    pub fn run_groups(&self, chunk: &mut Chunk, groups: Range<usize>, group_count: usize) {
        self.walk(chunk, groups, group_count);
    }

    /// The same, and passes the events of these shards to `take`. Returns how many events were lost for want of
    /// room.
    pub fn run_groups_and_log(
        &self,
        chunk: &mut Chunk,
        groups: Range<usize>,
        group_count: usize,
        take: &mut dyn FnMut(NatEvent),
    ) -> u64 {
        let mut shards = self.walk(chunk, groups, group_count).shards;
        shards.iter_mut().map(|shard| shard.hand_out_events(take)).sum()
    }

    fn walk(
        &self,
        chunk: &mut Chunk,
        groups: Range<usize>,
        group_count: usize,
    ) -> Walk<'_, <E::Cell<NatShard> as Exclusive<NatShard>>::Entered<'_>> {
        let (count, last) = (self.shard_count(), self.shards.len());
        let first = group_shards(groups.start, group_count, count).start.min(last);
        let end = group_shards(groups.end, group_count, count).start.min(last).max(first);
        let now_s = seconds(chunk.clock_ns);
        let shards = self.shards[first..end].iter().map(Exclusive::enter).collect();
        let mut walk = Walk { layout: &self.layouts[0], first, shards, now_s, nat64: self.nat64 };
        let everything = first == 0 && end == self.shards.len();
        let (mut batch, index, origins) = chunk.whole_with_origins();
        let (one_to_one, each) = (self.one_to_one(), self.shards_each());
        let pairs = one_to_one.as_deref();
        if everything || index.groups() != group_count {
            let count = batch.len();
            if let Some(pairs) = pairs {
                walk.translate_alone((pairs, each), &mut batch, origins, count, |n| n);
            }
            walk.run(&mut batch, origins, count, |n| n);
            return walk;
        }
        for group in groups {
            let list = index.group(group);
            let place = |n: usize| usize::from(list[n]);
            if let Some(pairs) = pairs {
                walk.translate_alone((pairs, each), &mut batch, origins, list.len(), place);
            }
            walk.run(&mut batch, origins, list.len(), place);
        }
        walk
    }

    /// Translates hairpins, after all groups have run: first their source, then, in the crossing shard, their
    /// destination. Their source is then the sender's public endpoint (RFC 4787 REQ-9a). `judge` may drop each
    /// before. Then helpers read what packets announce; the firewall finds it in [`Chunk::expected`].
    pub fn run_crossing(&self, chunk: &mut Chunk, judge: &mut hairpin::Judge<'_>) {
        let now_ns = chunk.clock_ns;
        let (mut batch, _) = chunk.whole();
        let one_to_one = self.one_to_one();
        for i in 0..batch.len() {
            if hairpin::is_hairpin(&batch.packets()[i]) {
                self.run_hairpin(&mut batch, i, now_ns, one_to_one.as_deref(), judge);
            }
        }
        self.help(chunk);
    }

    fn run_hairpin(
        &self,
        batch: &mut Batch<'_>,
        i: usize,
        now_ns: u64,
        pairs: Option<&OneToOne>,
        judge: &mut hairpin::Judge<'_>,
    ) {
        let packet = &batch.packets()[i];
        let [sender, receiver] =
            [packet.shard, packet.crossing_shard].map(|number| self.shards.get(usize::from(number)));
        let mut ipv6 = None;
        if packet.is_ipv6() {
            let mut sender = sender.map(Exclusive::enter);
            ipv6 = sender.as_mut().and_then(|sender| {
                sender.advance(now_ns);
                sender.make_ipv4(batch, i)
            });
            if ipv6.is_none() {
                return;
            }
        }
        let (packet, l3) = batch.packet_and_l3(i);
        hairpin::translate(packet, l3, now_ns, pairs, judge, &mut |shard, act| {
            if let Some(shard) = self.shards.get(usize::from(shard)) {
                act(&mut shard.enter());
            }
        });
        if let (Some(before), Some(sender)) = (ipv6, sender) {
            sender.enter().finish_ipv4(batch, i, &before);
        }
        if let (true, Some(receiver)) = (self.nat64, receiver) {
            receiver.enter().make_ipv6(batch, i);
        }
    }

    /// Removes what has expired by `now_ns` in every shard: before the final count of a run, and periodically on a
    /// router with idle shards. For reproducible results it must not run concurrently with [`Self::run_groups`].
    pub fn advance(&self, now_ns: u64) {
        for shard in &self.shards {
            shard.enter().advance(now_ns);
        }
    }

    /// Sets the events to log. Pending events stay if the setting is unchanged.
    pub fn set_logging(&self, logging: Option<NatLogging>) {
        for shard in &self.shards {
            shard.enter().set_logging(logging);
        }
    }

    /// Passes the events of all shards to `take`. Returns how many were lost for want of room.
    pub fn hand_out_events(&self, take: &mut dyn FnMut(NatEvent)) -> u64 {
        self.shards.iter().map(|shard| shard.enter().hand_out_events(take)).sum()
    }

    /// Logs the end of all sessions and blocks, for a router that stops.
    pub fn log_end_of_all(&self) {
        for shard in &self.shards {
            shard.enter().log_end_of_all();
        }
    }

    /// The counters of all shards together.
    pub fn counters(&self) -> NatCounters {
        let mut sum = NatCounters::default();
        for shard in &self.shards {
            sum.add(&shard.enter().counters());
        }
        sum
    }

    /// The pools of public addresses, those of each outside port in turn.
    pub fn pools(&self) -> Vec<PoolInfo> {
        let mut all = Vec::new();
        for shards in self.shards.chunks(self.shards_each()) {
            let mut of_port: Vec<PoolInfo> = Vec::new();
            for shard in shards {
                let pools = shard.enter().pools();
                match of_port.is_empty() {
                    true => of_port = pools,
                    false => of_port.iter_mut().zip(&pools).for_each(|(sum, pool)| sum.add(pool)),
                }
            }
            all.extend(of_port);
        }
        all
    }

    /// Appends the sessions alive at `now_ns` that `keep` admits, from one slice that begins at `from`. It occupies
    /// one shard for some tens of microseconds. Returns where the next slice begins, if there is one.
    ///
    /// A session that lives from before the first slice until after the last is shown once. Sessions that begin or
    /// end meanwhile may or may not be shown.
    pub fn sessions(
        &self,
        from: Cursor,
        now_ns: u64,
        keep: impl Fn(&SessionInfo) -> bool,
        into: &mut Vec<SessionInfo>,
    ) -> Option<Cursor> {
        let now_s = seconds(now_ns);
        self.slice(from, |shard, at| {
            shard.visit(now_s, at, SLICE, |session| {
                if keep(&session) {
                    into.push(session);
                }
            })
        })
    }

    /// The same for subscribers' blocks of ports.
    pub fn blocks(
        &self,
        from: Cursor,
        keep: impl Fn(&BlockInfo) -> bool,
        into: &mut Vec<BlockInfo>,
    ) -> Option<Cursor> {
        self.slice(from, |shard, at| {
            shard.visit_blocks(at, SLICE, |block| {
                if keep(&block) {
                    into.push(block);
                }
            })
        })
    }

    /// Appends the sessions of protocols without ports that are alive at `now_ns` and that `keep` admits.
    pub fn bare_sessions(&self, now_ns: u64, keep: impl Fn(&BareInfo) -> bool, into: &mut Vec<BareInfo>) {
        for shard in &self.shards {
            shard.enter().visit_bare(seconds(now_ns), |session| {
                if keep(&session) {
                    into.push(session);
                }
            });
        }
    }

    /// Ends the chosen sessions alive at `now_ns`, except port forwards; returns how many. It occupies a shard for
    /// one slice of its sessions at a time, so packets wait little.
    pub fn end_sessions(
        &self,
        now_ns: u64,
        why: EndedBy,
        which: impl Fn(&SessionInfo) -> bool,
        which_bare: impl Fn(&BareInfo) -> bool,
    ) -> u64 {
        let (mut ended, mut next) = (0, Some(Cursor::default()));
        while let Some(from) = next {
            next = self.slice(from, |shard, at| {
                shard.advance(now_ns);
                if at == 0 {
                    ended += shard.end_bare(why, &which_bare);
                }
                let (of_slice, next) = shard.end_sessions(at, SLICE, why, &which);
                ended += of_slice;
                next
            });
        }
        ended
    }

    /// Has a session of a shard, by its record plus one, name a state of the firewall, by its record plus one: the
    /// next packet that the session translates brings the name along. Does nothing while the
    /// shard is in use: a later packet will name it.
    pub fn name_state(&self, shard: u16, session: u32, state: u32) {
        let shard = self.shards.get(usize::from(shard)).and_then(Exclusive::try_enter);
        if let (Some(mut shard), Some(session)) = (shard, session.checked_sub(1)) {
            shard.name_state(place(session), state);
        }
    }

    /// The sessions, to be copied to another router. Port forwards and sessions without ports are not among them.
    pub fn copies(&self) -> impl Shards + '_ {
        Cells::<E, NatShard> { shards: &self.shards, here: Here::default() }
    }

    /// Whether NAT translates to this address of the main table, which programs of the router may have too.
    pub fn is_public(&self, address: Ipv4Addr) -> bool {
        self.owner(0, address).is_some()
    }

    /// Reserves exactly these public ports as a whole for the router itself: packets from any sender are the
    /// router's.
    pub fn reserve(&self, ports: &[OwnPort], now_ns: u64) {
        for shard in &self.shards {
            let mut shard = shard.enter();
            let mut own: Vec<OwnPort> = ports.iter().filter(|port| shard.owns(port)).copied().collect();
            own.sort_unstable();
            own.dedup();
            shard.advance(now_ns);
            shard.reserve(&own);
        }
    }

    /// Claims a flow that the router itself has just sent on: its return packets are the router's.
    pub fn claim(&self, flow: OwnFlow, now_ns: u64) {
        let owner = self.owner(0, flow.at.address);
        let number = owner.map(|(layout, first)| first + usize::from(layout.port_shard(flow.at.port)));
        if let Some(shard) = number.and_then(|number| self.shards.get(number)) {
            let mut shard = shard.enter();
            shard.advance(now_ns);
            shard.claim(flow);
        }
    }

    /// The same for a protocol without ports and a peer.
    pub fn claim_bare(&self, protocol: u8, public: Ipv4Addr, peer: Ipv4Addr, now_ns: u64) {
        let owner = self.owner(0, public);
        let number =
            owner.map(|(layout, first)| first + usize::from(layout.bare_shard(protocol, peer.into())));
        if let Some(shard) = number.and_then(|number| self.shards.get(number)) {
            let mut shard = shard.enter();
            shard.advance(now_ns);
            shard.claim_bare(protocol, public.into(), peer.into());
        }
    }

    fn slice(
        &self,
        from: Cursor,
        look: impl FnOnce(&mut NatShard, usize) -> Option<usize>,
    ) -> Option<Cursor> {
        let rest = look(&mut self.shards.get(from.shard)?.enter(), from.at);
        match rest {
            Some(at) => Some(Cursor { at, ..from }),
            None => (from.shard + 1 < self.shards.len()).then_some(Cursor { shard: from.shard + 1, at: 0 }),
        }
    }
}

/// The position in a list; the default is its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: usize,
    at: usize,
}

/// One pass over packets of some shards.
struct Walk<'n, G> {
    layout: &'n Layout,
    first: usize,
    shards: Vec<G>,
    now_s: u32,
    nat64: bool,
}

/// What is prefetched and known of a packet before its turn.
#[derive(Clone, Copy)]
struct Ahead {
    sought: Sought,
    /// Its shard's index in the walk's list; [`NOT_OURS`] if it is not to be translated.
    shard: u32,
    end: End,
}

/// No shard of this pass.
const NOT_OURS: u32 = u32::MAX;

impl Ahead {
    const NOT_OURS: Self = Self { sought: Sought::NONE, shard: NOT_OURS, end: End::Source };
}

impl<G: DerefMut<Target = NatShard>> Walk<'_, G> {
    /// Translates the packets at `place(0)`, `place(1)`, ... `place(count - 1)`.
    #[inline(always)]
    fn run(
        &mut self,
        batch: &mut Batch<'_>,
        origins: &mut [Translated],
        count: usize,
        place: impl Fn(usize) -> usize,
    ) {
        let block = |number: usize| number * BLOCK..(number * BLOCK + BLOCK).min(count);
        let blocks = count.div_ceil(BLOCK);
        let mut ahead = [[Ahead::NOT_OURS; BLOCK]; STEPS];
        block(0).for_each(|n| batch.prefetch_frame(place(n)));
        for step in 0..blocks + STEPS - 1 {
            block(step + 1).for_each(|n| batch.prefetch_frame(place(n)));
            for (n, ahead) in block(step).zip(&mut ahead[step % STEPS]) {
                *ahead = self.fetch_index(batch, place(n));
            }
            if let Some(step) = step.checked_sub(1) {
                for (n, ahead) in block(step).zip(&mut ahead[step % STEPS]) {
                    self.fetch_session(batch, place(n), ahead);
                }
            }
            if let Some(step) = step.checked_sub(2) {
                for (n, ahead) in block(step).zip(&ahead[step % STEPS]) {
                    self.translate(batch, origins, place(n), ahead);
                }
            }
        }
    }

    /// The shard of a packet, if this pass translates it.
    #[inline(always)]
    fn shard_of(&self, packet: &Packet) -> Option<u32> {
        // Exactly one of the two labels, and not translated yet: 1 or 2, with the mark of translation above.
        const LABELS: u8 = PacketFlags::NAT_OUT | PacketFlags::NAT_IN;
        let marks = (packet.flags.0 & (LABELS | PacketFlags::TRANSLATED)).rotate_right(5);
        let labeled = marks.wrapping_sub(1) < 2;
        let at = usize::from(packet.shard).wrapping_sub(self.first);
        (labeled & (at < self.shards.len()) & packet.is_alive()).then_some(number(at))
    }

    /// Translates the packets at `place(0)`, .. `place(count - 1)` that need no session.
    #[inline(never)]
    fn translate_alone(
        &mut self,
        (pairs, shards_each): (&OneToOne, usize),
        batch: &mut Batch<'_>,
        origins: &mut [Translated],
        count: usize,
        which: impl Fn(usize) -> usize,
    ) {
        for i in (0..count).map(which) {
            let is_ipv4 = |packet: &&Packet| !packet.is_ipv6();
            let packet = Some(&batch.packets()[i]).filter(is_ipv4);
            let Some(at) = packet.and_then(|packet| self.shard_of(packet)).map(place) else { continue };
            let end = end_of(&batch.packets()[i]);
            let outside = (self.first + at) / shards_each;
            let (packet, l3) = batch.packet_and_l3(i);
            let is_here = |of| end == End::Destination || of == outside;
            let vrf = self.shards[at].layout.vrf_at(end, packet);
            if let Some(outcome) = pairs.translate((end, vrf), packet, l3, is_here) {
                outcome.unwrap_or_else(|reason| packet.drop_for(reason));
                let is_error = packet.protocol == ICMP && !packet.flags.has(PacketFlags::HAS_PORTS);
                if let (Some(origin), true, End::Destination) = (origins.get_mut(i), is_error, end) {
                    origin.session = Translated::UNPROVEN;
                }
                self.shards[at].count_one_to_one(end, packet, outcome);
            }
        }
    }

    #[inline(always)]
    fn fetch_index(&self, batch: &mut Batch<'_>, i: usize) -> Ahead {
        let Some(shard) = self.shard_of(&batch.packets()[i]) else { return Ahead::NOT_OURS };
        let end = end_of(&batch.packets()[i]);
        let sought = match batch.packet_and_ip_header(i) {
            Some((packet, header)) => Sought::of(self.layout, end, packet, Some(&*header)),
            None => Sought::of(self.layout, end, &batch.packets()[i], None),
        };
        if let Some(owner) = self.shards.get(place(shard)) {
            owner.prefetch_index(&sought);
        }
        Ahead { sought, shard, end }
    }

    #[inline(always)]
    fn fetch_session(&self, batch: &Batch<'_>, i: usize, ahead: &mut Ahead) {
        if let Some(owner) = self.shards.get(place(ahead.shard)) {
            owner.prefetch_session(&batch.packets()[i], &mut ahead.sought);
        }
    }

    #[inline(always)]
    fn translate(&mut self, batch: &mut Batch<'_>, origins: &mut [Translated], i: usize, ahead: &Ahead) {
        let Some(owner) = self.shards.get_mut(place(ahead.shard)) else { return };
        owner.advance_to(self.now_s);
        let usual = batch.packet_and_ip_header(i).and_then(|(packet, headers)| {
            let translated = owner.translate_usual(ahead.end, packet, headers, ahead.sought)?;
            Some(translated.map_err(|reason| packet.drop_for(reason)).ok())
        });
        let session = usual.unwrap_or_else(|| {
            if batch.packets()[i].is_ipv6() {
                return owner.translate_ipv6(batch, i);
            }
            let (packet, l3) = batch.packet_and_l3(i);
            owner.translate(ahead.end, packet, l3, ahead.sought)
        });
        if owner.is_one_of_several() {
            owner.note_way_in(batch.packet_and_l3(i).0);
        }
        if let (Some(origin), Some(session)) = (origins.get_mut(i), session) {
            (origin.session, origin.state) = (number(session) + 1, owner.state_of(session));
        }
        if self.nat64 && ahead.end == End::Destination {
            owner.make_ipv6(batch, i);
        }
    }
}

/// The end of a packet to translate; the packet is not a hairpin.
#[inline(always)]
fn end_of(packet: &Packet) -> End {
    if packet.flags.has(PacketFlags::NAT_OUT) { End::Source } else { End::Destination }
}
