//! The agent: makes datagrams of samples and sends them, on its own thread.
//!
//! A datagram leaves when it is full, and a second after its first sample at the latest. All collectors get the same
//! datagrams.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use thalweg_flow::export::Amount;
use thalweg_ports::collector::{SflowAddress, SflowSocket};
use thalweg_store::{Notify, Trouble};
use thalweg_wire::sflow::{FlowSample, Header, Interface, Source, Writer};

use super::{SampleQueue, Sampled};
use crate::interfaces::SharedInterfaces;
use crate::summary::{NO_HEADER, OutletSummary};
use crate::{Input, OptionsError, ProbeError, ProbeOptions};

/// The longest time that a sample waits for others.
const HELD_MAX: Duration = Duration::from_secs(1);
/// The loss name of samples that found the queue full.
const SAMPLE_QUEUE: &str = "sample-queue";
/// The loss name of samples that the system did not send.
const SEND_FAILED: &str = "send-failed";

/// See the module documentation.
pub(crate) struct Agent {
    arrivals: Receiver<Sampled>,
    collectors: Vec<Collector>,
    writer: Writer,
    rate: u32,
    /// By interface number.
    sources: BTreeMap<u32, Source>,
    interfaces: SharedInterfaces,
    started: Instant,
    /// Samples in the datagram that is being filled, and since when it has some.
    filled: (Amount, Instant),
    /// Samples that sFlow cannot express.
    headless: u64,
    /// Samples that found the queue full.
    lost: Arc<AtomicU64>,
    notify: Notify,
}

struct Collector {
    name: String,
    socket: SflowSocket,
    sent: Amount,
    unsent: u64,
    last_error: Option<String>,
    trouble: Trouble,
}

impl Agent {
    /// Opens the collectors of sFlow, if there are any.
    ///
    /// # Errors
    ///
    /// A malformed address, a name without address, or no address to name the agent by.
    pub(crate) fn open(
        options: &ProbeOptions,
        interfaces: &SharedInterfaces,
        notify: &Notify,
    ) -> Result<Option<(Self, SampleQueue)>, ProbeError> {
        let addresses = options.export.addresses.iter().filter(|text| SflowAddress::is_meant_by(text));
        let open = |text: &String| {
            let address: SflowAddress = text.parse()?;
            let socket = SflowSocket::open(&address)?;
            let (sent, trouble) = (Amount::default(), Trouble::default());
            Ok(Collector { name: address.to_string(), socket, sent, unsent: 0, last_error: None, trouble })
        };
        let collectors: Result<Vec<Collector>, _> = addresses.map(open).collect();
        let collectors = collectors.map_err(ProbeError::Collector)?;
        if collectors.is_empty() {
            return Ok(None);
        }
        let sflow = options.export.sflow;
        let reached_from = || collectors.iter().find_map(|collector| collector.socket.source());
        let agent: IpAddr = sflow.agent.or_else(reached_from).ok_or(OptionsError::NoSflowAgent)?;
        let waits = matches!(options.input, Input::Files(_));
        let (queue, arrivals) = SampleQueue::new((sflow.rate, sflow.header_bytes), waits);
        let agent = Self {
            arrivals,
            collectors,
            writer: Writer::new(agent, options.export.observation_domain),
            rate: sflow.rate,
            sources: BTreeMap::new(),
            interfaces: interfaces.clone(),
            started: Instant::now(),
            filled: (Amount::default(), Instant::now()),
            headless: 0,
            lost: Arc::clone(&queue.lost),
            notify: notify.clone(),
        };
        Ok(Some((agent, queue)))
    }

    /// Starts the thread. It ends when all samplers are gone.
    pub(crate) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<ScopedJoinHandle<'scope, Vec<OutletSummary>>, ProbeError> {
        let thread = std::thread::Builder::new().name("sflow".to_owned());
        thread.spawn_scoped(scope, move || self.run()).map_err(ProbeError::Thread)
    }

    fn run(mut self) -> Vec<OutletSummary> {
        loop {
            let has_some = self.filled.0.records > 0;
            let left = HELD_MAX.saturating_sub(self.filled.1.elapsed());
            if has_some && left.is_zero() {
                self.flush();
                continue;
            }
            match self.arrivals.recv_timeout(if has_some { left } else { HELD_MAX }) {
                Ok(sampled) => self.take(sampled),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.flush();
        let (lost, headless) = (self.lost.load(Ordering::Relaxed), self.headless);
        self.collectors.into_iter().map(|collector| collector.finish(lost, headless)).collect()
    }

    /// Adds a sample to the datagram; sends a full one before.
    fn take(&mut self, sampled: Sampled) {
        let number = self.interfaces.get().number_of(sampled.port);
        let start = Source { interface: number, sequence: 0, pool: 0, drops: 0 };
        let source = self.sources.entry(number).or_insert(start);
        source.pool = source.pool.wrapping_add(sampled.pool);
        source.drops = source.drops.wrapping_add(sampled.drops);
        let Some(start) = sampled.header else {
            self.headless += 1;
            return;
        };
        source.sequence = source.sequence.wrapping_add(1);
        let source = *source;
        let sample = FlowSample {
            rate: self.rate,
            input: if number == 0 { Interface::Unknown } else { Interface::Number(number) },
            header: Some(Header { protocol: start.protocol, bytes: start.bytes, start: &start.start }),
            vlan: start.vlan.map(u32::from),
            ..FlowSample::default()
        };
        let mut is_in = self.writer.push(&source, &sample);
        if !is_in {
            self.flush();
            is_in = self.writer.push(&source, &sample);
        }
        debug_assert!(is_in, "headers are shorter than a datagram");
        if self.filled.0.records == 0 {
            self.filled.1 = Instant::now();
        }
        self.filled.0 += Amount { records: 1, packets: 1, bytes: start.bytes.into() };
    }

    fn flush(&mut self) {
        let uptime_ms = u32::try_from(self.started.elapsed().as_millis() & 0xffff_ffff).unwrap_or(0);
        let Some(datagram) = self.writer.take(uptime_ms) else { return };
        let amount = std::mem::take(&mut self.filled.0);
        self.collectors.iter_mut().for_each(|collector| collector.send(&datagram, amount, &self.notify));
    }
}

impl Collector {
    /// Sends a datagram; tells of failures at once, and then once a minute.
    fn send(&mut self, datagram: &[u8], amount: Amount, notify: &Notify) {
        let now = Instant::now();
        match self.socket.send(datagram) {
            Ok(()) => {
                self.sent += amount;
                if let Some(lasted) = self.trouble.end(now) {
                    let (name, lasted) = (&self.name, lasted.as_secs());
                    notify.info(&format!("samples are sent to {name} again, after {lasted} s"));
                }
            }
            Err(error) => {
                self.unsent += amount.records;
                if self.trouble.note(now) {
                    let (name, unsent) = (&self.name, self.unsent);
                    notify.warn(&format!("samples cannot be sent to {name}, {unsent} so far: {error}"));
                }
                self.last_error = Some(error.to_string());
            }
        }
    }

    fn finish(mut self, lost: u64, headless: u64) -> OutletSummary {
        self.socket.finish();
        let losses = [(SAMPLE_QUEUE, lost), (SEND_FAILED, self.unsent), (NO_HEADER, headless)];
        let lost = losses.into_iter().filter(|(_, samples)| *samples > 0);
        let refused = self.socket.refused();
        let unheard = "nobody listens there: is the collector running?".to_owned();
        OutletSummary {
            lost: lost.map(|(name, samples)| (name.to_owned(), samples)).collect(),
            datagrams_refused: refused,
            datagrams_dropped: self.socket.dropped(),
            error: if refused > 0 { Some(unheard) } else { self.last_error },
            ..OutletSummary::all_taken(self.name, self.sent)
        }
    }
}
