//! The exporting process: flow records become messages of NetFlow 5, NetFlow 9 (RFC 3954) or IPFIX (RFC
//! 7011).
//!
//! ```text
//! handle_connected ─┐
//! handle_records ───┤    ┌───────────┐ shape   ┌──────────┐ closed  ┌────────┐
//! handle_nat_events ┼──> │ Templated │ ──────> │ open     │ ──────> │ MessageBuffer │ ──> poll_message
//! handle_statistics ┤    │ or V5     │ sets    │ message  │         └────────┘
//! handle_time ──────┘    └───────────┘         └──────────┘
//! ```
//!
//! An [`Exporter`] is one session with one collector: it owns the observation domain, the sequence number and
//! the list of announcements. The caller owns socket and clock: it calls `handle_*` with the time, then takes
//! messages with [`Exporter::poll_message`] or [`Exporter::poll_train`] until there are none.
//!
//! - **Templates.** The fields of a record determine its shape (`shape.rs`): a set of groups of fields. A
//!   template's number *is* its shape (1024 + bits), so the same record has the same template in every
//!   session and after every restart. Only shapes that occur are announced, always before their first record.
//!   Over datagrams all announcements are repeated, after one second, two, four and so on up to the
//!   configured interval, and after a number of messages; so a lost template is soon replaced. Over streams
//!   nothing is repeated.
//! - **Domains.** What a collector needs to understand flows is sent in the session's own observation domain
//!   before the first of them. Information about the exporter as a whole, and repetitions, use domain 0 (RFC
//!   7011, 3.1), unless the options ask for the session's domain.
//! - **Sequence numbers.** IPFIX counts the data records of the domain before the message, including options
//!   data but not templates (RFC 7011, 3.1). NetFlow 9 counts earlier messages (RFC 3954, 5.1), NetFlow 5
//!   earlier flows. All restart with a session.
//! - **Times.** IPFIX has milliseconds or nanoseconds since the epoch. NetFlow 9 and 5 have milliseconds
//!   since a start that we choose, which moves before 32 bits overflow (25 days). Each message has both
//!   clocks, so collectors that convert between them are right at any age. A NetFlow 9
//!   header has whole seconds; they and the uptime are rounded up, so times stay exact and no record is later
//!   than its message. A record outside that window (an old capture, exported today) has absolute
//!   milliseconds in NetFlow 9. In NetFlow 5 the message then gives the record's time as its own. If the clock
//!   is set back, the exporter follows it, and repetitions are sent at once.
//! - **Records that the protocol cannot express** are counted by reason ([`Unexportable`]), for instance IPv6
//!   in NetFlow 5. Every record is either in one message or counted there; outside IPFIX a biflow becomes two
//!   records, one for each direction.
//! - **Speed.** Groups have fixed layouts that are written with constant offsets; consecutive records of one
//!   shape need no template look-up and no allocation. Figures: `benches/export.rs`, docs/export.md.
//!
//! Missing: SCTP, DTLS, structured data (RFC 6313), message signing; IPFIX template withdrawals are not sent,
//! since a shape never means anything else.

mod context;
mod fan;
mod image;
mod message_buffer;
mod nat;
mod nat_record;
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

thalweg_base::words! {
    /// Why a record could not be put into a message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Unexportable {
        /// NetFlow 5 carries IPv4 only.
        Ipv6 => "ipv6",
        /// More packets or bytes than NetFlow 5 can carry in 256 records.
        Counter => "counter",
        /// The first and last packet are more than 49 days apart, more than NetFlow 5 can carry.
        Duration => "duration",
        /// The sampling interval is above 16,383, the limit of NetFlow 5.
        Sampling => "sampling",
        /// NetFlow 5 and flow topics carry no NAT events.
        NatEvent => "nat-event",
    }
}

thalweg_base::words! {
    /// Why records did not reach a collector, a dataset, its archive or its feed, as far as that can be known: in their
    /// status and in metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum RecordLoss {
        /// The kernel did not take a datagram, or has no way to the collector.
        SendFailed => "send-failed",
        /// No connection for too long, and no spool to wait in.
        CollectorDown => "collector-down",
        /// No connection, and the spool is at its bound.
        SpoolFull => "spool-full",
        /// The spool could not be written or read back.
        SpoolFailed => "spool-failed",
        /// A broker does not take such a message: it is too long, or breaks its rules.
        MessageRefused => "message-refused",
        /// The session was ended before the collector took them.
        Ended => "ended",
        /// The collector's queue was full.
        CollectorQueue => "collector-queue",
        /// Too many waited for the dataset's disk, or there was no dataset to write to.
        StoreQueue => "store-queue",
        /// They could not be written to the dataset before the end.
        NotWritten => "not-written",
        /// The archive lacks them because the dataset's disk needed their room first.
        NotArchived => "not-archived",
        /// The same for the feed.
        NotFed => "not-fed",
    }
}

/// Counters of an exporter. In records, packets and bytes, `handled + split = exported + withdrawn +
/// unexportable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportTotals {
    pub handled: Amount,
    /// Records added to those handled: the reverse direction of biflows outside IPFIX, and parts of records
    /// with counters too large for NetFlow 5.
    pub split: u64,
    /// Data records in messages, including the open one.
    pub exported: Amount,
    /// Records in messages that were not taken before the session ended.
    pub withdrawn: Amount,
    pub messages: u64,
    pub message_bytes: u64,
    /// Indexed in the order of [`Unexportable::ALL`].
    pub unexportable: [Amount; Unexportable::ALL.len()],
}

impl ExportTotals {
    fn count_unexportable(&mut self, why: Unexportable, record: &FlowRecord) {
        self.unexportable[why as usize] += Amount::of(record);
    }
}

/// A number of records with their packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Records of flows and NAT events; options data does not count.
    pub records: u64,
    pub packets: u64,
    pub bytes: u64,
}

impl Amount {
    /// The amount in one record, both directions.
    pub fn of(record: &FlowRecord) -> Self {
        Self { records: 1, packets: record.packets(), bytes: record.bytes() }
    }

    /// The sum over all records.
    pub fn of_all<'a>(records: impl IntoIterator<Item = &'a FlowRecord>) -> Self {
        records.into_iter().map(Self::of).sum()
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |mut sum, amount| {
            sum += amount;
            sum
        })
    }
}

impl std::ops::AddAssign for Amount {
    /// Wraps modulo 2^64: received records may claim any number, and the balances hold all the same.
    fn add_assign(&mut self, other: Self) {
        self.records = self.records.wrapping_add(other.records);
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

impl std::ops::SubAssign for Amount {
    /// The subtracted amount must have been added before.
    fn sub_assign(&mut self, other: Self) {
        self.records -= other.records;
        self.packets -= other.packets;
        self.bytes -= other.bytes;
    }
}

/// Counters of the metering process and of the transport; they are sent as options data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub seen: Amount,
    /// Records that left the cache, including those that were never sent.
    pub exported: Amount,
    pub cached: Amount,
    /// Traffic that was not metered, or lost before export, by name of the reason; `records` is 0 for packets
    /// never metered.
    pub dropped: Vec<(&'static str, Amount)>,
    /// Records that did not reach the collector, as far as known.
    pub not_sent: Amount,
}

/// A clock that goes back by this much was set back; less means that two threads read it in another order.
const SET_BACK_NS: u64 = 1_000_000_000;

fn is_set_back(clock_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_add(SET_BACK_NS) <= clock_ns
}

enum Encoder {
    V5(v5::V5),
    Templated(Box<Templated>),
}

/// One session with one collector; see the module documentation.
pub struct Exporter {
    encoder: Encoder,
    messages: MessageBuffer,
    /// The longest time that a message stays open.
    delay_max_ns: u64,
}

impl Exporter {
    /// Makes an exporter that has sent nothing yet. Errors name the option and what was expected.
    pub fn new(options: &ExportOptions) -> Result<Self, ExportOptionsError> {
        options.check()?;
        let encoder = match options.version {
            Version::NetFlow5 => Encoder::V5(v5::V5::new(options)),
            Version::NetFlow9 | Version::Ipfix => Encoder::Templated(Box::new(Templated::new(options))),
        };
        Ok(Self {
            encoder,
            messages: MessageBuffer::new(options.message_bytes_max),
            delay_max_ns: options.delay_max_ns,
        })
    }

    /// Begins a session: sequence numbers restart, and everything is announced again. Messages of the old
    /// session that were not polled are dropped; returns their amount, so that the caller knows what to send
    /// again.
    pub fn handle_connected(&mut self, now_ns: u64) -> Amount {
        let unsent = self.messages.clear();
        self.messages.totals.exported -= unsent;
        self.messages.totals.withdrawn += unsent;
        match &mut self.encoder {
            Encoder::V5(v5) => v5.begin_session(now_ns),
            Encoder::Templated(templated) => templated.begin_session(now_ns),
        }
        unsent
    }

    /// Encodes records in order. Full messages can be polled afterwards; the last one stays open.
    pub fn handle_records(&mut self, records: &[FlowRecord], now_ns: u64) {
        match self.at(now_ns) {
            (Encoder::V5(v5), out) => v5.add(records, out),
            (Encoder::Templated(templated), out) => templated.add(records, out),
        }
    }

    /// Encodes NAT events (RFC 8158) in order.
    pub fn handle_nat_events(&mut self, events: &[NatEvent], now_ns: u64) {
        let count = events.len() as u64;
        let (encoder, out) = self.at(now_ns);
        out.totals.handled.records += count;
        match encoder {
            Encoder::V5(_) => out.totals.unexportable[Unexportable::NatEvent as usize].records += count,
            Encoder::Templated(templated) => {
                events.iter().for_each(|event| templated.add_nat_event(event, out));
            }
        }
    }

    /// Stores the newest statistics; the next round sends them.
    pub fn handle_statistics(&mut self, statistics: Statistics) {
        if let Encoder::Templated(templated) = &mut self.encoder {
            templated.statistics = statistics;
        }
    }

    /// Replaces the interfaces and announces them at once.
    pub fn handle_interfaces(&mut self, interfaces: Vec<Interface>, now_ns: u64) {
        if let (Encoder::Templated(templated), out) = self.at(now_ns) {
            templated.set_interfaces(interfaces, out);
        }
    }

    /// Closes a message that was open long enough, repeats templates and sends statistics that are due.
    pub fn handle_time(&mut self, now_ns: u64) {
        if let (Encoder::Templated(templated), out) = self.at(now_ns) {
            templated.handle_time(out);
        }
        if self.messages.opened_ns().is_some_and(|opened| now_ns.saturating_sub(opened) >= self.delay_max_ns)
        {
            self.flush(now_ns);
        }
    }

    /// Closes the open message.
    pub fn flush(&mut self, now_ns: u64) {
        match self.at(now_ns) {
            (Encoder::V5(v5), out) => v5.close(out),
            (Encoder::Templated(templated), out) => templated.close_message(out),
        }
    }

    /// Ends the export: sends the last statistics and closes the open message.
    pub fn handle_end(&mut self, now_ns: u64) {
        if let (Encoder::Templated(templated), out) = self.at(now_ns) {
            templated.send_statistics(out);
        }
        self.flush(now_ns);
    }

    /// When [`handle_time`](Self::handle_time) must be called next, in nanoseconds since the epoch.
    pub fn poll_timeout(&self) -> Option<u64> {
        let close = self.messages.opened_ns().map(|opened| opened.saturating_add(self.delay_max_ns));
        let due = match &self.encoder {
            Encoder::V5(_) => None,
            Encoder::Templated(templated) => templated.next_due(),
        };
        close.into_iter().chain(due).min()
    }

    /// Moves the next complete message into `message`, replacing its content. Returns the amount in it, or
    /// `None` if there is no message.
    pub fn poll_message(&mut self, message: &mut Vec<u8>) -> Option<Amount> {
        self.messages.poll(message)
    }

    /// Moves as many complete messages into `train` as can be sent together, at least one; returns `false` if
    /// there is none. For systems that send several datagrams of one length with one call.
    pub fn poll_train(&mut self, train: &mut Train, bytes_max: usize, messages_max: usize) -> bool {
        self.messages.poll_train(train, bytes_max, messages_max)
    }

    /// The totals over all sessions.
    pub fn totals(&self) -> &ExportTotals {
        &self.messages.totals
    }

    /// The parts that a call at this time works with.
    fn at(&mut self, now_ns: u64) -> (&mut Encoder, &mut MessageBuffer) {
        self.messages.now_ns = now_ns;
        (&mut self.encoder, &mut self.messages)
    }
}
