//! The exporting process: flow records become messages of NetFlow 5, NetFlow 9 (RFC 3954) or IPFIX (RFC 7011).
//!
//! ```text
//! handle_connected ─┐
//! handle_records ───┤    ┌───────────┐ shape   ┌──────────┐ closed  ┌────────┐
//! handle_nat_events ┼──> │ Templated │ ──────> │ open     │ ──────> │ MessageBuffer │ ──> poll_message
//! handle_statistics ┤    │ or V5     │ sets    │ message  │         └────────┘
//! handle_time ──────┘    └───────────┘         └──────────┘
//! ```
//!
//! An [`Exporter`] is one session with one collector: it owns the observation domain, the sequence number and what has
//! been announced. It has no socket and no clock; the caller has them, calls `handle_*` with the time and then takes
//! messages by [`Exporter::poll_message`] or [`Exporter::poll_train`] until there are none.
//!
//! - **Templates.** What a record has decides its shape (`shape.rs`): a set of groups of fields. A template's number *is*
//!   its shape (1024 + bits), so the same record has the same template in every session and after every restart. Only
//!   shapes that occurred are announced, always before their first record. On datagrams all that was announced is
//!   repeated: after one second, two, four and so on up to the interval configured, and after a number of messages; so a
//!   template lost on its first way is soon there. On streams nothing is repeated.
//! - **Domains.** What has to be known to understand flows is said in the session's own observation domain before the first
//!   of them. What is said of the exporter as a whole, or said again later, goes as domain 0 (RFC 7011, 3.1), unless all of it
//!   is to be in the session's.
//! - **Sequence numbers.** IPFIX: data records of the domain sent before the message, options data included, templates not (RFC
//!   7011, 3.1). NetFlow 9: messages before (RFC 3954, 5.1). NetFlow 5: flows before. All begin anew with a session.
//! - **Times.** IPFIX has milliseconds or nanoseconds since the epoch. NetFlow 9 and 5 have milliseconds since a start
//!   of ours, which moves on before 32 bits run out (25 days); each message says both clocks, so that collectors that
//!   read one with the other are right at any age. NetFlow 9 tells seconds only; they are rounded up, and the uptime
//!   with them, so times stay exact and no record is later than its message. A record outside of that window (an old
//!   capture, exported today) goes in absolute milliseconds in NetFlow 9. NetFlow 5 cannot: its message then tells the
//!   record's time as its own. A clock that is set back is followed: what is repeated goes out at once.
//! - **What cannot be said** is counted by reason ([`Unexportable`]): IPv6 in NetFlow 5, for instance. Every record handled
//!   is in exactly one message or counted there; a biflow outside IPFIX is two records, one each way.
//! - **Speed.** Groups have fixed layouts that are written with constant offsets; between records of one shape there is
//!   neither a look at a template nor an allocation. Figures: `benches/export.rs`, docs/export.md.
//!
//! Missing: SCTP, DTLS, structured data (RFC 6313), message signing; IPFIX template withdrawals are not sent, since a
//! shape never means anything else.

mod context;
mod fan;
mod image;
mod message_buffer;
mod nat;
mod options;
mod shape;
mod templated;
mod v5;

pub use fan::{Fan, Spread, flow_hash};
pub use image::{IMAGE_BYTES_MAX, ImageError, read_image, write_image};
pub use message_buffer::Train;
pub use nat::{NatEvent, NatSession, Quota};
pub use options::{
    ExportOptions, ExportOptionsError, Interface, MESSAGE_BYTES_MIN, SamplingMethod, Times, Transport,
    Version,
};

use crate::record::FlowRecord;
use message_buffer::MessageBuffer;
use templated::Templated;

macro_rules! unexportable {
    ($($variant:ident $name:literal $meaning:literal;)*) => {
        /// Why a record could not be put into a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Unexportable {
            $(#[doc = $meaning] $variant,)*
        }

        impl Unexportable {
            /// Every reason.
            pub const ALL: &'static [Unexportable] = &[$(Unexportable::$variant,)*];

            /// The name in tables and JSON.
            pub fn name(self) -> &'static str {
                match self { $(Unexportable::$variant => $name,)* }
            }

            /// One sentence for a person who sees the name for the first time.
            pub fn meaning(self) -> &'static str {
                match self { $(Unexportable::$variant => $meaning,)* }
            }
        }
    };
}

unexportable! {
    Ipv6 "ipv6" "NetFlow 5 carries IPv4 only.";
    Counter "counter" "More packets or bytes than NetFlow 5 can carry in 256 records.";
    Duration "duration" "The first and last packet are more than 49 days apart, more than NetFlow 5 can carry.";
    Sampling "sampling" "The sampling interval is above 16,383, the limit of NetFlow 5.";
    NatEvent "nat-event" "NetFlow 5 and flow topics carry no NAT events.";
}

/// What an exporter did so far. `handled + split = exported + withdrawn + unexportable`, in records, packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportTotals {
    /// Flow records and NAT events given to the exporter.
    pub handled: Amount,
    /// Records more than were handled: the way back of biflows outside IPFIX, parts of counters too large for NetFlow 5.
    pub split: u64,
    /// Data records in messages, the open one too.
    pub exported: Amount,
    /// Of messages that nobody had taken when the session ended.
    pub withdrawn: Amount,
    /// Messages closed.
    pub messages: u64,
    /// Bytes of those.
    pub message_bytes: u64,
    /// Records that could not be said, by reason (in the order of [`Unexportable::ALL`]).
    pub unexportable: [Amount; Unexportable::ALL.len()],
}

impl ExportTotals {
    fn count_unexportable(&mut self, why: Unexportable, record: &FlowRecord) {
        self.unexportable[why as usize] += Amount::of(record);
    }
}

/// How many records, and what was in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Records of flows and NAT events; options data is never counted here.
    pub records: u64,
    /// Packets in them.
    pub packets: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl Amount {
    /// What is in one record, both ways.
    pub fn of(record: &FlowRecord) -> Self {
        Self { records: 1, packets: record.packets(), bytes: record.bytes() }
    }

    /// What is in all of them.
    pub fn of_all<'a>(records: impl IntoIterator<Item = &'a FlowRecord>) -> Self {
        let mut sum = Self::default();
        records.into_iter().for_each(|record| sum += Self::of(record));
        sum
    }
}

impl std::ops::AddAssign for Amount {
    /// Modulo 2^64: records that others sent may claim any number, and the laws hold all the same.
    fn add_assign(&mut self, other: Self) {
        self.records = self.records.wrapping_add(other.records);
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

impl std::ops::SubAssign for Amount {
    /// What is taken away must have been added before.
    fn sub_assign(&mut self, other: Self) {
        self.records -= other.records;
        self.packets -= other.packets;
        self.bytes -= other.bytes;
    }
}

/// Counters of the metering process and of the transport; goes out as options data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Sampling.
    pub seen: Amount,
    /// What left the cache as records, to whatever end.
    pub exported: Amount,
    /// What is still in the cache.
    pub cached: Amount,
    /// What was not metered or lost before export, by the name of its reason; `records` is 0 for packets never metered.
    pub dropped: Vec<(&'static str, Amount)>,
    /// Records that did not reach the collector as far as known.
    pub not_sent: Amount,
}

/// A clock that comes to a time so long before was set back; less is a matter of who read it first.
const SET_BACK_NS: u64 = 1_000_000_000;

/// Whether a clock that was here and is there now was set back.
fn is_set_back(clock_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_add(SET_BACK_NS) <= clock_ns
}

enum Encoder {
    V5(v5::V5),
    Templated(Box<Templated>),
}

/// One session with one collector. See the head of this file.
pub struct Exporter {
    encoder: Encoder,
    messages: MessageBuffer,
    totals: ExportTotals,
    /// Close the open message when it has been open for this many nanoseconds.
    delay_max_ns: u64,
}

impl Exporter {
    /// An exporter that has sent nothing yet. Errors name the option and what was expected.
    pub fn new(options: &ExportOptions) -> Result<Self, ExportOptionsError> {
        options.check()?;
        let encoder = match options.version {
            Version::NetFlow5 => Encoder::V5(v5::V5::new(options)),
            Version::NetFlow9 | Version::Ipfix => Encoder::Templated(Box::new(Templated::new(options))),
        };
        Ok(Self {
            encoder,
            messages: MessageBuffer::new(options.message_bytes_max),
            totals: ExportTotals::default(),
            delay_max_ns: options.delay_max_ns,
        })
    }

    /// A new session begins: sequence numbers start again, everything is to be announced again. Messages not polled yet
    /// are of the old session and are dropped; their counts are returned, so that the caller knows what to send again.
    pub fn handle_connected(&mut self, now_ns: u64) -> Amount {
        let unsent = self.messages.clear();
        self.totals.exported.records -= unsent.records;
        self.totals.exported.packets -= unsent.packets;
        self.totals.exported.bytes -= unsent.bytes;
        self.totals.withdrawn += unsent;
        match &mut self.encoder {
            Encoder::V5(v5) => v5.begin_session(now_ns),
            Encoder::Templated(templated) => templated.begin_session(now_ns),
        }
        unsent
    }

    /// Encodes records, in their order. Full messages can be polled afterwards; the last one stays open.
    pub fn handle_records(&mut self, records: &[FlowRecord], now_ns: u64) {
        match &mut self.encoder {
            Encoder::V5(v5) => v5.add(records, &mut self.messages, &mut self.totals, now_ns),
            Encoder::Templated(templated) => {
                templated.add(records, &mut self.messages, &mut self.totals, now_ns)
            }
        }
    }

    /// Encodes NAT events (RFC 8158), in their order.
    pub fn handle_nat_events(&mut self, events: &[NatEvent], now_ns: u64) {
        self.totals.handled.records += events.len() as u64;
        match &mut self.encoder {
            Encoder::V5(_) => {
                self.totals.unexportable[Unexportable::NatEvent as usize].records += events.len() as u64
            }
            Encoder::Templated(templated) => {
                for event in events {
                    templated.add_nat_event(event, &mut self.messages, &mut self.totals, now_ns);
                }
            }
        }
    }

    /// Takes over the newest statistics; they are sent with the next round.
    pub fn handle_statistics(&mut self, statistics: Statistics) {
        if let Encoder::Templated(templated) = &mut self.encoder {
            templated.statistics = statistics;
        }
    }

    /// Interfaces have other numbers or names: collectors are told at once.
    pub fn handle_interfaces(&mut self, interfaces: Vec<Interface>, now_ns: u64) {
        if let Encoder::Templated(templated) = &mut self.encoder {
            templated.set_interfaces(interfaces, &mut self.messages, &mut self.totals, now_ns);
        }
    }

    /// Closes a message that was open long enough, repeats templates and sends statistics that are due.
    pub fn handle_time(&mut self, now_ns: u64) {
        if let Encoder::Templated(templated) = &mut self.encoder {
            templated.handle_time(&mut self.messages, &mut self.totals, now_ns);
        }
        if self.messages.opened_ns().is_some_and(|opened| now_ns.saturating_sub(opened) >= self.delay_max_ns)
        {
            self.close(now_ns);
        }
    }

    /// Closes the open message, whatever is in it.
    pub fn flush(&mut self, now_ns: u64) {
        self.close(now_ns);
    }

    /// The end: the last statistics, and the open message closed.
    pub fn handle_end(&mut self, now_ns: u64) {
        if let Encoder::Templated(templated) = &mut self.encoder {
            templated.send_statistics(&mut self.messages, &mut self.totals, now_ns);
        }
        self.close(now_ns);
    }

    /// When [`handle_time`](Self::handle_time) has something to do next, nanoseconds since the epoch.
    pub fn poll_timeout(&self) -> Option<u64> {
        let close = self.messages.opened_ns().map(|opened| opened.saturating_add(self.delay_max_ns));
        let due = match &self.encoder {
            Encoder::V5(_) => None,
            Encoder::Templated(templated) => templated.next_due(),
        };
        close.into_iter().chain(due).min()
    }

    /// Puts the next whole message into `message`, in place of what was there; says what is in it, or `None` if there
    /// is no message.
    pub fn poll_message(&mut self, message: &mut Vec<u8>) -> Option<Amount> {
        self.messages.poll(message)
    }

    /// Puts as many whole messages into `train` as belong together, at least one; `false` if there is none. For systems that
    /// send several datagrams of one length by one call.
    pub fn poll_train(&mut self, train: &mut Train, bytes_max: usize, messages_max: usize) -> bool {
        self.messages.poll_train(train, bytes_max, messages_max)
    }

    /// What was done so far, over all sessions.
    pub fn totals(&self) -> &ExportTotals {
        &self.totals
    }

    fn close(&mut self, now_ns: u64) {
        match &mut self.encoder {
            Encoder::V5(v5) => v5.close(&mut self.messages, &mut self.totals),
            Encoder::Templated(templated) => {
                templated.close_message(&mut self.messages, &mut self.totals, now_ns)
            }
        }
    }
}
