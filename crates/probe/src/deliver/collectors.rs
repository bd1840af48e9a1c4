//! Delivers records to collectors, Kafka topics and ClickHouse tables: to each of them, or distributed by flow.
//!
//! A collector has its own thread and queue. When the queue is full, records of files wait: nothing is lost
//! because a file is read faster than records are sent. Records of live packets do not wait, since everything
//! behind them would have to: they are lost to this collector and counted.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use thalweg_base::mix64;
use thalweg_flow::FlowRecord;
use thalweg_flow::export::{
    Amount, ExportOptions, Fan, Interface, NatEvent, RecordLoss, SamplingMethod, Spread, Statistics,
    Unexportable,
};
use thalweg_flow::{MeterOptions, Sampling};
use thalweg_ports::collector::{
    ClickHouseAddress, ClickHouseOptions, Collector, CollectorAddress, CollectorError, CollectorOptions,
    CollectorReport, Connection, KafkaAddress, KafkaOptions, NotTaken, SpoolOptions,
};
use thalweg_store::{Notify, Trouble};
use thalweg_text::units::count;

use super::{Failing, Finished, Outlet, least_of, messages};
use crate::interfaces::{Interfaces, SharedInterfaces};
use crate::row_binary::RowBinary;
use crate::summary::{OutletStatus, OutletSummary, SPOOLED};
use crate::{ExportTargets, ProbeError};

/// How long the end of the run waits for collectors to take the remaining records.
const LAST_WORDS: Duration = Duration::from_secs(30);
/// The same for a run that was told to end while a collector is unreachable.
const HURRIED: Duration = Duration::from_millis(500);
/// The loss name of records that were sent and not acknowledged.
const IN_FLIGHT: &str = "in-flight";

/// The outlet; see the module documentation.
pub(crate) struct Collectors {
    collectors: Vec<(Collector, Amount)>,
    /// For each, the lost records at the last check, whether losses continue, and whether it fails.
    losses: Vec<(u64, Trouble, Failing)>,
    notify: Notify,
    fan: Fan,
    spread: Spread,
    /// Whether records wait for a full queue.
    waits: bool,
    /// Collectors, by number, whose queue had no room for new interfaces.
    untold: Vec<(usize, Vec<Interface>)>,
}

impl Collectors {
    /// Begins a session with each, and tells of those that cannot be reached yet. Errors as [`Collector::open`].
    pub(crate) fn open(
        targets: &ExportTargets,
        meter: &MeterOptions,
        interfaces: &SharedInterfaces,
        waits: bool,
        notify: Notify,
    ) -> Result<Self, ProbeError> {
        let open = |(number, text): (u32, &String)| {
            if KafkaAddress::is_meant_by(text) {
                let topic = open_topic(targets, &text.parse()?, (number, meter.community_id))?;
                return Ok((topic, Amount::default()));
            }
            if ClickHouseAddress::is_meant_by(text) {
                let table = open_table(targets, &text.parse()?, (number, meter.community_id))?;
                return Ok((table, Amount::default()));
            }
            let address: CollectorAddress = text.parse()?;
            let mut options = options(targets, &address, number, meter, &interfaces.get());
            // A file would have been read before the name is there.
            options.waits_for_name = !waits;
            Ok((Collector::open(&address, options)?, Amount::default()))
        };
        let collectors: Result<Vec<_>, CollectorError> = (0..).zip(&targets.addresses).map(open).collect();
        let collectors = collectors.map_err(ProbeError::Collector)?;
        for (collector, _) in &collectors {
            // Of one with a connection nothing is known yet.
            if let Connection::Down(why) = collector.report().connection {
                let name = collector.name();
                notify.warn(&format!("nothing is exported to {name} yet: {why}; trying again every second"));
            }
        }
        let spread = if targets.balance { Spread::Balance } else { Spread::Duplicate };
        let losses = collectors.iter().map(|_| Default::default()).collect();
        let fan = Fan::new(collectors.len(), spread);
        Ok(Self { fan, spread, collectors, losses, notify, waits, untold: Vec::new() })
    }
}

impl Collectors {
    /// Sends new interfaces to collectors that had no room before.
    fn announce_interfaces(&mut self) {
        let collectors = &self.collectors;
        self.untold.retain(|(number, interfaces)| !collectors[*number].0.set_interfaces(interfaces.clone()));
    }
}

/// Opens a topic, whose messages have the fields of lines.
fn open_topic(
    targets: &ExportTargets,
    address: &KafkaAddress,
    (number, with_community_id): (u32, bool),
) -> Result<Collector, CollectorError> {
    let encode = messages::encode(address.format, with_community_id);
    let options = KafkaOptions::new(encode);
    let options = KafkaOptions { spool: spool(targets, number), tls: targets.tls.clone(), ..options };
    Collector::open_kafka(address, options)
}

/// Opens a table, whose columns are the fields of lines.
fn open_table(
    targets: &ExportTargets,
    address: &ClickHouseAddress,
    (number, with_community_id): (u32, bool),
) -> Result<Collector, CollectorError> {
    let row = RowBinary::new(with_community_id);
    let columns = row.columns();
    let encode = Box::new(move |record: &FlowRecord, rows: &mut Vec<u8>| row.write(record, rows));
    let options = ClickHouseOptions::new(columns, encode);
    let options = ClickHouseOptions { spool: spool(targets, number), tls: targets.tls.clone(), ..options };
    Collector::open_clickhouse(address, options)
}

/// Each collector has its own folder in the spool.
fn spool(targets: &ExportTargets, number: u32) -> Option<SpoolOptions> {
    targets.spool.as_ref().map(|spool| SpoolOptions {
        folder: spool.folder.join(number.to_string()),
        bytes_max: spool.bytes_max / targets.addresses.len().max(1) as u64,
    })
}

/// The options of one collector: those of all targets, with its own observation domain.
fn options(
    targets: &ExportTargets,
    address: &CollectorAddress,
    number: u32,
    meter: &MeterOptions,
    interfaces: &Interfaces,
) -> CollectorOptions {
    let mut options = CollectorOptions::new(address);
    options.tls = targets.tls.clone();
    options.datagrams_per_s_max = targets.datagrams_per_s_max;
    options.one_by_one = targets.one_by_one;
    options.spool = spool(targets, number);
    options.export = ExportOptions {
        observation_domain: targets.observation_domain.wrapping_add(number),
        sampling: match meter.sampling {
            Sampling::Random { .. } => SamplingMethod::Random,
            Sampling::All | Sampling::Count { .. } => SamplingMethod::Systematic,
        },
        sampling_interval: meter.sampling.interval(),
        interfaces: interfaces.for_export(),
        ..options.export
    };
    options
}

/// Passes on a batch; counts it if it is not taken.
fn hand_over((collector, refused): &mut (Collector, Amount), batch: Vec<FlowRecord>, waits: bool) {
    let handed = if waits { collector.send(batch) } else { collector.try_send(batch) };
    if let Err(NotTaken::Full(batch) | NotTaken::Ended(batch)) = handed {
        *refused += Amount::of_all(&batch);
    }
}

impl Outlet for Collectors {
    fn take(&mut self, records: &[FlowRecord]) -> Result<(), ProbeError> {
        let (collectors, waits) = (&mut self.collectors, self.waits);
        self.fan.share(records, |number, share| {
            if let Some(to) = collectors.get_mut(number) {
                hand_over(to, share.to_vec(), waits);
            }
        });
        Ok(())
    }

    fn take_all(&mut self, batch: Vec<FlowRecord>) -> Result<Option<Vec<FlowRecord>>, ProbeError> {
        let alone = self.collectors.len() == 1;
        match self.collectors.split_last_mut() {
            Some((last, others)) if alone || self.spread == Spread::Duplicate => {
                others.iter_mut().for_each(|to| hand_over(to, batch.clone(), self.waits));
                hand_over(last, batch, self.waits);
                Ok(None)
            }
            _ => self.take(&batch).map(|()| Some(batch)),
        }
    }

    /// When flows are distributed, all events of a subscriber go to one collector.
    fn take_nat_events(&mut self, events: Vec<NatEvent>) {
        let count = self.collectors.len();
        let mut shares = vec![Vec::new(); count];
        match self.spread {
            Spread::Duplicate => shares.fill(events),
            _ => events.into_iter().for_each(|event| {
                let number = event.subscriber().map_or(0, |subscriber| by_subscriber(subscriber, count));
                shares[number].push(event);
            }),
        }
        for ((collector, refused), share) in self.collectors.iter_mut().zip(shares) {
            if !share.is_empty()
                && let Err(events) = collector.try_send_nat_events(share)
            {
                refused.records += events.len() as u64;
            }
        }
    }

    fn tick(&mut self) -> Result<(), ProbeError> {
        // Collectors have their own threads and timers.
        Ok(())
    }

    fn handle_interfaces(&mut self, interfaces: &Interfaces) {
        let (told, all) = (interfaces.for_export(), self.collectors.iter());
        self.untold = (0..).zip(all).map(|(number, _)| (number, told.clone())).collect();
        self.announce_interfaces();
    }

    fn handle_statistics(&mut self, statistics: &Statistics) {
        self.announce_interfaces();
        for (collector, refused) in &self.collectors {
            let not_sent =
                [collector.report().lost_in_all(), *refused, statistics.not_sent].into_iter().sum();
            collector.set_statistics(Statistics { not_sent, ..statistics.clone() });
        }
    }

    fn status(&mut self) -> Vec<OutletStatus> {
        let mut statuses = Vec::with_capacity(self.collectors.len());
        for ((collector, refused), (known, trouble, failing)) in self.collectors.iter().zip(&mut self.losses)
        {
            let report = collector.report();
            let mut status = status(summary(collector.name().to_owned(), &report, *refused));
            let lost = status.lost_in_all();
            report_losses(&status, lost > std::mem::replace(known, lost), trouble, &self.notify);
            if !fails(&report, failing.lately(lost + report.datagrams_refused, Instant::now())) {
                status.error = None;
            }
            statuses.push(status);
        }
        statuses
    }

    fn finish(self: Box<Self>, hurried: bool) -> Result<Finished, ProbeError> {
        let mut summaries = Vec::new();
        let mut missed: Option<Amount> = None;
        for (collector, refused) in self.collectors {
            let name = collector.name().to_owned();
            let is_down = matches!(collector.report().connection, Connection::Down(_));
            let report = collector.finish(if hurried && is_down { HURRIED } else { LAST_WORDS });
            let own = missed_of(&report, refused);
            missed = Some(match (missed, self.spread) {
                (None, _) => own,
                (Some(least), Spread::Duplicate) => least_of(least, own),
                (Some(sum), _) => [sum, own].into_iter().sum(),
            });
            summaries.push(summary(name, &report, refused));
        }
        Ok(Finished { summaries, missed: missed.unwrap_or_default() })
    }
}

/// The collector that gets a subscriber's events.
fn by_subscriber(subscriber: IpAddr, collectors: usize) -> usize {
    let number = match subscriber {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits() as u64 ^ (v6.to_bits() >> 64) as u64,
    };
    (mix64(number) % collectors.max(1) as u64) as usize
}

/// Records that did not reach a collector, as far as known.
fn missed_of(report: &CollectorReport, refused: Amount) -> Amount {
    let lost = [report.lost_in_all(), report.unexportable_in_all(), report.in_flight, report.spooled];
    lost.into_iter().chain([refused]).sum()
}

/// Whether a collector takes nothing at present. A summary has the last error, which may be long past.
fn fails(report: &CollectorReport, lately: bool) -> bool {
    match report.connection {
        Connection::Down(_) => true,
        Connection::Up => lately && report.spool_error.is_some(),
        Connection::Unknown => lately,
    }
}

/// Derives a collector's status from its summary.
pub(crate) fn status(summary: OutletSummary) -> OutletStatus {
    let OutletSummary { to, records, mut lost, counter_samples, interfaces_uncounted, error, .. } = summary;
    let (datagrams_refused, datagrams_dropped) = (summary.datagrams_refused, summary.datagrams_dropped);
    let waiting = [IN_FLIGHT, SPOOLED].map(|name| lost.remove(name).unwrap_or(0)).iter().sum();
    let error = error.filter(|_| waiting > 0 || !lost.is_empty());
    OutletStatus {
        to,
        records,
        waiting,
        lost,
        sflow: false,
        counter_samples,
        interfaces_uncounted,
        datagrams_refused,
        datagrams_dropped,
        error,
    }
}

/// Reports losses to a collector: at once, and again when they stop.
fn report_losses(status: &OutletStatus, is_losing: bool, trouble: &mut Trouble, notify: &Notify) {
    let lost = count(status.lost_in_all());
    if is_losing && trouble.note(Instant::now()) {
        let reasons: Vec<&str> = status.lost.keys().map(String::as_str).collect();
        let why = status.error.as_ref().map_or(String::new(), |error| format!(": {error}"));
        let (to, reasons) = (&status.to, reasons.join(", "));
        notify.warn(&format!("flow records are lost on the way to {to} ({reasons}), {lost} so far{why}"));
    } else if !is_losing && let Some(lasted) = trouble.end(Instant::now()) {
        let (to, lasted) = (&status.to, lasted.as_secs());
        notify.info(&format!(
            "no more flow records are lost on the way to {to}, after {lasted} s and {lost} records"
        ));
    }
}

fn summary(to: String, report: &CollectorReport, refused: Amount) -> OutletSummary {
    let losses = RecordLoss::ALL.iter().map(|loss| loss.name()).zip(&report.lost);
    let unexportable = Unexportable::ALL.iter().map(|why| why.name()).zip(&report.export.unexportable);
    let queue_full = RecordLoss::CollectorQueue.name();
    let waiting = [(queue_full, &refused), (IN_FLIGHT, &report.in_flight), (SPOOLED, &report.spooled)];
    let mut lost = BTreeMap::new();
    for (name, amount) in losses.chain(unexportable).chain(waiting) {
        if amount.records > 0 {
            *lost.entry(name.to_owned()).or_default() += amount.records;
        }
    }
    let Amount { records, packets, bytes } = report.sent;
    let datagrams_refused = report.datagrams_refused;
    let error = match (&report.connection, datagrams_refused) {
        _ if lost.is_empty() && datagrams_refused == 0 => None,
        _ if report.spool_error.is_some() => report.spool_error.clone(),
        (_, 1..) => Some("nobody listens there: is the collector running?".to_owned()),
        (Connection::Down(why), _) => Some(why.clone()),
        _ => report.last_error.clone(),
    };
    let datagrams_dropped = report.datagrams_dropped;
    OutletSummary {
        to,
        records,
        packets,
        bytes,
        lost,
        datagrams_refused,
        datagrams_dropped,
        error,
        ..OutletSummary::default()
    }
}

#[cfg(test)]
mod tests;
