//! A live router, as others have it: looking at it, asking it, stopping it. How it is put together: `start`.

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
use thalweg_exec::ModelOptions;
use thalweg_node::control::CaptureRequest;
use thalweg_node::forwarding::ForwardingTables;
use thalweg_node::plan::NatStage;
use thalweg_node::plan::{RecordOutlet, RouterPlan};
use thalweg_ports::live::{LiveClock, PortFacts, RxCounters, SourceWaker, TxCounters};
use thalweg_wire::MacAddr;

use crate::capture::{CaptureError, CaptureStream, CapturedRouter, Selection};
use crate::counters::Counters;
use crate::halves::HalvesSlot;
use crate::host::{Host, KernelNeighborCounts, Question};
use crate::links::WatchChange;
use crate::offload::{FlowOffload, Offloaded};
use crate::outbox::{Outboxes, QueueClock};
use crate::packets::Exchange;
use crate::ports::{PortState, PortStates};
use crate::received::{Received, sum_of};
use crate::vlan;
use crate::workers::{WorkerStatus, Workers};

/// How to run.
#[derive(Clone)]
pub struct LiveOptions {
    /// The model and its workers.
    pub model: ModelOptions,
    /// For how long workers ask ports that have run dry before they sleep.
    pub busy_poll: Duration,
    /// Packets that one chunk holds at most.
    pub chunk_packets: usize,
    /// Against strangers that choose collisions.
    pub seed: u64,
    /// Who gets flow records, where flows are metered.
    pub flow_outlet: Option<Arc<dyn RecordOutlet>>,
}

/// A port as it is now.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// Its number. Numbers of ports that are gone are left out.
    pub port: u16,
    /// Its name in the configuration.
    pub name: String,
    /// How it was opened.
    pub facts: PortFacts,
    /// What its driver received.
    pub received: RxCounters,
    /// Of that, what came by each receive queue that is worked on apart; of a sub-interface nothing is known.
    pub queues: Vec<RxCounters>,
    /// What its driver sent.
    pub sent: TxCounters,
    /// Frames that wait in its queues.
    pub queued: u64,
    /// What the kernel forwarded by itself.
    pub offloaded: Offloaded,
}

/// A router that runs. It stops when it is dropped.
pub struct LiveRouter {
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) wakers: Vec<SourceWaker>,
    pub(crate) server: Arc<QueueClock>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) packets: Option<JoinHandle<()>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) received: Arc<Received>,
    pub(crate) worker_counters: Arc<Workers>,
    pub(crate) outboxes: Outboxes,
    pub(crate) states: Mutex<PortStates>,
    /// Where the feeds of lanes, the mirrors' thread and that of links are told of ports that come and go.
    pub(crate) lanes: Vec<HalvesSlot>,
    pub(crate) mirror_halves: HalvesSlot,
    pub(crate) watch: Sender<WatchChange>,
    pub(crate) offload: Option<Arc<FlowOffload>>,
    pub(crate) questions: Sender<Question>,
    pub(crate) ended: Arc<AtomicBool>,
    /// The configuration in force; locked for as long as another takes its place.
    pub(crate) config: Mutex<Arc<RouterConfig>>,
    /// The plan in force.
    pub(crate) plan: Arc<ArcSwap<RouterPlan>>,
    pub(crate) tables: Arc<ForwardingTables>,
    pub(crate) flow_outlet: Option<Arc<dyn RecordOutlet>>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) clock: LiveClock,
    pub(crate) workers: usize,
    /// The class of the router's own packets.
    pub(crate) class: Arc<AtomicU8>,
    /// Whether hosts are told that get no NAT session.
    pub(crate) tells_refusals: Arc<AtomicBool>,
}

impl LiveRouter {
    /// Whether packets are not worked on any more, though nobody has asked for it.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire)
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// NAT's sessions, if there is NAT.
    pub fn nat(&self) -> Option<Arc<NatStage>> {
        self.plan.load().nat_stage()
    }

    /// Ends the leases of flows that the kernel forwards: sessions were ended.
    pub fn end_leases(&self) {
        if let Some(offload) = &self.offload {
            offload.invalidate();
        }
    }

    /// The time as packets have it.
    pub fn clock(&self) -> LiveClock {
        self.clock
    }

    /// The ports as they are now.
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
            Some(PortStatus { port, name, facts, received, queues, sent, queued, offloaded })
        };
        (0..).zip(&states).filter_map(status).collect()
    }

    /// What the configuration calls a port, if there is one of this number.
    pub fn port_name(&self, port: u16) -> Option<String> {
        Some(self.states().get(usize::from(port))?.as_ref()?.name.clone())
    }

    /// What is kept of ports.
    pub(crate) fn states(&self) -> PortStates {
        self.states.lock().clone()
    }

    /// What the threads of the model have done.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        self.worker_counters.status()
    }

    /// Does something with a port's queue, if it has one.
    pub fn with_queue<T>(&self, port: u16, act: impl FnOnce(&mut EgressQueue<Vec<u8>>) -> T) -> Option<T> {
        self.outboxes.load().get(usize::from(port))?.with_queue(act)
    }

    /// Begins a capture, or says what is wrong with the request.
    pub fn capture(&self, request: &CaptureRequest) -> Result<CaptureStream, CaptureError> {
        let selection = Selection::of(request, &self.config(), &self.plan())?;
        let pause = self.offload.as_ref().filter(|_| selection.point.misses_offloaded());
        let pause = pause.map(|offload| offload.pause(selection.port));
        // By number, those of ports that are gone included.
        let mut ports = vec![("gone".to_owned(), String::new()); self.states().len()];
        for port in self.ports() {
            ports[usize::from(port.port)] =
                (port.name, format!("{}, {}", port.facts.interface, port.facts.mode));
        }
        let (counters, tables) = (self.counters.clone(), self.tables.clone());
        let router = CapturedRouter { counters, tables, ports, clock: self.clock };
        CaptureStream::begin(request, selection, router, pause)
    }

    /// Asks the host thread; `None` if it does not answer in time.
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Host) -> T + Send + 'static) -> Option<T> {
        self.order(|host| question(host))
    }

    /// Has neighbors on ports that the kernel's neighbor tables know for good, instead of those before. `None` if the host
    /// thread does not come to it.
    pub fn set_kernel_neighbors(
        &self,
        neighbors: impl IntoIterator<Item = (u16, IpAddr, MacAddr)>,
    ) -> Option<KernelNeighborCounts> {
        let neighbors: Vec<_> = neighbors.into_iter().collect();
        self.order(move |host| host.set_kernel_neighbors(neighbors.into_iter()))
    }

    /// The configuration in force. Waits while another takes its place.
    pub fn config(&self) -> Arc<RouterConfig> {
        self.config_in_force().clone()
    }

    /// The plan in force, which another may follow at any time.
    pub fn plan(&self) -> Arc<RouterPlan> {
        self.plan.load_full()
    }

    pub(crate) fn config_in_force(&self) -> MutexGuard<'_, Arc<RouterConfig>> {
        self.config.lock()
    }

    /// Has the host thread do something; `None` if it does not come to it in time.
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
                // The asker may have gone.
                let _ = done.send(());
            }),
            ANSWER_WAIT,
        );
        asked.ok()?;
        wait.recv_timeout(ANSWER_WAIT).ok()?;
        answer.lock().take()
    }

    /// Stops: no packet is received any more, and those on their way are finished.
    #[must_use = "the threads are only told to end"]
    pub fn stop(&mut self) -> Stopping {
        self.stop.store(true, Ordering::Release);
        self.counters.taps.end_all();
        self.wakers.iter().for_each(SourceWaker::wake);
        self.server.ring();
        Stopping {
            packets: self.packets.take(),
            threads: std::mem::take(&mut self.threads),
            plan: self.plan(),
        }
    }
}

/// A router that was told to stop. Wait for it without holding a lock around the router: threads that end may ask the router
/// once more.
pub struct Stopping {
    packets: Option<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    plan: Arc<RouterPlan>,
}

impl Stopping {
    /// Waits for all threads, and reports what is left of sessions and flows.
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

/// What hosts are told that get no NAT session.
pub(crate) fn refusal(config: &RouterConfig) -> Option<IcmpError> {
    match config.nat.as_ref()?.refusal {
        NatRefusal::HostUnreachable => Some(IcmpError::HostUnreachable),
        NatRefusal::Prohibited => Some(IcmpError::Prohibited),
        NatRefusal::Silent => None,
    }
}

/// How long an answer of the host thread is waited for.
pub(crate) const ANSWER_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

impl Drop for LiveRouter {
    fn drop(&mut self) {
        self.stop().wait();
    }
}
