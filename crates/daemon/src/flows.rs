//! Flow records of the running router: completed from its tables, and delivered.
//!
//! A record is completed when it is made, not when its packets passed: next hop and AS numbers are those of that
//! moment. Answers of the tables are cached for some seconds, because records come in bursts and many share
//! addresses.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use thalweg_base::{Name, PacketSample};
use thalweg_config::{Driver, FlowsConfig, KeepConfig, PortConfig, RouterConfig, SpoolConfig, VrfIndex};
use thalweg_flow::alarm::{AlarmAction, AlarmReport};
use thalweg_flow::export::NatEvent;
use thalweg_flow::{FlowRecord, MeterTotals, NO_AS, NO_INTERFACE, Watch};
use thalweg_node::forwarding::ForwardingTables;
use thalweg_node::plan::Meter;
use thalweg_node::plan::RecordOutlet;
use thalweg_node::speaker::{BestPathTo, Speaker};
use thalweg_ports::live::link::Links;
use thalweg_probe::{
    AlarmOptions, AskInterfaces, EnrichFiles, Enrichment, ExportTargets, Interfaces, KeepOptions,
    OutletStatus, PortCount, PortInterface, ReadCounters, RouterDelivery, RouterDeliveryOptions, RouterWay,
    SampledWay, SflowOptions, Spool, TlsOptions, kernel_counters,
};
use thalweg_store::{Notify, Retention, RollupRetention, Severity};
use thalweg_wire::sflow::{InterfaceCounters, Router};

use crate::blackholes::{Announced, Blackholes, SharedAnnounced};
use crate::error::RunError;

/// How long an answer of the tables is cached.
const KEPT: Duration = Duration::from_secs(5);
/// Addresses with a cached answer.
const ADDRESSES_MAX: usize = 1 << 16;

/// Returns the meter's totals. Set later, because the router starts after the delivery.
pub(crate) type RouterTotals = Arc<OnceLock<Box<dyn Fn() -> Option<MeterTotals> + Send + Sync>>>;

/// Returns the meter. Set later too.
type MeterOfRouter = Arc<OnceLock<Box<dyn Fn() -> Option<Arc<Meter>> + Send + Sync>>>;

/// Returns what the router itself counts of a port. Set later too.
type CountersOfRouter = Arc<OnceLock<Box<dyn Fn(u16) -> Option<InterfaceCounters> + Send + Sync>>>;

/// What records say of a port.
#[derive(Clone)]
struct NamedPort {
    name: String,
    interface: Option<String>,
    vrf: VrfIndex,
    /// Of a sub-interface.
    vlan: Option<u16>,
    counted: Counted,
}

/// Who counts what passes a port's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Kernel,
    /// The router itself, as packets of this port.
    Router(u16),
    /// The port was removed.
    Nobody,
}

type NamedPorts = Arc<Mutex<Vec<NamedPort>>>;

/// Delivery of flow records.
pub(crate) struct FlowSide {
    ports: NamedPorts,
    delivery: Mutex<Option<RouterDelivery>>,
    outlet: Arc<Outlet>,
    speaker: Arc<OnceLock<Arc<Speaker>>>,
    totals: RouterTotals,
    meter: MeterOfRouter,
    counters: CountersOfRouter,
    announced: SharedAnnounced,
}

/// Passes records of the packet side to the delivery.
struct Outlet(RouterWay);

impl RecordOutlet for Outlet {
    fn take(&self, records: &mut Vec<FlowRecord>) {
        self.0.take(records);
    }

    fn take_nat_events(&self, events: &mut Vec<NatEvent>, dropped: u64) {
        self.0.take_nat_events(events, dropped);
    }

    fn take_samples(&self, samples: &mut Vec<PacketSample>) {
        self.0.take_samples(samples);
    }

    fn add_to_pool(&self, port: u16, packets: u32) {
        self.0.add_to_pool(port, packets);
    }

    fn watcher(&self) -> Option<Box<dyn Watch>> {
        self.0.watcher()
    }

    fn flush(&self) {
        self.0.flush();
    }
}

impl FlowSide {
    /// Opens collectors and dataset.
    pub(crate) fn start(
        flows: &FlowsConfig,
        config: &RouterConfig,
        tables: &Arc<ForwardingTables>,
    ) -> Result<Self, RunError> {
        let speaker = Arc::new(OnceLock::new());
        let (totals, meter) = (RouterTotals::default(), MeterOfRouter::default());
        let (shown, ports) = (meter.clone(), NamedPorts::default());
        name_ports(&ports, config);
        let counters = CountersOfRouter::default();
        let (told, mut known) = (totals.clone(), Known::new(tables.clone(), speaker.clone(), ports.clone()));
        let notify = Notify::new(|severity, text| match severity {
            Severity::Info => tracing::info!("[flows]: {text}"),
            Severity::Warning => tracing::warn!("[flows]: {text}"),
        });
        let announced = SharedAnnounced::default();
        let blackholes = Blackholes::new(&config.alarms, &speaker, &notify, &announced);
        let files =
            EnrichFiles { rib: None, databases: flows.mmdb.clone(), networks: flows.networks.clone() };
        let enrichment = (!files.is_empty()).then(|| Enrichment::start(&files, &notify)).transpose();
        let mut enrich =
            enrichment.map_err(|error| RunError::Flows(error.into()))?.map(|files| files.completion());
        let tls = TlsOptions {
            authorities: flows.tls.authorities.clone(),
            server_name: None,
            identity: flows.tls.identity.clone(),
        };
        let options = RouterDeliveryOptions {
            export: ExportTargets {
                addresses: flows.collectors.clone(),
                balance: flows.balance,
                observation_domain: flows.observation_domain,
                spool: flows
                    .spool
                    .clone()
                    .map(|SpoolConfig { folder, bytes }| Spool { folder, bytes_max: bytes }),
                tls: tls.clone(),
                datagrams_per_s_max: None,
                one_by_one: !flows.gso,
                sflow: SflowOptions {
                    sampling: flows.sflow,
                    agent: agent_of(flows, config),
                    counters: SflowOptions::every_s(flows.sflow_counters_s),
                },
            },
            exporter: flows.exporter.clone(),
            store: flows.store.clone(),
            keep: KeepOptions {
                retention: retention(&flows.keep),
                iceberg: flows.iceberg,
                archive: flows.archive.clone(),
                feed: flows.feed.clone(),
                feed_tls: tls.clone(),
            },
            notify,
            meter: flows.meter.clone(),
            interfaces: interfaces_of(ports.clone()),
            ask: Box::new(move || told.get().and_then(|totals| totals()).into_iter().collect()),
            meters: Box::new(move || shown.get().and_then(|meter| meter()).into_iter().collect()),
            complete: Box::new(move |record| {
                known.complete(record);
                if let Some(enrich) = &mut enrich {
                    enrich(record);
                }
            }),
            complete_sample: {
                let (tables, ports) = (tables.clone(), ports.clone());
                Box::new(move |way| (route_of(&tables, &ports, way), vlan_of(&ports, way.port_out)))
            },
            counters: counters_of(ports.clone(), counters.clone()),
            alarms: AlarmOptions { rules: config.alarms.clone(), webhook: flows.alarm_webhook.clone() },
            action: blackholes.map(|blackholes| Box::new(blackholes) as Box<dyn AlarmAction>),
        };
        let (delivery, way) = RouterDelivery::start(options).map_err(RunError::Flows)?;
        tracing::info!(collectors = flows.collectors.len(), store = ?flows.store, "metering flows");
        let (delivery, outlet) = (Mutex::new(Some(delivery)), Arc::new(Outlet(way)));
        Ok(Self { ports, delivery, outlet, speaker, totals, meter, counters, announced })
    }

    /// The receiver of records.
    pub(crate) fn outlet(&self) -> Arc<dyn RecordOutlet> {
        self.outlet.clone()
    }

    /// Applies another configuration, as far as it may change while flows are delivered. Records of removed ports may
    /// still come.
    pub(crate) fn apply(&self, config: &RouterConfig) {
        name_ports(&self.ports, config);
        self.outlet.0.ask_again();
        if let (Some(delivery), Some(flows)) = (&*self.delivery.lock(), &config.flows) {
            delivery.set_counters_interval(SflowOptions::every_s(flows.sflow_counters_s));
        }
    }

    /// Completes records from BGP too from now on.
    pub(crate) fn set_speaker(&self, speaker: &Arc<Speaker>) {
        // An error means that it is set already.
        let _ = self.speaker.set(speaker.clone());
    }

    /// Reports these totals to collectors from now on.
    pub(crate) fn set_totals(&self, totals: impl Fn() -> Option<MeterTotals> + Send + Sync + 'static) {
        // An error means that they are set already: the router starts once.
        let _ = self.totals.set(Box::new(totals));
    }

    /// Includes the flows of this meter in answers from the dataset from now on.
    pub(crate) fn set_meter(&self, meter: impl Fn() -> Option<Arc<Meter>> + Send + Sync + 'static) {
        // An error means that it is set already, like the totals.
        let _ = self.meter.set(Box::new(meter));
    }

    /// Takes counters of ports that the kernel does not count from here from now on.
    pub(crate) fn set_counters(
        &self,
        counters: impl Fn(u16) -> Option<InterfaceCounters> + Send + Sync + 'static,
    ) {
        // An error means that they are set already, like the totals.
        let _ = self.counters.set(Box::new(counters));
    }

    /// Records and packets lost because the queue was full.
    pub(crate) fn lost(&self) -> (u64, u64) {
        let lost = self.outlet.0.lost();
        (lost.records, lost.packets)
    }

    /// What alarms there are.
    pub(crate) fn alarms(&self) -> AlarmReport {
        let Announced { routes, refused } = self.announced.lock().clone();
        let mut report = self.outlet.0.alarms();
        report.blackholes = routes;
        report.counters.blackholes_refused = refused;
        report
    }

    /// NAT events handed over, and lost.
    pub(crate) fn nat_events(&self) -> (u64, u64) {
        self.outlet.0.nat_events()
    }

    /// The state of collectors and dataset, and how often the wall clock was set.
    pub(crate) fn outlets(&self) -> (Vec<OutletStatus>, u64) {
        let delivery = self.delivery.lock();
        delivery.as_ref().map(|delivery| (delivery.statuses(), delivery.clock_steps())).unwrap_or_default()
    }

    /// Delivers the remaining records; no more may come. Fails if any were lost.
    pub(crate) fn finish(&self) -> Result<(), RunError> {
        self.outlet.0.close();
        let delivery = self.delivery.lock().take();
        let Some(delivery) = delivery else { return Ok(()) };
        let outlets = delivery.finish().map_err(RunError::FlowDelivery)?;
        let mut failures = Vec::new();
        for outlet in outlets {
            let (to, records) = (&outlet.to, outlet.records);
            match outlet.failure() {
                None => tracing::info!(to, records, lost = ?outlet.lost, "flow records"),
                // Records may have arrived nevertheless, or later when the collector was back.
                Some(failure) if outlet.lost.is_empty() => {
                    tracing::warn!(to, records, "flow records: {failure}")
                }
                Some(failure) => {
                    tracing::error!(to, records, "flow records: {failure}");
                    failures.push(format!("[flows]: {failure}"));
                }
            }
        }
        failures.extend(self.lost_before_export());
        if failures.is_empty() { Ok(()) } else { Err(RunError::FlowRecordsLost(failures)) }
    }

    /// Sentences about what was lost before it reached a collector or the dataset.
    fn lost_before_export(&self) -> Vec<String> {
        let ((records, packets), (_, nat_events)) = (self.lost(), self.nat_events());
        let full = "the queue to collectors and store was full";
        let mut lost = Vec::new();
        if records > 0 {
            lost.push(format!(
                "[flows]: {records} flow records of {packets} packets were lost before export: {full}"
            ));
        }
        if nat_events > 0 {
            lost.push(format!("[flows]: {nat_events} events of NAT were lost before export: {full}"));
        }
        lost
    }
}

/// A router runs unattended: if its disk runs full, the oldest records are removed.
fn retention(keep: &KeepConfig) -> Retention {
    Retention {
        age_max_s: keep.age_s,
        bytes_max: keep.bytes,
        free_min: keep.free,
        makes_room: true,
        rollups: RollupRetention { minutes_s: keep.minutes_s, hours_s: keep.hours_s },
        archive_age_max_s: keep.archive_s,
    }
}

/// Sets the names of ports and their interfaces; removed ports keep theirs. A VLAN's port has its mirror or else
/// its parent's interface.
fn name_ports(named: &NamedPorts, config: &RouterConfig) {
    let interface = |port: &PortConfig| -> Option<String> {
        let own = port.interface.as_ref();
        match port.sub_interface {
            Some(sub) => own.and_then(|own| own.mirror.clone()).or_else(|| {
                let parent = config.ports.get(usize::from(sub.parent))?;
                parent.interface.as_ref().map(|parent| parent.name.clone())
            }),
            None => own
                .filter(|own| !matches!(own.driver, Driver::Dpdk | Driver::Capture))
                .map(|own| own.name.clone()),
        }
    };
    let mut named = named.lock();
    for (place, port) in config.ports.iter().enumerate() {
        let vlan = port.sub_interface.map(|sub| sub.vlan);
        let interface = interface(port);
        let counted = counted(config, place);
        let now = NamedPort { name: port.name.clone(), interface, vrf: port.vrf, vlan, counted };
        match named.get_mut(place) {
            Some(removed) if port.is_vacant() => removed.counted = Counted::Nobody,
            Some(known) => *known = now,
            None => named.push(now),
        }
    }
}

/// Who counts a port's packets. The kernel does not see those of DPDK. The directions of a TAP are those of its other end.
/// A VLAN's mirror has only what the host itself sends and receives; without one, the interface is the parent's.
fn counted(config: &RouterConfig, place: usize) -> Counted {
    let interface_of = |place: usize| config.ports.get(place).and_then(|port| port.interface.as_ref());
    let has_mirror = interface_of(place).is_some_and(|own| own.mirror.is_some());
    let vlan = config.ports.get(place).and_then(|port| port.sub_interface);
    let carrier = match vlan {
        Some(sub) if !has_mirror => usize::from(sub.parent),
        _ => place,
    };
    let is_kernels = interface_of(carrier).is_some_and(|own| own.driver.takes_interface());
    match is_kernels && !(vlan.is_some() && has_mirror) {
        true => Counted::Kernel,
        false => Counted::Router(u16::try_from(carrier).unwrap_or(thalweg_base::NO_PORT)),
    }
}

/// Finds the indexes of the ports' interfaces. Ports without one in the system (DPDK, captures) get the smallest
/// unused numbers.
fn interfaces_of(ports: NamedPorts) -> AskInterfaces {
    let links = Links::open().ok();
    Box::new(move || {
        let ports = ports.lock().clone();
        let index = |name: &String| links.as_ref().and_then(|links| links.index(name).ok());
        let known: Vec<Option<u32>> =
            ports.iter().map(|port| port.interface.as_ref().and_then(index)).collect();
        let mut free = (1..).filter(|number| !known.contains(&Some(*number)));
        let number = |(of, known): (&Option<String>, &Option<u32>)| match of {
            // The interface does not exist at present.
            Some(_) => known.unwrap_or(NO_INTERFACE),
            None => free.next().unwrap_or(NO_INTERFACE),
        };
        let interfaces = ports.iter().map(|port| &port.interface);
        let numbers: Vec<u32> = interfaces.zip(&known).map(number).collect();
        let names = ports.into_iter().map(|port| port.name);
        let port = |(name, number): (String, u32)| PortInterface { number, name };
        Interfaces::new(names.zip(numbers).map(port).collect())
    })
}

/// Reads the counters of ports: the kernel's where it counts a port's packets, else the router's own.
fn counters_of(ports: NamedPorts, own: CountersOfRouter) -> ReadCounters {
    let mut of_kernel = kernel_counters();
    Box::new(move |port, number| {
        let counted = ports.lock().get(usize::from(port)).map_or(Counted::Nobody, |port| port.counted);
        match counted {
            Counted::Kernel => of_kernel(port, number),
            Counted::Router(port) => {
                let Some(own) = own.get() else { return PortCount::Absent };
                own(port).map(|counters| InterfaceCounters { interface: number, ..counters }).into()
            }
            Counted::Nobody => PortCount::Absent,
        }
    })
}

/// The address by which collectors of sFlow know the router: one that stays when routes change.
fn agent_of(flows: &FlowsConfig, config: &RouterConfig) -> Option<IpAddr> {
    let router_id = config.bgp.as_ref().map(|bgp| IpAddr::from(bgp.router_id));
    let of_ports = || config.ports.iter().flat_map(|port| &port.addresses).map(|prefix| prefix.addr()).next();
    flows.sflow_agent.or(router_id).or_else(of_ports)
}

/// The route of a sampled packet: the next hop is that of the way it takes, masks are those of the table's routes.
fn route_of(tables: &ForwardingTables, ports: &NamedPorts, way: &SampledWay) -> Option<Router> {
    let vrf = ports.lock().get(usize::from(way.port_in))?.vrf;
    let tables = tables.read();
    let hop =
        tables.ways_of(way.next_hop, Some(way.dst)).into_iter().find(|(port, ..)| *port == way.port_out);
    let length = |address| tables.fib().lookup(vrf, address).1.map_or(0, |prefix| prefix.length().into());
    // sFlow has the unspecified address for a destination on the network itself.
    let unspecified = if way.dst.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let next_hop = hop.and_then(|(_, hop, _)| hop).filter(|hop| *hop != way.dst).unwrap_or(unspecified);
    Some(Router { next_hop, src_prefix_length: length(way.src), dst_prefix_length: length(way.dst) })
}

fn vlan_of(ports: &NamedPorts, port: u16) -> Option<u16> {
    ports.lock().get(usize::from(port))?.vlan
}

/// The cached answers of the router's tables.
struct Known {
    tables: Arc<ForwardingTables>,
    speaker: Arc<OnceLock<Arc<Speaker>>>,
    ports: NamedPorts,
    of: HashMap<(VrfIndex, IpAddr), About>,
    /// By the name of a port, if there are several tables.
    vrfs: Option<HashMap<Name, VrfIndex>>,
    since: Option<Instant>,
}

/// The answer for one address.
#[derive(Clone, Copy, Default)]
struct About {
    next_hop: Option<IpAddr>,
    bgp: Option<BestPathTo>,
}

impl Known {
    fn new(tables: Arc<ForwardingTables>, speaker: Arc<OnceLock<Arc<Speaker>>>, ports: NamedPorts) -> Self {
        Self { tables, speaker, ports, of: HashMap::new(), vrfs: None, since: None }
    }

    /// Completes a record. It looks up the outside addresses: the translated source, if the source was translated.
    fn complete(&mut self, record: &mut FlowRecord) {
        if self.of.len() >= ADDRESSES_MAX || self.since.is_none_or(|since| since.elapsed() > KEPT) {
            self.forget();
        }
        let source = record.translation.map_or(record.key.src, |after| after.src);
        let destination = record.translation.map_or(record.key.dst, |after| after.dst);
        if let Some(vrfs) = &self.vrfs {
            let of = |name: Name| vrfs.get(&name).copied().map(u32::from);
            // The meter knows it, unless a reload has brought the first VRF meanwhile.
            let ingress = record.details.ingress_vrf.or_else(|| of(record.ingress_name.name));
            record.details.ingress_vrf = ingress;
            record.details.egress_vrf = of(record.egress_name.name);
        }
        let of_arrival = record.details.ingress_vrf.and_then(|vrf| VrfIndex::try_from(vrf).ok());
        let vrf = of_arrival.or(self.vrfs.is_none().then_some(0));
        let toward = self.about(vrf, destination);
        record.next_hop = toward.next_hop;
        record.bgp_next_hop = toward.bgp.map(|bgp| bgp.next_hop);
        record.dst_as = toward.bgp.map_or(NO_AS, |bgp| bgp.origin_as);
        record.next_as = toward.bgp.map_or(NO_AS, |bgp| bgp.neighbor_as);
        record.details.dst_prefix_length = toward.bgp.map(|bgp| bgp.prefix_length);
        let from = self.about(vrf, source).bgp;
        record.src_as = from.map_or(NO_AS, |bgp| bgp.origin_as);
        record.details.src_prefix_length = from.map(|bgp| bgp.prefix_length);
    }

    fn forget(&mut self) {
        (self.of, self.since) = (HashMap::new(), Some(Instant::now()));
        let has_several = self.tables.read().fib().all().len() > 1;
        let vrfs = |port: &NamedPort| (Name::of(&port.name), port.vrf);
        self.vrfs = has_several.then(|| self.ports.lock().iter().map(vrfs).collect());
    }

    /// What the table of the port of arrival says. Nothing, if the record does not say by which port its packets came.
    fn about(&mut self, vrf: Option<VrfIndex>, address: IpAddr) -> About {
        let Some(vrf) = vrf else { return About::default() };
        if let Some(known) = self.of.get(&(vrf, address)) {
            return *known;
        }
        let (next_hop, owner) = {
            let tables = self.tables.read();
            let (hop, _, owner) = tables.fib().lookup(vrf, address);
            (tables.ways_of(hop, Some(address)).first().and_then(|(_, neighbor, _)| *neighbor), owner)
        };
        // BGP's routes are those of the main table.
        let speaker = self.speaker.get().filter(|_| owner == 0);
        let bgp = speaker.and_then(|speaker| speaker.best_path_to(address));
        let about = About { next_hop: next_hop.filter(|neighbor| *neighbor != address), bgp };
        self.of.insert((vrf, address), about);
        about
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use thalweg_flow::fields::unknown_record;

    #[test]
    fn a_router_that_lost_records_before_export_fails_at_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = format!(
            "[ports.lan]\nmac = \"02:00:00:00:00:01\"\naddresses = [\"192.0.2.1/28\"]\n[flows]\nstore = \"{}\"\n",
            folder.path().join("store").display()
        );
        let config = RouterConfig::from_text("test.toml", &text, Path::new("")).expect("a router");
        let tables = Arc::new(ForwardingTables::new(&config, None).expect("tables"));
        let flows = config.flows.as_ref().expect("[flows]");
        let finish = |records: usize| {
            let side = FlowSide::start(flows, &config, &tables).expect("a delivery");
            // As if the queue were full.
            side.outlet.0.close();
            side.outlet().take(&mut vec![unknown_record(); records]);
            side.outlet().flush();
            side.finish().map_err(|error| error.to_string())
        };
        assert_eq!(finish(0), Ok(()));
        let error = finish(3).expect_err("records were lost");
        assert!(error.starts_with("[flows]: 3 flow records of"), "{error}");
    }

    /// Records of two ports with one gateway's address: each has the VRFs of its ports, and the next hop of its own.
    #[test]
    fn a_record_is_completed_from_the_table_of_its_port() {
        let port = |name: &str, number: u8, vrf: &str| {
            format!(
                "[ports.{name}]\nmac = \"02:00:00:00:00:0{number}\"\naddresses = [\"192.0.2.1/28\"]\nvrf = \"{vrf}\"\n"
            )
        };
        let route = |vrf: &str, gateway: u8| {
            format!("[[routes]]\nprefix = \"203.0.113.0/24\"\nvia = \"192.0.2.{gateway}\"\nvrf = \"{vrf}\"\n")
        };
        let text = [
            "[vrfs.red]\n[[vrfs.red.leaks]]\nfrom = \"main\"\nprefixes = \"198.51.100.0/24\"\n".to_owned(),
            "[[routes]]\nprefix = \"198.51.100.0/24\"\nvia = \"192.0.2.9\"\n".to_owned(),
            port("wan", 1, "main") + &port("lan", 2, "red"),
            route("main", 5) + &route("red", 6),
        ];
        let config = RouterConfig::from_text("test.toml", &text.concat(), Path::new("")).expect("a router");
        let tables = Arc::new(ForwardingTables::new(&config, None).expect("tables"));
        let ports = NamedPorts::default();
        name_ports(&ports, &config);
        let mut known = Known::new(tables, Arc::default(), ports);
        let mut completed = |ingress: &str, egress: &str, destination: [u8; 4]| {
            let mut record = unknown_record();
            // As the meter of such a router tells without the port of arrival.
            record.details.ingress_vrf = ingress.is_empty().then_some(1);
            record.key.dst = destination.into();
            (record.ingress_name.name, record.egress_name.name) = (Name::of(ingress), Name::of(egress));
            known.complete(&mut record);
            (record.details.ingress_vrf, record.details.egress_vrf, record.next_hop)
        };
        let hop = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        assert_eq!(completed("wan", "wan", [203, 0, 113, 1]), (Some(0), Some(0), hop(5)));
        assert_eq!(completed("lan", "lan", [203, 0, 113, 1]), (Some(1), Some(1), hop(6)));
        assert_eq!(completed("lan", "wan", [198, 51, 100, 1]), (Some(1), Some(0), hop(9)), "leaked");
        assert_eq!(
            completed("", "", [203, 0, 113, 1]),
            (Some(1), None, hop(6)),
            "a key without the port of arrival"
        );
        assert_eq!(completed("gone", "lan", [203, 0, 113, 1]), (None, Some(1), None));
    }

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
        let ports = NamedPorts::default();
        name_ports(&ports, &config);
        let mut interfaces = interfaces_of(ports.clone());
        assert_eq!(interfaces(), Interfaces::new(expected.to_vec()));

        // One is gone, and another comes behind.
        let text = [text[0].clone(), text[3].clone(), port("new", 5, "interface = \"lo\"\n")].concat();
        let names = ["files", "lan", "gone", "more"].map(str::to_owned).to_vec();
        let places = thalweg_config::Places { ports: names, ..Default::default() };
        let source = thalweg_config::ConfigSource::of_text("test.toml", &text, Path::new(""));
        name_ports(&ports, &source.config_in_places(&[], &places).expect("a router"));
        let kept = [number(2, "files"), number(1, "lan"), number(NO_INTERFACE, "gone"), number(3, "more")];
        let expected = kept.into_iter().chain([number(1, "new")]).collect();
        assert_eq!(interfaces(), Interfaces::new(expected));
    }

    #[test]
    fn a_port_has_the_counters_of_who_sees_its_packets() {
        let ports = [
            "[ports.wan]\ninterface = \"lo\"\naddresses = [\"192.0.2.1/28\"]\ndriver = \"af_packet\"\n",
            "[ports.host]\ninterface = \"vm0\"\naddresses = [\"192.0.2.17/28\"]\ndriver = \"tap\"\n",
            "[ports.bare]\nparent = \"wan\"\nvlan = 10\naddresses = [\"192.0.2.33/28\"]\n",
            "[ports.seen]\nparent = \"wan\"\nvlan = 20\naddresses = [\"192.0.2.49/28\"]\nmirror = \"seen0\"\n",
            "[ports.inner]\nparent = \"host\"\nvlan = 30\naddresses = [\"192.0.2.65/28\"]\n",
        ];
        let config = RouterConfig::from_text("test.toml", &ports.concat(), Path::new("")).expect("a router");
        let named = NamedPorts::default();
        name_ports(&named, &config);
        let place =
            |name: &str| config.ports.iter().position(|port| port.name == name).expect("a port") as u16;
        let of = |name: &str| named.lock()[usize::from(place(name))].counted;
        assert_eq!((of("wan"), of("bare")), (Counted::Kernel, Counted::Kernel));
        assert_eq!(
            (of("host"), of("inner")),
            (Counted::Router(place("host")), Counted::Router(place("host")))
        );
        assert_eq!(of("seen"), Counted::Router(place("seen")));

        let own = CountersOfRouter::default();
        let mut counters = counters_of(named.clone(), own.clone());
        assert_eq!(counters(place("seen"), 70), PortCount::Absent, "the router has not started");
        let of_port =
            |port: u16| InterfaceCounters { bits_per_s: port.into(), ..InterfaceCounters::default() };
        assert!(own.set(Box::new(move |port| Some(of_port(port)))).is_ok());
        let bits_per_s = place("seen").into();
        let expected = InterfaceCounters { interface: 70, bits_per_s, ..InterfaceCounters::default() };
        assert_eq!(counters(place("seen"), 70), PortCount::Counted(expected));
        let PortCount::Counted(lo) = counters(place("wan"), 1) else { panic!("the loopback interface is 1") };
        assert_eq!(lo.kind, InterfaceCounters::LOOPBACK);

        let names = config.ports.iter().map(|port| port.name.clone()).collect();
        let places = thalweg_config::Places { ports: names, ..Default::default() };
        let source = thalweg_config::ConfigSource::of_text("test.toml", ports[1], Path::new(""));
        name_ports(&named, &source.config_in_places(&[], &places).expect("a router"));
        assert_eq!(counters(place("wan"), 1), PortCount::Absent);
    }
}
