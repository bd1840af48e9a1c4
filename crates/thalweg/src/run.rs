//! `thalweg run`: the router in the foreground.
//!
//! ```text
//! schedule: sessions, RIB, update groups ──changes──> forwarding thread: FIB or kernel
//!                    │         ^                      (bounded inbox, see `thalweg_node::forwarding`)
//!                    │         └── which next hops can be reached ── the kernel's thread, or one of its own
//!      messages read └──> mrt thread                  seed thread ──routes──> RIB
//! ```
//!
//! Addresses that programs give mirrors of ports become the ports' own: a thread looks (`mirror_addresses`), and has them
//! taken over as a reload is.
//!
//! At the end, threads stop in this order: routing, then what reads from it, so that the last changes of state are in
//! the files and routes are taken out of the kernel last.

mod bgp_links;
mod flows;
mod kernel;
mod kernel_sync;
mod live;
mod mirror_addresses;
mod mrt;
mod network;
mod networks;
mod reload;
mod restart;
mod seed;
mod stopping;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thalweg_bgp::export::ExportLimits;
use thalweg_config::{BgpConfig, ConfigSource, Install, NextHopCheck, OnStop, RouterConfig};
use thalweg_exec::control::{SchedulingOptions, schedule};
use thalweg_node::control::{Identity, LiveControl, Reload, Server, Stop, serve};
use thalweg_node::forwarding::{FibForwarding, Forwarding, Inbox};
use thalweg_node::speaker::{Restart, RouteReader, SessionTap, Speaker, SpeakerOptions};
use thalweg_ports::kernel::PROTOCOL;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{LogFormat, RunArgs};
use crate::{Failure, load_with_source};
use bgp_links::BgpLinks;
use kernel::KernelThread;
use kernel_sync::KernelSyncer;
use live::LiveSide;
use mrt::UpdateTap;
use network::TcpNetwork;
use networks::NextHopThread;
use reload::Configurations;
use restart::NoteKeeper;
use stopping::Stopping;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (source, config) = load_with_source(&args.config)?;
    let bgp = config.bgp.clone().map(Arc::new);
    let is_live = config.ports.iter().any(|port| port.interface.is_some());
    if bgp.is_none() && !is_live {
        return Err(Failure::Run(format!(
            "{} has neither [bgp] nor a port with an interface: there is nothing to run (files of packets go \
             through `thalweg replay`)",
            args.config.display()
        )));
    }
    log_to_stderr(args)?;
    let path = args.socket.clone().unwrap_or_else(|| config.control_socket.clone());
    // First, so that a second router does not touch what the first has in the kernel.
    let socket = ControlSocket::open(&path, &config.control_socket)?;
    let stop = Arc::new(Stopping::default());
    let note = restart::path(&socket.path);
    let left = bgp.as_deref().and_then(|bgp| restart::find(&note, bgp, args.restarting));
    let mut helpers = Helpers::new(bgp.as_deref(), &config, is_live, left)?;
    let live = match &helpers.fib {
        Some(tables) if is_live => Some(Arc::new(LiveSide::start(&config, tables, args)?)),
        _ => None,
    };
    helpers.run_kernel_sync(&config, live.clone()).map_err(|error| Failure::Run(error.to_string()))?;
    if let Some(live) = live.clone() {
        let stop = helpers.stop.clone();
        helpers
            .spawn("rates", move || live.sample(&stop))
            .map_err(|error| failed("cannot start a thread", error))?;
    }
    let identity = Identity::new(env!("CARGO_PKG_VERSION"), args.config.clone(), &config);
    let process = Process { socket, identity: Arc::new(identity), source, stop };
    let result = match bgp {
        Some(bgp) => route(args, &bgp, &mut helpers, &live, &process),
        None => forward(args, &helpers, &live, &process),
    };
    let stopped = live.as_ref().map_or(Ok(()), |live| live.stop());
    helpers.stop();
    tracing::info!("stopped");
    result.and(stopped)
}

fn failed(what: &str, error: io::Error) -> Failure {
    Failure::Run(format!("{what}: {error}"))
}

/// What a router has as a process.
struct Process {
    socket: ControlSocket,
    identity: Arc<Identity>,
    /// What the configuration was made of.
    source: ConfigSource,
    stop: Arc<Stopping>,
}

/// Speaks BGP until the end.
fn route(
    args: &RunArgs,
    bgp: &Arc<BgpConfig>,
    helpers: &mut Helpers,
    live: &Option<Arc<LiveSide>>,
    process: &Process,
) -> Result<(), Failure> {
    let Process { socket, identity, stop, .. } = process;
    let options = SchedulingOptions {
        kind: args.scheduling.map_or(bgp.scheduling, Into::into),
        threads: args.threads.map(usize::from).or(bgp.threads).unwrap_or_else(cores),
    };
    let restart = helpers.restart.take();
    let note = Arc::new(NoteKeeper::new(restart::path(&socket.path), restart.as_ref()));
    if restart.is_some() {
        tracing::info!(
            longest_s = bgp.selection_deferral_s,
            "restart: routes are selected when neighbors have sent their tables"
        );
    }
    let network = TcpNetwork::listen(&bgp.listen).map_err(|error| Failure::Run(error.to_string()))?;
    let speaker = Speaker::new(
        bgp.clone(),
        SpeakerOptions {
            network: Box::new(network),
            readers: helpers.readers(),
            tap: helpers.tap(),
            seed: seed_number(),
            limits: ExportLimits::default(),
            scheduling: format!("{}, {} threads", options.kind, options.threads),
            profile_functions: args.profile_functions,
            restart,
        },
    );
    let speaker = Arc::new(speaker.map_err(|error| failed("cannot set up the neighbors", error))?);
    if let Some(live) = live {
        live.connect_flows(Some(&speaker));
    }
    let configurations = Configurations::new(args, process, Some(speaker.clone()), live.clone());
    let reload = configurations.reloader();
    let woken = speaker.clone();
    let stopper = handle_signals(stop, &reload, move || woken.wake())
        .map_err(|error| failed("cannot handle signals", error))?;
    helpers.keep_note(bgp, &speaker, &note).map_err(|error| failed("cannot start a thread", error))?;
    helpers.start(bgp, &speaker).map_err(|error| failed("cannot start a thread", error))?;
    follow_mirrors(configurations, live, &stop.flag)?;
    let control = live.clone().map(|live| live as Arc<dyn LiveControl>);
    let server = Server {
        identity: identity.clone(),
        speaker: Some(speaker.clone()),
        reload,
        stop: stopper,
        forwarding: helpers.forwarding(),
        live: control,
    };
    socket.serve(server)?;
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
    schedule(&*speaker, options, &stop.flag).map_err(|error| failed("the router failed", error))?;
    let on_stop = stop.on_stop(speaker.config().on_stop);
    helpers.keeps_routes.store(on_stop == OnStop::KeepRoutes, Ordering::Release);
    note.close(&speaker, on_stop);
    // The last flow records still know BGP's routes.
    let stopped = live.as_ref().map_or(Ok(()), |live| live.stop());
    speaker.shut_down(on_stop);
    let begun = Instant::now();
    while speaker.is_parting() && begun.elapsed() < PARTING_TAKES {
        thread::sleep(Duration::from_millis(10));
    }
    stopped
}

/// Forwards packets by configured routes alone until the end.
fn forward(
    args: &RunArgs,
    helpers: &Helpers,
    live: &Option<Arc<LiveSide>>,
    process: &Process,
) -> Result<(), Failure> {
    let Process { socket, identity, stop, .. } = process;
    let configurations = Configurations::new(args, process, None, live.clone());
    let reload = configurations.reloader();
    let main = thread::current();
    let stopper = handle_signals(stop, &reload, move || main.unpark())
        .map_err(|error| failed("cannot handle signals", error))?;
    let live = live.clone();
    if let Some(live) = &live {
        live.connect_flows(None);
    }
    follow_mirrors(configurations, &live, &stop.flag)?;
    let control = live.clone().map(|live| live as Arc<dyn LiveControl>);
    let (identity, forwarding) = (identity.clone(), helpers.forwarding());
    socket.serve(Server { identity, speaker: None, reload, stop: stopper, forwarding, live: control })?;
    tracing::info!(socket = %socket.path.display(), "running");
    while !stop.flag.load(Ordering::Acquire) {
        if live.as_ref().is_some_and(|live| live.has_ended()) {
            return Err(Failure::Run("packets are not forwarded any more: see the log".to_owned()));
        }
        thread::park_timeout(LOOK_EVERY);
    }
    Ok(())
}

/// Has ports have the addresses that programs give their mirrors.
fn follow_mirrors(
    configurations: Arc<Configurations>,
    live: &Option<Arc<LiveSide>>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    if live.is_none() {
        return Ok(());
    }
    let followed = mirror_addresses::follow(configurations, stop.clone());
    followed.map_err(|why| Failure::Run(format!("addresses of mirrors cannot be followed: {why}")))
}

/// How often a router without BGP looks whether it still forwards.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long neighbors have at the end to read why their sessions end, and to close.
const PARTING_TAKES: Duration = Duration::from_millis(500);

/// What runs beside the scheduling, each on its own thread.
struct Helpers {
    inbox: Option<Arc<Inbox>>,
    fib: Option<Arc<FibForwarding>>,
    kernel: Option<KernelThread>,
    next_hops: Option<NextHopThread>,
    bgp_links: Option<BgpLinks>,
    forwarding: Option<Arc<dyn Forwarding>>,
    tap: Option<Arc<UpdateTap>>,
    /// What a predecessor left, until it is told.
    restart: Option<Restart>,
    /// Routes stay in the kernel at the end.
    keeps_routes: Arc<AtomicBool>,
    /// Ends the thread that no inbox ends.
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Helpers {
    fn new(
        bgp: Option<&BgpConfig>,
        config: &RouterConfig,
        is_live: bool,
        mut restart: Option<Restart>,
    ) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Run(error.to_string());
        let install = bgp.map_or(Install::None, |bgp| bgp.install);
        let inbox = (install != Install::None).then(Arc::<Inbox>::default);
        let keeps_routes = Arc::<AtomicBool>::default();
        let (mut fib, mut kernel) = (None, None);
        let mut forwarding: Option<Arc<dyn Forwarding>> = None;
        match (install, &inbox) {
            (Install::Fib, Some(inbox)) => {
                let tables = FibForwarding::new(inbox.clone(), config).map_err(|error| failed(&error))?;
                let tables = Arc::new(tables);
                forwarding = Some(tables.clone());
                fib = Some(tables);
            }
            (Install::Kernel, Some(inbox)) => {
                let Some(bgp) = bgp else { return Err(failed(&"no [bgp]")) };
                let thread = KernelThread::new(inbox.clone(), bgp, &mut restart, &keeps_routes);
                let thread = thread.map_err(|error| failed(&error))?;
                forwarding = Some(thread.forwarding());
                kernel = Some(thread);
            }
            _ => {}
        }
        if is_live && fib.is_none() {
            // Configured routes; BGP's go elsewhere or nowhere.
            let tables =
                Arc::new(FibForwarding::new(Arc::default(), config).map_err(|error| failed(&error))?);
            forwarding.get_or_insert_with(|| tables.clone());
            fib = Some(tables);
        }
        // The kernel's thread tells itself.
        let alone = bgp.is_some_and(|bgp| bgp.next_hop_check == NextHopCheck::Kernel) && kernel.is_none();
        let next_hops =
            alone.then(|| NextHopThread::new(PROTOCOL)).transpose().map_err(|error| failed(&error))?;
        let writes = bgp.is_some_and(|bgp| bgp.mrt.dump.is_some() || bgp.mrt.updates.is_some());
        let tap = writes.then(Arc::<UpdateTap>::default);
        let (stop, threads) = (Arc::default(), Vec::new());
        // Without it sessions end by their hold timer, which is no reason not to run.
        let bgp_links = bgp.map(|_| BgpLinks::new(config)).transpose().unwrap_or_else(|error| {
            tracing::warn!("links are not followed, sessions end by their hold timer: {error}");
            None
        });
        Ok(Self {
            inbox,
            fib,
            kernel,
            next_hops,
            bgp_links,
            forwarding,
            tap,
            restart,
            keeps_routes,
            stop,
            threads,
        })
    }

    fn readers(&self) -> Vec<Box<dyn RouteReader>> {
        self.inbox.iter().map(|inbox| inbox.reader()).collect()
    }

    fn tap(&self) -> Option<Arc<dyn SessionTap>> {
        self.tap.clone().map(|tap| tap as Arc<dyn SessionTap>)
    }

    fn forwarding(&self) -> Option<Arc<dyn Forwarding>> {
        self.forwarding.clone()
    }

    /// Keeps the note of who keeps our routes, where somebody does.
    fn keep_note(
        &mut self,
        bgp: &BgpConfig,
        speaker: &Arc<Speaker>,
        note: &Arc<NoteKeeper>,
    ) -> io::Result<()> {
        if !restart::is_wanted(bgp) {
            return Ok(());
        }
        let (speaker, note, stop) = (speaker.clone(), note.clone(), self.stop.clone());
        self.spawn("restart-note", move || note.run(&speaker, &stop))
    }

    fn start(&mut self, bgp: &Arc<BgpConfig>, speaker: &Arc<Speaker>) -> io::Result<()> {
        if let (Some(tables), Install::Fib) = (self.fib.clone(), bgp.install) {
            let speaker = speaker.clone();
            self.spawn("fib", move || tables.run(&speaker))?;
        }
        if let Some(kernel) = self.kernel.take() {
            let speaker = speaker.clone();
            kernel.tell_next_hops(&speaker);
            self.spawn("kernel", move || kernel.run(&speaker))?;
        }
        if let Some(next_hops) = self.next_hops.take() {
            let (speaker, stop) = (speaker.clone(), self.stop.clone());
            next_hops.begin(&speaker);
            self.spawn("next-hops", move || next_hops.run(&speaker, &stop))?;
        }
        if let Some(links) = self.bgp_links.take() {
            let (speaker, stop) = (speaker.clone(), self.stop.clone());
            self.spawn("bgp-links", move || links.run(&speaker, &stop))?;
        }
        if let Some(tap) = self.tap.clone() {
            let (speaker, bgp) = (speaker.clone(), bgp.clone());
            self.spawn("mrt", move || mrt::write(&bgp.mrt, &tap, &speaker))?;
        }
        if let Some(path) = bgp.seed_mrt.clone() {
            let speaker = speaker.clone();
            // Not waited for at the end: it has nothing to put in order.
            thread::Builder::new().name("seed".to_owned()).spawn(move || seed::seed(&path, &speaker))?;
        }
        Ok(())
    }

    /// Keeps forwarding and the kernel in step, if that is wanted: from when mirrors are there.
    fn run_kernel_sync(
        &mut self,
        config: &RouterConfig,
        live: Option<Arc<LiveSide>>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let Some(tables) = self.fib.clone().filter(|_| config.kernel.is_on()) else {
            return Ok(());
        };
        let (kernel_sync, stop) = (KernelSyncer::new(tables, live, config)?, self.stop.clone());
        Ok(self.spawn("in-step", move || kernel_sync.run(&stop))?)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(body)?);
        Ok(())
    }

    /// Ends the threads and waits for them.
    fn stop(&mut self) {
        if let Some(tap) = &self.tap {
            tap.close();
        }
        if let Some(inbox) = &self.inbox {
            inbox.close();
        }
        self.stop.store(true, Ordering::Release);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of this program panicked; please report it");
            }
        }
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Not a secret, but nothing a stranger can guess from outside.
fn seed_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn log_to_stderr(args: &RunArgs) -> Result<(), Failure> {
    let level: LevelFilter = args.log.parse().map_err(|_| {
        Failure::Usage(format!("--log {}: expected error, warn, info, debug, trace or off", args.log))
    })?;
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_target(false);
    match args.log_format {
        LogFormat::Text => builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

/// SIGHUP reloads; SIGINT and SIGTERM end the router, a second one at once. What ends it otherwise.
fn handle_signals(
    stop: &Arc<Stopping>,
    reload: &Arc<Reload>,
    wake: impl Fn() + Send + Sync + 'static,
) -> io::Result<Arc<Stop>> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let stopping = stop.clone();
    let stopper: Arc<Stop> = Arc::new(move |asked| {
        let was_stopping = stopping.stop(asked);
        wake();
        was_stopping
    });
    let (stop, reload) = (stopper.clone(), reload.clone());
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                // What is wrong with the file is in the log.
                let _ = reload(false);
            } else if stop(None) {
                std::process::exit(1);
            }
        }
    })?;
    Ok(stopper)
}

/// The socket for `show` and its like; its file goes when the router ends.
struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// What the configuration said when the router began.
    configured: PathBuf,
}

impl ControlSocket {
    fn open(path: &Path, configured: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::Run(format!(
                "cannot listen on the control socket {}: {error}; choose another with --socket",
                path.display()
            ))
        };
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                if UnixStream::connect(path).is_ok() {
                    return Err(Failure::Run(format!(
                        "a router answers at {} already: end it, or choose another --socket",
                        path.display()
                    )));
                }
                // Left behind by one that could not clean up.
                fs::remove_file(path).and_then(|()| UnixListener::bind(path)).map_err(failed)?
            }
            other => other.map_err(failed)?,
        };
        Ok(Self { listener, path: path.to_owned(), configured: configured.to_owned() })
    }

    /// Answers whoever asks, on threads of its own.
    fn serve(&self, server: Server) -> Result<(), Failure> {
        let listener = self.listener.try_clone().map_err(|error| failed("control socket", error))?;
        let spawned =
            thread::Builder::new().name("control".to_owned()).spawn(move || serve(&listener, &server));
        spawned.map(drop).map_err(|error| failed("cannot start the control thread", error))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            let _ = writeln!(io::stderr(), "warning: cannot remove {}: {error}", self.path.display());
        }
    }
}
