//! Two network namespaces joined by a veth, and processes inside them.
//!
//! Names contain the process ID, so that concurrent runs do not collide. Everything is removed when its owner is
//! dropped, also after a panic; the next run removes what a killed run has left.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, getrlimit, prlimit};

/// The start of the namespaces' names.
const TAG: &str = "thwg";

/// An end of the veth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The daemon under test.
    Left,
    /// Its neighbors.
    Right,
}

impl End {
    fn letter(self) -> char {
        match self {
            End::Left => 'l',
            End::Right => 'r',
        }
    }

    fn number(self) -> u8 {
        match self {
            End::Left => 1,
            End::Right => 2,
        }
    }

    /// The end's IPv4 address (RFC 5737).
    pub(crate) fn v4(self) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, self.number())
    }

    /// The end's IPv6 address (RFC 3849).
    pub(crate) fn v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(self.number()))
    }

    pub(crate) fn other(self) -> End {
        match self {
            End::Left => End::Right,
            End::Right => End::Left,
        }
    }
}

/// The two namespaces, and a folder for the test's files.
pub(crate) struct Net {
    name: String,
    folder: tempfile::TempDir,
}

impl Net {
    /// Makes the namespaces; `None`, with a loud message, without the right to.
    pub(crate) fn new() -> Option<Net> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !is_root() || !Path::new("/run/netns").exists() && ip("netns list").is_err() {
            thalweg_testdata::skipped(
                "network namespaces need root and iproute2: no interoperation was tested",
            );
            return None;
        }
        sweep();
        let name = format!("{TAG}{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::Builder::new().prefix("interop").tempdir().expect("a folder");
        // Daemons drop their privileges and still need access to their files.
        Command::new("chmod").arg("755").arg(folder.path()).status().expect("chmod runs");
        let net = Net { name, folder };
        let (left, right) = (net.namespace(End::Left), net.namespace(End::Right));
        let made = (|| -> Result<(), String> {
            ip(&format!("netns add {left}"))?;
            ip(&format!("netns add {right}"))?;
            ip(&format!("-n {left} link add v0 type veth peer name v0 netns {right}"))?;
            for end in [End::Left, End::Right] {
                let namespace = net.namespace(end);
                ip(&format!("-n {namespace} link set lo up"))?;
                ip(&format!("-n {namespace} addr add {}/24 dev v0", end.v4()))?;
                ip(&format!("-n {namespace} addr add {}/64 dev v0 nodad", end.v6()))?;
                ip(&format!("-n {namespace} link set v0 up"))?;
            }
            Ok(())
        })();
        if let Err(why) = made {
            thalweg_testdata::skipped(&format!("no network namespaces to be had: {why}"));
            return None;
        }
        Some(net)
    }

    /// The name of an end's namespace.
    pub(crate) fn namespace(&self, end: End) -> String {
        format!("{}{}", self.name, end.letter())
    }

    /// A folder for the files of `name`.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Command::new("chmod").arg("777").arg(&path).status().expect("chmod runs");
        path
    }

    /// Adds addresses to an end.
    pub(crate) fn add_addresses(&self, end: End, addresses: impl Iterator<Item = Ipv4Addr>) {
        for address in addresses {
            ip(&format!("-n {} addr add {address}/24 dev v0", self.namespace(end))).expect("an address");
        }
    }

    /// Removes an address from an end. The other end gets no packet about it, as if the host had vanished.
    pub(crate) fn remove_address(&self, end: End, address: Ipv4Addr) {
        ip(&format!("-n {} addr del {address}/24 dev v0", self.namespace(end))).expect("an address");
    }

    /// Runs `work` in an end's namespace; its threads and sockets belong to that namespace.
    pub(crate) fn within<T: Send>(&self, end: End, work: impl FnOnce() -> T + Send) -> T {
        self.within_namespace(&self.namespace(end), work)
    }

    /// Same as `within`, with the namespace's name.
    pub(crate) fn within_namespace<T: Send>(&self, name: &str, work: impl FnOnce() -> T + Send) -> T {
        let path = Path::new("/run/netns").join(name);
        let namespace = File::open(path).expect("the namespace");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let network = rustix::thread::LinkNameSpaceType::Network;
                rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(network)).expect("setns");
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a program in an end's namespace to its end.
    pub(crate) fn output(&self, end: End, program: &str, arguments: &[&str]) -> Output {
        let namespace = self.namespace(end);
        Command::new("ip")
            .args(["netns", "exec", &namespace, program])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("ip runs")
    }

    /// Starts a program in an end's namespace; its output goes to `log`.
    pub(crate) fn start(&self, end: End, program: &str, arguments: &[&str], log: &Path) -> Process {
        self.start_with(end, program, arguments, &[], log)
    }

    /// Same as `start`, with the namespace's name.
    pub(crate) fn start_in(&self, namespace: &str, program: &str, arguments: &[&str], log: &Path) -> Process {
        start(namespace, program, arguments, &[], log)
    }

    /// Same as `start`, with environment variables.
    pub(crate) fn start_with(
        &self,
        end: End,
        program: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
        log: &Path,
    ) -> Process {
        start(&self.namespace(end), program, arguments, environment, log)
    }
}

fn start(
    namespace: &str,
    program: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
    log: &Path,
) -> Process {
    let out = File::options().create(true).append(true).open(log).expect("a log");
    let child = Command::new("ip")
        .args(["netns", "exec", namespace, program])
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(out.try_clone().expect("a log"))
        .stderr(out)
        .spawn()
        .expect("ip runs");
    Process { child, log: log.to_path_buf() }
}

impl Drop for Net {
    fn drop(&mut self) {
        for end in [End::Left, End::Right] {
            let _ = ip(&format!("netns del {}", self.namespace(end)));
        }
    }
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status.lines().any(|l| l.starts_with("Uid:") && l.split_whitespace().nth(2) == Some("0"))
    })
}

/// Removes the namespaces of processes that no longer exist.
fn sweep() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(TAG).and_then(|rest| rest.split('x').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// A process; dropping it kills it and its descendants.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Fails with the exit status and the end of the log if the process has ended.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("ended with {status}\n{}", self.said())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// `true`: limits its open files to those that it has open now. `false`: raises the limit to this process's
    /// own.
    pub(crate) fn limit_files(&self, is_limited: bool) {
        let mut limit = getrlimit(Resource::Nofile);
        if is_limited {
            let open = fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs");
            limit.current = Some(open.count() as u64);
        }
        prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, limit)
            .expect("the process is our child");
    }

    /// Its memory in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
    }

    /// Its processor time in ticks, which grows while it works and others leave it a core.
    pub(crate) fn ticks(&self) -> usize {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        behind_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<usize>().ok()).sum()
    }

    /// The end of its log.
    pub(crate) fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(3000)..]).into_owned()
    }

    /// Sends a signal to the process and its descendants.
    pub(crate) fn signal(&self, signal: &str) {
        for pid in family(self.child.id()) {
            let _ = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).output();
        }
    }

    /// Kills it, as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.signal("KILL");
        let _ = self.child.wait();
    }

    /// Asks it to stop and waits for a while.
    pub(crate) fn stop(&mut self) {
        let all = family(self.child.id());
        let _ = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).output();
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        for pid in all.into_iter().filter(|pid| is_alive(*pid)) {
            let _ = Command::new("kill").arg("-KILL").arg(pid.to_string()).output();
        }
        let _ = self.child.wait();
    }

    /// Whether anything listens on this TCP port in the process's namespace.
    pub(crate) fn listens(&self, port: u16) -> Result<(), String> {
        const LISTEN: &str = "0A";
        let local = format!(":{port:04X}");
        let is_listening = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|address| address.ends_with(&local)) && fields.nth(1) == Some(LISTEN)
        };
        let sockets = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", self.child.id()));
        let found = sockets
            .iter()
            .any(|path| fs::read_to_string(path).is_ok_and(|text| text.lines().any(is_listening)));
        if found { Ok(()) } else { Err(format!("nothing listens on port {port}")) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("CONT");
            self.stop();
        }
    }
}

fn is_alive(pid: u32) -> bool {
    parent_and_state(pid).is_ok_and(|(_, state)| state != "Z")
}

fn parent_and_state(pid: u32) -> io::Result<(u32, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = fields.next().unwrap_or_default().to_owned();
    Ok((fields.next().and_then(|f| f.parse().ok()).unwrap_or(0), state))
}

/// A process and all of its descendants.
fn family(root: u32) -> Vec<u32> {
    let pids: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    let parents: Vec<(u32, u32)> =
        pids.into_iter().filter_map(|pid| Some((pid, parent_and_state(pid).ok()?.0))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

/// Waits until `condition` holds. Panics with the expected and the actual state if it never does.
#[track_caller]
pub(crate) fn until(what: &str, limit_s: u64, mut condition: impl FnMut() -> Result<(), String>) {
    until_done(what, limit_s, || condition().map_err(|why| (0, why)));
}

/// Same as [`until`], for work whose duration depends on the load of the machine: fails if the work makes no
/// progress for `limit_s`. The condition's error says how much is done.
pub(crate) fn until_done(
    what: &str,
    limit_s: u64,
    mut condition: impl FnMut() -> Result<(), (usize, String)>,
) {
    let (mut most, mut end) = (0, Instant::now() + Duration::from_secs(limit_s));
    loop {
        match condition() {
            Ok(()) => return,
            Err((done, _)) if done > most => {
                (most, end) = (done, Instant::now() + Duration::from_secs(limit_s))
            }
            Err((_, why)) if Instant::now() >= end => panic!("{what}: no further for {limit_s} s: {why}"),
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(60));
    }
}

/// The first of these programs that is installed; says loudly if none is.
pub(crate) fn program(names: &[&'static str], package: &str) -> Option<&'static str> {
    let folders: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let here = |name: &&&'static str| {
        Path::new(name).is_absolute() && Path::new(name).exists()
            || folders.iter().any(|folder| folder.join(name).is_file())
    };
    let found = names.iter().find(here).copied();
    if found.is_none() {
        thalweg_testdata::skipped(&format!(
            "{package} is not installed: interoperation with it was not tested"
        ));
    }
    found
}

/// Finds an address in text.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    text.trim().split(['/', '%', ' ']).next()?.parse().ok()
}
