//! Starts a BGP daemon under test as a separate process on loopback addresses, and measures what it uses.
//!
//! Neighbors connect from 127.0.0.0/8, each from its own address, so no namespaces or privileges are needed. The
//! daemon listens on a free port, accepts everything from every neighbor, announces to the monitor or to nobody
//! ([`Advertise`]) and installs nothing. It may be limited to some cores.
//!
//! A connection that is accepted does not tell by whom: the port counts as the daemon's when the kernel says that the
//! daemon, or a process that it started, listens there ([`Listener`]).
//!
//! Processor time comes from the scheduler's statistics of its threads, in nanoseconds; peak memory is VmHWM. Both
//! are the kernel's figures, not the daemon's.

use super::functions::FunctionTimes;
use super::message::path_hash;
use super::scenario::Scenario;
use crate::cores::Cores;
use crate::cpu_time::ran_ns;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thalweg_base::{IpPrefix, free_port_candidates};
use thalweg_ports::kernel::Listener;

pub const DAEMON_AS: u32 = 65_000;
/// The monitor's address and AS.
pub const MONITOR: (Ipv4Addr, u32) = (Ipv4Addr::new(127, 0, 200, 1), 64_599);
const LISTEN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
/// If the daemon does not listen after this long, it has failed.
const START_WAIT: Duration = Duration::from_secs(10);
/// TCP ports to try.
const START_TRIES: usize = 4;
/// What a daemon says if another program has its port, which may be gone again: ours, and others that stand in for it.
const TAKEN: [&str; 2] = ["another program listens there", "in use"];
/// Name prefixes of threads that serve neighbors, shards or any ready work.
const SERVING: [&str; 3] = ["peer-", "pool-", "shard-"];
/// How long a daemon may take to end.
const STOP_WAIT: Duration = Duration::from_secs(5);

thalweg_base::words! {
    /// Who receives the daemon's routes.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Advertise {
        /// Nobody, as in the thesis, which times UPDATEs from the socket to the table: the daemon reports when it has
        /// processed them all
        None => "none",
        /// A monitor, which receives every best route and knows when the last one is correct
        Monitor => "monitor",
    }
}

/// How to run a daemon.
#[derive(Clone, Debug)]
pub struct DaemonSpec {
    /// The `thalweg` program.
    pub program: PathBuf,
    pub scheduling: String,
    pub threads: usize,
    /// The cores it may use; `None`: all.
    pub cores: Option<Cores>,
    pub advertise: Advertise,
    /// Whether it counts time by function, which costs some. Required without advertisement, because it tells when
    /// the daemon is done.
    pub profile: bool,
    /// The folder for its configuration and log.
    pub folder: PathBuf,
}

impl DaemonSpec {
    /// Whether the daemon counts times, and reports what it has processed.
    pub fn counts(&self) -> bool {
        self.profile || self.advertise == Advertise::None
    }
}

/// Why a daemon does not run or answer.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    /// The daemon ended, or does not listen.
    #[error("the daemon does not listen; its output: {}", .said.trim())]
    NotListening {
        /// The end of its output.
        said: String,
    },
    /// Another program got every port first.
    #[error("another program listens on {}, not the daemon", list(.tried))]
    Taken { tried: Vec<SocketAddrV4> },
    /// The answer to a question cannot be read.
    #[error("no answer to `{question}`: {}", .said.trim())]
    Answer {
        /// What was asked.
        question: &'static str,
        said: String,
    },
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time of all threads still running, in seconds.
    pub cpu_s: f64,
    /// Peak resident memory, in bytes.
    pub rss_peak_bytes: u64,
}

fn list(addresses: &[SocketAddrV4]) -> String {
    addresses.iter().map(SocketAddrV4::to_string).collect::<Vec<_>>().join(", ")
}

/// A running daemon; dropping it ends the process.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    program: PathBuf,
    address: SocketAddrV4,
    socket: PathBuf,
    log: PathBuf,
}

fn system(what: &'static str, error: impl Into<io::Error>) -> DaemonError {
    DaemonError::System { what, source: error.into() }
}

/// A port of loopback that nobody has: the wanted one, or another. 0 is no wish.
pub fn free_address(wanted: Option<u16>) -> io::Result<SocketAddrV4> {
    let ports = wanted.filter(|port| *port > 0).into_iter().chain(free_port_candidates());
    let mut addresses = ports.map(|port| SocketAddrV4::new(LISTEN, port));
    addresses.find(|address| TcpListener::bind(address).is_ok()).ok_or(io::ErrorKind::AddrInUse.into())
}

impl Daemon {
    /// Starts a daemon that accepts the scenario's neighbors, and waits until it listens. If another program takes
    /// the free port meanwhile, `say` gets a sentence about it, and another port is tried.
    pub fn start(
        spec: &DaemonSpec,
        scenario: &Scenario,
        say: &mut dyn FnMut(&str),
    ) -> Result<Daemon, DaemonError> {
        let free = std::iter::repeat_with(|| free_address(None)).take(START_TRIES);
        Self::start_on(free, spec, scenario, say)
    }

    /// [`Self::start`] on the first of these addresses that no other program has.
    fn start_on(
        addresses: impl Iterator<Item = io::Result<SocketAddrV4>>,
        spec: &DaemonSpec,
        scenario: &Scenario,
        say: &mut dyn FnMut(&str),
    ) -> Result<Daemon, DaemonError> {
        let mut tried = Vec::new();
        for address in addresses {
            let address = address.map_err(|error| system("no free port", error))?;
            match Self::start_once(address, spec, scenario)? {
                Some(daemon) => return Ok(daemon),
                None => say(&format!("another program listens on {address}: the daemon gets another port")),
            }
            tried.push(address);
        }
        Err(DaemonError::Taken { tried })
    }

    /// `None` if another program has the port.
    fn start_once(
        address: SocketAddrV4,
        spec: &DaemonSpec,
        scenario: &Scenario,
    ) -> Result<Option<Daemon>, DaemonError> {
        let system = |what| move |error: io::Error| system(what, error);
        fs::create_dir_all(&spec.folder).map_err(system("cannot make a folder"))?;
        let path = |name: &str| spec.folder.join(name);
        let (config, socket, log) = (path("daemon.toml"), path("daemon.sock"), path("daemon.log"));
        let text = configuration(address.into(), scenario, spec.advertise);
        fs::write(&config, text).map_err(system("cannot write a configuration"))?;
        let out = File::create(&log).map_err(system("cannot make a log"))?;
        let err = out.try_clone().map_err(system("cannot make a log"))?;
        let mut command = Command::new(&spec.program);
        command.arg("run").arg(&config).arg("--scheduling").arg(&spec.scheduling);
        command.arg("--threads").arg(spec.threads.to_string());
        // Not in the configuration: a relative path there is relative to the configuration, and an absolute one may
        // be too long.
        command.arg("--socket").arg(&socket);
        if spec.counts() {
            command.arg("--profile-functions");
        }
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = match &spec.cores {
            None => command.spawn(),
            Some(cores) => cores.run(|| command.spawn()).and_then(|spawned| spawned),
        };
        let child = child.map_err(system("cannot start the daemon"))?;
        let mut daemon = Daemon { child, program: spec.program.clone(), address, socket, log };
        Ok(daemon.comes_to_listen()?.then_some(daemon))
    }

    /// Waits until it listens; `false` if another program has the port.
    fn comes_to_listen(&mut self) -> Result<bool, DaemonError> {
        let end = Instant::now() + START_WAIT;
        loop {
            // Before the question who listens, which cannot be answered about a process that has ended.
            let has_ended = !matches!(self.child.try_wait(), Ok(None));
            match Listener::at(self.address, self.child.id()) {
                Ok(Listener::Own) => return Ok(true),
                Ok(Listener::Other) => return Ok(false),
                // Our daemon answers questions only when it listens, and its socket is in a folder of its own.
                Ok(Listener::Hidden) if self.ask("show status", &[]).is_ok() => return Ok(true),
                Ok(Listener::Nobody | Listener::Hidden) | Err(_) => {}
            }
            if has_ended || Instant::now() > end {
                let said = self.said();
                // It was quicker to find the port taken than this thread.
                let is_taken = has_ended && TAKEN.iter().any(|words| said.contains(words));
                return if is_taken { Ok(false) } else { Err(DaemonError::NotListening { said }) };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// What it has used so far.
    pub fn usage(&self) -> Usage {
        usage(&self.process())
    }

    /// The threads of its scheduling: a master or the first worker, and those named after what they serve.
    pub fn threads(&self) -> usize {
        let threads = fs::read_dir(self.process().join("task")).into_iter().flatten().flatten();
        let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
        1 + names.filter(|name| SERVING.iter().any(|kind| name.starts_with(kind))).count()
    }

    fn process(&self) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string())
    }

    /// Stops all its threads, so that what is sent to it stays in the kernel's buffers.
    pub fn pause(&self) -> Result<(), DaemonError> {
        self.signal(Signal::STOP)?;
        // A thread on another core runs on until it sees the signal.
        let until = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let stopped = waitid(WaitId::Pid(Pid::from_child(&self.child)), until);
        stopped.map(drop).map_err(|error| system("cannot wait until the daemon has stopped", error))
    }

    /// Continues after [`pause`](Self::pause).
    pub fn resume(&self) -> Result<(), DaemonError> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), DaemonError> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| system("cannot signal the daemon", error))
    }

    /// Time by function so far; only for a daemon started with `profile`.
    pub fn functions(&self) -> Result<FunctionTimes, DaemonError> {
        const QUESTION: &str = "show bgp functions";
        let text = self.ask(QUESTION, &[])?;
        serde_json::from_str(&text).map_err(|_| DaemonError::Answer { question: QUESTION, said: text })
    }

    /// Its best routes: each prefix with the hash of its path.
    pub fn table(&self) -> Result<Vec<(IpPrefix, u64)>, DaemonError> {
        const QUESTION: &str = "show bgp routes";
        let text = self.ask(QUESTION, &["--best"])?;
        let route = |line: &str| {
            let view = serde_json::from_str(line).ok();
            view.as_ref()
                .and_then(route_of)
                .ok_or_else(|| DaemonError::Answer { question: QUESTION, said: line.to_owned() })
        };
        text.lines().map(route).collect()
    }

    /// The answer as JSON, one item per line.
    fn ask(&self, question: &'static str, more: &[&str]) -> Result<String, DaemonError> {
        let output = Command::new(&self.program)
            .args(question.split(' '))
            .args(more)
            .args(["--format", "json", "--socket"])
            .arg(&self.socket)
            .output()
            .map_err(|error| system("cannot ask the daemon", error))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(DaemonError::Answer { question, said: text(&output.stderr) }),
        }
    }

    /// The end of its log.
    pub fn said(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(2000)..]).into_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.signal(Signal::CONT);
        let _ = self.signal(Signal::TERM);
        end(&mut self.child);
    }
}

/// Waits for a process that was told to end, and ends it if it does not.
pub(crate) fn end(child: &mut Child) {
    let end = Instant::now() + STOP_WAIT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Prefix and path hash of a route in the output of `show bgp routes`.
pub(crate) fn route_of(view: &serde_json::Value) -> Option<(IpPrefix, u64)> {
    let prefix = view.get("prefix")?.as_str()?.parse().ok()?;
    let numbers = view.get("as_path")?.as_str()?.split(|c: char| !c.is_ascii_digit());
    let path: Result<Vec<u32>, _> = numbers.filter(|number| !number.is_empty()).map(str::parse).collect();
    Some((prefix, path_hash(path.ok()?.into_iter())))
}

/// The configuration of a daemon under test.
pub fn configuration(listen: SocketAddr, scenario: &Scenario, advertise: Advertise) -> String {
    let router_id = match listen.ip() {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => LISTEN,
    };
    let export = match advertise {
        Advertise::None => "reject",
        Advertise::Monitor => "accept",
    };
    let mut text = format!(
        "# Written by `thalweg lab bgp`.\n[bgp]\nas = {DAEMON_AS}\n\
         router_id = \"{router_id}\"\nlisten = [\"{listen}\"]\ninstall = \"none\"\nhold_time_s = 240\n\n\
         [[bgp.group]]\nname = \"announcing\"\nfamilies = [\"ipv4\"]\nimport = \"accept\"\nexport = \"reject\"\n\
         passive = true\n\n[[bgp.group]]\nname = \"monitor\"\nfamilies = [\"ipv4\"]\nimport = \"accept\"\n\
         export = \"{export}\"\npassive = true\n"
    );
    let mut neighbor = |address: Ipv4Addr, number: u32, group: &str| {
        text += &format!("\n[[bgp.neighbor]]\naddress = \"{address}\"\nas = {number}\ngroup = \"{group}\"\n");
    };
    for n in 0..scenario.neighbors.count {
        neighbor(scenario.neighbors.address_of(n), scenario.as_of(n), "announcing");
    }
    neighbor(MONITOR.0, MONITOR.1, "monitor");
    text
}

/// What a process has used, given its folder in `/proc`.
pub fn usage(process: &Path) -> Usage {
    usage_without(process, None)
}

/// The same without one thread's time: in this process, that of the thread that measures.
pub(crate) fn usage_without(process: &Path, thread: Option<Pid>) -> Usage {
    let own = thread.map(|thread| thread.as_raw_nonzero().to_string());
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let threads = threads.filter(|entry| own.as_deref().is_none_or(|own| entry.file_name() != own));
    let cpu_s = threads.filter_map(|thread| ran_ns(&thread.path())).sum::<u64>() as f64 / 1e9;
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib: u64 = peak.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
    Usage { cpu_s, rss_peak_bytes: kib << 10 }
}

#[cfg(test)]
mod tests {
    use thalweg_ports::kernel::Listener as Who;
    use thalweg_ports::tcp::Listener;

    use super::super::table::{Neighbors, Packing};
    use super::*;

    #[test]
    fn a_process_uses_time_and_memory() {
        let me = Path::new("/proc/self");
        let before = usage(me);
        let mut x = 1u64;
        while usage(me).cpu_s <= before.cpu_s {
            x = thalweg_base::mix64(x);
        }
        assert_ne!(x, 0);
        assert!(usage(me).rss_peak_bytes > 100_000);
        assert_eq!(usage(Path::new("/proc/no-such")), Usage::default());
    }

    #[test]
    fn routes_are_read_as_they_are_shown() {
        let route = |path: &str| route_of(&serde_json::json!({ "prefix": "192.0.2.0/24", "as_path": path }));
        let prefix: IpPrefix = "192.0.2.0/24".parse().unwrap();
        for (path, numbers) in [("64500 7", &[64_500, 7][..]), ("1 {3 2}", &[1, 3, 2]), ("", &[])] {
            assert_eq!(route(path), Some((prefix, path_hash(numbers.iter().copied()))), "{path}");
        }
        assert_eq!(route("99999999999"), None);
        assert_eq!(route_of(&serde_json::json!({ "prefix": "192.0.2.0/24" })), None);
    }

    fn scenario() -> Scenario {
        let neighbors = Neighbors { count: 2, address: Ipv4Addr::new(127, 0, 1, 1), as_number: 64_600 };
        Scenario::overlap(10, Packing::Real, neighbors, 1)
    }

    /// A shell script in place of the daemon. Another process writes it: a child that inherited our open copy would
    /// keep it from starting.
    fn spec(folder: &Path, script: &str) -> DaemonSpec {
        let program = folder.join("daemon.sh");
        let write = "printf '#!/bin/sh\n%s\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let written = Command::new("sh").args(["-c", write]).arg(&program).arg(script).status();
        assert!(written.is_ok_and(|status| status.success()));
        DaemonSpec {
            program,
            scheduling: "serial".into(),
            threads: 1,
            cores: Some(Cores::here().unwrap().first(1)),
            advertise: Advertise::None,
            profile: true,
            folder: folder.to_path_buf(),
        }
    }

    #[test]
    fn a_daemon_that_ends_is_named_with_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path(), "echo \"no such thing: $*\"\nexit 1");
        let error = Daemon::start(&spec, &scenario(), &mut |said| panic!("{said}")).unwrap_err().to_string();
        assert!(error.contains("no such thing: run") && error.contains("--profile-functions"), "{error}");
        let text = fs::read_to_string(folder.path().join("daemon.toml")).unwrap();
        assert!(
            text.contains("127.0.1.2") && text.contains("64601") && text.contains("127.0.200.1"),
            "{text}"
        );
        assert!(!text.contains("export = \"accept\""), "nobody is announced to: {text}");
    }

    #[test]
    fn another_port_is_tried_if_a_program_has_taken_it() {
        let taken = TcpListener::bind((LISTEN, 0)).unwrap();
        let refused = Listener::bind(taken.local_addr().unwrap()).err().unwrap();
        assert!(refused.to_string().contains(TAKEN[0]), "{refused}");

        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path(), &format!("echo '{}'\nexit 1", TAKEN[0]));
        let mut said = Vec::new();
        let error = Daemon::start(&spec, &scenario(), &mut |words| said.push(words.to_owned())).unwrap_err();
        assert!(matches!(&error, DaemonError::Taken { tried } if tried.len() == START_TRIES), "{error}");
        assert_eq!(said.len(), START_TRIES);
    }

    /// Set for a stand-in daemon: the configuration that says where to listen.
    const STAND_IN: &str = "THALWEG_TEST_LISTENS_AS";

    /// The daemon's part, played by this test program until it is ended.
    fn listen_as(config: &str) {
        let text = fs::read_to_string(config).unwrap();
        let (_, rest) = text.split_once("listen = [\"").unwrap();
        let (address, _) = rest.split_once('"').unwrap();
        // A taken port does not end it, as it does not end BIRD.
        let _listener = TcpListener::bind(address.parse::<SocketAddr>().unwrap());
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn a_program_that_accepts_on_the_port_is_not_taken_for_the_daemon() {
        if let Ok(config) = std::env::var(STAND_IN) {
            return listen_as(&config);
        }
        let name = "bgp::daemon::tests::a_program_that_accepts_on_the_port_is_not_taken_for_the_daemon";
        let folder = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let script = format!("{STAND_IN}=\"$2\" exec \"{}\" --exact {name}", program.display());
        let spec = spec(folder.path(), &script);
        let other = TcpListener::bind((LISTEN, 0)).unwrap();
        let SocketAddr::V4(taken) = other.local_addr().unwrap() else { panic!("{other:?}") };
        let mut said = Vec::new();
        let addresses = [Ok(taken), free_address(None)].into_iter();
        let daemon =
            Daemon::start_on(addresses, &spec, &scenario(), &mut |words| said.push(words.to_owned()))
                .unwrap();
        assert_eq!(said, [format!("another program listens on {taken}: the daemon gets another port")]);
        assert_ne!(daemon.address(), taken);
        assert_eq!(Who::at(daemon.address(), daemon.child.id()).unwrap(), Who::Own);
        drop(daemon);

        let error = Daemon::start_on([Ok(taken)].into_iter(), &spec, &scenario(), &mut |_| {}).unwrap_err();
        assert_eq!(error.to_string(), format!("another program listens on {taken}, not the daemon"));
    }
}
