//! The daemon behind `thalweg run`: interfaces, BGP, the kernel and the control socket of one router, in the
//! foreground. The command line reads arguments, sets up the log and calls [`run`].
//!
//! ```text
//! schedule: sessions, RIB, update groups ──changes──> forwarding thread: FIB or kernel
//!                    │         ^                      (bounded inbox, see `thalweg_node::forwarding`)
//!                    │         └── which next hops can be reached ── the kernel's thread, or one of its own
//!      messages read └──> mrt thread                  seed thread ──routes──> RIB
//! ```
//!
//! A thread watches the addresses that programs give to mirrors of ports (`mirror_addresses`), and applies them to
//! the ports as a reload would.
//!
//! At the end, routing stops first and its readers after it, so that files contain the last changes of state and
//! routes leave the kernel last.

mod bgp_links;
mod blackholes;
mod control;
mod error;
mod failures;
mod flows;
mod helpers;
mod identity;
mod kernel;
mod kernel_installer;
mod kernel_sync;
mod mirror_addresses;
mod mrt;
mod network;
mod networks;
mod options;
mod orders;
mod packets;
pub mod priority;
mod process;
mod reload;
mod restart;
pub mod rights;
mod rpki;
mod saved_fib;
mod seed;
mod service;
mod stopping;
#[cfg(test)]
#[path = "../../ports/tests/common/mod.rs"]
mod test_namespace;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_bgp::export::ExportLimits;
use thalweg_config::{BgpConfig, ConfigSource, Install, OnStop, RouterConfig};
use thalweg_exec::control_plane::{SchedulingOptions, schedule};
use thalweg_node::fib::SavedRoutes;
use thalweg_node::forwarding::{ForwardingTables, Inbox};
use thalweg_node::speaker::{Restart, Speaker, SpeakerOptions};

use control::ControlServer;
use helpers::{Helpers, NO_THREAD};
use identity::Identity;
use network::TcpNetwork;
use options::seed_number;
use packets::PacketSide;
use process::{ControlSocket, Process};
use reload::Configurations;
use restart::NoteKeeper;
use stopping::{Stopping, handle_signals};

pub use error::{MirrorError, RunError};
pub use identity::COMMIT;
pub use options::RunOptions;

/// Runs the router of this configuration until a signal or `thalweg stop` ends it. Before it, and before any thread,
/// comes [`rights::take`].
pub fn run(source: ConfigSource, config: &RouterConfig, options: &RunOptions) -> Result<(), RunError> {
    let bgp = config.bgp.clone().map(Arc::new);
    let is_live = config.ports.iter().any(|port| port.interface.is_some());
    if bgp.is_none() && !is_live {
        return Err(RunError::NothingToRun(options.config.clone()));
    }
    let path = options.socket.as_ref().unwrap_or(&config.control.socket);
    // First of all, so that a second router does not touch the first one's routes in the kernel.
    let socket = ControlSocket::open(path, &config.control)?;
    let stop = Arc::new(Stopping::default());
    let note = restart::path(&socket.path);
    let left = bgp.as_deref().and_then(|bgp| restart::find(&note, bgp, options.restarting));
    let fib_file = bgp.as_deref().filter(|bgp| bgp.save_fib).map(|_| saved_fib::path(&socket.path));
    let (left, saved) = with_saved_fib(bgp.as_deref(), fib_file.as_deref(), left);
    let install = bgp.as_ref().map_or(Install::None, |bgp| bgp.install);
    let inbox = (install != Install::None).then(Arc::<Inbox>::default);
    // The tables belong to the router; all other parts get handles.
    let tables = match install {
        Install::Fib => Some(ForwardingTables::new(config, inbox.clone())?),
        // Only configured routes; BGP's are installed elsewhere or not at all.
        Install::Kernel | Install::None if is_live => Some(ForwardingTables::new(config, None)?),
        Install::Kernel | Install::None => None,
    };
    let tables = tables.map(Arc::new);
    let mut helpers = Helpers::new(bgp.as_deref(), config, tables.clone(), inbox, left)?;
    helpers.save_fib(fib_file, saved).map_err(RunError::system(NO_THREAD))?;
    let packets = match &tables {
        Some(tables) if is_live => Some(Arc::new(PacketSide::start(config, tables, options)?)),
        _ => None,
    };
    helpers.run_kernel_sync(config, packets.clone())?;
    if let Some(packets) = packets.clone() {
        let stop = helpers.stop.clone();
        helpers.spawn("rates", move || packets.sample(&stop)).map_err(RunError::system(NO_THREAD))?;
    }
    let identity = Identity::new(env!("CARGO_PKG_VERSION"), options.config.clone(), config);
    let (web, system) = (config.web.clone(), config.system.clone());
    let process = Process { socket, identity: Arc::new(identity), source, web, system, stop };
    let result = match bgp {
        Some(bgp) => route(options, &bgp, &mut helpers, &packets, &process),
        None => forward(options, &helpers, &packets, &process),
    };
    let stopped = packets.as_ref().map_or(Ok(()), |packets| packets.stop());
    helpers.stop();
    tracing::info!("stopped");
    result.and(stopped)
}

/// A restart of a router that saves its forwarding table needs that table, or else it is a cold start.
fn with_saved_fib(
    bgp: Option<&BgpConfig>,
    file: Option<&Path>,
    left: Option<Restart>,
) -> (Option<Restart>, Option<SavedRoutes>) {
    let (Some(bgp), Some(file), Some(left)) = (bgp, file, &left) else { return (left, None) };
    match saved_fib::read(
        file,
        restart::restart_times(bgp).max().unwrap_or_default(),
        saved_fib::since_boot(),
    ) {
        Ok(saved) => {
            tracing::info!(prefixes = saved.len(), "restart: forwarding by the saved table");
            (Some(left.clone()), Some(saved))
        }
        Err(why) => {
            tracing::warn!("this is a cold start: {why}");
            (None, None)
        }
    }
}

/// Speaks BGP until the end.
fn route(
    run: &RunOptions,
    bgp: &Arc<BgpConfig>,
    helpers: &mut Helpers,
    packets: &Option<Arc<PacketSide>>,
    process: &Process,
) -> Result<(), RunError> {
    let Process { socket, identity, stop, .. } = process;
    let options = SchedulingOptions {
        kind: run.scheduling.unwrap_or(bgp.scheduling),
        threads: run.threads.or(bgp.threads).unwrap_or_else(cores),
    };
    let restart = helpers.restart.take();
    let note = Arc::new(NoteKeeper::new(restart::path(&socket.path), restart.as_ref()));
    if restart.is_some() {
        tracing::info!(
            longest_s = bgp.selection_deferral_s,
            "restart: waiting for the tables of neighbors before routes are selected"
        );
    }
    let network = TcpNetwork::listen(&bgp.listen).map_err(RunError::Listen)?;
    let speaker = Speaker::new(
        bgp.clone(),
        SpeakerOptions {
            network: Box::new(network),
            readers: helpers.readers(),
            observer: helpers.observer(),
            seed: seed_number(),
            limits: ExportLimits::default(),
            scheduling: format!("{}, {} threads", options.kind, options.threads),
            profile_functions: run.profile_functions,
            interner: None,
            one_shard: false,
            restart,
        },
    );
    let speaker = Arc::new(speaker.map_err(RunError::system("cannot set up the neighbors"))?);
    if let Some(packets) = packets {
        packets.connect_flows(Some(&speaker));
    }
    let configurations = Configurations::new(run, process, Some(speaker.clone()), packets.clone());
    let reload = configurations.reloader();
    let woken = speaker.clone();
    let stopper = handle_signals(stop, &reload, move || woken.wake())
        .map_err(RunError::system("cannot handle signals"))?;
    helpers.keep_note(bgp, &speaker, &note).map_err(RunError::system(NO_THREAD))?;
    helpers.start(bgp, &speaker).map_err(RunError::system(NO_THREAD))?;
    follow_mirrors(configurations, packets, &stop.flag)?;
    let server = ControlServer {
        identity: identity.clone(),
        speaker: Some(speaker.clone()),
        reload,
        stop: stopper,
        forwarding: helpers.forwarding(),
        packets: packets.clone(),
        may_change: true,
    };
    socket.serve(server.clone())?;
    tracing::info!(
        r#as = bgp.local_as,
        router_id = %bgp.router_id,
        neighbors = bgp.neighbors.len(),
        scheduling = %options.kind,
        threads = options.threads,
        socket = %socket.path.display(),
        install = bgp.install.name(),
        next_hop_check = bgp.next_hop_check.name(),
        "running"
    );
    service::begin(&server, &stop.flag).map_err(RunError::system(NO_THREAD))?;
    schedule(&*speaker, options, &stop.flag).map_err(RunError::system("the router failed"))?;
    service::notify(service::STOPPING);
    let on_stop = stop.on_stop(speaker.config().on_stop);
    helpers.keeps_routes.store(on_stop == OnStop::KeepRoutes, Ordering::Release);
    note.close(&speaker, on_stop);
    helpers.close_fib(&speaker, on_stop);
    part(&speaker, packets, on_stop)
}

/// Ends flow metering first, while BGP's routes can still complete its last records, and then the sessions.
fn part(speaker: &Speaker, packets: &Option<Arc<PacketSide>>, on_stop: OnStop) -> Result<(), RunError> {
    let stopped = packets.as_ref().map_or(Ok(()), |packets| packets.stop());
    speaker.shut_down(on_stop);
    let begun = Instant::now();
    while speaker.is_parting() && begun.elapsed() < PARTING_TAKES {
        thread::sleep(Duration::from_millis(10));
    }
    stopped
}

/// Forwards packets by configured routes alone until the end.
fn forward(
    run: &RunOptions,
    helpers: &Helpers,
    packets: &Option<Arc<PacketSide>>,
    process: &Process,
) -> Result<(), RunError> {
    let Process { socket, identity, stop, .. } = process;
    let configurations = Configurations::new(run, process, None, packets.clone());
    let reload = configurations.reloader();
    let main = thread::current();
    let stopper = handle_signals(stop, &reload, move || main.unpark())
        .map_err(RunError::system("cannot handle signals"))?;
    if let Some(packets) = packets {
        packets.connect_flows(None);
    }
    follow_mirrors(configurations, packets, &stop.flag)?;
    let server = ControlServer {
        identity: identity.clone(),
        speaker: None,
        reload,
        stop: stopper,
        forwarding: helpers.forwarding(),
        packets: packets.clone(),
        may_change: true,
    };
    socket.serve(server.clone())?;
    tracing::info!(socket = %socket.path.display(), "running");
    service::begin(&server, &stop.flag).map_err(RunError::system(NO_THREAD))?;
    while !stop.flag.load(Ordering::Acquire) {
        if packets.as_ref().is_some_and(|packets| packets.has_ended()) {
            return Err(RunError::ForwardingEnded);
        }
        thread::park_timeout(LOOK_EVERY);
    }
    service::notify(service::STOPPING);
    Ok(())
}

/// Starts the thread that gives ports the addresses of their mirrors.
fn follow_mirrors(
    configurations: Arc<Configurations>,
    packets: &Option<Arc<PacketSide>>,
    stop: &Arc<AtomicBool>,
) -> Result<(), RunError> {
    if packets.is_none() {
        return Ok(());
    }
    Ok(mirror_addresses::follow(configurations, stop.clone())?)
}

/// Interval at which a router without BGP checks whether it still forwards.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time that neighbors have at the end to read the NOTIFICATION and close.
const PARTING_TAKES: Duration = Duration::from_millis(500);

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
