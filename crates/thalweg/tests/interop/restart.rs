//! Our own graceful restart while the kernel forwards: BIRD on one side and FRR on the other keep our routes
//! while our process is dead, and a steady stream through us loses nothing (RFC 4724).
//!
//! ```text
//! BIRD (left) ── v0 ── Thalweg (right), routes in the kernel ── w0 ── FRR (a third namespace)
//! 21.0.0.1 on lo                                                      23.0.0.1 on lo
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::net::{End, Net, Process, program, until};
use thalweg_testdata::uninterrupted;

const THALWEG: &str = env!("CARGO_BIN_EXE_thalweg");

/// The time limit for each step, even on a busy machine.
const LIMIT_S: u64 = 60;

fn ip(namespace: &str, arguments: &str) -> String {
    let mut words = vec!["-n", namespace];
    words.extend(arguments.split_whitespace());
    let output = Command::new("ip").args(words).output().expect("ip runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip -n {namespace} {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A stream between two addresses, one packet per millisecond, and the thread that counts arrivals.
struct Stream {
    stop: Arc<AtomicBool>,
    sent: JoinHandle<u64>,
    received: Arc<AtomicU64>,
    ends: JoinHandle<()>,
}

impl Stream {
    fn start(from: UdpSocket, to: UdpSocket) -> Self {
        let (stop, received) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let destination = to.local_addr().expect("it is bound");
        let (ends, seen) = (stop.clone(), received.clone());
        to.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let receiver = thread::spawn(move || {
            let (mut buffer, mut numbers) = ([0; 8], BTreeSet::new());
            // The last packets are still on their way when the sender stops.
            while let Some(length) =
                uninterrupted(|| to.recv(&mut buffer)).ok().or((!ends.load(Ordering::Acquire)).then_some(0))
            {
                if length == buffer.len() && numbers.insert(u64::from_be_bytes(buffer)) {
                    seen.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        let stopped = stop.clone();
        let sender = thread::spawn(move || {
            let mut sent = 0u64;
            while !stopped.load(Ordering::Acquire) {
                // A packet that cannot be sent for lack of a route counts as lost, too.
                let _ = from.send_to(&sent.to_be_bytes(), destination);
                sent += 1;
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        Self { stop, sent: sender, received, ends: receiver }
    }

    /// The numbers of sent and of lost packets.
    fn finish(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Release);
        let sent = self.sent.join().expect("the sender ends");
        self.ends.join().expect("the receiver ends");
        (sent, sent - self.received.load(Ordering::Acquire))
    }
}

/// The three routers.
struct Site<'a> {
    net: &'a Net,
    third: String,
    folder: std::path::PathBuf,
    thalweg: Option<Process>,
    _daemons: Vec<Process>,
    monitors: Vec<Process>,
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.third]).output();
    }
}

impl<'a> Site<'a> {
    fn new(net: &'a Net) -> Self {
        let (left, right) = (net.namespace(End::Left), net.namespace(End::Right));
        let third = format!("{left}3");
        assert!(Command::new("ip").args(["netns", "add", &third]).status().expect("ip runs").success());
        let mut site = Self {
            net,
            third,
            folder: net.folder("restart"),
            thalweg: None,
            _daemons: Vec::new(),
            monitors: Vec::new(),
        };
        let third = site.third.clone();
        ip(&right, &format!("link add w0 type veth peer name w0 netns {third}"));
        ip(&right, "addr add 198.51.100.2/24 dev w0");
        ip(&right, "link set w0 up");
        ip(&third, "link set lo up");
        ip(&third, "addr add 198.51.100.3/24 dev w0");
        ip(&third, "link set w0 up");
        ip(&left, "addr add 21.0.0.1/32 dev lo");
        ip(&third, "addr add 23.0.0.1/32 dev lo");
        site.within("sysctl", &right, &["-qw", "net.ipv4.ip_forward=1"]);
        site.bird();
        site.frr();
        for namespace in [&left, &third, &right] {
            let log = site.path(&format!("{namespace}.monitor"));
            let monitor = site.start_in(namespace, "ip", &["-ts", "-o", "monitor", "route"], &log);
            site.monitors.push(monitor);
        }
        site
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn start_in(&self, namespace: &str, program: &str, arguments: &[&str], log: &str) -> Process {
        self.net.start_in(namespace, program, arguments, Path::new(log))
    }

    fn within(&self, program: &str, namespace: &str, arguments: &[&str]) -> String {
        let output = Command::new("ip").args(["netns", "exec", namespace, program]).args(arguments).output();
        let output = output.expect("ip runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn bird_config(&self, networks: &[&str]) {
        let routes: String = networks.iter().map(|network| format!("route {network} blackhole; ")).collect();
        let text = format!(
            "log stderr all;\nrouter id 192.0.2.1;\nprotocol device {{ scan time 1; }}\n\
             protocol static {{ ipv4; {routes}}}\n\
             protocol kernel {{ ipv4 {{ export where source = RTS_BGP; }}; }}\n\
             protocol bgp t {{ local 192.0.2.1 as 65001; neighbor 192.0.2.2 as 65002; graceful restart yes; \
             connect delay time 1; connect retry time 1; error wait time 1,2; \
             ipv4 {{ import all; export where source = RTS_STATIC; }}; }}\n"
        );
        fs::write(self.path("bird.conf"), text).expect("writing");
    }

    fn bird(&mut self) {
        self.bird_config(&["21.0.0.0/24", "21.0.1.0/24"]);
        let (config, socket, log) = (self.path("bird.conf"), self.path("bird.ctl"), self.path("bird.log"));
        let left = self.net.namespace(End::Left);
        let bird = self.start_in(&left, "bird", &["-f", "-c", &config, "-s", &socket], &log);
        self._daemons.push(bird);
        until("BIRD starts", LIMIT_S, || {
            let answer = self.ask_bird("show status");
            if answer.contains("up") { Ok(()) } else { Err(answer) }
        });
    }

    fn ask_bird(&self, question: &str) -> String {
        self.within("birdc", &self.net.namespace(End::Left), &["-s", &self.path("bird.ctl"), question])
    }

    fn frr(&mut self) {
        let text = "frr defaults datacenter\nlog stdout\nrouter bgp 65003\n bgp router-id 198.51.100.3\n \
                    no bgp ebgp-requires-policy\n no bgp network import-check\n timers bgp 10 30\n \
                    neighbor 198.51.100.2 remote-as 65002\n neighbor 198.51.100.2 timers connect 1\n \
                    neighbor 198.51.100.2 advertisement-interval 0\n address-family ipv4 unicast\n  \
                    network 23.0.0.0/24\n exit-address-family\n";
        fs::write(self.path("bgpd.conf"), text).expect("writing");
        fs::write(self.path("zebra.conf"), "log stdout\n").expect("writing");
        let folder = self.folder.display().to_string();
        let api = self.path("zserv.api");
        let third = self.third.clone();
        let (config, pid, log) = (self.path("zebra.conf"), self.path("zebra.pid"), self.path("zebra.log"));
        let arguments = ["-f", &config, "-i", &pid, "-z", &api, "--vty_socket", &folder, "-P", "0"];
        let zebra = self.start_in(&third, "/usr/lib/frr/zebra", &arguments, &log);
        self._daemons.push(zebra);
        until("zebra starts", LIMIT_S, || fs::metadata(&api).map(drop).map_err(|error| error.to_string()));
        let (config, pid, log) = (self.path("bgpd.conf"), self.path("bgpd.pid"), self.path("bgpd.log"));
        let arguments = ["-f", &config, "-z", &api, "-S", "-i", &pid, "--vty_socket", &folder, "-P", "0"];
        let bgpd = self.start_in(&third, "/usr/lib/frr/bgpd", &arguments, &log);
        self._daemons.push(bgpd);
    }

    fn start_thalweg(&mut self) {
        let text = format!(
            "[control]\nsocket = \"{}\"\n[bgp]\nas = 65002\nrouter_id = \"192.0.2.2\"\ninstall = \"kernel\"\n\
             import = \"accept\"\nexport = \"accept\"\nconnect_retry_s = 1\nselection_deferral_s = 60\n\
             graceful_restart = {{ time_s = 60 }}\n\
             [[bgp.neighbor]]\naddress = \"192.0.2.1\"\nas = 65001\n\
             [[bgp.neighbor]]\naddress = \"198.51.100.3\"\nas = 65003\n",
            self.path("thalweg.sock")
        );
        let (config, log) = (self.path("thalweg.toml"), self.path("thalweg.log"));
        fs::write(&config, text).expect("writing");
        let right = self.net.namespace(End::Right);
        self.thalweg = Some(self.start_in(&right, THALWEG, &["run", &config, "--log", "debug"], &log));
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let socket = self.path("thalweg.sock");
        let arguments = [arguments, &["--socket", &socket]].concat();
        self.within(THALWEG, &self.net.namespace(End::Right), &arguments)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("thalweg.log")).unwrap_or_default()
    }

    /// Our routes in the kernel.
    fn installed(&self) -> BTreeSet<String> {
        let routes = ip(&self.net.namespace(End::Right), "route show proto 116");
        routes.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
    }

    fn await_installed(&self, what: &str, prefixes: &[&str]) {
        let wanted: BTreeSet<String> = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        until(what, LIMIT_S, || match self.installed() {
            found if found == wanted => Ok(()),
            found => Err(format!("{found:?}\n{}", self.log())),
        });
    }

    /// Waits until every router has the others' routes and our restart has ended.
    fn await_settled(&self) {
        until("both neighbors have sent their tables", LIMIT_S, || {
            let (neighbors, rib) =
                (self.ask(&["show", "bgp", "neighbors"]), self.ask(&["show", "bgp", "rib"]));
            let is_up = neighbors.matches("Established").count() == 2 && rib.contains("IPv4");
            let said = self.log().matches("End-of-RIB received").count().is_multiple_of(2);
            (is_up && said && !rib.contains("restart:")).then_some(()).ok_or(neighbors + &rib)
        });
        let right = [(self.net.namespace(End::Left), "23.0.0.0/24"), (self.third.clone(), "21.0.0.0/24")];
        until("both neighbors use our routes", LIMIT_S, || {
            let missing = right.iter().find(|(namespace, prefix)| {
                ip(namespace, &format!("route show {prefix}")).split_whitespace().next().is_none()
            });
            missing.map_or(Ok(()), |(namespace, prefix)| Err(format!("{prefix} is not in {namespace}")))
        });
    }

    /// Routes that the neighbors removed from their kernels' tables.
    fn removed(&self) -> String {
        let logs = [self.net.namespace(End::Left), self.third.clone()];
        let lines = logs.iter().map(|name| fs::read_to_string(self.path(&format!("{name}.monitor"))));
        let text: String = lines.map(|text| text.expect("a log")).collect();
        text.lines().filter(|line| line.contains("Deleted")).map(|line| format!("{line}\n")).collect()
    }

    /// All changes of routes, to find out why a packet was lost.
    fn history(&self) -> String {
        let names = [self.net.namespace(End::Left), self.net.namespace(End::Right), self.third.clone()];
        let each = |name: &String| {
            let said = fs::read_to_string(self.path(&format!("{name}.monitor"))).unwrap_or_default();
            format!("--- routes of {name}\n{said}")
        };
        names.iter().map(each).chain([format!("--- Thalweg\n{}", self.log())]).collect()
    }

    fn socket(&self, namespace: &str, address: &str) -> UdpSocket {
        self.net.within_namespace(namespace, || UdpSocket::bind(address).expect("the address is there"))
    }

    fn streams(&self) -> [Stream; 2] {
        let left = self.net.namespace(End::Left);
        // New ports each time, because a program that is just starting still holds the sockets of earlier
        // streams.
        let [a, b] = [(); 2].map(|()| {
            let of = |namespace: &str, address: &str| self.socket(namespace, &format!("{address}:0"));
            (of(&left, "21.0.0.1"), of(&self.third, "23.0.0.1"))
        });
        [Stream::start(a.0, a.1), Stream::start(b.1, b.0)]
    }
}

fn assert_nothing_lost(site: &Site<'_>, streams: [Stream; 2], what: &str) {
    for stream in streams {
        let (sent, lost) = stream.finish();
        println!("{what}: {sent} packets sent, {lost} lost");
        // At least one packet per five milliseconds, so the second and a half without our process is covered.
        assert!(sent > 300, "{what}: only {sent} packets were sent");
        assert_eq!(lost, 0, "{what}: of {sent}\n{}", site.history());
    }
}

#[test]
fn no_packet_is_lost_over_our_restart() {
    let Some(net) = Net::new() else { return };
    for names in [&["bird"][..], &["birdc"], &["/usr/lib/frr/bgpd"], &["vtysh"]] {
        if program(names, "bird2 and frr").is_none() {
            return;
        }
    }
    let mut site = Site::new(&net);
    site.start_thalweg();
    site.await_installed("all routes", &["21.0.0.0/24", "21.0.1.0/24", "23.0.0.0/24"]);
    site.await_settled();
    assert!(!site.log().contains("restart: "), "a cold start is no restart: {}", site.log());

    // Killed while one of the routes disappears.
    let streams = site.streams();
    thread::sleep(Duration::from_millis(500));
    let before = site.removed();
    site.thalweg.take().expect("it runs").kill();
    until("BIRD sees it", LIMIT_S, || {
        let answer = site.ask_bird("show protocols t");
        if answer.contains("Established") { Err(answer) } else { Ok(()) }
    });
    site.bird_config(&["21.0.0.0/24"]);
    assert!(site.ask_bird("configure").contains("Reconfigured"));
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(site.installed().len(), 3, "the kernel has all prefixes");
    site.start_thalweg();
    site.await_installed("the stale route goes", &["21.0.0.0/24", "23.0.0.0/24"]);
    site.await_settled();
    assert_nothing_lost(&site, streams, "kill -9");
    let log = site.log();
    assert!(
        log.contains("keeping a predecessor's routes") && log.contains("restart: routes are selected"),
        "{log}"
    );
    let removed = site.removed().replacen(&before, "", 1);
    assert!(removed.lines().all(|line| line.contains("21.0.1.0/24")), "neighbors removed:\n{removed}");

    // Stopped to be replaced by the next process.
    let streams = site.streams();
    thread::sleep(Duration::from_millis(500));
    assert_eq!(site.ask(&["stop", "--keep-routes"]), "");
    assert_eq!(site.installed().len(), 2);
    thread::sleep(Duration::from_millis(500));
    site.start_thalweg();
    until("it restarts", LIMIT_S, || {
        let count = site.log().matches("restart: routes are selected and announced").count();
        if count == 2 { Ok(()) } else { Err(site.log()) }
    });
    site.await_settled();
    assert_nothing_lost(&site, streams, "stop --keep-routes");
    assert_eq!(site.removed().replacen(&before, "", 1), removed, "neighbors removed nothing more");

    // Stopped for good.
    assert_eq!(site.ask(&["stop"]), "");
    assert_eq!(site.installed().len(), 0);
    assert!(!Path::new(&site.path("thalweg.sock.restart")).exists());
}
