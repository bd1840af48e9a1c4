//! The router's side of RTR (RFC 8210, and RFC 6810 for caches of version 0), for one cache.
//!
//! ```text
//!          connected                Cache Response             End of Data
//!  Down ──────────────> Asking ─────────────────────> Receiving ──────────> Synced
//!   ^                     ^                                                   │
//!   │ lost, fault         └───── refresh time, Serial Notify, Cache Reset ────┘
//! ```
//!
//! What a cache announces is collected beside its table and becomes the table with End of Data, all at once. The table
//! outlives the connection: it is used until the expire time has passed without an End of Data, and the next connection
//! continues from its serial number if the session is the same.
//!
//! A difference that does not fit the table, a PDU that is malformed, of another version or out of place ends the
//! connection with an error report, and the next one begins with everything. Bounded: bytes that wait (one PDU), VRPs
//! ([`CacheConfig::vrps_max`]), the time of an answer ([`ANSWER_MAX_S`]). A Serial Notify during an answer is noted,
//! not answered.

use std::sync::Arc;

use thalweg_wire::rtr::{Decoded, PDU_BYTES_MAX, Pdu, RtrFault, Timers, VERSION_MAX, error};

use super::table::{ChangeFault, Vrp, VrpList, VrpTable};
use crate::peer::Millis;

/// The longest time between a query and its End of Data, in seconds: enough for the whole RPKI over a slow line.
const ANSWER_MAX_S: u64 = 600;

/// The longest time between two attempts to connect while there is no data, in seconds: a cache may start after its
/// routers.
const RETRY_WITHOUT_DATA_S: u32 = 30;

/// The longest text of a cache that is kept, in characters.
const TEXT_MAX: usize = 200;

thalweg_base::words! {
    /// Where a client is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CacheState {
        /// No connection.
        Down => "down",
        /// A connection is being opened.
        Connecting => "connecting",
        /// A query was sent, and its answer has not begun.
        Asking => "asking",
        /// VRPs are coming.
        Receiving => "receiving",
        /// All that the cache had was received.
        Synced => "synced",
    }
}

/// How a cache is used. A time that is not given is the cache's, or what RFC 8210 suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    pub refresh_s: Option<u32>,
    pub retry_s: Option<u32>,
    pub expire_s: Option<u32>,
    /// The most VRPs that are kept.
    pub vrps_max: usize,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Connections that came up.
    pub connections: u64,
    /// Answers that were received completely.
    pub answers: u64,
    pub announced: u64,
    pub withdrawn: u64,
    pub notifies: u64,
    pub cache_resets: u64,
    /// Router keys read over.
    pub router_keys: u64,
    pub errors_received: u64,
    /// Connections that ended because of what the cache sent.
    pub refused: u64,
    /// Tables dropped because they were too old.
    pub expired: u64,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStep {
    Connect,
    /// Write what is there to write, and close the connection.
    Close,
    /// [`RtrClient::table`] is another one.
    Changed,
}

/// Why a connection is given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Fault(#[from] RtrFault),
    #[error("{0}")]
    Change(#[from] ChangeFault),
    #[error("{pdu} while {state}")]
    OutOfPlace { pdu: String, state: CacheState },
    #[error("version {found} in a session of version {agreed}")]
    OtherVersion { found: u8, agreed: u8 },
    #[error("session {found}, not {expected}")]
    OtherSession { found: u16, expected: u16 },
    #[error("more than {0} VRPs (`vrps_max`)")]
    TooMany(usize),
}

impl Refusal {
    fn code(&self) -> u16 {
        match self {
            Self::Fault(fault) => fault.code(),
            Self::Change(ChangeFault::UnknownWithdrawn(_)) => error::UNKNOWN_WITHDRAWN,
            Self::Change(ChangeFault::Duplicate(_)) => error::DUPLICATE,
            Self::OtherVersion { .. } => error::UNEXPECTED_VERSION,
            Self::OutOfPlace { .. } | Self::OtherSession { .. } => error::CORRUPT_DATA,
            Self::TooMany(_) => error::INTERNAL,
        }
    }
}

/// Keeps one cache's VRPs.
#[derive(Debug)]
pub struct RtrClient {
    config: CacheConfig,
    state: CacheState,
    version: u8,
    /// The cache has answered in this version.
    version_agreed: bool,
    /// Of the table; `None`: ask for everything.
    session: Option<(u16, u32)>,
    table: Arc<VrpTable>,
    timers: Timers,
    /// Since when the table is complete.
    updated: Option<Millis>,
    /// When the next query, connection or timeout is due.
    due: Millis,
    /// The session of the answer that is coming in.
    answering: u16,
    /// It is everything, not a difference.
    whole: bool,
    announced: VrpList,
    withdrawn: VrpList,
    /// A Serial Notify came during an answer.
    notified: bool,
    input: Vec<u8>,
    output: Vec<u8>,
    close: bool,
    changed: bool,
    counters: ClientCounters,
    last_error: Option<String>,
}

impl RtrClient {
    /// Without a connection, which it wants at once.
    pub fn new(config: CacheConfig) -> Self {
        let mut client = Self {
            config,
            state: CacheState::Down,
            version: VERSION_MAX,
            version_agreed: false,
            session: None,
            table: Arc::default(),
            timers: Timers::DEFAULT,
            updated: None,
            due: Millis(0),
            answering: 0,
            whole: false,
            announced: VrpList::default(),
            withdrawn: VrpList::default(),
            notified: false,
            input: Vec::new(),
            output: Vec::new(),
            close: false,
            changed: false,
            counters: ClientCounters::default(),
            last_error: None,
        };
        client.set_timers(Timers::DEFAULT);
        client
    }

    /// Where it is in its exchange with the cache.
    pub fn state(&self) -> CacheState {
        self.state
    }

    /// The protocol's version in this connection, or the one to try.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The session ID and serial number of the table.
    pub fn session(&self) -> Option<(u16, u32)> {
        self.session
    }

    /// When the table was last complete; `None` without data, also once it has expired.
    pub fn updated(&self) -> Option<Millis> {
        self.updated
    }

    /// What holds now, empty without data.
    pub fn table(&self) -> &Arc<VrpTable> {
        &self.table
    }

    /// The times in force.
    pub fn timers(&self) -> Timers {
        self.timers
    }

    /// What happened so far.
    pub fn counters(&self) -> ClientCounters {
        self.counters
    }

    /// Why the last connection ended or could not be opened.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// When [`Self::handle_timer`] must be called next.
    pub fn next_deadline(&self) -> Millis {
        self.expires().map_or(self.due, |expires| self.due.min(expires))
    }

    fn expires(&self) -> Option<Millis> {
        Some(self.updated?.plus_s(self.timers.expire_s.into()))
    }

    /// The next thing to do; the driver asks until there is none.
    pub fn poll_step(&mut self) -> Option<ClientStep> {
        if std::mem::take(&mut self.close) {
            return Some(ClientStep::Close);
        }
        if std::mem::take(&mut self.changed) {
            return Some(ClientStep::Changed);
        }
        None
    }

    /// Moves what is to be written to `out`.
    pub fn poll_output(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.output);
    }

    /// Asks, gives up on an answer, drops what is too old, wants a connection: whatever is due.
    pub fn handle_timer(&mut self, now: Millis) -> Option<ClientStep> {
        if self.expires().is_some_and(|expires| expires <= now) {
            self.counters.expired += 1;
            (self.updated, self.session) = (None, None);
            self.set_table(Arc::default());
            if matches!(self.state, CacheState::Asking | CacheState::Receiving) {
                // A difference to what is gone.
                self.give_up("its VRPs expired before the answer was complete".to_owned(), now);
                self.due = now;
                return None;
            }
        }
        if self.due > now {
            return None;
        }
        match self.state {
            CacheState::Down => {
                self.state = CacheState::Connecting;
                self.due = now.plus_s(ANSWER_MAX_S);
                return Some(ClientStep::Connect);
            }
            CacheState::Synced => self.ask(now),
            CacheState::Connecting | CacheState::Asking | CacheState::Receiving => {
                self.give_up(format!("no complete answer in {ANSWER_MAX_S} s"), now);
            }
        }
        None
    }

    /// A connection is open.
    pub fn handle_connected(&mut self, now: Millis) {
        self.counters.connections += 1;
        self.version_agreed = false;
        self.input.clear();
        self.output.clear();
        self.ask(now);
    }

    /// The connection ended, or could not be opened.
    pub fn handle_disconnected(&mut self, why: &str, now: Millis) {
        if self.state == CacheState::Asking {
            // A cache that has begun anew may close the connection instead of saying that it does not know our session.
            self.session = None;
        }
        if self.state != CacheState::Down {
            self.last_error = Some(shortened(why));
            self.fall(now);
        }
    }

    /// Handles bytes from the cache.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Millis) {
        if matches!(self.state, CacheState::Down | CacheState::Connecting) {
            return;
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        while self.state != CacheState::Down {
            match Pdu::decode(rest) {
                Ok(None) => break,
                Ok(Some(Decoded { version, pdu, length })) => {
                    let (whole, behind) = rest.split_at(length);
                    if let Err(refusal) = self.handle_pdu(version, pdu, now) {
                        self.refuse(&refusal, whole, now);
                    }
                    rest = behind;
                }
                Err(fault) => self.refuse(&fault.into(), &rest[..rest.len().min(PDU_BYTES_MAX)], now),
            }
        }
        if self.state != CacheState::Down {
            self.input.extend_from_slice(rest);
        }
    }

    fn handle_pdu(&mut self, version: u8, pdu: Pdu<'_>, now: Millis) -> Result<(), Refusal> {
        if let Pdu::ErrorReport { code, text, .. } = pdu {
            self.handle_error(version, code, &text, now);
            return Ok(());
        }
        if !self.version_agreed {
            // RFC 8210 section 7: what comes before the answer says nothing about the version.
            if matches!(pdu, Pdu::SerialNotify { .. }) {
                return Ok(());
            }
            if version > self.version {
                return Err(Refusal::OtherVersion { found: version, agreed: self.version });
            }
            (self.version, self.version_agreed) = (version, true);
        } else if version != self.version {
            return Err(Refusal::OtherVersion { found: version, agreed: self.version });
        }
        match (self.state, pdu) {
            (_, Pdu::SerialNotify { session, serial }) => {
                self.counters.notifies += 1;
                if self.state == CacheState::Synced && self.session != Some((session, serial)) {
                    self.ask(now);
                } else {
                    self.notified = self.state == CacheState::Receiving;
                }
            }
            (CacheState::Asking, Pdu::CacheResponse { session }) => {
                if let Some((expected, _)) = self.session.filter(|(expected, _)| *expected != session) {
                    return Err(Refusal::OtherSession { found: session, expected });
                }
                (self.answering, self.whole) = (session, self.session.is_none());
                self.state = CacheState::Receiving;
            }
            (CacheState::Asking, Pdu::CacheReset) => {
                self.counters.cache_resets += 1;
                self.session = None;
                self.ask(now);
            }
            (CacheState::Receiving, Pdu::Prefix { announced, prefix, max_length, asn }) => {
                let list = if announced { &mut self.announced } else { &mut self.withdrawn };
                list.push(Vrp { prefix, max_length, asn });
                let kept = if self.whole { 0 } else { self.table.len() };
                // Twice as many changes as VRPs are no honest difference either.
                if self.withdrawn.len() > self.config.vrps_max
                    || kept.saturating_sub(self.withdrawn.len()) + self.announced.len() > self.config.vrps_max
                {
                    return Err(Refusal::TooMany(self.config.vrps_max));
                }
            }
            (CacheState::Receiving, Pdu::RouterKey) => self.counters.router_keys += 1,
            (CacheState::Receiving, Pdu::EndOfData { session, serial, timers }) => {
                if session != self.answering {
                    return Err(Refusal::OtherSession { found: session, expected: self.answering });
                }
                self.complete(serial, timers, now)?;
            }
            (state, pdu) => return Err(Refusal::OutOfPlace { pdu: pdu.to_string(), state }),
        }
        Ok(())
    }

    fn complete(&mut self, serial: u32, timers: Option<Timers>, now: Millis) -> Result<(), Refusal> {
        let (announced, withdrawn) =
            (std::mem::take(&mut self.announced), std::mem::take(&mut self.withdrawn));
        let changes = [announced.len(), withdrawn.len()];
        let empty = VrpTable::default();
        if self.whole || changes != [0, 0] {
            let old = if self.whole { &empty } else { &*self.table };
            let table = Arc::new(old.changed(announced, withdrawn)?);
            self.set_table(table);
        }
        self.counters.answers += 1;
        self.counters.announced += changes[0] as u64;
        self.counters.withdrawn += changes[1] as u64;
        self.session = Some((self.answering, serial));
        if self.updated.replace(now).is_none() {
            // Also an empty table is data, and may replace that of another cache.
            self.changed = true;
        }
        self.set_timers(timers.unwrap_or(Timers::DEFAULT));
        self.last_error = None;
        self.state = CacheState::Synced;
        self.due = now.plus_s(self.timers.refresh_s.into());
        if std::mem::take(&mut self.notified) {
            self.ask(now);
        }
        Ok(())
    }

    fn set_table(&mut self, table: Arc<VrpTable>) {
        self.changed |= *table != *self.table || self.updated.is_none();
        self.table = table;
    }

    fn set_timers(&mut self, of_cache: Timers) {
        let CacheConfig { refresh_s, retry_s, expire_s, .. } = self.config;
        let Timers { refresh_s: refresh, retry_s: retry, expire_s: expire } = of_cache.clamped();
        self.timers = Timers {
            refresh_s: refresh_s.unwrap_or(refresh),
            retry_s: retry_s.unwrap_or(retry),
            expire_s: expire_s.unwrap_or(expire),
        };
    }

    fn ask(&mut self, now: Millis) {
        let query = match self.session {
            Some((session, serial)) => Pdu::SerialQuery { session, serial },
            None => Pdu::ResetQuery,
        };
        query.write(self.version, &mut self.output);
        (self.announced, self.withdrawn, self.notified) = (VrpList::default(), VrpList::default(), false);
        self.state = CacheState::Asking;
        self.due = now.plus_s(ANSWER_MAX_S);
    }

    fn handle_error(&mut self, version: u8, code: u16, text: &str, now: Millis) {
        self.counters.errors_received += 1;
        // RFC 8210 section 7: an older cache says so; the next connection speaks its version.
        if code == error::UNSUPPORTED_VERSION && !self.version_agreed && version < self.version {
            self.version = version;
            self.give_up(format!("the cache speaks version {version}"), now);
            self.due = now;
            return;
        }
        if code != error::NO_DATA {
            // So a cache answers, too, that has begun anew and does not know our session (RFC 8210 section 5.1).
            self.session = None;
        }
        self.give_up(format!("the cache reports: {} {text}", error::name(code)), now);
    }

    fn refuse(&mut self, refusal: &Refusal, about: &[u8], now: Millis) {
        self.counters.refused += 1;
        let text = refusal.to_string();
        let about = match refusal {
            // RFC 8210 section 5.11: never about an error report.
            _ if about.get(1) == Some(&10) => &[],
            _ => about,
        };
        let report = Pdu::ErrorReport { code: refusal.code(), about, text: text.as_str().into() };
        report.write(self.version, &mut self.output);
        // What is known may be what is wrong.
        self.session = None;
        self.give_up(text, now);
    }

    fn give_up(&mut self, why: String, now: Millis) {
        self.last_error = Some(shortened(&why));
        self.close = true;
        self.fall(now);
    }

    fn fall(&mut self, now: Millis) {
        self.state = CacheState::Down;
        (self.announced, self.withdrawn, self.notified) = (VrpList::default(), VrpList::default(), false);
        self.input = Vec::new();
        let retry_s = match self.updated {
            Some(_) => self.timers.retry_s,
            None => self.timers.retry_s.min(RETRY_WITHOUT_DATA_S),
        };
        self.due = now.plus_s(retry_s.into());
    }
}

/// Text from outside on one line of bounded length.
fn shortened(text: &str) -> String {
    text.chars().map(|each| if each.is_control() { ' ' } else { each }).take(TEXT_MAX).collect()
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
