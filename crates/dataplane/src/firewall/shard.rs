//! One shard of the table of states.
//!
//! A packet needs two loads that may miss the cache, its key's index line and its state, both prefetched by
//! [`super::FirewallStage`]; where NAT's session names the state, only the latter. Memory is allocated only at
//! construction: 64 bytes a state, 12 for its entry in the index, 8 for its links in the wheel and 8 for display, 92 in
//! all; 2 KiB for the wheel and 8 KiB for hosts.
//!
//! # Time
//! A state used in second `t` with a lifetime of `d` seconds lives through second `t + d`. Every call first removes
//! expired states, so none is ever seen, and results depend only on the sequence of packets and times. A state is
//! filed no further ahead than its shortest possible lifetime, so that shortening its life needs no refiling.
//!
//! # When the table is full
//! A new connection takes the place of one that nobody has answered for some seconds, if a short search finds one.
//! Otherwise it is refused and counted. Connections that were answered are never ended for others.

mod list;
mod standby;

use super::config::{FirewallConfig, PacketState, StateTimeouts};
use super::event::FirewallEvent;
use super::expected::Expectations;
use super::flow::{Ends, FlowKey, IPV6, Kind, Quoted, family_of, ipv4_of};
use super::rules::{Decision, FirewallRules};
use super::state::{Fate, Phase, Segment, State};
use crate::acl::{AclCounts, Action};
use crate::rate_limit::TokenBucket;
use crate::records::{HashIndex, WHEEL_S, Wheel, counters, number, place, seconds};
use crate::standby::Changes;
use list::Begun;
use std::net::SocketAddrV4;
use thalweg_base::{DropReason, Packet, PacketFlags, Translated, mix64, prefetch_at};
use thalweg_wire::ip_protocol;

pub use list::StateInfo;

counters! {
    /// Counters of a shard, or the sum over a firewall.
    FirewallCounters {
        states_active: "Connections alive.";
        states_created: "Connections begun.";
        states_expired: "Connections that ran out.";
        established: "Packets of connections.";
        related: "ICMP errors about connections, and connections that others had announced.";
        invalid: "Packets dropped because they belong to no connection and cannot begin one.";
        not_asked: "Packets dropped because the policy does not permit their connection.";
        denied: "Packets that a rule denied.";
        limited: "Packets dropped because of the limit of their rule.";
        host_limit: "Packets dropped because their host had too many connections that nobody has answered.";
        table_full: "Packets dropped because the shard had no free state.";
        half_open_dropped: "Connections that nobody had answered and that made room for others.";
        states_ended: "Connections that other rules ended.";
        states_cleared: "Connections ended on request.";
        events_lost: "Lines for the log that found no room.";
        announced: "Connections that helpers expect because others announced them.";
        help_refused: "Announced endpoints that are not their sender's, or for which there was no room.";
        help_unread: "Messages that helpers could not read: not whole in their packet, or not understood.";
    }
}

/// A connection that nobody has answered makes room for another only if it had no packet for this many seconds:
/// longer than a handshake takes, even with a lost SYN or two.
const HALF_OPEN_IDLE_S: u32 = 4;
/// Records examined in a search for such a connection. After a search without success there is no other one in that
/// second.
const LOOKS: u32 = 64;
/// Cells of a row of counts of hosts; a power of two.
const HOST_CELLS: usize = 2048;
/// Events that wait to be taken.
const EVENTS_MAX: usize = 64;

/// What is known of a packet before its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) pair: u16,
    kind: Kind,
    key: FlowKey,
    /// The place of its source in the key.
    from: usize,
    /// The hash of the key, unless NAT's session names a state.
    hash: Option<u64>,
    /// The records of NAT's session, and of the state that it names, plus one.
    session: u32,
    named: u32,
    /// The place in the key of the end behind NAT.
    inside: usize,
    /// Its real source, if NAT changed it.
    source: Option<SocketAddrV4>,
    /// The address of its destination.
    destination: u128,
}

impl Seen {
    pub(crate) fn of(
        packet: &Packet,
        l3: &[u8],
        nat: Option<&Translated>,
        pair: u16,
        secret: u64,
    ) -> Option<Self> {
        let origin = nat.map(|nat| &nat.origin).filter(|origin| origin.is_known());
        let ends = Ends::of(packet, l3, origin)?;
        let kind = Kind::of(packet, l3);
        let family = family_of(packet, origin);
        let (key, from) = FlowKey::of(&ends, kind, family);
        let source = origin
            .filter(|_| packet.flags.has(PacketFlags::NAT_OUT))
            .map(|_| SocketAddrV4::new(ipv4_of(ends.source.0), ends.source.1));
        let (session, named) = nat.map_or((0, 0), |nat| (nat.session, nat.state));
        let hash = (named == 0).then(|| key.hash(secret));
        let inside = if source.is_some() { from } else { 1 - from };
        let destination = ends.destination.0;
        Some(Self { pair, kind, key, from, hash, session, named, inside, source, destination })
    }
}

impl Seen {
    /// The record of its NAT session, plus one.
    pub(crate) fn session(&self) -> u32 {
        self.session
    }
}

/// The shard's part of what the configuration says; a reload replaces it.
#[derive(Clone, Debug)]
struct Settings {
    timeouts: StateTimeouts,
    half_open_max: u16,
    checks_windows: bool,
    picks_up: bool,
    shards: u32,
}

impl Settings {
    fn of(config: &FirewallConfig, shards: u32) -> Self {
        // As for NAT's hosts: the share of a shard, and two standard deviations of a random spread.
        let share = |limit: u32| {
            let mean = limit.div_ceil(shards);
            u16::try_from(mean.saturating_add(2 * mean.isqrt() + 2).min(limit)).unwrap_or(u16::MAX)
        };
        Self {
            timeouts: config.timeouts,
            half_open_max: config.half_open_max.map_or(u16::MAX, share),
            checks_windows: config.checks_windows,
            picks_up: config.picks_up,
            shards,
        }
    }

    fn lifetime_s(&self, protocol: u8, phase: Phase) -> u32 {
        let t = &self.timeouts;
        match phase {
            Phase::Open | Phase::Answered => match protocol {
                ip_protocol::UDP => t.udp_s,
                ip_protocol::ICMP | ip_protocol::ICMPV6 => t.icmp_s,
                _ => t.other_s,
            },
            Phase::Established | Phase::FinLow | Phase::FinHigh => t.tcp_established_s,
            Phase::SynSent | Phase::SynAnswered | Phase::Closing | Phase::Reset => t.tcp_transitory_s,
            Phase::Aborted => t.tcp_aborted_s.min(t.tcp_transitory_s),
        }
    }

    /// The shortest lifetime that a state of a protocol can come to have.
    fn horizon_s(&self, protocol: u8) -> u32 {
        let shortest = match protocol {
            ip_protocol::TCP => {
                let t = &self.timeouts;
                t.tcp_established_s.min(t.tcp_transitory_s).min(t.tcp_aborted_s)
            }
            _ => self.lifetime_s(protocol, Phase::Open),
        };
        (shortest + 1).min(WHEEL_S - 1)
    }
}

/// One shard.
#[derive(Clone, Debug)]
pub(crate) struct StateShard {
    secret: u64,
    now_s: u32,
    settings: Settings,
    states: Box<[State]>,
    /// By record.
    begun: Box<[Begun]>,
    /// The first record that was never used.
    fresh: u32,
    /// First free record plus one, or 0.
    free: u32,
    index: HashIndex,
    wheel: Wheel,
    /// Connections that nobody has answered, by the host that began them: a count-min sketch, as NAT's of its
    /// hosts. A host's count is the smaller of its two cells, and never too small.
    half_open: [Box<[u16]>; 2],
    /// By rule with a limit.
    limits: Vec<TokenBucket>,
    /// The record where the search for half-open states continues, and the second before which it must not.
    hand: u32,
    look_again_s: u32,
    events: Vec<FirewallEvent>,
    /// For a standby.
    changes: Changes,
    counters: FirewallCounters,
    /// Not a counter of the answer: it depends on what NAT's sessions name, and when.
    look_ups: u64,
}

impl StateShard {
    pub(crate) fn new(config: &FirewallConfig, shards: u16, secret: u64) -> Self {
        let records = place(config.states_max.div_ceil(u32::from(shards.max(1))));
        Self {
            secret,
            now_s: 0,
            settings: Settings::of(config, u32::from(shards.max(1))),
            states: vec![State::EMPTY; records].into_boxed_slice(),
            begun: vec![Begun::default(); records].into_boxed_slice(),
            fresh: 0,
            free: 0,
            index: HashIndex::new(records),
            wheel: Wheel::new(records),
            half_open: [(); 2].map(|()| vec![0; HOST_CELLS].into_boxed_slice()),
            limits: vec![TokenBucket::default(); config.rules.len()],
            hand: 0,
            look_again_s: 0,
            events: Vec::new(),
            changes: Changes::default(),
            counters: FirewallCounters::default(),
            look_ups: 0,
        }
    }

    /// Applies another configuration. Remaining lifetimes are cut to the new ones.
    pub(crate) fn set_behavior(&mut self, config: &FirewallConfig) {
        self.settings = Settings::of(config, self.settings.shards);
        self.limits = vec![TokenBucket::default(); config.rules.len()];
        self.wheel.clear();
        for at in 0..place(self.fresh) {
            let state = self.states[at];
            if state.is_live() {
                let longest_s = self.now_s + self.settings.lifetime_s(state.key().protocol, state.phase);
                self.states[at].expires_s = state.expires_s.min(longest_s);
                self.file(at);
            }
        }
    }

    /// Takes over the states of a shard with the same secret whose packets come here from now on; returns how many
    /// found no room.
    pub(crate) fn adopt(&mut self, old: &Self, belongs: impl Fn(&FlowKey) -> bool) -> u64 {
        self.advance_to(old.now_s);
        let mut lost = 0;
        let records = old.states[..place(old.fresh)].iter().zip(&old.begun);
        for (state, begun) in records.filter(|(state, _)| state.is_live()) {
            if !belongs(&state.key()) {
                continue;
            }
            match self.insert(*state, *begun) {
                Some(at) => self.file(at),
                None => lost += 1,
            }
        }
        lost
    }

    /// Takes over the counters of a shard that sees no more packets.
    pub(crate) fn succeed(&mut self, old: &FirewallCounters) {
        self.counters.add(&FirewallCounters { states_active: 0, ..*old });
    }

    pub(crate) fn counters(&self) -> FirewallCounters {
        self.counters
    }

    /// Passes on the events since the last call.
    pub(crate) fn hand_out_events(&mut self, take: &mut dyn FnMut(FirewallEvent)) {
        self.events.drain(..).for_each(take);
    }

    /// Prefetches the index line of a packet's key, or its state if NAT's session names one.
    #[inline(always)]
    pub(crate) fn prefetch_index(&self, seen: &Seen) {
        match seen.hash {
            Some(hash) => self.index.prefetch(hash),
            None => prefetch_at(&self.states, place(seen.named - 1)),
        }
    }

    #[inline(always)]
    pub(crate) fn prefetch_state(&self, seen: &Seen) {
        if let Some(hash) = seen.hash {
            let record = self.index.likely(hash).unwrap_or(self.free.checked_sub(1).unwrap_or(self.fresh));
            prefetch_at(&self.states, place(record));
        }
    }

    /// How often a state was sought in the index.
    pub(crate) fn look_ups(&self) -> u64 {
        self.look_ups
    }

    /// Decides about a packet whose pair of zones is tracked. Time was advanced. Returns the record of its state, plus
    /// one, if NAT's session should name that from now on.
    pub(crate) fn judge(&mut self, packet: &mut Packet, l3: &[u8], turn: &Turn<'_>) -> Option<u32> {
        let seen = turn.seen;
        match seen.kind {
            Kind::Orphan => packet.drop_for_good(DropReason::FragmentWithoutFirst),
            Kind::Error => self.judge_error(packet, l3, turn),
            Kind::Plain => {
                self.judge_new(packet, l3, turn, None, false);
            }
            Kind::Flow | Kind::Echo { .. } | Kind::EchoRest => {
                let state = self.judge_flow(packet, l3, turn)?;
                return (seen.session != 0).then_some(number(state) + 1);
            }
        }
        None
    }

    /// Decides about a packet with copies of what concerns it, and remembers nothing. Returns the deciding rule, if no
    /// limit decided before, and what the packet is.
    pub(crate) fn try_packet(
        &self,
        packet: &mut Packet,
        l3: &[u8],
        seen: &Seen,
        (rules, expected): (&FirewallRules, &Expectations),
        now_ns: u64,
    ) -> (Option<u16>, PacketState) {
        let quoted = (seen.kind == Kind::Error).then(|| Quoted::of(packet, l3)).flatten();
        let keys = [Some(seen.key), Some(seen.key.asked_by_the_other()), quoted.map(|quoted| quoted.key)];
        let known = keys.into_iter().flatten().filter_map(|key| self.find(&key, key.hash(self.secret)));
        let now_s = seconds(now_ns).max(self.now_s);
        let known: Vec<State> =
            known.map(|at| self.states[at]).filter(|state| state.expires_s >= now_s).collect();
        let is_full = self.counters.states_active >= self.states.len() as u64;
        let records = known.len() + usize::from(!is_full);
        let mut trial = Self {
            secret: self.secret,
            now_s,
            settings: self.settings.clone(),
            states: vec![State::EMPTY; records].into_boxed_slice(),
            begun: vec![Begun::default(); records].into_boxed_slice(),
            fresh: 0,
            free: 0,
            index: HashIndex::new(records),
            wheel: Wheel::new(records),
            half_open: self.half_open.clone(),
            limits: self.limits.clone(),
            hand: 0,
            look_again_s: now_s + 1,
            events: Vec::new(),
            changes: Changes::default(),
            counters: FirewallCounters::default(),
            look_ups: 0,
        };
        for state in known {
            if let Some(at) = trial.insert(state, Begun::default()) {
                trial.file(at);
            }
        }
        let counts = rules.counts();
        trial.judge(packet, l3, &Turn { seen, rules, counts: &counts, expected, now_ns });
        let rule =
            counts.all().iter().position(|count| count.packets > 0).and_then(|rule| u16::try_from(rule).ok());
        let FirewallCounters { established, related, invalid, .. } = trial.counters;
        let state = match (established, related, invalid) {
            (1.., _, _) => PacketState::Established,
            (_, 1.., _) => PacketState::Related,
            (_, _, 1..) => PacketState::Invalid,
            _ => PacketState::New,
        };
        (rule, state)
    }

    fn find(&self, key: &FlowKey, hash: u64) -> Option<usize> {
        self.index.find(hash, |at| self.states[at].key() == *key)
    }

    /// Whether the state that NAT's session names is the packet's; `None` if it is not even one of that session's
    /// connections. A session has many if its host uses one port for several destinations; it names one that is alive.
    #[inline(always)]
    fn has_named(&self, seen: &Seen) -> Option<bool> {
        let state = self.states.get(place(seen.named.checked_sub(1)?)).filter(|state| state.is_live())?;
        let named = state.key();
        if named == seen.key {
            return Some(true);
        }
        let inside = (seen.key.addresses[seen.inside], seen.key.ports[seen.inside]);
        let is_kin = named.protocol == seen.key.protocol
            && (0..2).any(|end| (named.addresses[end], named.ports[end]) == inside);
        is_kin.then_some(false)
    }

    /// Returns the record of the packet's state if NAT's session names no state of its connections.
    fn judge_flow(&mut self, packet: &mut Packet, l3: &[u8], turn: &Turn<'_>) -> Option<usize> {
        let seen = turn.seen;
        let has_named = self.has_named(seen);
        let mut found = match has_named {
            Some(true) => Some(place(seen.named - 1)),
            _ => {
                self.look_ups += 1;
                self.find(&seen.key, seen.hash.unwrap_or_else(|| seen.key.hash(self.secret)))
            }
        };
        let to_name = |state: usize| has_named.is_none().then_some(state);
        if found.is_none() && seen.kind == Kind::EchoRest {
            let other = seen.key.asked_by_the_other();
            found = self.find(&other, other.hash(self.secret));
        }
        let segment = (packet.protocol == ip_protocol::TCP).then(|| Segment::of(packet, l3));
        if let Some(at) = found {
            match self.receive(at, seen.from, segment.as_ref()) {
                Fate::Belongs => {
                    self.pass(at, packet, l3, turn);
                    return to_name(at);
                }
                Fate::Invalid => {
                    self.judge_invalid(packet, l3, turn);
                    return None;
                }
                Fate::Begins => self.end_now(at),
            }
        }
        let can_begin = match (&segment, seen.kind) {
            (Some(segment), _) => segment.can_begin(self.settings.picks_up),
            (None, Kind::Echo { is_request }) => is_request,
            (None, kind) => kind == Kind::Flow,
        };
        if can_begin && !packet.flags.has(PacketFlags::LATER_FRAGMENT) {
            return self.judge_new(packet, l3, turn, segment.as_ref(), true).and_then(to_name);
        }
        self.judge_invalid(packet, l3, turn);
        None
    }

    /// Lets a state see its packet.
    fn receive(&mut self, at: usize, from: usize, segment: Option<&Segment>) -> Fate {
        let state = &mut self.states[at];
        let before = state.phase;
        let fate = match segment {
            Some(segment) => state.receive_segment(from, segment, self.settings.checks_windows),
            None => {
                state.receive(from);
                Fate::Belongs
            }
        };
        if fate != Fate::Belongs {
            return fate;
        }
        let (phase, is_origin) = (state.phase, from == state.origin());
        let refreshes = match phase {
            _ if phase != before => true,
            Phase::Open | Phase::SynSent => is_origin,
            Phase::Answered | Phase::Established | Phase::FinLow | Phase::FinHigh => true,
            Phase::SynAnswered | Phase::Closing | Phase::Reset | Phase::Aborted => false,
        };
        if refreshes {
            let protocol = state.key().protocol;
            state.expires_s = self.now_s.saturating_add(self.settings.lifetime_s(protocol, phase));
        }
        if phase != before {
            self.note(at);
            if before.is_half_open() && !phase.is_half_open() {
                self.count_half_open(at, false);
            }
        }
        Fate::Belongs
    }

    /// A packet of a connection: the rules were asked when it began, and are asked again if they have changed.
    fn pass(&mut self, at: usize, packet: &mut Packet, l3: &[u8], turn: &Turn<'_>) {
        let Turn { seen, rules, .. } = turn;
        if self.states[at].generation != rules.generation() && seen.from == self.states[at].origin() {
            let began = if self.states[at].is_related() { PacketState::Related } else { PacketState::New };
            let decision = rules.decide(seen.pair, began, packet, l3, seen.source);
            if decision.action != Action::Permit {
                self.end_now(at);
                self.counters.states_ended += 1;
                return self.refuse(packet, &decision, turn, began);
            }
            (self.states[at].generation, self.states[at].rule) = (rules.generation(), decision.rule);
            self.begun[at].zones = rules.zones_of(seen.pair);
        }
        if rules.asks(seen.pair, PacketState::Established) {
            let decision = rules.decide(seen.pair, PacketState::Established, packet, l3, seen.source);
            if !decision.is_policy {
                return self.act(packet, &decision, turn, PacketState::Established);
            }
        }
        self.counters.established += 1;
        turn.counts.count(self.states[at].rule.into(), packet.ip_len.into());
    }

    fn judge_new(
        &mut self,
        packet: &mut Packet,
        l3: &[u8],
        turn: &Turn<'_>,
        segment: Option<&Segment>,
        is_kept: bool,
    ) -> Option<usize> {
        let Turn { seen, rules, expected, .. } = turn;
        let is_related = is_kept && expected.has(&seen.key, seen.from, self.now_s);
        let begins = if is_related { PacketState::Related } else { PacketState::New };
        let decision = rules.decide(seen.pair, begins, packet, l3, seen.source);
        if decision.action != Action::Permit {
            self.refuse(packet, &decision, turn, begins);
            return None;
        }
        let admitted = self.admit(&decision, turn, segment, is_kept);
        let state = admitted.map_err(|reason| packet.drop_for_good(reason)).ok()?;
        if let Some(at) = state.filter(|_| is_related) {
            self.states[at].set_related();
            self.counters.related += 1;
        }
        self.log(packet, &decision, turn, begins);
        turn.counts.count(decision.rule.into(), packet.ip_len.into());
        state
    }

    /// Checks limits and makes the state, if one is kept.
    fn admit(
        &mut self,
        decision: &Decision,
        turn: &Turn<'_>,
        segment: Option<&Segment>,
        is_kept: bool,
    ) -> Result<Option<usize>, DropReason> {
        let Turn { seen, rules, .. } = turn;
        if is_kept && self.half_open_of(&seen.key, seen.from) >= self.settings.half_open_max {
            self.counters.host_limit += 1;
            return Err(DropReason::FirewallLimit);
        }
        if let Some(mut rate) = rules.limit(decision.rule) {
            // Each shard has its share.
            rate.interval_ns = rate.interval_ns.saturating_mul(u64::from(self.settings.shards));
            rate.burst = rate.burst.div_ceil(self.settings.shards);
            let bucket = self.limits.get_mut(usize::from(decision.rule));
            if bucket.is_some_and(|bucket| !bucket.take(rate, turn.now_ns)) {
                self.counters.limited += 1;
                return Err(DropReason::FirewallLimit);
            }
        }
        if !is_kept {
            return Ok(None);
        }
        let mut state = State::new(&seen.key, seen.from, segment);
        (state.generation, state.rule) = (rules.generation(), decision.rule);
        state.expires_s = self.now_s.saturating_add(self.settings.lifetime_s(seen.key.protocol, state.phase));
        let begun = Begun { at_s: self.now_s, zones: rules.zones_of(seen.pair) };
        let mut at = self.insert(state, begun);
        if at.is_none() && self.make_room() {
            at = self.insert(state, begun);
        }
        let Some(at) = at else {
            self.counters.table_full += 1;
            return Err(DropReason::FirewallTableFull);
        };
        self.file(at);
        self.note(at);
        self.counters.states_created += 1;
        Ok(Some(at))
    }

    /// An ICMP error belongs to the connection that it is about, and neither refreshes nor ends it. NAT has found
    /// the session of an error that it translates.
    #[cold]
    fn judge_error(&mut self, packet: &mut Packet, l3: &[u8], turn: &Turn<'_>) {
        let is_proven = turn.seen.session != Translated::UNPROVEN;
        let is_related = is_proven && packet.flags.has(PacketFlags::TRANSLATED)
            || Quoted::of(packet, l3).is_some_and(|quoted| {
                quoted.sender == turn.seen.destination
                    && self.find(&quoted.key, quoted.key.hash(self.secret)).is_some()
            });
        if !is_related {
            return self.judge_invalid(packet, l3, turn);
        }
        let Turn { seen, rules, .. } = turn;
        let decision = rules.decide(seen.pair, PacketState::Related, packet, l3, seen.source);
        self.counters.related += 1;
        self.act(packet, &decision, turn, PacketState::Related);
    }

    #[cold]
    fn judge_invalid(&mut self, packet: &mut Packet, l3: &[u8], turn: &Turn<'_>) {
        let Turn { seen, rules, .. } = turn;
        let decision = rules.decide(seen.pair, PacketState::Invalid, packet, l3, seen.source);
        self.act(packet, &decision, turn, PacketState::Invalid);
    }

    /// Does what the rules decided about a packet that begins nothing.
    fn act(&mut self, packet: &mut Packet, decision: &Decision, turn: &Turn<'_>, state: PacketState) {
        if decision.action != Action::Permit {
            return self.refuse(packet, decision, turn, state);
        }
        self.log(packet, decision, turn, state);
        turn.counts.count(decision.rule.into(), packet.ip_len.into());
    }

    fn refuse(&mut self, packet: &mut Packet, decision: &Decision, turn: &Turn<'_>, state: PacketState) {
        self.log(packet, decision, turn, state);
        turn.counts.count(decision.rule.into(), packet.ip_len.into());
        let reason = match (decision.is_policy, state) {
            (false, _) => DropReason::FirewallDenied,
            (true, PacketState::Invalid) => DropReason::FirewallInvalid,
            (true, _) => DropReason::FirewallNotAsked,
        };
        match reason {
            DropReason::FirewallDenied => self.counters.denied += 1,
            DropReason::FirewallInvalid => self.counters.invalid += 1,
            _ => self.counters.not_asked += 1,
        }
        if decision.action == Action::Reject {
            packet.flags.set(PacketFlags::REJECT);
        }
        packet.drop_for_good(reason);
    }

    fn log(&mut self, packet: &Packet, decision: &Decision, turn: &Turn<'_>, state: PacketState) {
        if !turn.rules.logs(decision.rule) {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.counters.events_lost += 1;
            return;
        }
        let Seen { key, from, .. } = *turn.seen;
        let end = |at: usize| (key.addresses[at], key.ports[at]);
        self.events.push(FirewallEvent {
            time_ns: turn.now_ns,
            rule: decision.rule,
            action: decision.action,
            state,
            port_in: packet.port_in,
            port_out: packet.port_out,
            protocol: packet.protocol,
            is_ipv6: packet.is_ipv6(),
            source: end(from),
            destination: end(1 - from),
        });
    }

    /// The cells of the host at an end: an IPv4 address, or a /64 of IPv6.
    fn host_cells(&self, key: &FlowKey, end: usize) -> [usize; 2] {
        let address = key.addresses[end];
        let host = if key.marks & IPV6 != 0 { (address >> 64) as u64 } else { address as u64 };
        let hash = mix64(host ^ self.secret) as usize;
        [hash & (HOST_CELLS - 1), hash >> 32 & (HOST_CELLS - 1)]
    }

    fn half_open_of(&self, key: &FlowKey, end: usize) -> u16 {
        let [a, b] = self.host_cells(key, end);
        self.half_open[0][a].min(self.half_open[1][b])
    }

    /// Counts a state that begins to be, or is no longer, unanswered.
    fn count_half_open(&mut self, at: usize, begins: bool) {
        let state = &self.states[at];
        let cells = self.host_cells(&state.key(), state.origin());
        for (row, cell) in self.half_open.iter_mut().zip(cells) {
            let count = &mut row[cell];
            *count = if begins { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
    }

    /// Puts a state into a free record and the index; `None` if there is no free record.
    fn insert(&mut self, state: State, begun: Begun) -> Option<usize> {
        let at = if let Some(at) = self.free.checked_sub(1) {
            self.free = self.wheel.next(place(at));
            place(at)
        } else if place(self.fresh) < self.states.len() {
            self.fresh += 1;
            place(self.fresh) - 1
        } else {
            return None;
        };
        let key = state.key();
        let hash = key.hash(self.secret);
        debug_assert!(self.find(&key, hash).is_none(), "one connection, two states");
        self.index.insert(hash, number(at));
        (self.states[at], self.begun[at]) = (state, begun);
        self.counters.states_active += 1;
        if state.phase.is_half_open() {
            self.count_half_open(at, true);
        }
        Some(at)
    }

    /// Files a state under the second in which it must be checked: its end, or sooner.
    fn file(&mut self, at: usize) {
        let state = &self.states[at];
        let horizon_s = self.now_s + self.settings.horizon_s(state.key().protocol);
        self.wheel.file(at, state.expires_s.saturating_add(1).min(horizon_s));
    }

    /// Removes what has expired; time never goes back.
    #[inline(always)]
    pub(crate) fn advance_to(&mut self, now_s: u32) {
        if now_s > self.now_s {
            self.expire(now_s);
        }
    }

    #[cold]
    #[inline(never)]
    fn expire(&mut self, now_s: u32) {
        let from_s = (self.now_s + 1).max(now_s.saturating_sub(WHEEL_S - 1));
        self.now_s = now_s;
        for second in from_s..=now_s {
            let mut list = self.wheel.take(second);
            while let Some(at) = list.checked_sub(1) {
                let at = place(at);
                list = self.wheel.next(at);
                if self.states[at].expires_s < now_s {
                    self.remove(at);
                    self.counters.states_expired += 1;
                } else {
                    self.file(at);
                }
            }
        }
    }

    /// Ends a connection now, whatever is left of its life.
    fn end_now(&mut self, at: usize) {
        self.wheel.unfile(at);
        self.remove(at);
    }

    /// Removes a state from everything but the wheel.
    fn remove(&mut self, at: usize) {
        let state = self.states[at];
        if state.phase.is_half_open() {
            self.count_half_open(at, false);
        }
        self.note_end(at);
        self.index.remove(state.key().hash(self.secret), at);
        self.states[at] = State::EMPTY;
        self.wheel.set_free(at, self.free);
        self.free = number(at) + 1;
        self.counters.states_active -= 1;
    }

    /// Ends a connection that nobody has answered for some seconds, if a short search finds one.
    #[cold]
    fn make_room(&mut self) -> bool {
        if self.now_s < self.look_again_s {
            return false;
        }
        for _ in 0..LOOKS.min(self.fresh) {
            self.hand = if self.hand + 1 >= self.fresh { 0 } else { self.hand + 1 };
            let state = &self.states[place(self.hand)];
            let lifetime_s = self.settings.lifetime_s(state.key().protocol, state.phase);
            let idle_s = lifetime_s.saturating_sub(state.expires_s.saturating_sub(self.now_s));
            if state.is_live() && state.phase.is_half_open() && idle_s >= HALF_OPEN_IDLE_S {
                self.end_now(place(self.hand));
                self.counters.half_open_dropped += 1;
                return true;
            }
        }
        self.look_again_s = self.now_s + 1;
        false
    }
}

/// What a decision about one packet needs.
pub(crate) struct Turn<'a> {
    pub(crate) seen: &'a Seen,
    pub(crate) rules: &'a FirewallRules,
    pub(crate) counts: &'a AclCounts,
    pub(crate) expected: &'a Expectations,
    pub(crate) now_ns: u64,
}
