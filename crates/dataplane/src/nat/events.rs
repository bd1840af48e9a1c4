//! The log of a NAT: it answers later which subscriber had a public port (RFC 6888 REQ-12, RFC 8158).
//!
//! Each shard keeps what happened to it until its driver takes the list away, after every chunk; a list of bounded length, what
//! finds it full is counted. Nothing here is asked for a packet of a session that exists, and nothing at all where nobody
//! wants to know.
//!
//! # Times
//! A session begins when its first packet arrives, within what NAT takes for now: not before the second of its clock. It ends
//! with the second after the last of its life, whenever that was noticed. So by their events no public endpoint has two
//! owners at a time, and the events depend on packets and their times alone.
//!
//! # Floods
//! A limit that is met is met by every packet that follows. Of each (a subscriber's; ports of a protocol, blocks and
//! sessions of a shard) is told at most once in [`TOLD_AGAIN_S`].

use super::config::NatProtocol;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Seconds before a limit that is still being met is logged again.
pub const TOLD_AGAIN_S: u32 = 60;
/// How many events of other kinds than the end of a session may wait, of one shard.
const EVENTS_SPARE: usize = 8192;
const SECOND_NS: u64 = 1_000_000_000;

/// Which events are wanted. Exhaustion and limits are told in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatLogging {
    /// Sessions, with the destination of their first packet.
    Sessions,
    /// Sessions, without a destination (RFC 6888 REQ-12).
    Bindings,
    /// Of the blocks of ports that subscribers get and give back.
    Blocks,
}

/// Something that happened, at `time_ns` (nanoseconds since the epoch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatEvent {
    pub time_ns: u64,
    pub what: Happening,
}

/// See [`NatEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A session began or ended.
    Session {
        /// Whether it began.
        created: bool,
        protocol: NatProtocol,
        /// The inside endpoint; the port is the identifier for ICMP echo.
        inside: SocketAddrV4,
        /// The public endpoint.
        public: SocketAddrV4,
        /// Destination of its first packet, if wanted and kept.
        remote: Option<SocketAddrV4>,
    },
    /// A subscriber got a block of ports, or gave it back.
    Block {
        /// Whether it got it.
        allocated: bool,
        /// Whose it is.
        subscriber: Ipv4Addr,
        public: Ipv4Addr,
        /// First and last port.
        ports: (u16, u16),
    },
    /// The shard had no port of this protocol left, on no address.
    PortsExhausted {
        /// The address of the host that wanted one.
        public: Ipv4Addr,
        /// For which protocol.
        protocol: NatProtocol,
    },
    /// The shard had no free block left, on no address.
    BlocksExhausted,
    /// The shard had all sessions it may have.
    TableFull {
        /// How many all shards may have.
        limit: u32,
    },
    /// A subscriber had all ports or sessions it may have.
    SubscriberLimit {
        subscriber: Ipv4Addr,
        /// How many it may have.
        limit: u32,
    },
}

/// A limit of the shard, reported once in a while.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Ports(NatProtocol),
    Blocks,
    Sessions,
    Host,
}

/// The events of one shard.
#[derive(Clone, Debug)]
pub(crate) struct EventLog {
    pub(crate) logging: NatLogging,
    waiting: Vec<NatEvent>,
    waiting_max: usize,
    /// When the packet came that is being looked at.
    time_ns: u64,
    /// The latest of these times.
    latest_ns: u64,
    /// By limit: it is not told again before this second.
    quiet_until_s: [u32; 6],
    /// Events told, and those that found no room.
    told: u64,
    dropped: u64,
    /// Of the latter, those nobody knows of yet.
    dropped_untold: u64,
}

impl EventLog {
    /// Of a shard with so many sessions at most: all of them may end at once.
    pub(crate) fn new(logging: NatLogging, sessions_max: u32) -> Self {
        Self {
            logging,
            waiting: Vec::new(),
            waiting_max: sessions_max as usize + EVENTS_SPARE,
            time_ns: 0,
            latest_ns: 0,
            quiet_until_s: [0; 6],
            told: 0,
            dropped: 0,
            dropped_untold: 0,
        }
    }

    /// Events told and dropped so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.told, self.dropped)
    }

    /// Takes over what a shard before this one counted and has not handed out.
    pub(crate) fn succeed(&mut self, old: &EventLog) {
        self.latest_ns = self.latest_ns.max(old.latest_ns);
        self.told += old.told;
        self.dropped += old.dropped;
        self.dropped_untold += old.dropped_untold;
        self.waiting.extend_from_slice(&old.waiting);
    }

    /// A packet that arrived at this time is looked at, in this second of NAT's clock; what it makes does not outlive second
    /// `ends_s`.
    pub(crate) fn set_time(&mut self, arrival_ns: u64, now_s: u32, ends_s: u32) {
        self.time_ns = arrival_ns.clamp(starts_ns(now_s), starts_ns(ends_s.max(now_s)));
        self.latest_ns = self.latest_ns.max(self.time_ns);
    }

    /// A moment in this second, or later, before which nothing was made that is still there.
    pub(crate) fn not_before(&self, now_s: u32) -> u64 {
        self.latest_ns.max(starts_ns(now_s))
    }

    /// Something happened because of that packet.
    pub(crate) fn log(&mut self, what: Happening) {
        self.log_at(self.time_ns, what);
    }

    /// Something happened at the beginning of a second.
    pub(crate) fn log_at_second(&mut self, second: u32, what: Happening) {
        self.log_at(starts_ns(second), what);
    }

    /// Something happened at this time.
    pub(crate) fn log_at(&mut self, time_ns: u64, what: Happening) {
        if self.waiting.len() >= self.waiting_max {
            self.dropped += 1;
            self.dropped_untold += 1;
            return;
        }
        self.told += 1;
        self.waiting.push(NatEvent { time_ns, what });
    }

    /// Whether a limit of the shard is to be told of now; then it is quiet for a while.
    pub(crate) fn is_news(&mut self, limit: Limit, now_s: u32) -> bool {
        let place = match limit {
            Limit::Ports(protocol) => protocol as usize,
            Limit::Blocks => 3,
            Limit::Sessions => 4,
            Limit::Host => 5,
        };
        let quiet_until_s = &mut self.quiet_until_s[place];
        let is_news = now_s >= *quiet_until_s;
        if is_news {
            *quiet_until_s = now_s.saturating_add(TOLD_AGAIN_S);
        }
        is_news
    }

    /// Hands out what there is; how many found no room since the last time.
    pub(crate) fn hand_out(&mut self, mut take: impl FnMut(NatEvent)) -> u64 {
        self.waiting.drain(..).for_each(&mut take);
        std::mem::take(&mut self.dropped_untold)
    }
}

fn starts_ns(second: u32) -> u64 {
    u64::from(second) * SECOND_NS
}
