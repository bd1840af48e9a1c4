//! Two routers that share virtual routers: the active one keeps the other, its *standby*, up to date about NAT's sessions
//! and the firewall's states, so that connections survive when the standby takes over.
//!
//! ```text
//!   active                                                       standby
//!     shards ── what changes ──────────── Changes ──────────────> put, end
//!     walk over all shards ── digests of parts ── Digests ──────> compared with its own
//!     entries of these parts <─────────── Want ─────────────────── those that differ
//!                            ──────────── Whole ────────────────> replaced
//! ```
//!
//! Changes make it fast, walks make it complete: whatever was lost, the next walk finds it. A part is the entries of a
//! shard whose keys' hashes end alike, eight on average, so nothing is sent twice that is the same on both sides. Both
//! routers have the same shards (the same configuration of NAT, the same secret for hashes), so an entry belongs to the
//! shard of the same number. State is only in the shards: nothing is kept beside them but requests under way.
//!
//! **Per packet** an active router does nothing for this: shards note what begins, ends or enters another phase, in a
//! bounded list.
//!
//! **Lifetimes.** The standby's comparisons renew its entries, so none of them ends before the active router says so or is
//! silent for an entry's lifetime. After it took over, each lives on as if it had just been used.
//!
//! **Who is who.** Datagrams are authentic: the caller has checked their tags. A number tells the runs of a router apart,
//! and a datagram names the run that it is for, which its sender can only know from this run. With the sequence numbers no
//! datagram counts twice, and none of an earlier run counts at all. A router that says it is active is believed only while
//! this one is not. If both are, nothing is copied: whose entries were right?
//!
//! **Bounds.** Datagrams per second; parts and entries that a request waits for; changes of a shard. Each is healed by the
//! next walk.
//!
//! Missing: NAT's sessions of protocols without ports, which their hosts' next packets make again; blocks of
//! subscribers; TCP windows, which are not checked for connections taken over.

mod parts;
mod receiver;
mod sender;
mod shards;
pub mod testing;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use thalweg_base::mix64;
use thalweg_wire::standby::{Hello, Message, ShardId, StandbyHeader, Table};

use crate::records::counters;
use receiver::Receiver;
use sender::Sender;

pub use shards::Shards;
pub(crate) use shards::{Cells, Changes, Copied, Here};

const HELLO_EVERY_NS: u64 = 500_000_000;
/// A router that was not heard for so long gets nothing.
const SILENT_NS: u64 = 2_000_000_000;
/// Between two answers to a router that does not know this run.
const GREET_EVERY_NS: u64 = 100_000_000;
/// The longest time that a router leaves its virtual routers to the other because it lacks entries.
const HOLD_MAX_NS: u64 = 60_000_000_000;
/// One datagram in so many nanoseconds, 70 Mbit/s at most; and as many at once.
const DATAGRAM_NS: u64 = 160_000;
const BURST: u32 = 64;
/// Earlier runs of the other router that are remembered.
const PAST_MAX: usize = 64;

counters! {
    /// What became of datagrams, changes and entries.
    StandbyCounters {
        sent: "Datagrams made for the other router.";
        unsent: "Of those, datagrams that the system did not take: it has no way there, or not the address to listen on.";
        received: "Datagrams of the other router.";
        forged: "Datagrams without a right tag.";
        malformed: "Datagrams with a right tag that make no sense: of another version.";
        replayed: "Datagrams that came late, twice, or from an earlier run.";
        unused: "Datagrams about entries that this router, in its role, does not take.";
        changes_lost: "Changes that found no room in their shard's list.";
        refused: "Entries of the other router that found no room here.";
        other_vrfs: "Times that the other router said it has other VRFs: nothing is copied.";
    }
}

/// The router's tables.
#[derive(Clone, Copy)]
pub struct Tables<'t> {
    pub sessions: Option<&'t dyn Shards>,
    pub states: Option<&'t dyn Shards>,
    pub now_ns: u64,
}

impl<'t> Tables<'t> {
    fn of(&self, table: Table) -> Option<&'t dyn Shards> {
        match table {
            Table::Sessions => self.sessions,
            Table::States => self.states,
        }
    }

    /// The table of a shard, if there is such a shard.
    fn shard(&self, id: ShardId) -> Option<&'t dyn Shards> {
        self.of(id.table).filter(|shards| id.shard < shards.count())
    }

    fn each(&self) -> impl Iterator<Item = &'t dyn Shards> {
        self.sessions.into_iter().chain(self.states)
    }

    /// All shards, in order.
    fn shards(&self) -> impl Iterator<Item = ShardId> {
        let count = |table| self.of(table).map_or(0, |shards| shards.count());
        let of = |table: Table, count: u16| (0..count).map(move |shard| ShardId { table, shard });
        of(Table::Sessions, count(Table::Sessions)).chain(of(Table::States, count(Table::States)))
    }

    /// The entries of both tables.
    fn entries(&self) -> [u64; 2] {
        Table::ALL.map(|table| {
            self.of(table).map_or(0, |shards| (0..shards.count()).map(|shard| shards.live(shard)).sum())
        })
    }
}

/// A run of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandbyRun {
    /// Tells it from others: not 0, and never the same twice.
    pub number: u64,
    /// The secret of hashes of keys, the same on both routers.
    pub secret: u64,
}

/// Digests of configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sameness {
    /// Of what decides where an entry belongs: nothing is copied unless it is the same on both.
    pub placement: u64,
    /// Of the firewall's rules. If they differ, each copied state is judged again.
    pub rules: u64,
    /// Of the numbers and names of the VRFs, by which entries say where their hosts are: as `placement`. 0 if there are
    /// none.
    pub vrfs: u64,
}

thalweg_base::words! {
    /// What two routers are to each other; [`StandbyState::means`] says it in words.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum StandbyState {
        Alone => "alone",
        Different => "different",
        OtherVrfs => "other-vrfs",
        Idle => "idle",
        Conflict => "conflict",
        Copying => "copying",
        Covered => "covered",
        Learning => "learning",
        Ready => "ready",
    }
}

/// What is known, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyView {
    pub state: StandbyState,
    /// Parts that the standby is known to lack at this moment; under load a few are always on their way.
    pub behind: u32,
    /// Sessions and states: here, and there.
    pub entries: [u64; 2],
    pub other_entries: [u64; 2],
    /// Whether the firewall's rules are the same.
    pub has_same_rules: bool,
    pub counters: StandbyCounters,
}

/// The other router.
#[derive(Clone, Copy, Debug)]
struct Other {
    run: u64,
    /// The sequence number of its last datagram.
    highest: u64,
    heard_ns: u64,
    hello: Option<Hello>,
}

/// The way to the other router.
#[derive(Debug)]
struct Line {
    from: u64,
    to: u64,
    sequence: u64,
    /// Datagrams that may be sent now, and since when one more may.
    room: u32,
    since_ns: u64,
    /// A Hello is due at once.
    says_hello: bool,
    outputs: VecDeque<Vec<u8>>,
}

impl Line {
    fn send(&mut self, message: &Message) {
        self.send_to(self.to, message);
    }

    fn send_to(&mut self, to: u64, message: &Message) {
        self.sequence += 1;
        self.room = self.room.saturating_sub(1);
        let header = StandbyHeader { from: self.from, to, sequence: self.sequence };
        self.outputs.push_back(header.encode(message));
    }

    fn has_room(&self) -> bool {
        self.room > 0
    }

    fn room(&self) -> usize {
        crate::records::place(self.room)
    }

    /// Makes room as time passes.
    fn pass_time(&mut self, now_ns: u64) {
        let more = now_ns.saturating_sub(self.since_ns) / DATAGRAM_NS;
        self.room = u32::try_from(more).unwrap_or(BURST).saturating_add(self.room).min(BURST);
        self.since_ns += more * DATAGRAM_NS;
    }
}

/// One router's end. Pure: datagrams without tags and time go in, datagrams come out.
#[derive(Debug)]
pub struct Standby {
    secret: u64,
    same: Sameness,
    is_active: bool,
    /// Since when it is not.
    since_ns: u64,
    other: Option<Other>,
    past: Vec<u64>,
    line: Line,
    hello_at_ns: u64,
    greet_at_ns: u64,
    sender: Sender,
    receiver: Receiver,
    counters: StandbyCounters,
}

impl Standby {
    /// A router that is not active and has not heard of another.
    pub fn new(run: StandbyRun, now_ns: u64) -> Self {
        let line = Line {
            from: run.number,
            to: 0,
            sequence: 0,
            room: BURST,
            since_ns: now_ns,
            says_hello: true,
            outputs: VecDeque::new(),
        };
        Self {
            secret: run.secret,
            same: Sameness::default(),
            is_active: false,
            since_ns: now_ns,
            other: None,
            past: Vec::new(),
            line,
            hello_at_ns: now_ns,
            greet_at_ns: now_ns,
            sender: Sender::default(),
            receiver: Receiver::default(),
            counters: StandbyCounters::default(),
        }
    }

    /// The next datagram to send, without its tag. Take all of them after each call.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        self.line.outputs.pop_front()
    }

    /// Says whether this router forwards for both.
    pub fn set_active(&mut self, is_active: bool, now_ns: u64) {
        if is_active == self.is_active {
            return;
        }
        self.is_active = is_active;
        self.since_ns = now_ns;
        self.learn_anew();
        self.line.says_hello = true;
    }

    /// Says what the configuration in force is like. Call it for new tables too, before they are used.
    pub fn set_configuration(&mut self, same: Sameness, tables: &Tables<'_>) {
        self.same = same;
        self.sender.turn_on(self.sender.is_on, tables);
        self.learn_anew();
        self.line.says_hello = true;
    }

    /// Whether this router leaves its virtual routers to the other one, if that is active: it lacks entries.
    pub fn holds(&self, now_ns: u64) -> bool {
        let is_learning = !self.is_active && !self.receiver.has_caught_up;
        is_learning && now_ns.saturating_sub(self.since_ns) < HOLD_MAX_NS
    }

    /// Whether the rules of the firewall are the same on both routers.
    pub fn has_same_rules(&self) -> bool {
        let hello = self.other.and_then(|other| other.hello);
        hello.is_some_and(|hello| hello.rules == self.same.rules)
    }

    /// A datagram of [`Self::poll_output`] could not be sent.
    pub fn note_unsent(&mut self) {
        self.counters.unsent += 1;
    }

    /// Counts a datagram whose tag was not right.
    pub fn note_forged(&mut self) {
        self.counters.forged += 1;
    }

    /// Takes an authentic datagram without its tag.
    pub fn handle(&mut self, datagram: &[u8], tables: &Tables<'_>) {
        let Ok((header, message)) = StandbyHeader::decode(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        if header.from == self.line.from {
            // Our own, reflected.
            self.counters.replayed += 1;
        } else if header.to != self.line.from {
            self.greet(&header, &message, tables);
        } else if !self.admit(&header, tables.now_ns) {
            self.counters.replayed += 1;
        } else {
            self.counters.received += 1;
            let had_caught_up = self.receiver.has_caught_up;
            self.receive(message, tables);
            // The active router wants to know.
            self.line.says_hello |= self.receiver.has_caught_up && !had_caught_up;
        }
    }

    /// Tells this run's number to a router that does not know it. Nothing that it says is believed.
    fn greet(&mut self, header: &StandbyHeader, message: &Message, tables: &Tables<'_>) {
        if !matches!(message, Message::Hello(_)) || tables.now_ns < self.greet_at_ns {
            self.counters.replayed += 1;
            return;
        }
        self.greet_at_ns = tables.now_ns + GREET_EVERY_NS;
        let hello = self.hello(tables);
        self.line.send_to(header.from, &hello);
    }

    /// Whether a datagram for this run is new. One of another run is its first, so that run is the other router now.
    fn admit(&mut self, header: &StandbyHeader, now_ns: u64) -> bool {
        if let Some(other) = self.other.as_mut().filter(|other| other.run == header.from) {
            let is_new = header.sequence > other.highest;
            if is_new {
                (other.highest, other.heard_ns) = (header.sequence, now_ns);
            }
            return is_new;
        }
        if self.past.contains(&header.from) {
            // If the other router is silent, its datagram may have been a late one of the run before this.
            let is_silent = self.other.is_none_or(|other| now_ns.saturating_sub(other.heard_ns) >= SILENT_NS);
            if is_silent {
                self.begin_anew();
            }
            return false;
        }
        if self.past.len() >= PAST_MAX {
            self.begin_anew();
            return false;
        }
        self.past.extend(self.other.map(|other| other.run));
        self.other =
            Some(Other { run: header.from, highest: header.sequence, heard_ns: now_ns, hello: None });
        (self.line.to, self.line.says_hello) = (header.from, true);
        self.sender.restart();
        self.learn_anew();
        true
    }

    /// Goes on under another number: no datagram that anybody may have recorded is for it.
    fn begin_anew(&mut self) {
        self.line.from = mix64(self.line.from) | 1;
        (self.line.to, self.line.says_hello, self.other) = (0, true, None);
        self.past.clear();
    }

    fn receive(&mut self, message: Message, tables: &Tables<'_>) {
        let secret = self.secret;
        if let (Message::Hello(hello), Some(other)) = (&message, &mut self.other) {
            other.hello = Some(*hello);
            self.counters.other_vrfs += u64::from(hello.vrfs != self.same.vrfs);
            if self.is_receiving() {
                self.receiver.note_walk(hello.walk, hello.walk_messages);
            }
            return;
        }
        let (is_sending, is_receiving) = (self.sender.is_on, self.is_receiving());
        match message {
            Message::Want { of, bits, numbers } if is_sending => self.sender.want(of, bits, &numbers),
            Message::Digests { walk, first, digests } if is_receiving => {
                self.receiver.compare((walk, first), &digests, &mut self.line, tables, secret);
            }
            Message::Whole { part, entries } if is_receiving => {
                self.receiver.replace(part, &entries, tables, secret);
            }
            Message::Changes { of, changes } if is_receiving => self.receiver.apply(of, &changes, tables),
            _ => self.counters.unused += 1,
        }
    }

    /// Does what is due. Call it several times a second.
    pub fn handle_timer(&mut self, tables: &Tables<'_>) {
        self.line.pass_time(tables.now_ns);
        let is_sending = self.state(tables.now_ns).is_sending();
        if is_sending != self.sender.is_on {
            self.sender.turn_on(is_sending, tables);
        }
        if is_sending {
            self.counters.changes_lost += self.sender.work(&mut self.line, tables, self.secret);
        }
        if self.line.says_hello || tables.now_ns >= self.hello_at_ns {
            self.line.says_hello = false;
            self.hello_at_ns = tables.now_ns + HELLO_EVERY_NS;
            let hello = self.hello(tables);
            self.line.send(&hello);
        }
    }

    fn hello(&self, tables: &Tables<'_>) -> Message {
        let (walk, walk_messages) = self.sender.last;
        Message::Hello(Hello {
            is_active: self.is_active,
            is_level: self.receiver.has_caught_up,
            placement: self.same.placement,
            rules: self.same.rules,
            vrfs: self.same.vrfs,
            walk,
            walk_messages,
            behind: self.receiver.behind(),
            entries: tables.entries(),
        })
    }

    /// What it has to learn from an active router begins anew.
    fn learn_anew(&mut self) {
        self.receiver.learn_anew();
    }

    fn is_receiving(&self) -> bool {
        let hello = self.other.and_then(|other| other.hello);
        let are_alike =
            |hello: &Hello| (hello.placement, hello.vrfs) == (self.same.placement, self.same.vrfs);
        hello.is_some_and(|hello| hello.is_active && !self.is_active && are_alike(&hello))
    }

    fn state(&self, now_ns: u64) -> StandbyState {
        let is_heard = |other: &Other| now_ns.saturating_sub(other.heard_ns) < SILENT_NS;
        let Some(hello) = self.other.filter(is_heard).and_then(|other| other.hello) else {
            return StandbyState::Alone;
        };
        match (self.is_active, hello.is_active) {
            _ if hello.vrfs != self.same.vrfs => StandbyState::OtherVrfs,
            _ if hello.placement != self.same.placement => StandbyState::Different,
            (false, false) => StandbyState::Idle,
            (true, true) => StandbyState::Conflict,
            (true, false) if hello.is_level => StandbyState::Covered,
            (true, false) => StandbyState::Copying,
            (false, true) if self.receiver.has_caught_up => StandbyState::Ready,
            (false, true) => StandbyState::Learning,
        }
    }

    /// What is known at this moment.
    pub fn view(&self, tables: &Tables<'_>) -> StandbyView {
        let state = self.state(tables.now_ns);
        let hello = self.other.and_then(|other| other.hello).unwrap_or_default();
        StandbyView {
            state,
            behind: if state.is_sending() { hello.behind } else { self.receiver.behind() },
            entries: tables.entries(),
            other_entries: hello.entries,
            has_same_rules: self.has_same_rules(),
            counters: StandbyCounters {
                sent: self.line.sequence,
                refused: self.receiver.refused,
                ..self.counters
            },
        }
    }
}

impl StandbyState {
    /// What it means.
    pub fn means(self) -> &'static str {
        match self {
            Self::Alone => "the other router is not heard",
            Self::Different => "[nat] is not the same on both routers: nothing is copied",
            Self::OtherVrfs => {
                "the VRFs do not have the same names in the same order on both routers: nothing is copied"
            }
            Self::Idle => "neither of the routers is active",
            Self::Conflict => "both routers are active: nothing is copied",
            Self::Copying => "this router is active, the other does not have everything yet",
            Self::Covered => "this router is active, the other can take over",
            Self::Learning => "this router stands by and does not have everything yet",
            Self::Ready => "this router stands by and can take over",
        }
    }

    /// Whether somebody should look after it.
    pub fn is_problem(self) -> bool {
        matches!(self, Self::Alone | Self::Different | Self::OtherVrfs | Self::Conflict)
    }

    fn is_sending(self) -> bool {
        matches!(self, Self::Copying | Self::Covered)
    }
}
