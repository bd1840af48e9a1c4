//! A small network: a router and hosts around it, each in its own namespace and joined to the router by a veth.
//!
//! ```text
//! office 10.1.0.2 ──┐                         ┌── outside 198.51.100.2, 2001:db8:9::2
//!   2001:db8:1::2   ├── lan        router  wan┤
//! guest  10.2.0.2 ──┘   dmz                   └
//! ```
//!
//! Names contain the process ID. Everything is removed when its owner is dropped, also after a panic.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_wire::MacAddr;

/// The time limit for each step, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// The time between two readings of counters that must not change: longer than drivers take to publish theirs.
const STILL: Duration = Duration::from_millis(250);

/// A host: its letter, the router's interface to it, and its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) letter: char,
    pub(crate) port: &'static str,
    pub(crate) v4: &'static str,
    pub(crate) gateway_v4: &'static str,
    pub(crate) v6: &'static str,
    pub(crate) gateway_v6: &'static str,
    /// It has a default route through the router.
    pub(crate) is_inside: bool,
}

pub(crate) const OFFICE: Host = Host {
    letter: 'o',
    port: "lan",
    v4: "10.1.0.2",
    gateway_v4: "10.1.0.1",
    v6: "2001:db8:1::2",
    gateway_v6: "2001:db8:1::1",
    is_inside: true,
};

pub(crate) const GUEST: Host = Host {
    letter: 'g',
    port: "guest",
    v4: "10.2.0.2",
    gateway_v4: "10.2.0.1",
    v6: "2001:db8:2::2",
    gateway_v6: "2001:db8:2::1",
    is_inside: true,
};

pub(crate) const OUTSIDE: Host = Host {
    letter: 'w',
    port: "wan",
    v4: "198.51.100.2",
    gateway_v4: "198.51.100.1",
    v6: "2001:db8:9::2",
    gateway_v6: "2001:db8:9::1",
    is_inside: false,
};

const HOSTS: [Host; 3] = [OFFICE, GUEST, OUTSIDE];

impl Host {
    /// Its number, from 1: the last byte of addresses that tests derive for it.
    pub(crate) fn number(self) -> u8 {
        HOSTS.iter().position(|host| *host == self).map_or(0, |place| place as u8 + 1)
    }
}

/// Sites that may have traffic at the same time share this lock. The kernel's backlog per core
/// (`netdev_max_backlog`) serves all namespaces together, and a packet that finds it full is lost.
static COMPANY: RwLock<()> = RwLock::new(());

/// Held as long as the site exists.
enum Company {
    Others { _among: RwLockReadGuard<'static, ()> },
    Nobody { _alone: RwLockWriteGuard<'static, ()> },
}

/// The namespaces and a folder for files.
pub(crate) struct Site {
    name: String,
    folder: tempfile::TempDir,
    _company: Company,
}

impl Site {
    /// Makes the site; `None`, with a loud message, without the right to.
    pub(crate) fn new() -> Option<Self> {
        Self::among(Company::Others { _among: COMPANY.read() })
    }

    /// Same as `new`, for a test that must not lose a packet: no other site exists at the same time.
    pub(crate) fn alone() -> Option<Self> {
        Self::among(Company::Nobody { _alone: COMPANY.write() })
    }

    fn among(company: Company) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("thwl{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let site = Self { name, folder: tempfile::tempdir().expect("a folder"), _company: company };
        match site.make() {
            Ok(()) => Some(site),
            Err(why) => {
                thalweg_testdata::skipped(&format!("no network namespaces, no live router: {why}"));
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let router = self.router();
        ip(&format!("netns add {router}"))?;
        ip(&format!("-n {router} link set lo up"))?;
        for host in HOSTS {
            let namespace = self.namespace(host);
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
            self.join(host)?;
            if host.is_inside {
                ip(&format!("-n {namespace} route add default via {}", host.gateway_v4))?;
            }
            ip(&format!("-n {namespace} -6 route add default via {}", host.gateway_v6))?;
        }
        Ok(())
    }

    /// A veth between a host and the router.
    fn join(&self, host: Host) -> Result<(), String> {
        let (router, namespace) = (self.router(), self.namespace(host));
        ip(&format!("-n {namespace} link add eth0 type veth peer name {} netns {router}", host.port))?;
        ip(&format!("-n {namespace} addr add {}/24 dev eth0", host.v4))?;
        ip(&format!("-n {namespace} addr add {}/64 dev eth0 nodad", host.v6))?;
        ip(&format!("-n {namespace} link set eth0 up"))?;
        ip(&format!("-n {router} link set {} up", host.port))
    }

    /// Turns off checksum offload at the hosts, so that packets have checksums as on a wire; whether that is
    /// possible.
    pub(crate) fn finishes_checksums(&self) -> bool {
        let can = has("ethtool");
        for host in HOSTS.into_iter().filter(|_| can) {
            self.said(&self.namespace(host), "ethtool", &["-K", "eth0", "tx", "off"]);
        }
        can
    }

    /// A new veth for a host that has lost its own.
    pub(crate) fn veth(&self, host: Host) {
        self.join(host).expect("ip succeeds");
    }

    /// The name of the router's namespace.
    pub(crate) fn router(&self) -> String {
        format!("{}r", self.name)
    }

    /// The name of a host's namespace.
    pub(crate) fn namespace(&self, host: Host) -> String {
        format!("{}{}", self.name, host.letter)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `ip` in a namespace.
    pub(crate) fn ip(&self, namespace: &str, arguments: &str) {
        ip(&format!("-n {namespace} {arguments}")).expect("ip succeeds");
    }

    /// Runs `work` in a namespace; its threads and sockets belong to that namespace.
    pub(crate) fn within<T: Send>(&self, namespace: &str, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(Path::new("/run/netns").join(namespace)).expect("the namespace");
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let network = rustix::thread::LinkNameSpaceType::Network;
                rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(network)).expect("setns");
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a program in a namespace to its end.
    pub(crate) fn output(&self, namespace: &str, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, program]).args(arguments).stdin(Stdio::null());
        command.output().expect("ip runs")
    }

    /// The output of a program, which must succeed.
    #[track_caller]
    pub(crate) fn said(&self, namespace: &str, program: &str, arguments: &[&str]) -> String {
        let output = self.output(namespace, program, arguments);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout);
        assert!(output.status.success(), "{program} {arguments:?}: {said}{}", text(&output.stderr));
        said
    }

    /// Starts a program in a namespace; dropping the value kills it.
    pub(crate) fn start(&self, namespace: &str, program: &str, arguments: &[&str]) -> Process {
        let log = File::options().create(true).append(true).open(self.file("log")).expect("a log");
        let child = Command::new("ip")
            .args(["netns", "exec", namespace, program])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("ip runs");
        Process(child)
    }

    /// Starts the router and waits until it answers queries and reaches the outside.
    pub(crate) fn run(&self, config: &str, arguments: &[&str]) -> Router<'_> {
        let router = self.run_alone(config, arguments);
        eventually("the router forwards", || self.pings(OFFICE, OUTSIDE.v4).then_some(()));
        router
    }

    /// Starts the router and waits until it answers queries.
    pub(crate) fn run_alone(&self, config: &str, arguments: &[&str]) -> Router<'_> {
        self.run_within(config, arguments, &[])
    }

    /// Same as `run_alone`, with environment variables (`NAME=VALUE`) for the router.
    pub(crate) fn run_within(&self, config: &str, arguments: &[&str], environment: &[String]) -> Router<'_> {
        let mut program: Vec<&str> = environment.iter().map(String::as_str).collect();
        program.push(env!("CARGO_BIN_EXE_thalweg"));
        self.run_by(&program, config, arguments)
    }

    /// Same as `run_alone`, by a command line that ends with the binary; env(1) runs it.
    pub(crate) fn run_by(&self, program: &[&str], config: &str, arguments: &[&str]) -> Router<'_> {
        let all = [program, &["run"]].concat();
        self.run_in((&self.router(), "router"), &all, config, arguments)
    }

    /// Starts another router, in the namespace of a host, and waits until it answers queries.
    pub(crate) fn run_beside(&self, host: Host, config: &str) -> Router<'_> {
        let program = [env!("CARGO_BIN_EXE_thalweg"), "run"];
        self.run_in((&self.namespace(host), "beside"), &program, config, &[])
    }

    fn run_in(
        &self,
        (namespace, name): (&str, &str),
        program: &[&str],
        config: &str,
        arguments: &[&str],
    ) -> Router<'_> {
        let [file, socket] = ["toml", "sock"].map(|kind| self.file(&format!("{name}.{kind}")));
        fs::write(&file, beside_others(config)).expect("the folder is writable");
        let (file, socket) = (file.display().to_string(), socket.display().to_string());
        let all = [program, &[&file, "--socket", &socket], arguments].concat();
        let process = self.start(namespace, "env", &all);
        let mut router = Router { site: self, process, socket };
        eventually("the router answers", || {
            assert!(!router.process.has_ended(), "the router ended: {}", self.log());
            router.show(&["ports"]).map(drop)
        });
        router
    }

    /// The log of all processes.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// The MAC address of an interface.
    pub(crate) fn mac_of(&self, namespace: &str, interface: &str) -> MacAddr {
        let text = self.said(namespace, "cat", &[&format!("/sys/class/net/{interface}/address")]);
        text.trim().parse().expect("a MAC address")
    }

    /// Whether a host answers another host's ping.
    pub(crate) fn pings(&self, from: Host, to: &str) -> bool {
        self.output(&self.namespace(from), "ping", &["-c", "1", "-W", "1", to]).status.success()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("what processes said:\n{}", self.log());
        }
        let all = HOSTS.iter().map(|host| self.namespace(*host)).chain([self.router()]);
        for namespace in all {
            // If a namespace could not be made, this fails and nothing is left.
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

/// A process that is killed when dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Kills it with a signal that it cannot catch.
    pub(crate) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{signal}");
    }

    /// Asks it to stop and waits; whether its exit was a success.
    pub(crate) fn end(&mut self) -> bool {
        self.end_code() == Some(0)
    }

    /// Asks it to stop and waits; returns its exit code.
    pub(crate) fn end_code(&mut self) -> Option<i32> {
        self.signal("TERM");
        eventually("it ends", || self.0.try_wait().expect("the process is our child")).code()
    }

    /// A path as the process sees it, because it may have mounts of its own.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.0.id())).join(path.strip_prefix("/").expect("a whole path"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The configuration for a router that runs beside others. Workers at real-time priority would take the cores
/// from other tests' programs, so the priority is normal unless the configuration sets it.
fn beside_others(config: &str) -> String {
    let ordinary = if config.contains("[workers]") { "" } else { "\n[workers]\npriority = \"normal\"\n" };
    format!("{config}{ordinary}")
}

/// A running router.
pub(crate) struct Router<'s> {
    site: &'s Site,
    pub(crate) process: Process,
    socket: String,
}

impl Router<'_> {
    /// The path of its control socket.
    pub(crate) fn socket(&self) -> &str {
        &self.socket
    }

    /// The router's answer to `show`, one object per line.
    pub(crate) fn show(&self, what: &[&str]) -> Option<Vec<Value>> {
        let mut arguments = vec!["show"];
        arguments.extend(what);
        arguments.extend(["--socket", &self.socket, "--format", "json"]);
        let output = self.site.output(&self.site.router(), env!("CARGO_BIN_EXE_thalweg"), &arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output
            .status
            .success()
            .then(|| text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect())
    }

    /// The router's answer to `show` on a terminal of this width.
    pub(crate) fn said(&self, what: &[&str], width: usize) -> String {
        let columns = format!("COLUMNS={width}");
        let mut arguments =
            vec![columns.as_str(), env!("CARGO_BIN_EXE_thalweg"), "show", "--socket", &self.socket];
        arguments.extend(what);
        self.site.said(&self.site.router(), "env", &arguments)
    }

    /// Reloads with another configuration; returns the output, or why it was refused.
    pub(crate) fn reload(&self, config: &str) -> Result<String, String> {
        self.ask_to_reload(config, &[])
    }

    /// Same as `reload`, but only reports what would change.
    pub(crate) fn compare(&self, config: &str) -> Result<String, String> {
        self.ask_to_reload(config, &["--dry-run"])
    }

    fn ask_to_reload(&self, config: &str, more: &[&str]) -> Result<String, String> {
        fs::write(self.site.file("router.toml"), beside_others(config)).expect("the folder is writable");
        let arguments = [&["reload", "--socket", &self.socket], more].concat();
        let output = self.site.output(&self.site.router(), env!("CARGO_BIN_EXE_thalweg"), &arguments);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// The router's answer to `trace packet`.
    pub(crate) fn trace(&self, packet: &str) -> Value {
        let arguments = ["trace", "packet", packet, "--socket", &self.socket, "--format", "json"];
        let text = self.site.said(&self.site.router(), env!("CARGO_BIN_EXE_thalweg"), &arguments);
        serde_json::from_str(&text).expect("JSON")
    }

    /// The only object of an answer.
    pub(crate) fn one(&self, what: &str) -> Value {
        self.show(&[what]).expect("the router answers").pop().expect("an answer")
    }

    /// The packets that it has dropped for a reason.
    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        self.one("counters")["dropped"][reason].as_u64().unwrap_or(0)
    }

    /// Waits until no packet is in flight, and checks that every packet is accounted for: received ones and the
    /// router's own were sent, wait, were for the router, or were dropped with a reason. The drivers' counters
    /// must agree with the router's.
    pub(crate) fn counters_add_up(&self) -> Value {
        let (counters, ports) = self.packets_add_up();
        let number = |value: &Value| value.as_u64().expect("a number");
        // A VLAN port's packets are part of its parent's driver counters.
        let has_driver = |port: &&Value| !port["mode"].as_str().is_some_and(|mode| mode.contains(", VLAN "));
        let of_ports =
            |field: &str| ports.iter().filter(has_driver).map(|port| number(&port[field])).sum::<u64>();
        let came = number(&counters["received"]) - number(&counters["own"]);
        assert_eq!(of_ports("received"), came, "received: {counters} {ports:?}");
        for port in ports.iter().filter(has_driver) {
            let queues = port["queues"].as_array().expect("a list").iter();
            let by_queues: u64 = queues.map(|queue| number(&queue["received"])).sum();
            assert_eq!(by_queues + number(&port["offloaded"]), number(&port["received"]), "{port}");
        }
        let went = of_ports("sent") + of_ports("failed");
        assert_eq!(went, number(&counters["sent"]), "sent: {counters} {ports:?}");
        counters
    }

    /// Same as `counters_add_up`, without the drivers' counters, which a removed port no longer has. Returns the
    /// counters and the ports.
    pub(crate) fn packets_add_up(&self) -> (Value, Vec<Value>) {
        let mut last = Value::Null;
        let begun = Instant::now();
        let (counters, ports) = eventually("the counters stand still", || {
            let mut now = (self.one("counters"), self.show(&["ports"]).expect("the router answers"));
            // Ignore the workers' CPU time, which always increases.
            for worker in now.0["workers"].as_array_mut().into_iter().flatten() {
                worker["cpu_ms"].take();
            }
            // Rates decline for seconds after the last packet.
            now.1.iter_mut().for_each(|port| drop(port["rates"].take()));
            let both = serde_json::json!([now.0, now.1]);
            let still = both == last;
            if begun.elapsed() > DEADLINE / 2 && !still {
                println!("the counters move: {}", differences("", &last, &both).join(", "));
            }
            last = both;
            thread::sleep(STILL);
            still.then_some(now)
        });
        let (received, places) = balance(&counters);
        assert_eq!(received, places, "the counters do not add up: {counters}");
        (counters, ports)
    }

    /// Same, for a router whose counters never stand still, because it sends by itself. What was lost would be missing
    /// at any later time.
    pub(crate) fn packets_balance(&self) {
        let mut last = Value::Null;
        let mut balances = || {
            last = self.one("counters");
            let (received, places) = balance(&last);
            received == places
        };
        let begun = Instant::now();
        while !balances() {
            assert!(begun.elapsed() < DEADLINE, "the counters do not add up: {last}");
            thread::sleep(POLL);
        }
    }
}

/// The packets that came or are the router's own, and those whose place is known.
fn balance(counters: &Value) -> (u64, u64) {
    let number = |value: &Value| value.as_u64().expect("a number");
    let sum = |reasons: &Value| -> u64 { reasons.as_object().expect("reasons").values().map(number).sum() };
    let places = ["sent", "queued", "waiting_for_neighbor"].map(|name| number(&counters[name]));
    let all: u64 = places.iter().sum();
    (number(&counters["received"]), all + sum(&counters["to_host"]) + sum(&counters["dropped"]))
}

/// Where two values differ, and how.
fn differences(place: &str, before: &Value, now: &Value) -> Vec<String> {
    let inside = |key: &str, before, now| differences(&format!("{place}/{key}"), before, now);
    match now {
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, now)| inside(key, &before[key], now)).collect()
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.flat_map(|(at, now)| inside(&at.to_string(), &before[at], now)).collect()
        }
        _ if now != before => vec![format!("{place} {before} to {now}")],
        _ => Vec::new(),
    }
}

/// Repeats a question until it has an answer.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        thread::sleep(POLL);
    }
}

/// Whether a program is installed; says loudly if not.
pub(crate) fn has(program: &str) -> bool {
    let there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        thalweg_testdata::skipped(&format!("{program} is not installed: nothing was tested with it"));
    }
    there
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
