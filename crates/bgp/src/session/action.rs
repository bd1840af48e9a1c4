//! What a session asks its driver to do, and what it reports: [`Action`], and [`Event`] for logs.
//!
//! An event is a value; its [`Display`](fmt::Display) is the sentence for people. Each fact is reported once: the
//! end of a session is one event with the reason, not one for the NOTIFICATION, one for the connection and one for
//! the state.

use std::fmt;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::{Family, Notification, cease, error};

use super::import::{Rejection, Remark};
use super::negotiate::{Connection, Negotiated, OpenProblem};

thalweg_base::words! {
    /// The states of RFC 4271 8.2.2. With two connections, the state of the one that is further.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum State {
        /// Stopped, or resting after a protocol error. Connections are refused.
        #[default]
        Idle => "Idle",
        /// A connection is being opened.
        Connect => "Connect",
        /// Waiting for a connection, or for the time to open one.
        Active => "Active",
        /// OPEN is sent and not yet answered.
        OpenSent => "OpenSent",
        /// OPEN is answered; KEEPALIVE is awaited.
        OpenConfirm => "OpenConfirm",
        /// Routes are exchanged.
        Established => "Established",
    }
}

/// The decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Accept,
    /// Use it, and close the previous connection of its slot at once without a NOTIFICATION.
    Replace,
    Refuse(Refusal),
}

thalweg_base::words! {
    /// Why a connection is closed at once.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Refusal {
        /// The session is stopped.
        Stopped => "the session is stopped",
        /// The session rests after a protocol error.
        Resting => "the session rests after a protocol error",
        /// It arrived at another of our addresses than the configured one.
        LocalAddress => "it came to another address than the configured local one",
        /// The session is up.
        Established => "the session is up already",
    }
}

impl Refusal {
    /// The NOTIFICATION to send before closing (RFC 4486). A resting session sends none, as RFC 4271 8.2.2 says for
    /// Idle: it would make the neighbor rest longer.
    pub fn notification(self) -> Option<Notification> {
        let subcode = match self {
            Self::Established => cease::CONNECTION_COLLISION,
            Self::Stopped | Self::LocalAddress => cease::CONNECTION_REJECTED,
            Self::Resting => return None,
        };
        Some(Notification::new(error::CEASE, subcode))
    }
}

/// A task for the driver, to perform in order. Routes that the same call returned come before all actions.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Begin to open a connection; abandon one that is being opened.
    Connect,
    /// Abandon the connection that is being opened.
    AbandonConnect,
    /// Write the rest of `poll_output` as far as the socket takes it, then close the connection. It need not be
    /// reported as disconnected.
    Close(Connection),
    /// The session is up: add the neighbor to the tables and send it the routes.
    Established(Arc<Negotiated>),
    /// The session is down: withdraw its routes, and mark those of the `retained` families stale.
    Down {
        reason: DownReason,
        /// Families whose routes are kept (graceful restart).
        retained: [bool; 2],
    },
    /// Send all routes of the family again.
    Resend(Family),
    /// Mark all routes of the neighbor in this family stale: they will be sent again.
    MarkStale(Family),
    /// Withdraw the stale routes of the neighbor in this family.
    WithdrawStale(Family),
    /// The neighbor has sent all its routes of the family (End-of-RIB).
    EndOfRib(Family),
    Event(Event),
}

impl Action {
    /// Whether its order among the routes matters.
    pub(super) fn is_ordered(&self) -> bool {
        !matches!(self, Self::Event(_))
    }
}

/// Why a session is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The session stays down until it is started; the neighbor may get a text (RFC 9003).
    Shutdown {
        /// For people at the other end; may be empty.
        text: String,
    },
    /// The session restarts at once.
    Reset {
        /// For people at the other end; may be empty.
        text: String,
    },
    Deconfigured,
    /// The changed configuration requires a new session, which starts at once.
    ConfigChanged,
    /// No memory for its routes. The session rests and restarts.
    OutOfResources,
    /// The daemon ends and the kernel keeps forwarding: if graceful restart was negotiated, the neighbor is sent
    /// nothing and keeps our routes.
    Restarting,
    MaxPrefixes {
        family: Family,
        /// How many were allowed.
        limit: u32,
    },
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shutdown { text } if text.is_empty() => f.write_str("shut down"),
            Self::Shutdown { text } => write!(f, "shut down: {text:?}"),
            Self::Reset { text } if text.is_empty() => f.write_str("reset"),
            Self::Reset { text } => write!(f, "reset: {text:?}"),
            Self::Deconfigured => f.write_str("no longer configured"),
            Self::ConfigChanged => f.write_str("configuration changed"),
            Self::OutOfResources => f.write_str("out of resources"),
            Self::Restarting => f.write_str("the daemon restarts"),
            Self::MaxPrefixes { family, limit } => write!(f, "more than {limit} {family} prefixes"),
        }
    }
}

/// Why a session, or an attempt at one, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// We ended it with a NOTIFICATION.
    Sent {
        /// What was said.
        notification: Notification,
        /// What led to it.
        cause: Cause,
    },
    /// We ended it without a NOTIFICATION.
    Dropped {
        /// What led to it.
        cause: Cause,
    },
    /// The neighbor ended it with a NOTIFICATION.
    Received(Notification),
    ConnectionLost,
    /// The link to the neighbor went down; names the link.
    LinkDown(Box<str>),
    /// The neighbor opened a new connection, so it has restarted (RFC 4724).
    Restarted,
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent { notification, cause } => write!(f, "{cause}; sent {notification}"),
            Self::Dropped { cause } => write!(f, "{cause}"),
            Self::Received(notification) => write!(f, "received {notification}"),
            Self::ConnectionLost => f.write_str("connection lost"),
            Self::LinkDown(what) => f.write_str(what),
            Self::Restarted => f.write_str("the neighbor opened a new connection: it restarted"),
        }
    }
}

/// Why we ended a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The session was stopped.
    Stopped(StopReason),
    /// The neighbor was silent for the hold time.
    HoldTimer {
        /// How long it may be.
        hold_ms: u64,
    },
    /// The neighbor did not read for the send hold time.
    SendHoldTimer {
        /// How long it may.
        send_hold_ms: u64,
    },
    /// A message violated the protocol; the notification says how.
    Malformed {
        /// The message's kind, length and first bytes.
        message: String,
    },
    /// The state does not expect this message.
    Unexpected { message: &'static str, state: State },
    /// The neighbor's OPEN was not acceptable.
    Open(OpenProblem),
    /// The other of two connections was kept.
    Collision,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(reason) => write!(f, "{reason}"),
            Self::HoldTimer { hold_ms } => write!(f, "nothing heard for {} s", hold_ms / 1000),
            Self::SendHoldTimer { send_hold_ms } => {
                write!(f, "the neighbor read nothing for {} s", send_hold_ms / 1000)
            }
            Self::Malformed { message } => write!(f, "malformed {message}"),
            Self::Unexpected { message, state } => write!(f, "{message} came in {state}"),
            Self::Open(problem) => write!(f, "{problem}"),
            Self::Collision => f.write_str("the other connection was kept"),
        }
    }
}

/// A log event about a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It begins to seek its neighbor.
    Started,
    /// It was stopped before it was up.
    Stopped(StopReason),
    /// No connection came about.
    ConnectFailed {
        /// Why not, the last time.
        reason: String,
        /// Attempts that failed since the last such event.
        count: u64,
        /// Until the next attempt.
        retry_ms: u64,
    },
    /// Remarkable routes arrived.
    Routes {
        /// What is the matter with them.
        remark: Remark,
        /// The number since the last such event.
        count: u64,
        /// The last affected prefix.
        example: Option<IpPrefix>,
    },
    /// A connection of the neighbor was closed at once.
    Refused(Refusal),
    /// A connection ended before the session was up.
    AttemptFailed {
        connection: Connection,
        /// How far it had come.
        state: State,
        reason: DownReason,
    },
    /// The session rests for a while after protocol errors.
    Resting {
        /// How long.
        rest_ms: u64,
        /// How often it failed in a row.
        failures: u32,
    },
    /// The neighbor does not support capabilities; the next attempt omits them.
    WithoutCapabilities,
    Up(Arc<Negotiated>),
    Down {
        reason: DownReason,
        /// How long it was up.
        up_ms: u64,
        /// Families whose routes stay for a while.
        retained: [bool; 2],
    },
    /// The number of prefixes of a family is near its limit.
    PrefixesNearLimit {
        family: Family,
        /// How many there are.
        count: u32,
        /// How many are allowed.
        limit: u32,
    },
    /// The number of prefixes of a family is above its limit, and the configured action is only to warn.
    PrefixesAboveLimit {
        family: Family,
        /// How many there are.
        count: u32,
        /// How many are allowed.
        limit: u32,
    },
    /// UPDATEs had errors that affect only their routes (RFC 7606).
    BadUpdate {
        /// The last of them in words.
        problem: String,
        /// How many since the last such event.
        count: u64,
    },
    /// We asked for all routes of a family again.
    RefreshSent(Family),
    /// The neighbor asked for all routes of a family again.
    RefreshReceived(Family),
    /// Stale routes of a family are withdrawn.
    StaleWithdrawn {
        family: Family,
        /// Why now.
        why: StaleEnd,
    },
}

thalweg_base::words! {
    /// Why stale routes are withdrawn.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum StaleEnd {
        /// The neighbor did not come back in time.
        RestartTimer => "the neighbor did not come back in its restart time",
        /// The neighbor came back and did not finish in time.
        StalePathTimer => "no End-of-RIB within the stale path time",
        /// The neighbor came back and had not kept its forwarding state.
        NotForwarding => "the neighbor did not keep its forwarding state",
        /// The session failed again before the routes had come anew.
        FailedAgain => "the session failed again before End-of-RIB",
        /// A refresh that began did not end in time.
        RefreshTimer => "a route refresh began and did not end in time",
        /// The session was stopped here.
        Stopped => "the session was stopped",
    }
}

impl Event {
    /// Whether an operator should examine it.
    pub fn is_problem(&self) -> bool {
        match self {
            Self::AttemptFailed { reason, .. } => {
                !matches!(reason, DownReason::Sent { cause: Cause::Collision, .. })
            }
            Self::Down { .. }
            | Self::PrefixesNearLimit { .. }
            | Self::PrefixesAboveLimit { .. }
            | Self::BadUpdate { .. }
            | Self::ConnectFailed { .. }
            | Self::StaleWithdrawn { .. }
            | Self::WithoutCapabilities => true,
            Self::Routes { remark: Remark::Rejected(rejection), .. } => *rejection != Rejection::Policy,
            _ => false,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("started"),
            Self::Stopped(reason) => write!(f, "stopped: {reason}"),
            Self::ConnectFailed { reason, count, retry_ms } => {
                write!(f, "no connection: {reason}; next attempt in {retry_ms} ms")?;
                match count {
                    1 => Ok(()),
                    count => write!(f, " ({count} attempts failed since this was last said)"),
                }
            }
            Self::Routes { remark, count, example } => display_routes(f, *remark, *count, *example),
            Self::Refused(why) => write!(f, "connection refused: {why}"),
            Self::AttemptFailed { connection, state, reason } => {
                write!(f, "{connection} ended in {state}: {reason}")
            }
            Self::Resting { rest_ms, failures } => {
                write!(f, "{failures} protocol errors in a row; idle for {rest_ms} ms")
            }
            Self::WithoutCapabilities => {
                f.write_str("the neighbor does not understand capabilities; trying without")
            }
            Self::Up(negotiated) => write!(f, "up: {negotiated}"),
            Self::Down { reason, up_ms, retained } => {
                write!(f, "down after {} s: {reason}", up_ms / 1000)?;
                match retained {
                    [false, false] => Ok(()),
                    _ => {
                        let kept: Vec<_> = Family::ALL.iter().filter(|each| retained[each.index()]).collect();
                        f.write_str("; routes kept:")?;
                        kept.iter().try_for_each(|each| write!(f, " {each}"))
                    }
                }
            }
            Self::PrefixesNearLimit { family, count, limit } => {
                write!(f, "{count} {family} prefixes, the limit is {limit}")
            }
            Self::PrefixesAboveLimit { family, count, limit } => {
                write!(f, "{count} {family} prefixes are above the limit of {limit}")
            }
            Self::BadUpdate { problem, count: 1 } => write!(f, "bad UPDATE: {problem}"),
            Self::BadUpdate { problem, count } => write!(f, "{count} bad UPDATEs, the last: {problem}"),
            Self::RefreshSent(family) => write!(f, "asked for all {family} routes again"),
            Self::RefreshReceived(family) => write!(f, "the neighbor wants all {family} routes again"),
            Self::StaleWithdrawn { family, why } => write!(f, "stale {family} routes withdrawn: {why}"),
        }
    }
}

/// Writes why something happened to routes, and to which.
fn display_routes(
    f: &mut fmt::Formatter<'_>,
    remark: Remark,
    count: u64,
    example: Option<IpPrefix>,
) -> fmt::Result {
    write!(f, "{count} {} ", if count == 1 { "route" } else { "routes" })?;
    match remark {
        Remark::Rejected(rejection) => write!(f, "rejected: {rejection}")?,
        Remark::BlackholeHonored => {
            f.write_str("with the community BLACKHOLE: packets to them are discarded")?
        }
        Remark::BlackholeIgnored => f.write_str(
            "with the community BLACKHOLE treated like any other: `honor_blackhole` does not cover them",
        )?,
    }
    match (count, example) {
        (_, None) => Ok(()),
        (1, Some(prefix)) => write!(f, ": {prefix}"),
        (_, Some(prefix)) => write!(f, ", the last of them {prefix}"),
    }
}
