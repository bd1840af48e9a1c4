//! `thalweg run`: the router in the foreground.
//!
//! ```text
//! schedule: sessions, RIB, update groups ──changes──> forwarding thread: FIB or kernel
//!                    │    ^                           (bounded inbox, see `thalweg_node::forwarding`)
//!      messages read └──> mrt thread                  seed thread ──routes──> RIB
//! ```
//!
//! At the end, threads stop in this order: routing, then what reads from it, so that the last changes of state are in
//! the files and routes are taken out of the kernel last.

mod kernel;
mod mrt;
mod network;
mod seed;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thalweg_bgp::export::ExportLimits;
use thalweg_exec::control::{SchedulingOptions, schedule};
use thalweg_node::config::{BgpConfig, Install, RouterConfig};
use thalweg_node::control::{Reload, Server, serve};
use thalweg_node::forwarding::{FibForwarding, Forwarding, Inbox};
use thalweg_node::speaker::{RouteReader, SessionTap, Speaker, SpeakerOptions};
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{LogFormat, RunArgs};
use crate::{Failure, load_config};
use kernel::KernelThread;
use mrt::UpdateTap;
use network::TcpNetwork;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let config = load_config(&args.config)?;
    let Some(bgp) = config.bgp.clone().map(Arc::new) else {
        return Err(Failure::Run(format!(
            "{} has no [bgp] section: there is nothing to run (packets go through `thalweg replay`)",
            args.config.display()
        )));
    };
    log_to_stderr(args)?;
    let options = SchedulingOptions {
        kind: args.scheduling.map_or(bgp.scheduling, Into::into),
        threads: args.threads.map(usize::from).or(bgp.threads).unwrap_or_else(cores),
    };
    let network = TcpNetwork::listen(&bgp.listen).map_err(|error| Failure::Run(error.to_string()))?;
    let failed = |what: &str, error: io::Error| Failure::Run(format!("{what}: {error}"));
    let path = args.socket.clone().unwrap_or_else(|| bgp.control_socket.clone());
    // First, so that a second router does not touch what the first has in the kernel.
    let socket = ControlSocket::open(&path)?;
    let mut helpers = Helpers::new(&bgp, &config)?;
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
            restarting: args.restarting,
        },
    );
    let speaker = Arc::new(speaker.map_err(|error| failed("cannot set up the neighbours", error))?);
    let reload = reloader(args.config.clone(), speaker.clone());
    let stop = Arc::new(AtomicBool::new(false));
    handle_signals(&stop, &speaker, &reload).map_err(|error| failed("cannot handle signals", error))?;
    helpers.start(&bgp, &speaker).map_err(|error| failed("cannot start a thread", error))?;
    let listener = socket.listener.try_clone().map_err(|error| failed("control socket", error))?;
    let server = Server { speaker: speaker.clone(), reload, forwarding: helpers.forwarding() };
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || serve(&listener, &server))
        .map_err(|error| failed("cannot start the control thread", error))?;
    tracing::info!(
        r#as = bgp.local_as,
        router_id = %bgp.router_id,
        neighbours = bgp.neighbors.len(),
        scheduling = %options.kind,
        threads = options.threads,
        socket = %path.display(),
        install = bgp.install.name(),
        "running"
    );
    if !config.ports.is_empty() {
        tracing::info!(
            "[ports] serve to resolve next hops; packets are not forwarded yet: this router speaks BGP only"
        );
    }
    schedule(&*speaker, options, &stop).map_err(|error| failed("the router failed", error))?;
    speaker.shut_down();
    helpers.stop();
    tracing::info!("stopped");
    Ok(())
}

/// What runs beside the scheduling, each on its own thread.
struct Helpers {
    inbox: Option<Arc<Inbox>>,
    fib: Option<Arc<FibForwarding>>,
    kernel: Option<KernelThread>,
    forwarding: Option<Arc<dyn Forwarding>>,
    tap: Option<Arc<UpdateTap>>,
    threads: Vec<JoinHandle<()>>,
}

impl Helpers {
    fn new(bgp: &BgpConfig, config: &RouterConfig) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Run(error.to_string());
        let inbox = (bgp.install != Install::None).then(Arc::<Inbox>::default);
        let (mut fib, mut kernel) = (None, None);
        let mut forwarding: Option<Arc<dyn Forwarding>> = None;
        match (bgp.install, &inbox) {
            (Install::Fib, Some(inbox)) => {
                let tables = FibForwarding::new(inbox.clone(), config).map_err(|error| failed(&error))?;
                let tables = Arc::new(tables);
                forwarding = Some(tables.clone());
                fib = Some(tables);
            }
            (Install::Kernel, Some(inbox)) => {
                let thread = KernelThread::new(inbox.clone(), bgp).map_err(|error| failed(&error))?;
                forwarding = Some(thread.forwarding());
                kernel = Some(thread);
            }
            _ => {}
        }
        let writes = bgp.mrt.dump.is_some() || bgp.mrt.updates.is_some();
        let tap = writes.then(Arc::<UpdateTap>::default);
        Ok(Self { inbox, fib, kernel, forwarding, tap, threads: Vec::new() })
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

    fn start(&mut self, bgp: &Arc<BgpConfig>, speaker: &Arc<Speaker>) -> io::Result<()> {
        if let Some(tables) = self.fib.take() {
            let speaker = speaker.clone();
            self.spawn("fib", move || tables.run(&speaker))?;
        }
        if let Some(kernel) = self.kernel.take() {
            let speaker = speaker.clone();
            self.spawn("kernel", move || kernel.run(&speaker))?;
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

/// Reads the file again; whatever is wrong with it, nothing changes.
fn reloader(path: PathBuf, speaker: Arc<Speaker>) -> Arc<Reload> {
    Arc::new(move || {
        let config = RouterConfig::load(&path).map_err(|errors| {
            tracing::error!("the configuration is not valid and was not taken over:\n{errors}");
            errors.to_string()
        })?;
        let bgp = config.bgp.ok_or_else(|| "the configuration has no [bgp] section any more".to_owned())?;
        let changes = speaker.reload(Arc::new(bgp))?;
        for change in &changes {
            tracing::info!("reload: {change}");
        }
        Ok(changes)
    })
}

/// SIGHUP reloads; SIGINT and SIGTERM end the router, a second one at once.
fn handle_signals(stop: &Arc<AtomicBool>, speaker: &Arc<Speaker>, reload: &Arc<Reload>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let (stop, speaker, reload) = (stop.clone(), speaker.clone(), reload.clone());
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                // What is wrong with the file is in the log.
                let _ = reload();
            } else if stop.swap(true, Ordering::AcqRel) {
                std::process::exit(1);
            } else {
                speaker.wake_all();
            }
        }
    })?;
    Ok(())
}

/// The socket for `show` and its like; its file goes when the router ends.
struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    fn open(path: &Path) -> Result<Self, Failure> {
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
        Ok(Self { listener, path: path.to_owned() })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            let _ = writeln!(io::stderr(), "warning: cannot remove {}: {error}", self.path.display());
        }
    }
}
