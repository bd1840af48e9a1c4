//! One shard's subscribers: their port blocks and how much of them they use (RFC 6888, RFC 7422). Used only when a
//! session is created or ends; a packet of an existing session costs nothing here.
//!
//! ```text
//!   inside address --> subscriber: sessions by protocol, first block
//!                                                          |
//!                       block: owner, sessions, next ------+--> next block of the same owner
//!   public address --> oldest free block --> next ..          (dynamic blocks: assigned oldest first)
//! ```
//!
//! A block belongs to its owner while it has a session. A dynamic block is then held for `hold_s` seconds, so that
//! packets for its last owner are dropped instead of reaching a stranger (RFC 6888 REQ-8). If no block is free,
//! packets that need a new session are dropped; existing sessions continue (REQ-11).
//!
//! Memory, at construction: 28 bytes for each block of the shard, and a table with room for twice the possible
//! subscribers: about 100 bytes a block in all.

use super::blocks::BlockPlan;
use super::config::{NatProtocol, SubscriberConfig};
use super::endpoint::Inside;
use super::events::TOLD_AGAIN_S;
use super::layout::Layout;
use super::pools::Pool;
use super::ports::PortPool;
use crate::records::{number, place};
use std::collections::HashMap;
use thalweg_base::DropReason;

/// A block of ports that this shard owns.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Its owner; valid only while it has sessions.
    owner: Inside,
    /// Sessions by protocol.
    used: [u16; 3],
    /// The next block of the same owner, or the next free one, plus one; 0 ends the list.
    next: u32,
    /// The previous free block plus one; valid only while it is free.
    previous: u32,
    /// It is not assigned before this second: the hold time after the end of its last session. Sessions whose ends
    /// are noticed together do not come in the order in which they ended.
    held_until_s: u32,
}

/// An inside address that has sessions.
#[derive(Clone, Copy, Debug, Default)]
struct Subscriber {
    used: [u32; 3],
    blocks: u32,
    /// First block plus one.
    first: u32,
    /// Its limit is not reported again before this second.
    quiet_until_s: u32,
}

/// Free blocks of one public address, ordered by the end of their hold time.
#[derive(Clone, Copy, Debug, Default)]
struct FreeList {
    head: u32,
    tail: u32,
}

/// The port for a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Index of its public address.
    pub(crate) address: usize,
    pub(crate) port: u16,
    /// It is not on the public address of the subscriber's other sessions.
    pub(crate) is_unpaired: bool,
    /// First and last port of its block, if the block was newly assigned.
    pub(crate) given_out: Option<(u16, u16)>,
}

/// Why a subscriber got no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has reached this limit of ports of the protocol, or of sessions.
    Limit(u32),
    /// The address is not a subscriber's and gets no block.
    NoSubscriber,
    NoBlock,
    /// Port forwards occupy all ports of its block.
    BlockIsFull,
}

impl Refusal {
    /// The packet's drop reason.
    pub(crate) fn reason(self) -> DropReason {
        match self {
            Self::Limit(_) | Self::NoSubscriber => DropReason::NatPortLimit,
            Self::NoBlock | Self::BlockIsFull => DropReason::NatPortsExhausted,
        }
    }
}

/// A block for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The subscriber.
    pub inside: std::net::IpAddr,
    /// The subscriber's VRF; 0 is the main table.
    pub vrf: u16,
    pub public: std::net::Ipv4Addr,
    pub ports: std::ops::RangeInclusive<u16>,
    /// Sessions by protocol, in the order of [`NatProtocol::ALL`].
    pub sessions: [u16; 3],
}

/// The subscribers and blocks of one shard; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Subscribers {
    plan: BlockPlan,
    hold_s: u32,
    shard: u16,
    /// By address, then by the shard's block index.
    blocks: Box<[Block]>,
    /// Blocks of one address.
    bitmap_blocks: usize,
    free: Box<[FreeList]>,
    subscribers: HashMap<Inside, Subscriber>,
    blocks_used: u64,
}

impl Subscribers {
    /// The blocks of one shard; `None` without a configuration of subscribers.
    pub(crate) fn new(layout: &Layout, shard: u16, config: Option<&SubscriberConfig>) -> Option<Box<Self>> {
        let (config, plan) = config.zip(layout.blocks.clone())?;
        let bitmap_blocks = layout.bitmap_blocks();
        let given_out = plan.first..plan.first + plan.per_address;
        let mut this = Self {
            hold_s: config.hold_s,
            shard,
            blocks: vec![Block::default(); bitmap_blocks * layout.addresses.len()].into_boxed_slice(),
            bitmap_blocks,
            free: vec![FreeList::default(); layout.addresses.len()].into_boxed_slice(),
            // Twice the possible number, so that removing and inserting never reallocates.
            subscribers: HashMap::with_capacity(2 * bitmap_blocks * layout.addresses.len()),
            blocks_used: 0,
            plan,
        };
        for at in 0..this.blocks.len() {
            if !this.plan.is_deterministic()
                && given_out.contains(&layout.block_number(shard, at % bitmap_blocks))
            {
                this.put_back(at, 0);
            }
        }
        Some(Box::new(this))
    }

    /// Subscribers with sessions, and their blocks.
    pub(crate) fn in_use(&self) -> (u64, u64) {
        (self.subscribers.len() as u64, self.blocks_used)
    }

    /// Takes a port for a subscriber's new session: with the inside port's parity in its blocks, then of the other
    /// parity, then in another block if the subscriber may have one and one is free. `start` is where to begin
    /// within a block.
    pub(crate) fn take(
        &mut self,
        (layout, pool): (&Layout, &Pool),
        ports: &mut PortPool,
        protocol: NatProtocol,
        inside: (Inside, u16),
        start: usize,
        now_s: u32,
    ) -> Result<Taken, Refusal> {
        let (host, inside_port) = inside;
        let known = self.subscribers.get(&host).copied().unwrap_or_default();
        if known.used[protocol as usize] >= pool.ports_max {
            return Err(Refusal::Limit(pool.ports_max));
        }
        if known.used.iter().sum::<u32>() >= pool.sessions_max {
            return Err(Refusal::Limit(pool.sessions_max));
        }
        let wanted = (protocol, inside_port & 1, start);
        let place = (layout, pool);
        let (at, port, blocks) = match self.take_from_own(place, ports, wanted, known.first) {
            Some((at, port)) => (at, port, known.blocks),
            None => {
                if known.blocks >= pool.blocks_max {
                    return Err(Refusal::Limit(pool.ports_max));
                }
                let (at, port) = self.take_from_another(place, ports, wanted, (host, known), now_s)?;
                (at, port, known.blocks + 1)
            }
        };
        let is_another = blocks > known.blocks;
        let block = &mut self.blocks[at];
        block.used[protocol as usize] += 1;
        block.owner = host;
        if is_another {
            block.next = known.first;
            self.blocks_used += 1;
        }
        let subscriber = self.subscribers.entry(host).or_default();
        subscriber.used[protocol as usize] += 1;
        subscriber.blocks = blocks;
        subscriber.first = if is_another { at as u32 + 1 } else { known.first };
        let public = at / self.bitmap_blocks;
        let is_unpaired =
            is_another && known.first != 0 && public != (known.first as usize - 1) / self.bitmap_blocks;
        let given_out = is_another.then(|| self.given_out(layout, at)).flatten();
        Ok(Taken { address: public, port, is_unpaired, given_out })
    }

    /// First and last port of a block; `None` for deterministic blocks, which are not assigned.
    fn given_out(&self, layout: &Layout, at: usize) -> Option<(u16, u16)> {
        if self.plan.is_deterministic() {
            return None;
        }
        let ports = self.plan.ports(layout.block_number(self.shard, at % self.bitmap_blocks));
        Some((*ports.start(), *ports.end()))
    }

    /// Whether to report now that a subscriber is at its limit; then it is not reported for a while.
    pub(crate) fn is_news(&mut self, inside: Inside, now_s: u32) -> bool {
        let Some(subscriber) = self.subscribers.get_mut(&inside) else { return false };
        let is_news = now_s >= subscriber.quiet_until_s;
        if is_news {
            subscriber.quiet_until_s = now_s.saturating_add(TOLD_AGAIN_S);
        }
        is_news
    }

    /// A port from a list of blocks, parity first. Blocks on addresses that a former configuration gave the host keep
    /// their sessions and get no more.
    fn take_from_own(
        &self,
        (layout, pool): (&Layout, &Pool),
        ports: &mut PortPool,
        wanted: (NatProtocol, u16, usize),
        first: u32,
    ) -> Option<(usize, u16)> {
        let (protocol, parity, start) = wanted;
        for parity in [parity, parity ^ 1] {
            let mut list = first;
            while let Some(at) = list.checked_sub(1) {
                let at = at as usize;
                let address = at / self.bitmap_blocks;
                let places = layout.block_places(at % self.bitmap_blocks);
                let start = places.start + start % places.len();
                let bitmap = layout.bitmap(protocol, address, parity);
                if pool.addresses.contains(&address)
                    && let Some(place) = ports.take_within(bitmap, places, start)
                {
                    return Some((at, layout.bitmap_port(self.shard, parity, place)));
                }
                list = self.blocks[at].next;
            }
        }
        None
    }

    /// A port from a newly assigned block.
    fn take_from_another(
        &mut self,
        (layout, pool): (&Layout, &Pool),
        ports: &mut PortPool,
        wanted: (NatProtocol, u16, usize),
        (host, known): (Inside, Subscriber),
        now_s: u32,
    ) -> Result<(usize, u16), Refusal> {
        let at = if self.plan.is_deterministic() {
            let (public, block) = self.plan.block_of(host.address).ok_or(Refusal::NoSubscriber)?;
            if public >= layout.addresses.len() {
                return Err(Refusal::NoBlock);
            }
            public * self.bitmap_blocks + layout.bitmap_block(*self.plan.ports(block).start())
        } else {
            let of_first = known.first.checked_sub(1).map(|first| place(first) / self.bitmap_blocks);
            let home = of_first.filter(|home| pool.addresses.contains(home));
            let mut order = home.into_iter().chain(layout.addresses_from(host.address, &pool.addresses));
            order.find_map(|public| self.oldest_free(public, now_s)).ok_or(Refusal::NoBlock)?
        };
        self.blocks[at].next = 0;
        self.take_from_own((layout, pool), ports, wanted, at as u32 + 1).ok_or_else(|| {
            // Port forwards occupy all ports of this block.
            if !self.plan.is_deterministic() {
                self.put_back(at, now_s);
            }
            Refusal::BlockIsFull
        })
    }

    /// Takes the block whose hold time ended first, if it has ended.
    fn oldest_free(&mut self, address: usize, now_s: u32) -> Option<usize> {
        let at = self.free[address].head.checked_sub(1)? as usize;
        if self.blocks[at].held_until_s > now_s {
            return None;
        }
        self.take_out(at);
        Some(at)
    }

    /// Takes a block out of the list of free ones.
    fn take_out(&mut self, at: usize) {
        let list = &mut self.free[at / self.bitmap_blocks];
        let Block { next, previous, .. } = self.blocks[at];
        match previous.checked_sub(1) {
            Some(before) => self.blocks[place(before)].next = next,
            None => list.head = next,
        }
        match next.checked_sub(1) {
            Some(after) => self.blocks[place(after)].previous = previous,
            None => list.tail = previous,
        }
    }

    /// Counts a session of a former table, whose public port has been taken. Returns its block's ports if the block
    /// becomes the subscriber's by that, or nothing; an error if it cannot have the block.
    pub(crate) fn adopt(
        &mut self,
        layout: &Layout,
        protocol: NatProtocol,
        inside: Inside,
        (public, port): (usize, u16),
    ) -> Result<Option<(u16, u16)>, Refusal> {
        let at = public * self.bitmap_blocks + layout.bitmap_block(port);
        let block = layout.block_number(self.shard, at % self.bitmap_blocks);
        let can_have = match self.plan.is_deterministic() {
            true => self.plan.block_of(inside.address) == Some((public, block)),
            false => (self.plan.first..self.plan.first + self.plan.per_address).contains(&block),
        };
        let is_new = self.blocks[at].used == [0; 3];
        if !can_have || !is_new && self.blocks[at].owner != inside {
            return Err(Refusal::NoBlock);
        }
        let kind = protocol as usize;
        let subscriber = self.subscribers.entry(inside).or_default();
        subscriber.used[kind] += 1;
        let first = subscriber.first;
        if is_new {
            subscriber.blocks += 1;
            subscriber.first = number(at) + 1;
            self.blocks_used += 1;
            if !self.plan.is_deterministic() {
                self.take_out(at);
            }
            self.blocks[at].next = first;
        }
        let block = &mut self.blocks[at];
        block.owner = inside;
        block.used[kind] += 1;
        Ok(is_new.then(|| self.given_out(layout, at)).flatten())
    }

    fn put_back(&mut self, at: usize, held_until_s: u32) {
        let list = &mut self.free[at / self.bitmap_blocks];
        let this = at as u32 + 1;
        // Blocks are not released in the order of the end of their hold time either.
        let mut previous = list.tail;
        while let Some(place) = previous.checked_sub(1)
            && self.blocks[place as usize].held_until_s > held_until_s
        {
            previous = self.blocks[place as usize].previous;
        }
        let next = match previous.checked_sub(1) {
            Some(place) => std::mem::replace(&mut self.blocks[place as usize].next, this),
            None => std::mem::replace(&mut list.head, this),
        };
        match next.checked_sub(1) {
            Some(place) => self.blocks[place as usize].previous = this,
            None => list.tail = this,
        }
        let block = &mut self.blocks[at];
        (block.next, block.previous, block.held_until_s) = (next, previous, held_until_s);
    }

    /// Releases the port of a session that ended in second `ended_s`. Returns first and last port of its block if
    /// that was released with it.
    pub(crate) fn release(
        &mut self,
        layout: &Layout,
        protocol: NatProtocol,
        inside: Inside,
        (public, port): (usize, u16),
        ended_s: u32,
    ) -> Option<(u16, u16)> {
        let at = public * self.bitmap_blocks + layout.bitmap_block(port);
        let Some(subscriber) = self.subscribers.get_mut(&inside) else {
            debug_assert!(false, "a session without a subscriber");
            return None;
        };
        subscriber.used[protocol as usize] -= 1;
        debug_assert_eq!(self.blocks[at].owner, inside, "somebody else's block");
        let block = &mut self.blocks[at];
        block.used[protocol as usize] -= 1;
        block.held_until_s = block.held_until_s.max(ended_s.saturating_add(self.hold_s));
        if block.used != [0; 3] {
            return None;
        }
        // The owner's list is short, so it is searched.
        let next = self.blocks[at].next;
        if subscriber.first == at as u32 + 1 {
            subscriber.first = next;
        } else {
            let mut before = subscriber.first;
            while let Some(place) = before.checked_sub(1) {
                let block = &mut self.blocks[place as usize];
                if block.next == at as u32 + 1 {
                    block.next = next;
                    break;
                }
                before = block.next;
            }
        }
        subscriber.blocks -= 1;
        if subscriber.blocks == 0 {
            self.subscribers.remove(&inside);
        }
        self.blocks_used -= 1;
        if !self.plan.is_deterministic() {
            self.put_back(at, self.blocks[at].held_until_s);
        }
        self.given_out(layout, at)
    }

    /// Blocks on a public address that subscribers can get, and those that they have.
    pub(crate) fn in_use_on(&self, layout: &Layout, address: usize) -> (u64, u64) {
        let given_out = self.plan.first..self.plan.first + self.plan.per_address;
        let is_block = |at: &usize| given_out.contains(&layout.block_number(self.shard, *at));
        let blocks = (0..self.bitmap_blocks).filter(is_block);
        blocks.fold((0, 0), |(all, used), at| {
            let is_used = self.blocks[address * self.bitmap_blocks + at].used != [0; 3];
            (all + 1, used + u64::from(is_used))
        })
    }

    /// Shows all assigned blocks with sessions.
    pub(crate) fn visit_given_out(
        &self,
        layout: &Layout,
        address_of: &dyn Fn(u32) -> std::net::IpAddr,
        show: &mut dyn FnMut(BlockInfo),
    ) {
        if !self.plan.is_deterministic() {
            self.visit(layout, 0, self.blocks.len(), address_of, show);
        }
    }

    /// Shows blocks with sessions among `count` blocks from `from` on; returns where to continue, if there are
    /// more. `address_of` knows what an owner is called.
    pub(crate) fn visit(
        &self,
        layout: &Layout,
        from: usize,
        count: usize,
        address_of: &dyn Fn(u32) -> std::net::IpAddr,
        show: &mut dyn FnMut(BlockInfo),
    ) -> Option<usize> {
        let end = from.saturating_add(count).min(self.blocks.len());
        for (at, block) in self.blocks.iter().enumerate().take(end).skip(from) {
            if block.used != [0; 3] {
                let number = layout.block_number(self.shard, at % self.bitmap_blocks);
                show(BlockInfo {
                    inside: address_of(block.owner.address),
                    vrf: block.owner.vrf.into(),
                    public: layout.addresses[at / self.bitmap_blocks].into(),
                    ports: self.plan.ports(number),
                    sessions: block.used,
                });
            }
        }
        (end < self.blocks.len()).then_some(end)
    }
}
