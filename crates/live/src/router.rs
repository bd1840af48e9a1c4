//! A live router as other threads use it: to query, capture, change and stop it. Module `start` assembles it.

use parking_lot::{Mutex, MutexGuard};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use crossbeam_channel::{Sender, bounded};
use thalweg_config::RouterConfig;
use thalweg_dataplane::egress::EgressQueue;
use thalweg_dataplane::icmp::IcmpError;
use thalweg_dataplane::nat::NatRefusal;
use thalweg_dataplane::standby::StandbyView;
use thalweg_exec::ModelOptions;
use thalweg_node::control::{CaptureRequest, SojournView, WorkerView};
use thalweg_node::forwarding::ForwardingTables;
use thalweg_node::plan::NatStage;
use thalweg_node::plan::{RecordOutlet, RouterPlan};
use thalweg_ports::live::{LiveClock, PortFacts, RxCounters, SourceWaker, TxCounters};
use thalweg_wire::MacAddr;

use crate::capture::{CaptureError, CaptureStream, CapturedRouter, Selection};
use crate::counters::{Counters, PortCounters};
use crate::firewall_watch::FirewallWatch;
use crate::halves::HalvesSlot;
use crate::host::{Host, KernelNeighborCounts, PortMacs, Question};
use crate::links::WatchChange;
use crate::offload::{FlowOffload, Offloaded};
use crate::outbox::{Outboxes, QueueClock};
use crate::packets::Exchange;
use crate::ports::{PortState, PortStates};
use crate::received::{Received, sum_of};
use crate::residence::Residence;
use crate::standby::Share;
use crate::vlan;
use crate::workers::Workers;

/// How to run a live router, besides its configuration.
#[derive(Clone)]
pub struct LiveOptions {
    pub model: ModelOptions,
    /// How long workers poll ports without packets before they sleep.
    pub busy_poll: Duration,
    pub chunk_packets: usize,
    /// Seeds hashes, so that strangers cannot choose flows that collide.
    pub seed: u64,
    /// Where flow records go if the configuration meters flows.
    pub flow_outlet: Option<Arc<dyn RecordOutlet>>,
}

/// A port's present state and counters, for `show`.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// The port's number; numbers of removed ports do not appear.
    pub port: u16,
    pub name: String,
    /// How the port was opened.
    pub facts: PortFacts,
    pub received: RxCounters,
    /// Counters of each receive queue; empty for a sub-interface.
    pub queues: Vec<RxCounters>,
    pub sent: TxCounters,
    /// Frames waiting in the port's egress queue.
    pub queued: u64,
    /// What the kernel forwarded without the router.
    pub offloaded: Offloaded,
    /// How long packets stayed that left by it: a sample of them.
    pub residence: SojournView,
}

/// A running router. It stops when it is dropped.
pub struct LiveRouter {
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) wakers: Vec<SourceWaker>,
    pub(crate) queue_clock: Arc<QueueClock>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) packets: Option<JoinHandle<()>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) received: Arc<Received>,
    pub(crate) worker_counters: Arc<Workers>,
    pub(crate) outboxes: Outboxes,
    pub(crate) states: Mutex<PortStates>,
    /// Where the threads that receive get the halves of added ports, and release those of removed ones.
    pub(crate) lanes: Vec<HalvesSlot>,
    pub(crate) mirror_halves: HalvesSlot,
    pub(crate) watch: Sender<WatchChange>,
    pub(crate) offload: Option<Arc<FlowOffload>>,
    pub(crate) virtual_macs: PortMacs,
    pub(crate) standby: Option<Arc<Share>>,
    pub(crate) questions: Sender<Question>,
    pub(crate) ended: Arc<AtomicBool>,
    /// The configuration in force; locked during a reload.
    pub(crate) config: Mutex<Arc<RouterConfig>>,
    pub(crate) plan: Arc<ArcSwap<RouterPlan>>,
    pub(crate) tables: Arc<ForwardingTables>,
    pub(crate) flow_outlet: Option<Arc<dyn RecordOutlet>>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) clock: LiveClock,
    pub(crate) workers: usize,
    /// The traffic class of the router's own packets.
    pub(crate) class: Arc<AtomicU8>,
    /// Whether hosts get an ICMP error when NAT refuses them a session.
    pub(crate) tells_refusals: Arc<AtomicBool>,
}

impl LiveRouter {
    /// Whether packet processing has ended without [`stop`](Self::stop), because of an error.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire)
    }

    /// The counters of packets and ports.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// NAT's sessions; `None` without NAT.
    pub fn nat(&self) -> Option<Arc<NatStage>> {
        self.plan.load().nat_stage()
    }

    /// Who looks after the firewall of the plan in force; `None` without a firewall.
    pub(crate) fn firewall_watch(&self, config: &RouterConfig) -> Option<FirewallWatch> {
        FirewallWatch::of(&self.plan.load(), config)
    }

    /// What is known of the standby; `None` without one.
    pub fn standby(&self) -> Option<StandbyView> {
        self.standby.as_ref()?.view()
    }

    /// Ends the leases of offloaded flows. Call it after ending NAT sessions.
    pub fn end_leases(&self) {
        if let Some(offload) = &self.offload {
            offload.invalidate();
        }
    }

    /// The clock of packets' timestamps.
    pub fn clock(&self) -> LiveClock {
        self.clock
    }

    /// The ports' present state.
    pub fn ports(&self) -> Vec<PortStatus> {
        let (states, outboxes) = (self.states(), self.outboxes.load());
        let offloaded = self.offload.as_ref().map(|offload| offload.forwarded()).unwrap_or_default();
        let status = |(port, state): (u16, &Option<Arc<PortState>>)| {
            let (state, outbox) = (state.as_ref()?, outboxes.get(usize::from(port))?);
            let queues = self.received.of(port);
            let (received, sent) = match outbox.is_sub_interface() {
                true => vlan::numbers_of(self.counters.port(port)),
                false => (sum_of(&queues), outbox.driver()),
            };
            let offloaded = offloaded.get(usize::from(port)).copied().unwrap_or_default();
            let (name, facts, queued) = (state.name.clone(), state.facts_now(), outbox.queued());
            let residence = residence_of(std::slice::from_ref(self.counters.port(port)));
            Some(PortStatus { port, name, facts, received, queues, sent, queued, offloaded, residence })
        };
        (0..).zip(&states).filter_map(status).collect()
    }

    /// A port's name in the configuration; `None` if no port has this number.
    pub fn port_name(&self, port: u16) -> Option<String> {
        Some(self.states().get(usize::from(port))?.as_ref()?.name.clone())
    }

    pub(crate) fn states(&self) -> PortStates {
        self.states.lock().clone()
    }

    /// What each thread of the model has done.
    pub fn workers(&self) -> Vec<WorkerView> {
        self.worker_counters.status(&self.received)
    }

    /// How long sampled packets stayed, from the receive ring to their port's queue.
    pub fn residence(&self) -> SojournView {
        residence_of(&self.counters.ports)
    }

    /// Calls `act` with a port's egress queue; `None` if the port has none.
    pub fn with_queue<T>(&self, port: u16, act: impl FnOnce(&mut EgressQueue<Vec<u8>>) -> T) -> Option<T> {
        self.outboxes.load().get(usize::from(port))?.with_queue(act)
    }

    /// Begins a capture. Fails if the request names what does not exist, or too many captures run.
    pub fn capture(&self, request: &CaptureRequest) -> Result<CaptureStream, CaptureError> {
        let selection = Selection::of(request, &self.config(), &self.plan())?;
        let pause = self.offload.as_ref().filter(|_| selection.point.misses_offloaded());
        let pause = pause.map(|offload| offload.pause(selection.port));
        // By number, including removed ports.
        let mut ports = vec![("gone".to_owned(), String::new()); self.states().len()];
        for port in self.ports() {
            ports[usize::from(port.port)] =
                (port.name, format!("{}, {}", port.facts.interface, port.facts.mode));
        }
        let (counters, tables) = (self.counters.clone(), self.tables.clone());
        let router = CapturedRouter { counters, tables, ports, clock: self.clock };
        CaptureStream::begin(request, selection, router, pause)
    }

    /// Runs `question` on the host thread; `None` if it does not answer within two seconds.
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Host) -> T + Send + 'static) -> Option<T> {
        self.order(|host| question(host))
    }

    /// Replaces the permanent neighbors that come from the kernel's tables. `None` if the host thread does not
    /// answer in time.
    pub fn set_kernel_neighbors(
        &self,
        neighbors: impl IntoIterator<Item = (u16, IpAddr, MacAddr)>,
    ) -> Option<KernelNeighborCounts> {
        let neighbors: Vec<_> = neighbors.into_iter().collect();
        self.order(move |host| host.set_kernel_neighbors(neighbors.into_iter()))
    }

    /// The configuration in force. Blocks during a reload.
    pub fn config(&self) -> Arc<RouterConfig> {
        self.config_in_force().clone()
    }

    /// The plan in force; a reload may replace it at any time.
    pub fn plan(&self) -> Arc<RouterPlan> {
        self.plan.load_full()
    }

    pub(crate) fn config_in_force(&self) -> MutexGuard<'_, Arc<RouterConfig>> {
        self.config.lock()
    }

    /// Runs `question` on the host thread, where it may change state; `None` if the host thread does not answer in
    /// time.
    pub(crate) fn order<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> Option<T> {
        let answer = Arc::new(Mutex::new(None));
        let (done, wait) = bounded(1);
        let slot = answer.clone();
        let asked = self.questions.send_timeout(
            Box::new(move |host| {
                *slot.lock() = Some(question(host));
                // The asker may have timed out.
                let _ = done.send(());
            }),
            ANSWER_WAIT,
        );
        asked.ok()?;
        wait.recv_timeout(ANSWER_WAIT).ok()?;
        answer.lock().take()
    }

    /// Stops receiving. Packets in the plan are finished while `Stopping::wait` waits.
    #[must_use = "the threads are only told to end"]
    pub fn stop(&mut self) -> Stopping {
        self.stop.store(true, Ordering::Release);
        self.counters.taps.end_all();
        self.wakers.iter().for_each(SourceWaker::wake);
        self.queue_clock.wake();
        Stopping {
            packets: self.packets.take(),
            threads: std::mem::take(&mut self.threads),
            plan: self.plan(),
        }
    }
}

/// A router that was told to stop. Do not hold a lock around the router while waiting: threads that end may still
/// use the router.
pub struct Stopping {
    packets: Option<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    plan: Arc<RouterPlan>,
}

impl Stopping {
    /// Waits for all threads, and exports the remaining sessions and flows.
    pub fn wait(self) {
        if self.packets.is_some_and(|packets| packets.join().is_err()) {
            tracing::error!("the packet threads panicked");
        }
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread panicked");
            }
        }
        self.plan.end();
    }
}

/// The ICMP error for hosts that NAT refuses a session.
pub(crate) fn refusal(config: &RouterConfig) -> Option<IcmpError> {
    match config.nat.as_ref()?.refusal {
        NatRefusal::HostUnreachable => Some(IcmpError::HostUnreachable),
        NatRefusal::Prohibited => Some(IcmpError::Prohibited),
        NatRefusal::Silent => None,
    }
}

pub(crate) const ANSWER_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

impl Drop for LiveRouter {
    fn drop(&mut self) {
        self.stop().wait();
    }
}

fn residence_of(ports: &[PortCounters]) -> SojournView {
    Residence::view(ports.iter().filter_map(|port| port.residence.get().map(|residence| &**residence)))
}
