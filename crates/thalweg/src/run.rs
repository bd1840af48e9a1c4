//! `thalweg run`: the router in the foreground.

mod network;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thalweg_exec::control::{SchedulingOptions, schedule};
use thalweg_node::config::RouterConfig;
use thalweg_node::control::{Reload, serve};
use thalweg_node::speaker::{Speaker, SpeakerOptions};
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{LogFormat, RunArgs};
use crate::{Failure, load_config};
use network::TcpNetwork;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let config = load_config(&args.config)?;
    let Some(bgp) = config.bgp.map(Arc::new) else {
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
    let speaker = Speaker::new(
        bgp.clone(),
        SpeakerOptions {
            network: Box::new(network),
            readers: Vec::new(),
            seed: seed(),
            scheduling: format!("{}, {} threads", options.kind, options.threads),
            profile_functions: args.profile_functions,
            restarting: args.restarting,
        },
    );
    let speaker = Arc::new(speaker.map_err(|error| failed("cannot set up the neighbours", error))?);
    let path = args.socket.clone().unwrap_or_else(|| bgp.control_socket.clone());
    let socket = ControlSocket::open(&path)?;
    let reload = reloader(args.config.clone(), speaker.clone());
    let stop = Arc::new(AtomicBool::new(false));
    handle_signals(&stop, &speaker, &reload).map_err(|error| failed("cannot handle signals", error))?;
    let (listener, clients) = (socket.listener.try_clone(), speaker.clone());
    let listener = listener.map_err(|error| failed("control socket", error))?;
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || serve(&listener, &clients, &reload))
        .map_err(|error| failed("cannot start the control thread", error))?;
    tracing::info!(
        r#as = bgp.local_as,
        router_id = %bgp.router_id,
        neighbours = bgp.neighbors.len(),
        scheduling = %options.kind,
        threads = options.threads,
        socket = %path.display(),
        "running"
    );
    schedule(&*speaker, options, &stop).map_err(|error| failed("the router failed", error))?;
    speaker.shut_down();
    tracing::info!("stopped");
    Ok(())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Not a secret, but nothing a stranger can guess from outside.
fn seed() -> u64 {
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
