//! The worker of a collector that takes datagrams.

use super::report::{CollectorReport, Loss, Shared};
use super::{CollectorAddress, CollectorError, CollectorOptions, Input};
use crate::live::LiveClock;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_flow::export::{Amount, Exporter, Statistics};

/// What the kernel may hold for us, octets: the sender then waits instead of losing.
const SEND_BUFFER_OCTETS: usize = 1 << 20;
/// The worker looks at its timers so often at least.
const TURN: Duration = Duration::from_millis(100);
/// How often a datagram is tried again that an error of an earlier one kept back.
const TRIES: u32 = 4;
/// Pauses shorter than this are not slept one by one.
const NAP: Duration = Duration::from_millis(1);

/// See the head of this file.
pub(super) struct Datagrams {
    socket: UdpSocket,
    exporter: Exporter,
    shared: Arc<Shared>,
    report: CollectorReport,
    clock: LiveClock,
    /// The time that a datagram takes by the rate told.
    interval: Option<Duration>,
    next_send: Instant,
    statistics: Statistics,
}

impl Datagrams {
    pub(super) fn open(
        address: &CollectorAddress,
        options: &CollectorOptions,
        exporter: Exporter,
        shared: Arc<Shared>,
    ) -> Result<Self, CollectorError> {
        let remote = resolve(address)?;
        let socket = connected(remote)
            .map_err(|source| CollectorError::Socket { collector: address.to_string(), source })?;
        let rate = options.datagrams_per_s_max.filter(|&rate| rate > 0);
        Ok(Self {
            socket,
            exporter,
            shared,
            report: CollectorReport::default(),
            clock: LiveClock::start(),
            interval: rate.map(|rate| Duration::from_secs(1) / rate),
            next_send: Instant::now(),
            statistics: Statistics::default(),
        })
    }

    pub(super) fn run(mut self, inputs: &Receiver<Input>) {
        self.exporter.handle_connected(self.clock.now_ns());
        loop {
            let input = inputs.recv_timeout(TURN);
            let now_ns = self.clock.now_ns();
            match input {
                Ok(Input::Records(batch)) => {
                    let mut amount = Amount::default();
                    batch.iter().for_each(|record| amount += Amount::of(record));
                    self.report.accepted += amount;
                    if self.shared.end().is_some_and(|end| Instant::now() >= end) {
                        self.report.lose(Loss::Ended, amount);
                    } else {
                        self.exporter.handle_records(&batch, now_ns);
                    }
                }
                Ok(Input::NatEvents(events)) => {
                    self.report.accepted.records += events.len() as u64;
                    self.exporter.handle_nat_events(&events, now_ns);
                }
                Ok(Input::Statistics(statistics)) => self.statistics = *statistics,
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Input::End(_)) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tell_statistics();
            self.exporter.handle_time(now_ns);
            self.send_all();
        }
        self.tell_statistics();
        self.exporter.handle_end(self.clock.now_ns());
        self.send_all();
    }

    /// Statistics go out with what this side lost.
    fn tell_statistics(&mut self) {
        let not_sent = self.report.lost_in_all();
        if self.statistics.not_sent != not_sent || self.statistics.seen != Amount::default() {
            self.statistics.not_sent = not_sent;
            self.exporter.handle_statistics(self.statistics.clone());
        }
    }

    fn send_all(&mut self) {
        let mut message = Vec::new();
        while let Some(amount) = self.exporter.poll_message(&mut message) {
            self.wait_for_turn();
            match self.send(&message) {
                Ok(()) => self.report.sent += amount,
                Err(_) => self.report.lose(Loss::SendFailed, amount),
            }
        }
        self.report.export = *self.exporter.totals();
        let exported = self.report.export.exported;
        let (sent, lost) = (self.report.sent, self.report.lost[Loss::SendFailed as usize]);
        self.report.in_flight = Amount {
            records: exported.records - sent.records - lost.records,
            packets: exported.packets - sent.packets - lost.packets,
            octets: exported.octets - sent.octets - lost.octets,
        };
        self.shared.set_report(&self.report);
    }

    /// Sends a datagram. An error that an earlier one caused is reported to the next call; that one is tried again.
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let mut result = self.socket.send(message);
        for _ in 0..TRIES {
            match result.as_ref().map_err(io::Error::kind) {
                Err(io::ErrorKind::Interrupted) => {}
                Err(io::ErrorKind::ConnectionRefused) => self.report.refused += 1,
                _ => break,
            }
            result = self.socket.send(message);
        }
        result.map(|_| ())
    }

    fn wait_for_turn(&mut self) {
        let Some(interval) = self.interval else { return };
        let now = Instant::now();
        if let Some(ahead) = self.next_send.checked_duration_since(now).filter(|ahead| *ahead >= NAP) {
            std::thread::sleep(ahead);
        }
        // What was not used is not saved up beyond a nap.
        self.next_send = self.next_send.max(now.checked_sub(NAP).unwrap_or(now)) + interval;
    }
}

/// The first address that a collector's name has.
pub(super) fn resolve(address: &CollectorAddress) -> Result<SocketAddr, CollectorError> {
    let resolved = (address.host.as_str(), address.port).to_socket_addrs();
    let mut addresses = resolved
        .map_err(|source| CollectorError::Resolve { host: address.host.clone(), source: Some(source) })?;
    addresses.next().ok_or_else(|| CollectorError::Resolve { host: address.host.clone(), source: None })
}

fn connected(remote: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    // The kernel gives what it may; less only means that the sender waits more often.
    let _ = socket.set_send_buffer_size(SEND_BUFFER_OCTETS);
    socket.connect(&remote.into())?;
    Ok(socket.into())
}
