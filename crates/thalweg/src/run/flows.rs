//! Flow records of the running router: completed with what its tables know, and delivered.
//!
//! A record is completed when it is made, not when its packets passed: next hop and autonomous systems are what the tables say
//! then. What is known of an address is kept for some seconds, as records come in swarms and the same addresses in many.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use thalweg_flow::export::NatEvent;
use thalweg_flow::{FlowRecord, Meter, MeterTotals, NO_AS, NO_INTERFACE};
use thalweg_node::config::{Driver, FlowsConfig, KeepConfig, PortConfig, RouterConfig};
use thalweg_node::forwarding::FibForwarding;
use thalweg_node::plan::RecordOutlet;
use thalweg_node::speaker::{Speaker, Towards};
use thalweg_ports::live::link::Links;
use thalweg_probe::{
    AskInterfaces, ExportTargets, Interfaces, PortInterface, StandingDelivery, StandingOptions, StandingWay,
};
use thalweg_store::{Notify, Retention, Severity};

use crate::Failure;

/// How long an answer of the tables is kept.
const KEPT: Duration = Duration::from_secs(5);
/// Addresses of which answers are kept.
const ADDRESSES_MAX: usize = 1 << 16;

/// Tells the meter's books: the router is there only after the delivery.
pub(super) type BooksOfRouter = Arc<OnceLock<Box<dyn Fn() -> Option<MeterTotals> + Send + Sync>>>;

/// Shows the meter, as soon as there is one.
type MeterOfRouter = Arc<OnceLock<Box<dyn Fn() -> Option<Arc<Meter>> + Send + Sync>>>;

/// Delivery of flow records.
pub(super) struct FlowSide {
    delivery: Mutex<Option<StandingDelivery>>,
    outlet: Arc<Outlet>,
    speaker: Arc<OnceLock<Arc<Speaker>>>,
    books: BooksOfRouter,
    meter: MeterOfRouter,
}

/// The way for the packet side.
struct Outlet(StandingWay);

impl RecordOutlet for Outlet {
    fn take(&self, records: &mut Vec<FlowRecord>) {
        self.0.take(records);
    }

    fn take_nat_events(&self, events: &mut Vec<NatEvent>, dropped: u64) {
        self.0.take_nat_events(events, dropped);
    }

    fn flush(&self) {
        self.0.flush();
    }
}

impl FlowSide {
    /// Opens collectors and store.
    pub(super) fn start(
        flows: &FlowsConfig,
        config: &RouterConfig,
        tables: &Arc<FibForwarding>,
    ) -> Result<Self, Failure> {
        let speaker = Arc::new(OnceLock::new());
        let (books, meter) = (BooksOfRouter::default(), MeterOfRouter::default());
        let shown = meter.clone();
        let (told, mut known) = (books.clone(), Known::new(tables.clone(), speaker.clone()));
        let options = StandingOptions {
            export: ExportTargets {
                addresses: flows.collectors.clone(),
                balance: flows.balance,
                observation_domain: flows.observation_domain,
                one_by_one: !flows.gso,
                ..ExportTargets::default()
            },
            store: flows.store.clone(),
            retention: retention(&flows.keep),
            notify: Notify::new(|severity, text| match severity {
                Severity::Info => tracing::info!("[flows] store: {text}"),
                Severity::Warning => tracing::warn!("[flows] store: {text}"),
            }),
            meter: flows.meter.clone(),
            interfaces: interfaces_of(config),
            ask: Box::new(move || told.get().and_then(|books| books()).into_iter().collect()),
            meters: Box::new(move || shown.get().and_then(|meter| meter()).into_iter().collect()),
            complete: Box::new(move |record| known.complete(record)),
        };
        let started = StandingDelivery::start(options);
        let (delivery, way) = started.map_err(|error| Failure::Run(format!("[flows]: {error}")))?;
        tracing::info!(collectors = flows.collectors.len(), store = ?flows.store, "metering flows");
        let (delivery, outlet) = (Mutex::new(Some(delivery)), Arc::new(Outlet(way)));
        Ok(Self { delivery, outlet, speaker, books, meter })
    }

    /// The way for records.
    pub(super) fn outlet(&self) -> Arc<dyn RecordOutlet> {
        self.outlet.clone()
    }

    /// From now on BGP is asked too.
    pub(super) fn set_speaker(&self, speaker: &Arc<Speaker>) {
        // There is one.
        let _ = self.speaker.set(speaker.clone());
    }

    /// From now on collectors are told these books.
    pub(super) fn set_books(&self, books: impl Fn() -> Option<MeterTotals> + Send + Sync + 'static) {
        // They are set once, by whoever started the router.
        let _ = self.books.set(Box::new(books));
    }

    /// From now on answers from the dataset have the flows of this meter.
    pub(super) fn set_meter(&self, meter: impl Fn() -> Option<Arc<Meter>> + Send + Sync + 'static) {
        // It is set once, as the books are.
        let _ = self.meter.set(Box::new(meter));
    }

    /// Records and packets that found the queue full.
    pub(super) fn lost(&self) -> (u64, u64) {
        let lost = self.outlet.0.lost();
        (lost.records, lost.packets)
    }

    /// Events of NAT handed over, and lost.
    pub(super) fn nat_events(&self) -> (u64, u64) {
        self.outlet.0.nat_events()
    }

    /// Delivers what there is. No more records come.
    pub(super) fn finish(&self) {
        self.outlet.0.close();
        let delivery = self.delivery.lock().unwrap_or_else(PoisonError::into_inner).take();
        match delivery.map(StandingDelivery::finish) {
            Some(Ok(outlets)) => {
                for outlet in outlets {
                    match outlet.failure() {
                        None => {
                            tracing::info!(to = outlet.to, records = outlet.records, lost = ?outlet.lost, "flow records");
                        }
                        Some(failure) => {
                            tracing::error!(
                                to = outlet.to,
                                records = outlet.records,
                                "flow records: {failure}"
                            );
                        }
                    }
                }
            }
            Some(Err(error)) => tracing::error!("flow records were lost: {error}"),
            None => {}
        }
    }
}

/// A router runs unattended: where its disk runs full the oldest records go.
fn retention(keep: &KeepConfig) -> Retention {
    Retention { age_max_s: keep.age_s, bytes_max: keep.bytes, free_min: keep.free, makes_room: true }
}

/// Finds the numbers of the ports' interfaces. A VLAN's port has its mirror's, or without one its parent's. Ports of which the
/// system has no interface (DPDK's, those of a replay) have the smallest numbers that nobody else has.
fn interfaces_of(config: &RouterConfig) -> AskInterfaces {
    /// A port's name, and its interface's.
    type Named = (String, Option<String>);
    let interface = |port: &PortConfig| -> Option<String> {
        let own = port.interface.as_ref();
        match port.sub_interface {
            Some(sub) => own.and_then(|own| own.mirror.clone()).or_else(|| {
                let parent = config.ports.get(usize::from(sub.parent))?;
                parent.interface.as_ref().map(|parent| parent.name.clone())
            }),
            None => own.filter(|own| own.driver != Driver::Dpdk).map(|own| own.name.clone()),
        }
    };
    let ports: Vec<Named> = config.ports.iter().map(|port| (port.name.clone(), interface(port))).collect();
    let links = Links::open().ok();
    Box::new(move || {
        let index = |name: &String| links.as_ref().and_then(|links| links.index(name).ok());
        let known: Vec<Option<u32>> = ports.iter().map(|(_, of)| of.as_ref().and_then(index)).collect();
        let mut free = (1..).filter(|number| !known.contains(&Some(*number)));
        let number = |(of, known): (&Option<String>, &Option<u32>)| match of {
            // It is not there at present.
            Some(_) => known.unwrap_or(NO_INTERFACE),
            None => free.next().unwrap_or(NO_INTERFACE),
        };
        let numbers: Vec<u32> = ports.iter().map(|(_, of)| of).zip(&known).map(number).collect();
        let port = |((name, _), number): (&Named, u32)| PortInterface { number, name: name.clone() };
        Interfaces::new(ports.iter().zip(numbers).map(port).collect())
    })
}

/// What the router's tables know of addresses.
struct Known {
    tables: Arc<FibForwarding>,
    speaker: Arc<OnceLock<Arc<Speaker>>>,
    of: HashMap<IpAddr, About>,
    since: Instant,
}

/// What they know of one.
#[derive(Clone, Copy)]
struct About {
    next_hop: Option<IpAddr>,
    bgp: Option<Towards>,
}

impl Known {
    fn new(tables: Arc<FibForwarding>, speaker: Arc<OnceLock<Arc<Speaker>>>) -> Self {
        Self { tables, speaker, of: HashMap::new(), since: Instant::now() }
    }

    /// Completes a record. Its addresses are taken as they are outside: behind the translation where the source was
    /// translated.
    fn complete(&mut self, record: &mut FlowRecord) {
        if self.of.len() >= ADDRESSES_MAX || self.since.elapsed() > KEPT {
            (self.of, self.since) = (HashMap::new(), Instant::now());
        }
        let source = record.translation.map_or(record.key.src, |after| after.src);
        let destination = record.translation.map_or(record.key.dst, |after| after.dst);
        let towards = self.about(destination);
        record.next_hop = towards.next_hop;
        record.bgp_next_hop = towards.bgp.map(|bgp| bgp.next_hop);
        record.dst_as = towards.bgp.map_or(NO_AS, |bgp| bgp.origin_as);
        record.src_as = self.about(source).bgp.map_or(NO_AS, |bgp| bgp.origin_as);
    }

    fn about(&mut self, address: IpAddr) -> About {
        if let Some(known) = self.of.get(&address) {
            return *known;
        }
        let next_hop = self.tables.with_tables(|tables| {
            let (hop, _) = tables.fib().lookup(address);
            tables.ways_of(hop, Some(address)).first().and_then(|(_, neighbour, _)| *neighbour)
        });
        let bgp = self.speaker.get().and_then(|speaker| speaker.towards(address));
        let about = About { next_hop: next_hop.filter(|neighbour| *neighbour != address), bgp };
        self.of.insert(address, about);
        about
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The loopback interface is there everywhere, and is number 1.
    #[test]
    fn ports_have_the_numbers_of_their_interfaces() {
        let port = |name: &str, net: u8, interface: &str| {
            format!(
                "[ports.{name}]\nmac = \"02:00:00:00:00:0{net}\"\naddresses = [\"192.0.2.{}/28\"]\n{interface}",
                16 * net + 1
            )
        };
        let text = [
            port("files", 1, ""),
            port("lan", 2, "interface = \"lo\"\n"),
            port("gone", 3, "interface = \"nosuch0\"\n"),
            port("more", 4, ""),
        ];
        let config = RouterConfig::from_text("test.toml", &text.concat(), Path::new("")).expect("a router");
        let number = |number, name: &str| PortInterface { number, name: name.to_owned() };
        let expected =
            [number(2, "files"), number(1, "lan"), number(NO_INTERFACE, "gone"), number(3, "more")];
        assert_eq!(interfaces_of(&config)(), Interfaces::new(expected.to_vec()));
    }
}
