//! The packet side of the daemon: the router on its ports' interfaces, and answers about it.

mod firewall;
mod nat;
mod rates;
mod slices;
mod status;

use parking_lot::{Mutex, RwLock};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use thalweg_config::{Class, FirewallConfig, PortConfig, RouterConfig, VrfIndex, WorkersConfig};
use thalweg_dataplane::gateway_check::CheckView;
use thalweg_dataplane::neighbor::NeighborView as Neighbor;
use thalweg_dataplane::police::{ColorAction, ColorCounts, Marker};
use thalweg_dataplane::vrrp::VirtualRouterView as VirtualRouter;
use thalweg_exec::{ModelOptions, Priority};
use thalweg_flow::MeterTotals;
use thalweg_live::{
    CaptureClient, KernelNeighborCounts, LiveOptions, LiveRouter, NeighborSource, PortStatus, ReloadError,
};
use thalweg_node::control::{
    AclRuleView, Answer, AnswerError, CaptureRequest, CaptureSummary, CountersView, Emit, FirewallRuleView,
    FlowCacheView, FlowOutletView, GatewayCheckView, NeighborView, PacketRequest, PolicerView, PortView,
    QueueView, ReceiveQueueView, SojournView, StandbyView, VirtualRouterView, emit_all,
};
use thalweg_node::forwarding::{ConfiguredRoutes, ForwardingTables};
use thalweg_node::live_tables::PortLink;
use thalweg_node::plan::{Firewall, NatStage};
use thalweg_node::speaker::Speaker;
use thalweg_node::trace::{NextNeighbor, PacketSpec, Surroundings, TraceView, explain};
use thalweg_ports::live::RxCounters;
use thalweg_probe::OutletStatus;
use thalweg_wire::MacAddr;
use thalweg_wire::sflow::{DirectionCounters, InterfaceCounters};

use self::firewall::{Connections, SetsRead};
use self::rates::{Rates, RuleMatches};
use crate::error::RunError;
use crate::flows::FlowSide;
use crate::options::{RunOptions, seed_number};
use crate::priority;

/// A router that forwards.
pub(crate) struct PacketSide {
    router: RwLock<LiveRouter>,
    tables: Arc<ForwardingTables>,
    flows: Option<FlowSide>,
    /// Placement and priority of threads; fixed for the whole run.
    workers: WorkersConfig,
    rates: Rates,
    sets_read: Mutex<SetsRead>,
}

impl PacketSide {
    /// Opens the ports and begins to forward.
    pub(crate) fn start(
        config: &RouterConfig,
        tables: &Arc<ForwardingTables>,
        run: &RunOptions,
    ) -> Result<Self, RunError> {
        // Reloads replace tables as long as the router runs.
        thalweg_exec::give_back_large_tables();
        let flows = config.flows.as_ref().map(|flows| FlowSide::start(flows, config, tables)).transpose()?;
        let priority = priority_of(config);
        priority::cores(&config.workers)?;
        let workers = run.workers.unwrap_or(config.workers.count);
        let model = ModelOptions {
            pin_cores: config.workers.cores.clone(),
            priority,
            ..ModelOptions::new(run.model, workers)
        };
        let options = LiveOptions {
            model,
            busy_poll: config.workers.busy_poll,
            chunk_packets: config.workers.batch_packets,
            seed: seed_number(),
            flow_outlet: flows.as_ref().map(FlowSide::outlet),
        };
        let router = LiveRouter::start(config, tables.clone(), &options).map_err(RunError::Ports)?;
        tracing::info!(ports = config.ports.len(), model = %run.model, workers, %priority, "forwarding");
        Ok(Self {
            router: RwLock::new(router),
            tables: tables.clone(),
            flows,
            workers: config.workers.clone(),
            rates: Rates::default(),
            sets_read: SetsRead::new(),
        })
    }

    pub(crate) fn workers(&self) -> &WorkersConfig {
        &self.workers
    }

    /// Gives collectors access to the meter's totals, and records access to BGP's routes.
    pub(crate) fn connect_flows(self: &Arc<Self>, speaker: Option<&Arc<Speaker>>) {
        let Some(flows) = &self.flows else { return };
        let weak = Arc::downgrade(self);
        flows.set_totals(move || weak.upgrade()?.flow_totals());
        let weak = Arc::downgrade(self);
        flows.set_meter(move || {
            let packets = weak.upgrade()?;
            let router = packets.router.read();
            router.plan().flows().map(|flows| flows.meter.clone())
        });
        let weak = Arc::downgrade(self);
        flows.set_counters(move |port| weak.upgrade()?.interface_counters(port));
        if let Some(speaker) = speaker {
            flows.set_speaker(speaker);
        }
    }

    fn flow_totals(&self) -> Option<MeterTotals> {
        self.router.read().plan().flows().map(|flows| flows.totals())
    }

    /// What the router itself counts of a port; `None` for one that was removed.
    fn interface_counters(&self, port: u16) -> Option<InterfaceCounters> {
        let status = self.router.read().ports().into_iter().find(|status| status.port == port)?;
        let is_up = self.tables.read().port(port).is_some_and(|link| link.is_up);
        Some(interface_counters(&status, is_up))
    }

    fn flow_cache(&self) -> Result<FlowCacheView, AnswerError> {
        let totals = self.flow_totals().ok_or(AnswerError::NoFlows)?;
        let (records_lost, packets_lost) = self.flows.as_ref().map(FlowSide::lost).unwrap_or_default();
        let (nat_events, nat_events_lost) = self.flows.as_ref().map(FlowSide::nat_events).unwrap_or_default();
        let (outlets, clock_steps) = self.flows.as_ref().map(FlowSide::outlets).unwrap_or_default();
        let outlets = outlets.into_iter().map(flow_outlet_view).collect();
        let view = FlowCacheView::new(&totals);
        Ok(FlowCacheView {
            records_lost,
            packets_lost,
            nat_events,
            nat_events_lost,
            clock_steps,
            outlets,
            alarms: self.flows.as_ref().map(FlowSide::alarms).unwrap_or_default(),
            ..view
        })
    }

    /// Whether it stopped forwarding by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.router.read().has_ended()
    }

    /// Stops forwarding, after a reload in progress. Fails if flow records were lost, but reports that only once.
    pub(crate) fn stop(&self) -> Result<(), RunError> {
        let stopping = self.router.write().stop();
        // Without the lock, because the flow meter's thread may ask the router for its totals.
        stopping.wait();
        self.flows.as_ref().map_or(Ok(()), FlowSide::finish)
    }

    /// The changes that another configuration would make, or why it would be refused.
    pub(crate) fn compare(&self, config: &RouterConfig) -> Result<Vec<String>, ReloadError> {
        self.router.read().compare(config)
    }

    /// Applies another configuration. `also` runs when nothing can fail any more; its lines become part of the
    /// result.
    pub(crate) fn reload(
        &self,
        config: &Arc<RouterConfig>,
        also: impl FnOnce() -> Vec<String>,
    ) -> Result<Vec<String>, ReloadError> {
        let router = self.router.read();
        let before = router.config();
        let prepared = router.prepare(config.clone())?;
        // Made before the reload: it may be a full table.
        let routes = ConfiguredRoutes::of(config);
        let changes = router.reload(prepared, also)?;
        self.tables.set_configured(routes);
        self.sets_read.lock().replaced(&before.sets, &config.sets);
        if let Some(flows) = &self.flows {
            flows.apply(config);
        }
        Ok(changes)
    }

    /// Applies the kernel's neighbors on ports; `None` if the host thread does not answer.
    pub(crate) fn set_kernel_neighbors(
        &self,
        neighbors: impl IntoIterator<Item = (u16, IpAddr, MacAddr)>,
    ) -> Option<KernelNeighborCounts> {
        self.router.read().set_kernel_neighbors(neighbors)
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<RouterConfig> {
        self.router.read().config()
    }

    /// The capacity of NAT's table.
    fn nat_sessions_max(&self) -> u64 {
        self.config().nat.as_ref().map_or(0, |nat| nat.sessions_max.into())
    }

    /// Traces a described packet.
    fn trace(&self, packet: &str) -> Result<TraceView, AnswerError> {
        let spec = PacketSpec::parse(packet).map_err(AnswerError::failed)?;
        let router = self.router.read();
        let (config, plan) = (router.config(), router.plan());
        let around = Around { router: &router, tables: &self.tables };
        explain(&config, &plan, &around, &spec, router.clock().now_ns()).map_err(AnswerError::failed)
    }

    fn name(&self, port: u16) -> String {
        self.router.read().port_name(port).unwrap_or_default()
    }

    fn ports(&self) -> Vec<PortView> {
        let (ports, plan) = {
            let router = self.router.read();
            (router.ports(), router.plan())
        };
        let up = |port| self.tables.read().port(port).is_some_and(|link| link.is_up);
        let view = |port: PortStatus| PortView {
            name: port.name,
            interface: port.facts.interface,
            mode: port.facts.mode,
            why_not_better: port.facts.why_not_better,
            mac: port.facts.mac.to_string(),
            mtu: port.facts.mtu,
            up: up(port.port),
            received: port.received.frames + port.offloaded.received.0,
            received_bytes: port.received.bytes + port.offloaded.received.1,
            missed: port.received.missed + port.received.refused,
            foreign: port.received.foreign,
            queues: port.queues.iter().map(receive_queue_view).collect(),
            sent: port.sent.frames + port.offloaded.sent.0,
            sent_bytes: port.sent.bytes + port.offloaded.sent.1,
            failed: port.sent.failed,
            queued: port.queued,
            offloaded: port.offloaded.received.0,
            mss_lowered: plan.filters().mss.lowered(port.port),
            residence: port.residence,
            rates: None,
        };
        ports.into_iter().map(view).collect()
    }

    /// Samples counters once a second until `stop` is set, for rates: the body of a thread.
    pub(crate) fn sample(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let rules = self.with_firewall(|_, firewall| Ok(matches_of(firewall)));
            self.rates.look(Instant::now(), &self.ports(), &self.queues(), rules.unwrap_or_default());
            std::thread::park_timeout(rates::EVERY);
        }
    }

    fn rated_ports(&self) -> Vec<PortView> {
        let mut ports = self.ports();
        self.rates.rate_ports(Instant::now(), &mut ports);
        ports
    }

    fn rated_queues(&self) -> Vec<QueueView> {
        let mut queues = self.queues();
        self.rates.rate_queues(Instant::now(), &mut queues);
        queues
    }

    /// The rules of access lists and their matches.
    fn access_lists(&self) -> Vec<AclRuleView> {
        let router = self.router.read();
        let (config, plan) = (router.config(), router.plan());
        let ports = |is_bound: &dyn Fn(&PortConfig) -> bool| {
            let bound = config.ports.iter().filter(|port| is_bound(port));
            bound.map(|port| port.name.clone()).collect::<Vec<_>>()
        };
        let mut views = Vec::new();
        for (place, acl) in (0u16..).zip(&config.acls) {
            let ports_in = ports(&|port| port.acl_in == Some(place));
            let ports_out = ports(&|port| port.acl_out == Some(place));
            let names = acl.rule_names.iter().map(String::as_str).chain(["default"]);
            let actions = acl.list.rules.iter().map(|rule| rule.action).chain([acl.list.default]);
            let counts = plan.rule_counts(place.into());
            views.extend(names.zip(actions).zip(counts).map(|((name, action), count)| AclRuleView {
                list: acl.name.clone(),
                rule: name.to_owned(),
                action: action.name().to_owned(),
                packets: count.packets,
                bytes: count.bytes,
                ports_in: ports_in.clone(),
                ports_out: ports_out.clone(),
            }));
        }
        views.extend(plan.counted_rules(&config).into_iter().map(|counted| AclRuleView {
            list: counted.list.to_owned(),
            rule: counted.rule,
            action: counted.action.to_owned(),
            packets: counted.count.packets,
            bytes: counted.count.bytes,
            ..AclRuleView::default()
        }));
        views
    }

    /// The classes with a policer, and their packets by color.
    fn policers(&self) -> Vec<PolicerView> {
        let router = self.router.read();
        let (config, counts) = (router.config(), router.plan().color_counts());
        let classes = config.qos.classes.iter().zip(counts);
        let view = |(class, counts): (&Class, Option<ColorCounts>)| {
            let (policer, counts) = (class.policer?, counts?);
            let (committed_bps, peak_bps) = match policer.marker {
                Marker::TwoRate { cir_bps, pir_bps, .. } => (cir_bps, Some(pir_bps)),
                Marker::SingleRate { cir_bps, .. } => (cir_bps, None),
            };
            let red_action = if policer.red == ColorAction::Drop { "drop" } else { "remark" };
            Some(PolicerView {
                class: class.name.clone(),
                committed_bps,
                peak_bps,
                green: counts.green,
                yellow: counts.yellow,
                red: counts.red,
                red_action: red_action.to_owned(),
            })
        };
        classes.filter_map(view).collect()
    }

    fn counters(&self) -> Result<CountersView, AnswerError> {
        let router = self.router.read();
        let numbers = router.ask(|host| host.numbers()).ok_or(AnswerError::HostSilent)?;
        let counters = router.counters();
        let sum = |of: fn(&thalweg_live::PortCounters) -> &thalweg_live::Traffic| {
            counters.ports.iter().map(|port| of(port).get().0).sum::<u64>()
        };
        let by_name = |counts: Vec<(thalweg_base::DropReason, u64)>| {
            counts.into_iter().map(|(reason, count)| (reason.name().to_owned(), count)).collect()
        };
        let ports = router.ports();
        let offloaded: u64 = ports.iter().map(|port| port.offloaded.received.0).sum();
        Ok(CountersView {
            received: sum(|port| &port.received) + offloaded,
            own: counters.port(thalweg_base::NO_PORT).received.get().0,
            offloaded,
            sent: sum(|port| &port.sent) + offloaded,
            queued: ports.iter().map(|port| port.queued).sum(),
            to_host: by_name(counters.to_host()),
            dropped: by_name(counters.dropped()),
            waiting_for_neighbor: numbers.waiting,
            icmp_errors: numbers.icmp.errors_written,
            icmp_errors_withheld: numbers.icmp.errors_not_written.iter().sum(),
            residence: router.residence(),
            workers: router.workers(),
        })
    }

    pub(crate) fn neighbors(&self) -> Result<Vec<NeighborView>, AnswerError> {
        let views = self.router.read().ask(|host| {
            let source = |each: &Neighbor| host.neighbor_source(each.port, each.address);
            host.neighbors().map(|each| (each, source(&each))).collect::<Vec<_>>()
        });
        let views = views.ok_or(AnswerError::HostSilent)?;
        let view = |(neighbor, source): &(Neighbor, NeighborSource)| NeighborView {
            port: self.name(neighbor.port),
            address: neighbor.address.to_string(),
            mac: neighbor.mac.map(|mac| mac.to_string()),
            state: neighbor.state.name().to_owned(),
            source: neighbor.mac.map(|_| source.name().to_owned()),
            waiting: neighbor.packets_waiting as u64,
        };
        Ok(views.iter().map(view).collect())
    }

    fn gateway_checks(&self) -> Result<Vec<GatewayCheckView>, AnswerError> {
        if self.config().routing.checks.is_empty() {
            return Ok(Vec::new());
        }
        let views = self.router.read().ask(|host| host.checks().collect::<Vec<_>>());
        let view = |each: &CheckView| GatewayCheckView {
            port: self.name(each.check.port),
            gateway: each.check.gateway.to_string(),
            target: each.check.target.to_string(),
            state: each.state.name().to_owned(),
            requests: each.requests,
            answers: each.answers,
            failures: each.failures,
            rtt_us: each.rtt_ns.map(|rtt_ns| rtt_ns as f64 / 1000.0),
        };
        Ok(views.ok_or(AnswerError::HostSilent)?.iter().map(view).collect())
    }

    fn virtual_routers(&self) -> Result<Vec<VirtualRouterView>, AnswerError> {
        let views = self.router.read().ask(|host| host.virtual_routers().cloned().collect::<Vec<_>>());
        let view = |each: &VirtualRouter| VirtualRouterView {
            port: self.name(each.config.port),
            id: each.config.id,
            addresses: each.config.addresses.iter().map(ToString::to_string).collect(),
            state: each.state.name().to_owned(),
            priority: each.config.priority,
            active: each.active.map(|address| address.to_string()),
            active_priority: each.active_priority,
            sent: each.sent,
            received: each.received,
            ignored: each.ignored.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect(),
            became_active: each.became_active,
        };
        Ok(views.ok_or(AnswerError::HostSilent)?.iter().map(view).collect())
    }

    fn standby(&self) -> Option<StandbyView> {
        let view = self.router.read().standby()?;
        let ([sessions, states], [peer_sessions, peer_states]) = (view.entries, view.other_entries);
        Some(StandbyView {
            state: view.state.name().to_owned(),
            means: view.state.means().to_owned(),
            behind: view.behind,
            sessions,
            states,
            peer_sessions,
            peer_states,
            same_rules: view.has_same_rules,
            counters: view.counters.rows().map(|(name, count)| (name.to_owned(), count)).collect(),
        })
    }

    fn queues(&self) -> Vec<QueueView> {
        let router = self.router.read();
        let mut views = Vec::new();
        for PortStatus { port, name, .. } in router.ports() {
            let of_port = router.with_queue(port, |queue| {
                let classes = queue.config().classes.iter().zip(queue.counters());
                classes.map(|(class, counters)| queue_view(&name, &class.name, counters)).collect::<Vec<_>>()
            });
            views.extend(of_port.into_iter().flatten());
        }
        views
    }
}

/// What stages do not know, from a running router.
struct Around<'r> {
    router: &'r LiveRouter,
    tables: &'r ForwardingTables,
}

impl Surroundings for Around<'_> {
    fn prefix(&self, vrf: VrfIndex, destination: IpAddr) -> Option<String> {
        let (_, prefix, _) = self.tables.read().fib().lookup(vrf, destination);
        prefix.map(|prefix| prefix.to_string())
    }

    fn next_of(&self, number: u32, flow_hash: u32, destination: IpAddr) -> Option<(u16, IpAddr)> {
        self.tables.read().next_of(number, flow_hash, destination)
    }

    fn link(&self, port: u16) -> Option<PortLink> {
        self.tables.read().port(port)
    }

    fn neighbor(&self, port: u16, address: IpAddr) -> Option<NextNeighbor> {
        let found = self.router.ask(move |host| {
            host.neighbors().find(|neighbor| (neighbor.port, neighbor.address) == (port, address))
        })?;
        found.map(|neighbor| NextNeighbor { state: neighbor.state.name().to_owned(), mac: neighbor.mac })
    }

    fn waiting(&self, port: u16, class: u8) -> Option<u64> {
        let of_class = |counters: &thalweg_dataplane::egress::ClassCounters| counters.waiting_packets;
        self.router.with_queue(port, |queue| queue.counters().nth(class.into()).map(of_class))?
    }
}

impl PacketSide {
    /// Answers a request about packets, one item at a time.
    pub(crate) fn answer(&self, request: &PacketRequest, emit: Emit<'_>) -> Answer {
        match request {
            PacketRequest::Ports => emit_all(Ok(self.rated_ports()), emit),
            PacketRequest::Counters => emit_all(self.counters().map(|view| [view]), emit),
            PacketRequest::Neighbors => emit_all(self.neighbors(), emit),
            PacketRequest::GatewayChecks => emit_all(self.gateway_checks(), emit),
            PacketRequest::VirtualRouters => emit_all(self.virtual_routers(), emit),
            PacketRequest::Standby => emit_all(Ok(self.standby()), emit),
            PacketRequest::Queues => emit_all(Ok(self.rated_queues()), emit),
            PacketRequest::AccessLists => emit_all(Ok(self.access_lists()), emit),
            PacketRequest::Policers => emit_all(Ok(self.policers()), emit),
            PacketRequest::FlowCache => emit_all(self.flow_cache().map(|view| [view]), emit),
            PacketRequest::TracePacket { packet } => emit_all(self.trace(packet).map(|view| [view]), emit),
            PacketRequest::NatCounters => {
                let nat = self.nat().map(|(nat, _)| [nat::counters(&nat, self.nat_sessions_max())]);
                emit_all(nat, emit)
            }
            PacketRequest::NatClear(which) => {
                let (config, found) = (self.config(), self.nat());
                let vrfs = nat::Vrfs(&config.routing);
                let cleared = found.and_then(|(nat, now_ns)| nat::clear((&nat, &vrfs), now_ns, which));
                emit_all(cleared.inspect(|_| self.router.read().end_leases()).map(|cleared| [cleared]), emit)
            }
            PacketRequest::NatSessions(filter) => match self.nat() {
                Ok((nat, now_ns)) => {
                    nat::sessions((&nat, &nat::Vrfs(&self.config().routing)), now_ns, filter, emit)
                }
                Err(none) => Ok(Err(none)),
            },
            PacketRequest::NatBlocks(filter) => match self.nat() {
                Ok((nat, _)) => nat::blocks((&nat, &nat::Vrfs(&self.config().routing)), filter, emit),
                Err(none) => Ok(Err(none)),
            },
            PacketRequest::FirewallCounters => {
                let view =
                    self.with_firewall(|config, firewall| Ok([firewall::counters(&firewall.stage, config)]));
                emit_all(view, emit)
            }
            PacketRequest::FirewallRules => emit_all(
                self.with_firewall(|config, firewall| Ok(self.firewall_rules(config, firewall))),
                emit,
            ),
            PacketRequest::FirewallSets => {
                // Without the lock, because the client may be slow.
                let views = self.sets_read.lock().views(&self.config().sets);
                emit_all(Ok(views), emit)
            }
            PacketRequest::FirewallStates(filter) => {
                match self.with_connections(|connections| Ok(connections.list(filter, emit))) {
                    Ok(answer) => answer,
                    Err(none) => Ok(Err(none)),
                }
            }
            PacketRequest::FirewallClear(which) => {
                let cleared = self.with_connections(|connections| connections.clear(which));
                emit_all(cleared.inspect(|_| self.router.read().end_leases()).map(|cleared| [cleared]), emit)
            }
        }
    }

    /// Asks the firewall of the plan in force. It holds the router's lock.
    fn with_firewall<T>(
        &self,
        ask: impl FnOnce(&FirewallConfig, &Firewall) -> Result<T, AnswerError>,
    ) -> Result<T, AnswerError> {
        let router = self.router.read();
        let (config, plan) = (router.config(), router.plan());
        match (&config.firewall, plan.firewall()) {
            (Some(config), Some(firewall)) => ask(config, firewall),
            _ => Err(AnswerError::NoFirewall),
        }
    }

    /// Asks for connections without any lock, because the client may be slow.
    fn with_connections<T>(
        &self,
        ask: impl FnOnce(&Connections<'_>) -> Result<T, AnswerError>,
    ) -> Result<T, AnswerError> {
        let (config, stage, generation) = self.with_firewall(|config, firewall| {
            Ok((config.clone(), Arc::clone(&firewall.stage), firewall.rules.generation()))
        })?;
        let now_ns = self.router.read().clock().now_ns();
        let router = self.config();
        let vrfs = nat::Vrfs(&router.routing);
        ask(&Connections { stage: &stage, config: &config, vrfs: &vrfs, generation, now_ns })
    }

    fn firewall_rules(&self, config: &FirewallConfig, firewall: &Firewall) -> Vec<FirewallRuleView> {
        let matches = matches_of(firewall);
        let rates = self.rates.of_rules(Instant::now(), &matches);
        firewall::rules(config, &matches, rates.as_deref())
    }

    /// The NAT stage and the time of its packets. It holds no lock, because the client may be slow.
    fn nat(&self) -> Result<(Arc<NatStage>, u64), AnswerError> {
        let router = self.router.read();
        let nat = router.nat().ok_or(AnswerError::NoNat)?;
        Ok((nat, router.clock().now_ns()))
    }

    /// Serves a capture until the client has enough. The outer error is that of `client`.
    pub(crate) fn capture(
        &self,
        request: &CaptureRequest,
        client: &mut dyn CaptureClient,
    ) -> io::Result<Result<CaptureSummary, AnswerError>> {
        // Only the beginning holds the lock: a capture may last.
        let begun = self.router.read().capture(request);
        match begun {
            Ok(capture) => capture.run(client).map(Ok),
            Err(why) => Ok(Err(AnswerError::failed(why))),
        }
    }
}

fn matches_of(firewall: &Firewall) -> RuleMatches {
    RuleMatches { generation: firewall.rules.generation(), counts: firewall.rule_counts() }
}

/// The configured priority as far as it is permitted; logs what is missing.
fn priority_of(config: &RouterConfig) -> Priority {
    let (allowed, remark) = priority::here(config.workers.priority);
    if let Some(remark) = remark {
        tracing::warn!("{remark}");
    }
    allowed
}

/// A port's counters as sFlow has them; the number of the interface is set elsewhere.
fn interface_counters(port: &PortStatus, is_up: bool) -> InterfaceCounters {
    // What a VLAN misses, its parent counts.
    let has_queues = !port.queues.is_empty();
    let low = |count: u64| Some(InterfaceCounters::low(count));
    let direction = |(packets, bytes): (u64, u64), discarded: u64| DirectionCounters {
        bytes: Some(bytes),
        unicast: low(packets),
        discarded: low(discarded).filter(|_| has_queues),
        ..DirectionCounters::default()
    };
    let (received, sent) = (port.received, port.sent);
    InterfaceCounters {
        kind: InterfaceCounters::ETHERNET,
        is_enabled: true,
        is_up,
        received: DirectionCounters {
            errors: low(received.refused).filter(|_| has_queues),
            ..direction((received.frames, received.bytes), received.missed)
        },
        sent: direction((sent.frames, sent.bytes), sent.failed),
        ..InterfaceCounters::default()
    }
}

fn flow_outlet_view(status: OutletStatus) -> FlowOutletView {
    FlowOutletView {
        to: status.to,
        records: status.records,
        waiting: status.waiting,
        lost: status.lost,
        sflow: status.sflow,
        counter_samples: status.counter_samples,
        interfaces_uncounted: status.interfaces_uncounted,
        datagrams_refused: status.datagrams_refused,
        datagrams_dropped: status.datagrams_dropped,
        error: status.error,
    }
}

fn receive_queue_view(queue: &RxCounters) -> ReceiveQueueView {
    ReceiveQueueView {
        received: queue.frames,
        received_bytes: queue.bytes,
        missed: queue.missed + queue.refused,
    }
}

fn sojourn_view(counters: &thalweg_dataplane::egress::ClassCounters) -> SojournView {
    let (histogram, mut seen) = (&counters.sojourn_ns, 0);
    // One walk over the recorded values, which are in order.
    let mut bounds = SojournView::BOUNDS_US.iter().map(|bound| u64::from(*bound) * 1000).peekable();
    let mut within = Vec::with_capacity(SojournView::BOUNDS_US.len());
    for value in histogram.iter_recorded() {
        while bounds.next_if(|bound| *bound < value.value_iterated_to()).is_some() {
            within.push(seen);
        }
        seen += value.count_since_last_iteration();
    }
    within.resize(SojournView::BOUNDS_US.len(), seen);
    let packets = histogram.len();
    let sum_us = if packets == 0 { 0.0 } else { histogram.mean() * packets as f64 / 1000.0 };
    SojournView { within, packets, sum_us }
}

fn queue_view(port: &str, class: &str, counters: &thalweg_dataplane::egress::ClassCounters) -> QueueView {
    let micros = |quantile| counters.sojourn_ns.value_at_quantile(quantile) as f64 / 1000.0;
    QueueView {
        port: port.to_owned(),
        class: class.to_owned(),
        enqueued: counters.enqueued,
        sent: counters.sent,
        sent_bytes: counters.bytes,
        dropped_full: counters.dropped_full,
        dropped_managed: counters.dropped_managed,
        marked: counters.marked,
        waiting: counters.waiting_packets,
        sojourn_p50_us: micros(0.5),
        sojourn_p99_us: micros(0.99),
        sojourn_p999_us: micros(0.999),
        sojourn: sojourn_view(counters),
        rates: None,
    }
}
