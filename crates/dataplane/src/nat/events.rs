//! The log of a NAT: it shows later which subscriber had a public port (RFC 6888 REQ-12, RFC 8158).
//!
//! Each shard keeps its events until its driver takes them, after every chunk. The list is bounded; events that
//! find it full are counted. A packet of an existing session causes no work here, and nothing does if logging is
//! off.
//!
//! # Times
//! A session begins when its first packet arrives, but not before the present second of NAT's clock. It ends with
//! the second after the last of its life, whenever that was noticed. So according to the events no public endpoint
//! has two owners at a time, and the events depend on packets and their times alone.
//!
//! # Floods
//! Once a limit is reached, every further packet reaches it. Each limit (a subscriber's; ports of a protocol,
//! blocks and sessions of a shard) is logged at most once in [`TOLD_AGAIN_S`].

use super::config::NatProtocol;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// Seconds before a limit that is still reached is logged again.
pub const TOLD_AGAIN_S: u32 = 60;
/// Room for events other than ends of sessions, for one shard.
const EVENTS_SPARE: usize = 8192;
const SECOND_NS: u64 = 1_000_000_000;

/// The events to log. Exhaustion and limits are always logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatLogging {
    /// Sessions, with the destination of their first packet.
    Sessions,
    /// Sessions, without a destination (RFC 6888 REQ-12).
    Bindings,
    /// Assignments and releases of subscribers' blocks of ports.
    Blocks,
}

/// An event at `time_ns` (nanoseconds since the epoch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatEvent {
    pub time_ns: u64,
    pub what: Happening,
}

/// The kind and details of a [`NatEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A session began or ended.
    Session {
        /// Whether it began.
        created: bool,
        protocol: NatProtocol,
        /// The VRF of the inside host; 0 is the main table.
        vrf: u16,
        /// The inside endpoint; the port is the identifier of ICMP echo.
        inside: SocketAddr,
        public: SocketAddrV4,
        /// Destination of its first packet, if enabled and stored.
        remote: Option<SocketAddrV4>,
    },
    /// A subscriber got a block of ports, or released it.
    Block {
        /// Whether it was assigned.
        allocated: bool,
        /// The subscriber's VRF.
        vrf: u16,
        subscriber: IpAddr,
        public: Ipv4Addr,
        /// First and last port.
        ports: (u16, u16),
        /// The number of the pool that the public address is in.
        pool: u32,
    },
    /// The shard had no port of this protocol left on any address.
    PortsExhausted {
        /// The paired address of the host that needed one.
        public: Ipv4Addr,
        protocol: NatProtocol,
    },
    /// The shard had no free block left on any address of this pool.
    BlocksExhausted { pool: u32 },
    /// The shard has reached its limit of sessions.
    TableFull {
        /// The limit of all shards together.
        limit: u32,
    },
    /// A subscriber has reached its limit of ports or sessions.
    SubscriberLimit {
        /// The subscriber's VRF.
        vrf: u16,
        subscriber: IpAddr,
        /// The subscriber's limit.
        limit: u32,
    },
}

/// A limit of the shard, logged at intervals.
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
    /// The arrival time of the present packet.
    time_ns: u64,
    /// The latest of these times.
    latest_ns: u64,
    /// By limit, the second before which it is not logged again.
    quiet_until_s: [u32; 6],
    /// Events logged, and events lost.
    told: u64,
    dropped: u64,
    /// Lost events that were not reported yet.
    dropped_untold: u64,
}

impl EventLog {
    /// The log of a shard with at most `sessions_max` sessions, all of which may end at once.
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

    /// Events logged and lost so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.told, self.dropped)
    }

    /// Takes over a predecessor's counts and pending events.
    pub(crate) fn succeed(&mut self, old: &EventLog) {
        self.latest_ns = self.latest_ns.max(old.latest_ns);
        self.told += old.told;
        self.dropped += old.dropped;
        self.dropped_untold += old.dropped_untold;
        self.waiting.extend_from_slice(&old.waiting);
    }

    /// Sets the time of a packet's events: its arrival, kept within second `now_s` of NAT's clock and the start of
    /// second `ends_s`, which its session cannot outlive.
    pub(crate) fn set_time(&mut self, arrival_ns: u64, now_s: u32, ends_s: u32) {
        self.time_ns = arrival_ns.clamp(starts_ns(now_s), starts_ns(ends_s.max(now_s)));
        self.latest_ns = self.latest_ns.max(self.time_ns);
    }

    /// A time in this second, or later, before which nothing existing was created.
    pub(crate) fn not_before(&self, now_s: u32) -> u64 {
        self.latest_ns.max(starts_ns(now_s))
    }

    /// Logs an event of the present packet.
    pub(crate) fn log(&mut self, what: Happening) {
        self.log_at(self.time_ns, what);
    }

    /// Logs an event at the beginning of a second.
    pub(crate) fn log_at_second(&mut self, second: u32, what: Happening) {
        self.log_at(starts_ns(second), what);
    }

    /// Logs an event at this time.
    pub(crate) fn log_at(&mut self, time_ns: u64, what: Happening) {
        self.latest_ns = self.latest_ns.max(time_ns);
        if self.waiting.len() >= self.waiting_max {
            self.dropped += 1;
            self.dropped_untold += 1;
            return;
        }
        self.told += 1;
        self.waiting.push(NatEvent { time_ns, what });
    }

    /// Whether to log a limit now; then it is not logged for a while.
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

    /// Passes pending events to `take`. Returns how many were lost since the last call.
    pub(crate) fn hand_out(&mut self, mut take: impl FnMut(NatEvent)) -> u64 {
        self.waiting.drain(..).for_each(&mut take);
        std::mem::take(&mut self.dropped_untold)
    }
}

fn starts_ns(second: u32) -> u64 {
    u64::from(second) * SECOND_NS
}
