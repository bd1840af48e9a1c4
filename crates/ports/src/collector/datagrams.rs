//! The worker for a collector that receives datagrams.
//!
//! Messages of one length go to the kernel together, which segments them into datagrams (`UDP_SEGMENT`, since
//! Linux 4.18): one call and one pass through the network stack for about forty of them. Each message has its
//! own call if the kernel refuses (an older kernel, messages longer than the path's MTU, a device without
//! checksum offload), if a rate is configured, or if the options exclude it. A capture on this system shows
//! such a group as one datagram longer than the MTU, because the kernel segments behind the capture point.
//!
//! A collector on this system is not sent more than its buffer has room for ([`Pace`]).
//!
//! Without a way to the collector, records are encoded and counted as lost. A new socket ([`Way`]) begins a new
//! session, since a session is one of a source address and port (RFC 7011, 2): templates go out again, and sequence
//! numbers begin anew.

use super::pace::Pace;
use super::report::{CollectorReport, Connection, Shared};
use super::udp::{LookUp, Way};
use super::{CollectorAddress, CollectorError, CollectorOptions, Input};
use crate::live::wall_ns;
use crate::socket_option;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_flow::export::{Amount, Exporter, RecordLoss, Statistics, Train};

/// The longest time between two checks of timers.
const TURN: Duration = Duration::from_millis(100);
/// Shorter pauses are accumulated.
const NAP: Duration = Duration::from_millis(1);
/// The kernel's limits for one call: datagrams (`UDP_MAX_SEGMENTS`), and bytes of one IP packet.
const TRAIN_MESSAGES_MAX: usize = 64;
const TRAIN_BYTES_MAX: usize = 65_000;
/// The most batches that are encoded before anything is sent, so that messages can be sent together.
const BATCHES_MAX: usize = 8;
/// After an empty queue, wait this long before the next look, so that several batches can gather.
const GATHERED_IN: Duration = Duration::from_millis(1);

/// A session over datagrams; see the module documentation.
pub(super) struct Datagrams {
    way: Way,
    exporter: Exporter,
    shared: Arc<Shared>,
    report: CollectorReport,
    /// The time per datagram at the configured rate.
    interval: Option<Duration>,
    next_send: Instant,
    /// Of a collector on this system.
    pace: Option<Pace>,
    statistics: Statistics,
    train: Train,
    /// The most messages sent together; 1 if the kernel does not segment.
    together_max: usize,
    /// The configured segment length; 0 is none.
    cut_at: usize,
}

impl Datagrams {
    pub(super) fn open(
        address: &CollectorAddress,
        options: &CollectorOptions,
        exporter: Exporter,
        shared: Arc<Shared>,
    ) -> Result<Self, CollectorError> {
        let way = way(&address.host, address.port, options.waits_for_name)?;
        let report = CollectorReport { connection: connection(&way), ..CollectorReport::default() };
        shared.set_report(&report);
        let rate = options.datagrams_per_s_max.filter(|&rate| rate > 0);
        Ok(Self {
            pace: way.socket().and_then(Pace::of),
            way,
            exporter,
            shared,
            report,
            interval: rate.map(|rate| Duration::from_secs(1) / rate),
            next_send: Instant::now(),
            statistics: Statistics::default(),
            train: Train::default(),
            together_max: if rate.is_some() || options.one_by_one { 1 } else { TRAIN_MESSAGES_MAX },
            cut_at: 0,
        })
    }

    pub(super) fn run(mut self, inputs: &Receiver<Input>) {
        self.exporter.handle_connected(wall_ns());
        let mut ended = false;
        while !ended {
            if inputs.is_empty() {
                std::thread::sleep(GATHERED_IN);
            }
            match inputs.recv_timeout(TURN) {
                Ok(input) => {
                    ended = self.handle(input);
                    let more = inputs.try_iter().take(BATCHES_MAX - 1);
                    more.for_each(|input| ended |= self.handle(input));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => ended = true,
            }
            self.look_for_way();
            self.report_statistics();
            self.exporter.handle_time(wall_ns());
            self.send_all();
        }
        self.report_statistics();
        self.exporter.handle_end(wall_ns());
        self.send_all();
        self.hear_last_refusal();
    }

    /// Ends the session whose socket is of no use any more, and begins another when there is a way.
    fn look_for_way(&mut self) {
        if !self.way.has_ended() {
            return;
        }
        // What was encoded belongs to the old session, and is lost with it.
        self.exporter.flush(wall_ns());
        self.send_all();
        if self.way.renew() {
            self.pace = self.way.socket().and_then(Pace::of);
            self.cut_at = 0;
            self.exporter.handle_connected(wall_ns());
        }
        self.report.connection = connection(&self.way);
    }

    /// Returns whether this was the last input.
    fn handle(&mut self, input: Input) -> bool {
        let now_ns = wall_ns();
        match input {
            Input::Records(batch) => {
                let amount = Amount::of_all(&batch);
                self.report.accepted += amount;
                if self.shared.end().is_some_and(|end| Instant::now() >= end) {
                    self.report.lose(RecordLoss::Ended, amount);
                } else {
                    self.exporter.handle_records(&batch, now_ns);
                }
            }
            Input::NatEvents(events) => {
                self.report.accepted.records += events.len() as u64;
                self.exporter.handle_nat_events(&events, now_ns);
            }
            Input::Statistics(statistics) => self.statistics = *statistics,
            Input::Interfaces(interfaces) => self.exporter.handle_interfaces(interfaces, now_ns),
            Input::End(_) => return true,
        }
        false
    }

    /// Adds this side's losses to the statistics.
    fn report_statistics(&mut self) {
        let not_sent = self.report.lost_in_all();
        if self.statistics.not_sent != not_sent || self.statistics.seen != Amount::default() {
            self.statistics.not_sent = not_sent;
            self.exporter.handle_statistics(self.statistics.clone());
        }
    }

    fn send_all(&mut self) {
        let mut train = std::mem::take(&mut self.train);
        let has_way = self.way.socket().is_some();
        let messages_max =
            self.pace.as_ref().map_or(self.together_max, |pace| pace.messages_max().min(self.together_max));
        while self.exporter.poll_train(&mut train, TRAIN_BYTES_MAX, messages_max) {
            if has_way {
                self.wait_for_turn();
                self.pace.iter_mut().for_each(|pace| pace.wait(train.messages().count()));
            }
            let is_train = train.bytes().len() > train.message_bytes();
            if is_train && self.send_together(&train).is_ok() {
                self.report.sent += train.amount();
                continue;
            }
            for (message, amount) in train.messages() {
                match self.send_one(message) {
                    Ok(()) => {
                        self.report.sent += amount;
                        // The path works; only sending together was refused.
                        self.together_max = if is_train { 1 } else { self.together_max };
                    }
                    Err(error) => {
                        self.report.last_error = Some(error.to_string());
                        self.report.lose(RecordLoss::SendFailed, amount);
                    }
                }
            }
        }
        self.train = train;
        self.report.export = *self.exporter.totals();
        if let Some(pace) = &mut self.pace {
            pace.look();
            self.report.datagrams_dropped = pace.dropped();
        }
        let exported = self.report.export.exported;
        let (sent, lost) = (self.report.sent, self.report.lost[RecordLoss::SendFailed as usize]);
        self.report.in_flight = Amount {
            records: exported.records - sent.records - lost.records,
            packets: exported.packets - sent.packets - lost.packets,
            bytes: exported.bytes - sent.bytes - lost.bytes,
        };
        self.shared.set_report(&self.report);
    }

    /// Sends several messages with one call: all of them or none.
    fn send_together(&mut self, train: &Train) -> io::Result<()> {
        self.have_cut(train.message_bytes())?;
        self.send(train.bytes())
    }

    fn send_one(&mut self, message: &[u8]) -> io::Result<()> {
        // With segmentation enabled, even a single piece is refused if it is too long for the path.
        self.have_cut(0)?;
        self.send(message)
    }

    /// Sets the segment length; 0 disables segmentation.
    fn have_cut(&mut self, bytes: usize) -> io::Result<()> {
        if let Some(socket) = self.way.socket().filter(|_| self.cut_at != bytes) {
            let value = i32::try_from(bytes).map_err(io::Error::other)?;
            socket_option::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value)?;
            self.cut_at = bytes;
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (result, refused) = self.way.send(bytes);
        self.note_refused(refused);
        result
    }

    fn note_refused(&mut self, datagrams: u64) {
        self.report.refused += datagrams;
        self.report.datagrams_refused += datagrams;
    }

    fn hear_last_refusal(&mut self) {
        if self.way.hears_last_refusal() {
            self.note_refused(1);
            self.shared.set_report(&self.report);
        }
    }

    fn wait_for_turn(&mut self) {
        let Some(interval) = self.interval else { return };
        let now = Instant::now();
        if let Some(ahead) = self.next_send.checked_duration_since(now).filter(|ahead| *ahead >= NAP) {
            std::thread::sleep(ahead);
        }
        // Unused time is not accumulated beyond this pause.
        self.next_send = self.next_send.max(now.checked_sub(NAP).unwrap_or(now)) + interval;
    }
}

/// The first address of a collector's name.
pub(super) fn resolve(host: &str, port: u16) -> Result<SocketAddr, CollectorError> {
    let error = |source| CollectorError::Resolve { host: host.to_owned(), source };
    let mut addresses = (host, port).to_socket_addrs().map_err(|source| error(Some(source)))?;
    addresses.next().ok_or_else(|| error(None))
}

/// The way to a collector. With `waits_for_name`, a name is not looked up before the way is renewed.
pub(super) fn way(host: &str, port: u16, waits_for_name: bool) -> Result<Way, CollectorError> {
    let is_address = host.parse::<IpAddr>().is_ok();
    let host = host.to_owned();
    let look_up: LookUp = Box::new(move || resolve(&host, port));
    if waits_for_name && !is_address { Ok(Way::open_later(look_up)) } else { Way::open(look_up) }
}

fn connection(way: &Way) -> Connection {
    way.trouble().map_or(Connection::Unknown, |why| Connection::Down(why.to_owned()))
}
