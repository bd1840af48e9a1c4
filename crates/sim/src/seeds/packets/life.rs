//! Runs a trial: a plan's router from its first packet to the last record.
//!
//! Between two reloads a router runs under the serial model. Its source makes the next chunk when the sink
//! has checked the one before, so packets can go to public endpoints that were seen. All arrivals are kept. A
//! second router of the same configuration receives them under another model: each packet must leave in the
//! same way, and the counters must be the same.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType};
use thalweg_config::{ConfigErrors, RouterConfig};
use thalweg_dataplane::account::Account;
use thalweg_dataplane::nat::{Cursor, EndedBy, SessionInfo, SessionState};
use thalweg_exec::{ModelKind, ModelOptions, Sink, Source};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::NatEvent;
use thalweg_flow::testing::sort_records;
use thalweg_node::Routes;
use thalweg_node::plan::{NatStage, RecordOutlet, RouterPlan};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::expect::{self, Role};
use super::frames::{self, Arrival, Endpoint, Header, inside};
use super::judge::{Broken, Fate, Judge, Listed};
use super::meter::Slow;
use super::plan::{Act, LANS_MAX, Plan, Setup};
use super::text::configuration;
use crate::seeds::coverage::Coverage;
use crate::seeds::trial::{Moment, Trial, Verdict, Violation, Voice, panicked};

/// The arrival of the first packet, in nanoseconds since the epoch.
const BEGIN_NS: u64 = 1_577_836_800_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// The time between two packets of a chunk.
const GAP_NS: u64 = 1000;

/// Runs a plan.
pub fn run(plan: &Plan, voice: Option<Voice<'_>>) -> Trial {
    let mut script = Script::new(plan);
    meet_plan(plan, &mut script.coverage);
    let played = catch_unwind(AssertUnwindSafe(|| play(plan, &mut script)));
    let virtual_us = (script.now_ns - BEGIN_NS) / 1000;
    let broken = |(invariant, text)| Violation { invariant, router: None, at_us: virtual_us, text };
    let verdict = match played {
        Ok(Ok(())) => Verdict::Held,
        Ok(Err(rule)) => Verdict::Broken(broken(rule)),
        Err(panic) => Verdict::Broken(panicked(panic.as_ref(), virtual_us)),
    };
    if let Some(voice) = voice {
        script.moments.drain(..).for_each(|(at_us, moment)| voice(at_us, moment));
    }
    let Script { coverage, number, digest, .. } = script;
    Trial { verdict, coverage, virtual_us, packets: number, digest: digest.into(), ..Trial::default() }
}

/// Records the features of a plan.
fn meet_plan(plan: &Plan, coverage: &mut Coverage) {
    coverage.meet("model", plan.model.name());
    for setup in &plan.routers {
        let nat = setup.nat.as_ref();
        let has = [
            ("translation", nat.is_some()),
            ("ports by hash", nat.is_some_and(|nat| nat.hash)),
            (
                "address-dependent filtering",
                nat.is_some_and(|nat| nat.address_dependent && !nat.port_dependent),
            ),
            ("address-and-port-dependent filtering", nat.is_some_and(|nat| nat.port_dependent)),
            ("refresh from outside", nat.is_some_and(|nat| nat.inbound_refresh)),
            ("blocks of subscribers", nat.is_some_and(|nat| nat.block.is_some())),
            ("limits of hosts", nat.is_some_and(|nat| nat.host_limits != (0, 0))),
            ("forwarded port", nat.is_some_and(|nat| nat.forward)),
            ("policer", setup.classes.is_some_and(|classes| classes.policed_bps.is_some())),
            ("access list", setup.deny.is_some()),
            ("source check", setup.strict_sources),
            ("metering", setup.flows.is_some()),
            ("biflows", setup.flows.is_some_and(|flows| flows.biflow)),
            ("sampling", setup.flows.is_some_and(|flows| flows.sample > 1)),
        ];
        has.iter().filter(|(_, has)| *has).for_each(|(name, _)| coverage.meet("router", name));
    }
}

/// The flow records of a router.
#[derive(Default)]
struct Kept(Mutex<Vec<FlowRecord>>);

impl RecordOutlet for Kept {
    fn take(&self, records: &mut Vec<FlowRecord>) {
        lock(&self.0).append(records);
    }

    fn take_nat_events(&self, events: &mut Vec<NatEvent>, _: u64) {
        events.clear();
    }

    fn flush(&self) {}
}

/// A router under a model.
struct Subject {
    plan: RouterPlan,
    options: ModelOptions,
    account: Account,
    kept: Arc<Kept>,
}

impl Subject {
    fn new(
        plan: &Plan,
        config: &RouterConfig,
        routes: &Routes,
        options: ModelOptions,
    ) -> Result<Self, Broken> {
        let refused = |error: String| ("configurations are accepted", error);
        let router = RouterPlan::with_hash_seed(config, routes.router(), plan.seed);
        let mut router = router.map_err(|error| refused(error.to_string()))?.for_workers(options.workers);
        let kept = Arc::new(Kept::default());
        if let Some(flows) = &config.flows {
            let outlet: Arc<dyn RecordOutlet> = kept.clone();
            router = router
                .with_flows(&flows.meter, plan.seed, outlet)
                .map_err(|error| refused(error.to_string()))?;
        }
        Ok(Self { plan: router, options, account: Account::new(0, 0), kept })
    }

    /// Passes everything from the source through the router.
    fn run(&mut self, source: &mut dyn Source<Chunk>, sink: &mut dyn Sink<Chunk>) -> Result<(), Broken> {
        let report = thalweg_exec::run(&self.plan, source, sink, &self.options);
        let report = report.map_err(|error| ("models run", error.to_string()))?;
        self.account = self.plan.merged_account(report.scratches.iter());
        Ok(())
    }

    fn reload(
        &mut self,
        before: &RouterConfig,
        config: &RouterConfig,
        routes: &Routes,
    ) -> Result<(), Broken> {
        let outlet: Arc<dyn RecordOutlet> = self.kept.clone();
        let next = self.plan.successor(before, config, routes.router(), self.options.workers, Some(outlet));
        let next = next.map_err(|error| ("configurations are accepted", error.to_string()))?;
        self.plan = next.migrate_state(&self.plan).0;
        Ok(())
    }

    /// All counters as text, for comparison.
    fn counts(&self) -> String {
        let account = &self.account;
        let classes: Vec<(u64, u64, u64)> =
            account.classes.iter().map(|class| (class.packets, class.bytes, class.dropped)).collect();
        format!(
            "{} in, {} out, dropped {:?}, ports {:?}, classes {classes:?}, {:?}, {:?}, {:?}, {:?}",
            account.packets_in,
            account.packets_out,
            account.dropped,
            account.ports,
            self.plan.nat_counters(),
            self.plan.fragment_counts(),
            self.plan.color_counts(),
            self.plan.flows().map(|flows| {
                let totals = flows.totals();
                (totals.seen, totals.exported, totals.cached, totals.evicted(), totals.flows_created)
            }),
        )
    }

    /// All records, in an order that does not depend on who reported first.
    fn records(&self) -> Vec<FlowRecord> {
        let mut records = lock(&self.kept.0).clone();
        sort_records(&mut records);
        records
    }
}

/// A chunk as it arrived, and the fates of its packets in the order in which they left.
struct Recorded {
    before_ns: u64,
    first_number: u64,
    arrivals: Vec<Arrival>,
    fates: Vec<(u16, Fate)>,
}

/// The plan and the progress of its run.
struct Script<'p> {
    plan: &'p Plan,
    setup: &'p Setup,
    judge: Judge,
    slow: Slow,
    coverage: Coverage,
    moments: Vec<(u64, Moment)>,
    /// The index of the next step.
    at: usize,
    now_ns: u64,
    /// The number of packets so far.
    number: u64,
    digest: u64,
    nat: Option<Arc<NatStage>>,
    arrivals: Vec<Arrival>,
    /// Since the last reload.
    recorded: Vec<Recorded>,
    broken: Option<Broken>,
}

impl<'p> Script<'p> {
    fn new(plan: &'p Plan) -> Self {
        static NOTHING: Setup = Setup {
            more_lans: 0,
            small_mtu: false,
            lost_gateway: false,
            strict_sources: false,
            deny: None,
            nat: None,
            classes: None,
            flows: None,
        };
        Self {
            plan,
            setup: plan.routers.first().unwrap_or(&NOTHING),
            judge: Judge::new(plan),
            slow: Slow::new(plan),
            coverage: Coverage::default(),
            moments: Vec::new(),
            at: 0,
            now_ns: BEGIN_NS,
            number: 0,
            digest: 0,
            nat: None,
            arrivals: Vec::new(),
            recorded: Vec::new(),
            broken: None,
        }
    }

    fn now_s(&self) -> u64 {
        self.now_ns / SECOND_NS
    }

    fn tell(&mut self, text: String) {
        self.moments.push(((self.now_ns - BEGIN_NS) / 1000, Moment::Packets(text)));
    }

    /// The next chunk; `None` if another kind of step comes first.
    fn next_chunk(&mut self) -> Option<Chunk> {
        loop {
            let step = self.plan.steps.get(self.at).filter(|_| self.broken.is_none())?;
            let Act::Packets(items) = &step.what else { return None };
            self.at += 1;
            let before_ns = self.now_ns;
            self.now_ns += u64::from(step.after_ms) * 1_000_000;
            let (lans, mut arrivals) = (self.setup.lans(), Vec::new());
            for item in items {
                for nth in 0..item.times {
                    let seen = usize::from(item.port) + usize::from(nth);
                    let seen = self.judge.seen.get(seen % self.judge.seen.len().max(1)).copied();
                    let number = self.number as u32 + arrivals.len() as u32;
                    let at_ns = self.now_ns + arrivals.len() as u64 * GAP_NS;
                    arrivals.push(frames::arrival(item, nth, lans, seen, number, at_ns));
                }
            }
            if arrivals.is_empty() {
                continue;
            }
            self.coverage.meet("step", step.what.name());
            self.judge.arrives(self.setup, &arrivals, self.now_s());
            let chunk = build(self.recorded.len() as u64, self.number + 1, before_ns, &arrivals);
            let first_number = self.number + 1;
            self.number += arrivals.len() as u64;
            self.recorded.push(Recorded { before_ns, first_number, arrivals: Vec::new(), fates: Vec::new() });
            self.arrivals = arrivals;
            return Some(chunk);
        }
    }

    /// Checks a chunk that passed the router.
    fn accept(&mut self, chunk: &Chunk) {
        let fates = fates(chunk);
        let arrivals = std::mem::take(&mut self.arrivals);
        if let Err(broken) = self.judged(&arrivals, &fates) {
            self.broken.get_or_insert(broken);
        }
        let left = fates.iter().filter(|(_, fate)| fate.is_ok()).count();
        let reasons: BTreeSet<&str> =
            fates.iter().filter_map(|(_, fate)| fate.as_ref().err()).map(|reason| reason.name()).collect();
        self.tell(format!("{} packets, {left} left; dropped: {reasons:?}", arrivals.len()));
        for (_, fate) in &fates {
            self.digest = match fate {
                Ok((port, frame)) => xxh3_64_with_seed(frame, self.digest ^ u64::from(*port)),
                Err(reason) => xxh3_64_with_seed(&[*reason as u8], self.digest),
            };
        }
        if let Some(last) = self.recorded.last_mut() {
            (last.arrivals, last.fates) = (arrivals, fates);
        }
    }

    fn judged(&mut self, arrivals: &[Arrival], fates: &[(u16, Fate)]) -> Result<(), Broken> {
        let mut indexes: Vec<u16> = fates.iter().map(|(index, _)| *index).collect();
        indexes.sort_unstable();
        if !indexes.iter().copied().eq(0..arrivals.len() as u16) {
            return Err(("no packet is lost", format!("{} of {} came out", indexes.len(), arrivals.len())));
        }
        let (now_s, setup) = (self.now_s(), self.setup);
        let mut refused = Vec::new();
        // NAT translates hairpins after all other packets.
        for are_hairpins in [false, true] {
            for (index, fate) in fates {
                let arrival = &arrivals[usize::from(*index)];
                if (role(setup, arrival) == Role::Hairpin) == are_hairpins {
                    self.judge.packet(setup, arrival, fate, now_s)?;
                    refused.extend(refusal(setup, arrival, fate));
                }
            }
        }
        for (index, fate) in fates {
            if setup.flows.is_some() {
                self.slow.count(&arrivals[usize::from(*index)], fate);
            }
            if let Err(reason) = fate {
                self.coverage.meet("drop", reason.name());
            }
        }
        match (&setup.nat, &self.nat) {
            (Some(nat), Some(stage)) => self.judge.sessions(nat, listed(stage, self.now_ns), &refused, now_s),
            _ => Ok(()),
        }
    }
}

/// NAT's task for a readable packet.
fn role(setup: &Setup, arrival: &Arrival) -> Role {
    let header = Header::of(arrival.l3()).filter(|_| arrival.is_whole);
    header.map_or(Role::None, |header| expect::role(setup, arrival.port_in, &header))
}

/// The inside endpoint of a packet that got no session, and why.
fn refusal(setup: &Setup, arrival: &Arrival, fate: &Fate) -> Option<(Endpoint, DropReason)> {
    let is_refused = |reason: &DropReason| {
        matches!(reason, DropReason::NatTableFull | DropReason::NatPortsExhausted)
            && matches!(role(setup, arrival), Role::Out | Role::Hairpin)
    };
    let reason = fate.as_ref().err().copied().filter(is_refused)?;
    Some((Header::of(arrival.l3())?.from()?, reason))
}

/// NAT's sessions, in order, without port forwards.
fn listed(stage: &NatStage, now_ns: u64) -> Vec<Listed> {
    let (mut sessions, mut next) = (Vec::new(), Some(Cursor::default()));
    while let Some(from) = next {
        next = stage.sessions(from, now_ns, |session| session.state != SessionState::Forward, &mut sessions);
    }
    let endpoint = |session: &SessionInfo, at: SocketAddrV4| Endpoint::new(session.protocol.number(), at);
    let listed = sessions.iter().filter_map(|session| match session.inside {
        SocketAddr::V4(inside) => {
            Some(Listed { inside: endpoint(session, inside), public: endpoint(session, session.public) })
        }
        // These networks have no IPv6 hosts.
        SocketAddr::V6(_) => None,
    });
    let mut listed: Vec<Listed> = listed.collect();
    listed.sort_unstable();
    listed
}

fn build(sequence: u64, first_number: u64, before_ns: u64, arrivals: &[Arrival]) -> Chunk {
    let bytes = arrivals.iter().map(|arrival| arrival.frame.len() + ChunkBuilder::HEADROOM).sum();
    let mut builder = ChunkBuilder::with_capacity(bytes);
    for Arrival { frame, port_in, at_ns, .. } in arrivals {
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
        builder.push(at, frame.len(), frame.len() as u32, *at_ns, LinkType::Ethernet, *port_in, 0);
    }
    builder.finish(sequence, first_number, before_ns)
}

/// The fate of each packet, in the order in which they left.
fn fates(chunk: &Chunk) -> Vec<(u16, Fate)> {
    let each = chunk.packets().iter().enumerate();
    each.map(|(place, packet)| {
        let fate = match packet.drop_reason() {
            Some(reason) => Err(reason),
            None => Ok((packet.port_out, chunk.egress_frame(place).to_vec())),
        };
        (packet.index, fate)
    })
    .collect()
}

/// A source that makes the chunks of the plan.
struct Feed<'s, 'p>(&'s Mutex<&'s mut Script<'p>>);

impl Source<Chunk> for Feed<'_, '_> {
    fn next(&mut self) -> Option<Chunk> {
        lock(self.0).next_chunk()
    }
}

/// A sink that checks what leaves.
struct Drain<'s, 'p>(&'s Mutex<&'s mut Script<'p>>);

impl Sink<Chunk> for Drain<'_, '_> {
    fn accept(&mut self, chunk: Chunk) {
        lock(self.0).accept(&chunk);
    }
}

/// A source that repeats the recorded arrivals.
struct Again<'r>(std::iter::Enumerate<std::slice::Iter<'r, Recorded>>);

impl Source<Chunk> for Again<'_> {
    fn next(&mut self) -> Option<Chunk> {
        let (sequence, chunk) = self.0.next()?;
        Some(build(sequence as u64, chunk.first_number, chunk.before_ns, &chunk.arrivals))
    }
}

/// A sink that compares what leaves with what left before.
struct Compare<'r> {
    recorded: &'r [Recorded],
    next: usize,
    broken: Option<Broken>,
}

impl Sink<Chunk> for Compare<'_> {
    fn accept(&mut self, chunk: Chunk) {
        let (now, before) = (fates(&chunk), self.recorded.get(self.next).map(|chunk| &chunk.fates));
        self.next += 1;
        if Some(&now) == before || self.broken.is_some() {
            return;
        }
        let differs = now.iter().zip(before.into_iter().flatten()).find(|(now, before)| now != before);
        let said = |(index, fate): &(u16, Fate)| match fate {
            Ok((port, frame)) => format!("packet {index} by port {port}: {frame:02x?}"),
            Err(reason) => format!("packet {index} dropped: {}", reason.name()),
        };
        let text = differs.map_or("packets are missing".to_owned(), |(now, before)| {
            format!("{}; under the serial model {}", said(now), said(before))
        });
        self.broken = Some(("the same answer under every model", format!("chunk {}: {text}", self.next - 1)));
    }
}

fn play<'p>(plan: &'p Plan, script: &mut Script<'p>) -> Result<(), Broken> {
    let refused = |error: ConfigErrors| ("configurations are accepted", error.to_string());
    let config = |setup: &Setup| configuration(setup).map_err(refused);
    let mut in_force = config(script.setup)?;
    let first = tables(script.setup, &in_force)?;
    let mut other = ModelOptions::new(plan.model, plan.workers);
    (other.ordered, other.tokens) = (true, 4);
    let mut serial = Subject::new(plan, &in_force, &first, ModelOptions::new(ModelKind::Serial, 1))?;
    let mut other = Subject::new(plan, &in_force, &first, other)?;
    loop {
        script.nat = serial.plan.nat_stage();
        stretch(script, &mut serial, &mut other)?;
        let Some(step) = plan.steps.get(script.at) else { break };
        script.at += 1;
        script.now_ns += u64::from(step.after_ms) * 1_000_000;
        script.coverage.meet("step", step.what.name());
        match step.what {
            Act::Packets(_) => {}
            Act::Clear(host) => clear(script, &serial, &other, host)?,
            Act::Reload(at) => {
                let next = config(&plan.routers[at])?;
                let routes = tables(&plan.routers[at], &next)?;
                serial.reload(&in_force, &next, &routes)?;
                other.reload(&in_force, &next, &routes)?;
                in_force = next;
                reloaded(script, &serial, &plan.routers[at], at)?;
            }
        }
    }
    finish(script, &serial, &other)
}

/// The look-up tables of a configuration. They are cached, because building them takes longer than the rest
/// of a trial, few configurations differ in them, and they do not change.
fn tables(setup: &Setup, config: &RouterConfig) -> Result<Routes, Broken> {
    static TABLES: [OnceLock<Routes>; 4 * LANS_MAX as usize] =
        [const { OnceLock::new() }; 4 * LANS_MAX as usize];
    let number =
        usize::from(setup.more_lans) * 4 + usize::from(setup.small_mtu) * 2 + usize::from(setup.lost_gateway);
    let build = || Routes::build(config).map_err(|error| ("configurations are accepted", error.to_string()));
    let Some(place) = TABLES.get(number) else { return build() };
    match place.get() {
        Some(routes) => Ok(routes.clone()),
        None => build().map(|routes| place.get_or_init(|| routes).clone()),
    }
}

/// Sends all packets up to the next step of another kind.
fn stretch(script: &mut Script<'_>, serial: &mut Subject, other: &mut Subject) -> Result<(), Broken> {
    script.recorded.clear();
    let number = script.number;
    {
        let script = Mutex::new(&mut *script);
        serial.run(&mut Feed(&script), &mut Drain(&script))?;
    }
    if let Some(broken) = script.broken.take() {
        return Err(broken);
    }
    conserved(script, &serial.account, script.number - number)?;
    let mut compare = Compare { recorded: &script.recorded, next: 0, broken: None };
    other.run(&mut Again(script.recorded.iter().enumerate()), &mut compare)?;
    if let Some(broken) = compare.broken {
        return Err(broken);
    }
    let (counts, others) = (serial.counts(), other.counts());
    if counts != others {
        return Err((
            "the same answer under every model",
            format!("serial: {counts}; {}: {others}", other.options.kind),
        ));
    }
    counted(script, serial)
}

/// Checks conservation: packets in are packets out and dropped ones, by port, class and reason.
fn conserved(script: &Script<'_>, account: &Account, packets: u64) -> Result<(), Broken> {
    let dropped = account.dropped_total();
    let mut reasons = [0u64; DropReason::CODES];
    for (_, fate) in script.recorded.iter().flat_map(|chunk| &chunk.fates) {
        if let Err(reason) = fate {
            reasons[*reason as usize] += 1;
        }
    }
    let by_port = account.ports.iter().map(|port| port.packets_in).sum::<u64>();
    let by_class = account.classes.iter().map(|class| class.packets).sum::<u64>();
    let holds = account.packets_in == packets
        && account.packets_in == account.packets_out + dropped
        && account.dropped == reasons
        && by_port == packets
        && by_class == account.packets_out;
    match holds {
        true => Ok(()),
        false => Err((
            "packets in are packets out and dropped ones",
            format!(
                "{packets} arrived; {} in, {} out, {dropped} dropped",
                account.packets_in, account.packets_out
            ),
        )),
    }
}

/// Checks the counters of NAT and the meter.
fn counted(script: &mut Script<'_>, serial: &Subject) -> Result<(), Broken> {
    if let Some(nat) = serial.plan.nat_counters() {
        let counted = nat.rows().filter(|(_, value)| *value > 0);
        counted.for_each(|(name, _)| script.coverage.meet("nat", name));
        // Sessions without ports that a configuration has no room for are counted with the others.
        let ended = nat.sessions_expired + nat.half_open_dropped + nat.sessions_cleared;
        let most = nat.sessions_created.saturating_sub(ended);
        let least = most.saturating_sub(nat.sessions_displaced);
        let active = nat.sessions_active;
        let is_exact = nat.bare_created == 0 && active != least;
        // Only packets advance NAT's clock.
        let is_listed = script.recorded.is_empty() || active == script.judge.count() as u64;
        if is_exact || !(least..=most).contains(&active) || !is_listed {
            let text = format!("{} sessions listed: {nat:?}", script.judge.count());
            return Err(("counters are what tables hold", text));
        }
    }
    if let Some(flows) = serial.plan.flows() {
        let totals = flows.totals();
        if !totals.holds() || totals.seen.packets != script.slow.seen() {
            let text = format!("{} packets arrived: {totals:?}", script.slow.seen());
            return Err(("the meter accounts for every packet", text));
        }
        let what = [
            ("flows ended for want of room", totals.evicted()),
            ("flows", totals.flows_created),
            ("fragments with a flow", totals.fragments_matched),
            ("fragments without", totals.fragments_unmatched),
        ];
        what.iter().filter(|(_, count)| *count > 0).for_each(|(name, _)| script.coverage.meet("meter", name));
    }
    Ok(())
}

fn clear(script: &mut Script<'_>, serial: &Subject, other: &Subject, host: u8) -> Result<(), Broken> {
    let address = inside(host, script.setup.lans()).1;
    for subject in [serial, other] {
        if let Some(stage) = subject.plan.nat_stage() {
            let named = |session: &SessionInfo| session.inside.ip() == address;
            stage.end_sessions(script.now_ns, EndedBy::Request, named, |_| false);
        }
    }
    script.tell(format!("sessions of {address} are ended"));
    match serial.plan.nat_stage() {
        Some(stage) => {
            let now = listed(&stage, script.now_ns);
            script.judge.cleared(address, now, script.now_ns / SECOND_NS)
        }
        None => Ok(()),
    }
}

fn reloaded<'p>(
    script: &mut Script<'p>,
    serial: &Subject,
    setup: &'p Setup,
    number: usize,
) -> Result<(), Broken> {
    let old = std::mem::replace(&mut script.setup, setup);
    script.tell(format!("configuration {number} is put in force"));
    if old.flows.is_none() || setup.flows.is_none() {
        script.slow.begins_anew();
    }
    let now_s = script.now_s();
    let sessions = serial.plan.nat_stage().map_or_else(Vec::new, |stage| listed(&stage, script.now_ns));
    let kept = match (old.nat.is_some(), setup.nat.is_some(), sessions.is_empty()) {
        (true, true, false) => "reload with sessions",
        (true, true, true) => "reload without sessions",
        (_, _, _) => "translation comes or goes",
    };
    script.coverage.meet("step", kept);
    script.judge.reloaded((old, setup), sessions, now_s)
}

/// Ends the meters, so that everything is reported.
fn finish(script: &mut Script<'_>, serial: &Subject, other: &Subject) -> Result<(), Broken> {
    for subject in [serial, other] {
        if let Some(flows) = subject.plan.flows() {
            flows.flush();
        }
    }
    let records = serial.records();
    for reason in records.iter().filter_map(|record| record.end_reason) {
        script.coverage.meet("record", reason.name());
    }
    let others = other.records();
    if let Some((one, two)) = records.iter().zip(&others).find(|(one, two)| one != two) {
        return Err((
            "the same records under every model",
            format!("{one:?}; {}: {two:?}", other.options.kind),
        ));
    }
    if records.len() != others.len() {
        let text = format!("{} records; {}: {}", records.len(), other.options.kind, others.len());
        return Err(("the same records under every model", text));
    }
    script.slow.compare(&records)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
