//! The agent: makes datagrams of samples and sends them, on its own thread. Between samples of packets it reads the
//! interfaces' counters.
//!
//! A datagram leaves when it is full, and a second after its first sample at the latest. All collectors get the same
//! datagrams.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::{JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use thalweg_base::{DropReason, PacketFate, PacketSample, StartLink};
use thalweg_flow::export::Amount;
use thalweg_flow::{NO_INTERFACE, SampleLoss};
use thalweg_ports::collector::{SflowAddress, SflowSocket};
use thalweg_store::{Notify, Trouble};
use thalweg_wire::sflow::{FlowSample, Header, Interface, Router, Source, Writer, discard};

use super::counters::{CountersInterval, Polling, ReadCounters};
use super::{Counted, SampleQueue, Untold};
use crate::deliver::{Failing, Statuses, status};
use crate::interfaces::SharedInterfaces;
use crate::summary::{OutletStatus, OutletSummary};
use crate::{ExportTargets, OptionsError, ProbeError};

/// The longest time that a sample waits for others.
const HELD_MAX: Duration = Duration::from_secs(1);

/// A sampled packet that leaves a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledWay {
    pub port_in: u16,
    pub port_out: u16,
    /// Its number in the forwarding tables.
    pub next_hop: u16,
    /// With translated addresses.
    pub src: IpAddr,
    pub dst: IpAddr,
}

/// Finds what a router's tables say of a packet: its route, and the VLAN of its egress port.
pub type CompleteSample = Box<dyn FnMut(&SampledWay) -> (Option<Router>, Option<u16>) + Send>;

/// What an agent needs besides its collectors.
pub(crate) struct AgentOptions {
    /// Samples wait for room in the queue, and the collectors' names must be known at the start.
    pub(crate) waits: bool,
    pub(crate) interfaces: SharedInterfaces,
    pub(crate) notify: Notify,
    pub(crate) complete: Option<CompleteSample>,
    /// Where counters of interfaces come from, and how often they are read; `None` for files.
    pub(crate) counters: Option<(ReadCounters, CountersInterval)>,
}

/// See the module documentation.
pub(crate) struct Agent {
    arrivals: Receiver<PacketSample>,
    collectors: Vec<Collector>,
    writer: Writer,
    /// By interface number.
    sources: BTreeMap<u32, Source>,
    options: AgentOptions,
    polling: Option<Polling>,
    started: Instant,
    filled: Filled,
    /// Since when it has some.
    filled_since: Instant,
    /// Samples that sFlow cannot express.
    headless: u64,
    untold: Arc<Untold>,
    statuses: Statuses,
}

/// Samples in the datagram that is being filled.
#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    packets: Amount,
    counters: u64,
}

impl Filled {
    fn samples(&self) -> u64 {
        self.packets.records + self.counters
    }
}

struct Collector {
    name: String,
    socket: SflowSocket,
    sent: Amount,
    counters_sent: u64,
    unsent: u64,
    last_error: Option<String>,
    trouble: Trouble,
    failing: Failing,
}

impl Agent {
    /// Opens the collectors of sFlow, if there are any.
    ///
    /// # Errors
    ///
    /// A malformed address, a name without address, or no address to name the agent by.
    pub(crate) fn open(
        export: &ExportTargets,
        mut options: AgentOptions,
    ) -> Result<Option<(Self, SampleQueue)>, ProbeError> {
        let addresses = export.addresses.iter().filter(|text| SflowAddress::is_meant_by(text));
        // The agent's own address may have to be that from which a collector is reached.
        let waits_for_name = !options.waits && export.sflow.agent.is_some();
        let open = |text: &String| {
            let address: SflowAddress = text.parse()?;
            let socket = SflowSocket::open(&address, waits_for_name)?;
            Ok(Collector {
                name: address.to_string(),
                socket,
                sent: Amount::default(),
                counters_sent: 0,
                unsent: 0,
                last_error: None,
                trouble: Trouble::default(),
                failing: Failing::default(),
            })
        };
        let collectors: Result<Vec<Collector>, _> = addresses.map(open).collect();
        let collectors = collectors.map_err(ProbeError::Collector)?;
        if collectors.is_empty() {
            return Ok(None);
        }
        let reached_from = || collectors.iter().find_map(|collector| collector.socket.source());
        let agent = export.sflow.agent.or_else(reached_from).ok_or(OptionsError::NoSflowAgent)?;
        let (queue, arrivals) = SampleQueue::new(options.waits);
        let now = Instant::now();
        let counters = options.counters.take();
        let mut agent = Self {
            arrivals,
            collectors,
            writer: Writer::new(agent, export.observation_domain),
            sources: BTreeMap::new(),
            options,
            polling: counters.map(|(read, interval)| Polling::new(read, interval)),
            started: now,
            filled: Filled::default(),
            filled_since: now,
            headless: 0,
            untold: Arc::clone(&queue.untold),
            statuses: Statuses::default(),
        };
        agent.tell_statuses();
        Ok(Some((agent, queue)))
    }

    /// Where the collectors' recent status can be read.
    pub(crate) fn statuses(&self) -> Statuses {
        Arc::clone(&self.statuses)
    }

    /// Starts the thread. It ends when all samplers are gone.
    pub(crate) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<ScopedJoinHandle<'scope, Vec<OutletSummary>>, ProbeError> {
        thread().spawn_scoped(scope, move || self.run()).map_err(ProbeError::Thread)
    }

    /// [`Self::start`], for as long as a process lives.
    pub(crate) fn start_alone(self) -> Result<JoinHandle<Vec<OutletSummary>>, ProbeError> {
        thread().spawn(move || self.run()).map_err(ProbeError::Thread)
    }

    fn run(mut self) -> Vec<OutletSummary> {
        loop {
            let now = Instant::now();
            self.take_counters(now);
            let has_some = self.filled.samples() > 0;
            let left = HELD_MAX.saturating_sub(now.duration_since(self.filled_since));
            if has_some && left.is_zero() {
                self.flush();
                continue;
            }
            let due = self.polling.as_ref().and_then(Polling::due);
            let until_counters = due.map(|due| due.duration_since(now));
            let wait = if has_some { left } else { HELD_MAX };
            match self.arrivals.recv_timeout(until_counters.map_or(wait, |until| wait.min(until))) {
                Ok(sample) => self.take(sample),
                Err(RecvTimeoutError::Timeout) => self.tell_statuses(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.flush();
        self.collectors.iter_mut().for_each(|collector| collector.socket.finish());
        self.tell_statuses();
        self.summaries()
    }

    fn summaries(&self) -> Vec<OutletSummary> {
        let (lost, headless) = (self.untold.lost(), self.headless);
        let uncounted = self.polling.as_ref().map_or(0, Polling::without);
        let summary = |collector: &Collector| OutletSummary {
            interfaces_uncounted: uncounted,
            ..collector.summary(lost, headless)
        };
        self.collectors.iter().map(summary).collect()
    }

    fn tell_statuses(&mut self) {
        let now = Instant::now();
        let of_samples = |(summary, collector): (_, &mut Collector)| {
            let status = status(summary);
            // The summary has the last error, which may be long past.
            let fails = collector.failing.lately(collector.unsent + collector.socket.refused(), now);
            OutletStatus { sflow: true, error: status.error.filter(|_| fails), ..status }
        };
        let summaries = self.summaries();
        *self.statuses.lock() = summaries.into_iter().zip(&mut self.collectors).map(of_samples).collect();
    }

    /// The source of a port's samples, with these packets added.
    fn count(&mut self, port: u16, more: Counted) -> &mut Source {
        let interface = self.options.interfaces.get().number_of(port);
        let source = self.sources.entry(interface).or_insert(Source { interface, ..Source::default() });
        source.pool = source.pool.wrapping_add(more.pool);
        source.drops = source.drops.wrapping_add(more.drops);
        source
    }

    /// Adds a packet's sample.
    fn take(&mut self, sample: PacketSample) {
        for (port, counted) in self.untold.take() {
            self.count(port, counted);
        }
        let source = self.count(sample.port_in, Counted { pool: sample.pool, drops: 0 });
        let Some(start) = &sample.start else {
            self.headless += 1;
            return;
        };
        source.sequence = source.sequence.wrapping_add(1);
        let source = *source;
        let protocol = match start.link {
            StartLink::Ethernet => 1,
            StartLink::Ipv4 => 11,
            StartLink::Ipv6 => 12,
        };
        let vlan = start.vlan.map(u32::from);
        let plain = FlowSample {
            rate: sample.rate,
            input: number(source.interface),
            header: Some(Header { protocol, bytes: start.wire_bytes, start: &start.bytes }),
            vlan,
            vlan_out: vlan,
            ..FlowSample::default()
        };
        let told = self.with_fate(plain, &sample);
        self.fill(|writer| writer.push(&source, &told));
        self.filled.packets += Amount { records: 1, packets: 1, bytes: start.wire_bytes.into() };
    }

    /// Adds the counters of interfaces, if their time has come.
    fn take_counters(&mut self, now: Instant) {
        let Some(polling) = &mut self.polling else { return };
        for sample in polling.take(now, &self.options.interfaces.get()) {
            self.fill(|writer| writer.push_counters(&sample));
            self.filled.counters += 1;
        }
    }

    /// Adds a sample to the datagram; sends a full one before.
    fn fill(&mut self, push: impl Fn(&mut Writer) -> bool) {
        let mut is_in = push(&mut self.writer);
        if !is_in {
            self.flush();
            is_in = push(&mut self.writer);
        }
        debug_assert!(is_in, "a sample is shorter than a datagram");
        if self.filled.samples() == 0 {
            self.filled_since = Instant::now();
        }
    }

    /// Adds where a router has sent the packet, or why it has not.
    fn with_fate<'a>(&mut self, plain: FlowSample<'a>, sample: &PacketSample) -> FlowSample<'a> {
        match sample.fate {
            None => plain,
            Some(PacketFate::Dropped(reason)) => {
                FlowSample { output: not_sent(reason), vlan_out: None, ..plain }
            }
            Some(PacketFate::Leaves { port_out, next_hop, addresses }) => {
                let output = number(self.options.interfaces.get().number_of(port_out));
                let way = |(src, dst)| SampledWay { port_in: sample.port_in, port_out, next_hop, src, dst };
                let complete = self.options.complete.as_mut();
                let known = complete.zip(addresses).map(|(complete, addresses)| complete(&way(addresses)));
                let (router, vlan) = known.unwrap_or_default();
                FlowSample { output, router, vlan_out: vlan.map(u32::from), ..plain }
            }
        }
    }

    fn flush(&mut self) {
        let uptime_ms = u32::try_from(self.started.elapsed().as_millis() & 0xffff_ffff).unwrap_or(0);
        let Some(datagram) = self.writer.take(uptime_ms) else { return };
        let filled = std::mem::take(&mut self.filled);
        let notify = &self.options.notify;
        self.collectors.iter_mut().for_each(|collector| collector.send(&datagram, filled, notify));
        self.tell_statuses();
    }
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().name("sflow".to_owned())
}

fn number(interface: u32) -> Interface {
    if interface == NO_INTERFACE { Interface::Unknown } else { Interface::Number(interface) }
}

/// The output of a packet that a router did not send on.
fn not_sent(reason: DropReason) -> Interface {
    use DropReason::{
        AclDenied, FirewallDenied, FirewallInvalid, FirewallLimit, FirewallNotAsked, Local, MtuExceeded,
        NatFiltered, NoRoute, NotIp, Policed, QueueFull, QueueManaged, ReversePath, TtlExpired, Unreachable,
    };
    Interface::Dropped(match reason {
        // The host thread takes them.
        Local | NotIp => return Interface::Itself,
        NoRoute => discard::NET_UNREACHABLE,
        Unreachable => discard::HOST_UNREACHABLE,
        TtlExpired => discard::TTL_EXCEEDED,
        AclDenied | ReversePath | NatFiltered | FirewallInvalid | FirewallNotAsked | FirewallDenied => {
            discard::ACL
        }
        QueueFull | QueueManaged => discard::NO_BUFFER,
        Policed | FirewallLimit => discard::RATE_LIMIT,
        MtuExceeded => discard::TOO_BIG,
        _ => discard::UNKNOWN,
    })
}

impl Collector {
    /// Sends a datagram; tells of failures at once, and then once a minute.
    fn send(&mut self, datagram: &[u8], filled: Filled, notify: &Notify) {
        let now = Instant::now();
        match self.socket.send(datagram) {
            Ok(()) => {
                self.sent += filled.packets;
                self.counters_sent += filled.counters;
                if let Some(lasted) = self.trouble.end(now) {
                    let (name, lasted) = (&self.name, lasted.as_secs());
                    notify.info(&format!("samples are sent to {name} again, after {lasted} s"));
                }
            }
            Err(error) => {
                self.unsent += filled.samples();
                if self.trouble.note(now) {
                    let (name, unsent) = (&self.name, self.unsent);
                    notify.warn(&format!("samples cannot be sent to {name}, {unsent} so far: {error}"));
                }
                self.last_error = Some(error.to_string());
            }
        }
    }

    fn summary(&self, lost: u64, headless: u64) -> OutletSummary {
        let losses =
            [(SampleLoss::Queue, lost), (SampleLoss::Send, self.unsent), (SampleLoss::NoHeader, headless)];
        let lost = losses.into_iter().filter(|(_, samples)| *samples > 0);
        let refused = self.socket.refused();
        let unheard = "nobody listens there: is the collector running?".to_owned();
        OutletSummary {
            lost: lost.map(|(why, samples)| (why.name().to_owned(), samples)).collect(),
            datagrams_refused: refused,
            datagrams_dropped: self.socket.dropped(),
            counter_samples: self.counters_sent,
            error: if refused > 0 { Some(unheard) } else { self.last_error.clone() },
            ..OutletSummary::all_taken(self.name.clone(), self.sent)
        }
    }
}
