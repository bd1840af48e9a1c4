//! A router on interfaces that is not root: started by root, which it gives up, or by another user with capabilities.
//! And what a killed one leaves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use thalweg_base::uninterrupted;
use thalweg_testdata::threads::{hold, threads};

use crate::offload;
use crate::site::{GUEST, OFFICE, OUTSIDE, Router, Site, eventually, has};

fn config(driver: &str) -> String {
    format!(
        "[ports.lan]\ninterface = \"lan\"\ndriver = \"{driver}\"\naddresses = [\"10.1.0.1/24\"]\nmirror = true\n\
         [ports.wan]\ninterface = \"wan\"\ndriver = \"{driver}\"\naddresses = [\"198.51.100.1/24\"]\n"
    )
}

const PORT_MORE: &str = "\n[ports.guest]\ninterface = \"guest\"\naddresses = [\"10.2.0.1/24\"]\n";

/// Every thread of the router has exactly these rights: NET_ADMIN, NET_RAW, IPC_LOCK, BPF.
const RIGHTS: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 39;

/// The site, with the way back for outside, and a folder in which every user may make files.
fn open_site() -> Option<Site> {
    let site = Site::new()?;
    site.ip(&site.namespace(OUTSIDE), "route add default via 198.51.100.1");
    fs::set_permissions(site.file(""), fs::Permissions::from_mode(0o777)).expect("the folder is ours");
    Some(site)
}

fn uid_of_nobody() -> String {
    let users = fs::read_to_string("/etc/passwd").expect("the users");
    let line = users.lines().find(|line| line.starts_with("nobody:")).expect("each Linux has that user");
    line.split(':').nth(2).expect("a number").to_owned()
}

/// It is nobody with these rights; AF_XDP and a mirror work, and so does a port that a reload adds.
fn works(site: &Site, router: &Router<'_>, config: &str) {
    let tasks = fs::read_dir(format!("/proc/{}/task", router.process.pid())).expect("the router runs");
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    for status in statuses {
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("a field").trim();
        assert!(field("Uid:").split_whitespace().all(|uid| uid == uid_of_nobody()), "{status}");
        assert_eq!(field("CapEff:"), format!("{RIGHTS:016x}"), "{status}");
    }
    let added = router.reload(&format!("{config}{PORT_MORE}")).expect("the reload is taken");
    assert!(added.contains("guest"), "{added}");
    eventually("the new port forwards", || site.pings(GUEST, OUTSIDE.v4).then_some(()));
    let ports = router.show(&["ports"]).expect("it answers");
    let by_xdp =
        ports.iter().filter(|port| port["mode"].as_str().is_some_and(|mode| mode.starts_with("af_xdp")));
    assert_eq!(by_xdp.count(), 3, "{ports:?}");
    assert!(
        site.output(&site.router(), "ping", &["-c", "1", "-W", "5", OFFICE.v4]).status.success(),
        "the mirror works"
    );
    router.counters_add_up();
}

#[test]
fn root_gives_up_what_ports_do_not_need() {
    let Some(site) = open_site() else { return };
    let config = format!("[system]\nuser = \"nobody\"\n{}", config("auto"));
    let mut router = site.run(&config, &[]);
    works(&site, &router, &config);
    assert!(router.process.end(), "it stops with success");
}

#[test]
fn another_user_runs_it_with_capabilities() {
    let Some(site) = open_site() else { return };
    let binary = site.file("thalweg");
    // A copy that every user can reach. By another program: a child that another test makes meanwhile would have a file
    // open for writing that is open here, and the kernel starts no such file.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_thalweg")).arg(&binary).status();
    assert!(copied.is_ok_and(|copied| copied.success()), "a copy");
    let capabilities = "+net_admin,+net_raw,+ipc_lock,+bpf";
    let binary = binary.display().to_string();
    let user = [
        "setpriv",
        "--reuid",
        "nobody",
        "--clear-groups",
        "--inh-caps",
        capabilities,
        "--ambient-caps",
        capabilities,
    ];
    let mut router = site.run_by(&[&user[..], &[&binary]].concat(), &config("auto"), &[]);
    eventually("the router forwards", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    works(&site, &router, &config("auto"));
    assert!(router.process.end(), "it stops with success");
}

/// Under each model the threads of a router without packets wake often enough for the watchdog, which hears of it.
#[test]
fn the_watchdog_is_fed_without_packets() {
    let Some(site) = open_site() else { return };
    let path = site.file("notify");
    let address = format!("NOTIFY_SOCKET={}", path.display());
    let program = [address.as_str(), "WATCHDOG_USEC=1000000", env!("CARGO_BIN_EXE_thalweg")];
    for (model, workers) in [
        ("serial", "1"),
        ("run-to-completion", "2"),
        ("pipeline", "2"),
        ("replicated", "2"),
        ("tokens", "2"),
        ("farm", "2"),
        ("chain", "2"),
    ] {
        let manager = UnixDatagram::bind(&path).expect("it is free");
        manager.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a time");
        let router = site.run_by(&program, &config("auto"), &["--model", model, "--workers", workers]);
        for expected in ["READY=1", "WATCHDOG=1", "WATCHDOG=1"] {
            let mut buffer = [0; 64];
            let length = uninterrupted(|| manager.recv(&mut buffer))
                .unwrap_or_else(|error| panic!("{model}, {expected}: {error}"));
            assert_eq!(&buffer[..length], expected.as_bytes(), "{model}");
        }
        drop(router);
        fs::remove_file(&path).expect("it is ours");
    }
}

/// The watchdog's time, as short as a busy machine allows.
const WATCHDOG: Duration = Duration::from_secs(2);
/// More messages than a router still sends until a look begins and ends in which a thread does not run.
const STILL_FED: usize = 5;

/// Of a router with ports, NAT, flows and the console each kind of thread is stopped in turn: the watchdog is not fed
/// until it runs again.
#[test]
fn each_thread_of_ports_and_flows_is_watched() {
    let Some(site) = open_site() else { return };
    let path = site.file("notify");
    let manager = UnixDatagram::bind(&path).expect("it is free");
    let next = |within: Duration| {
        let mut buffer = [0; 64];
        manager.set_read_timeout(Some(within)).expect("it is a time");
        let length = uninterrupted(|| manager.recv(&mut buffer))?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    let config = format!(
        "{}[nat]\noutside = \"wan\"\ninside = [\"lan\"]\naddresses = [\"198.51.100.1\"]\n\
         [flows]\nstore = \"flows\"\ncollectors = \"ipfix://198.51.100.2:4739\"\n[web]\nsocket = \"web.sock\"\n",
        config("auto")
    );
    let (address, limit) =
        (format!("NOTIFY_SOCKET={}", path.display()), format!("WATCHDOG_USEC={}", WATCHDOG.as_micros()));
    let program = [address.as_str(), &limit, env!("CARGO_BIN_EXE_thalweg")];
    let router = site.run_by(&program, &config, &["--workers", "2"]);
    eventually("the router forwards", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    let threads: BTreeMap<String, u32> =
        threads(router.process.pid()).into_iter().map(|(thread, name)| (name, thread)).collect();
    for name in ["worker-0", "worker-1", "host", "flows", "watchdog", "thalweg"] {
        assert!(threads.contains_key(name), "{name}: {threads:?}");
    }
    for (name, thread) in &threads {
        let Some(held) = hold(*thread) else {
            return thalweg_testdata::skipped("single threads cannot be stopped (python3, ptrace)");
        };
        // What it said until then is no matter.
        manager.set_nonblocking(true).expect("it is a socket");
        while uninterrupted(|| manager.recv(&mut [0; 64])).is_ok() {}
        manager.set_nonblocking(false).expect("it is a socket");
        let fed = (0..STILL_FED).take_while(|_| next(WATCHDOG).is_ok()).count();
        assert!(fed < STILL_FED, "{name} is stopped, and the watchdog is fed: {}", site.log());
        drop(held);
        let said = next(Duration::from_secs(30)).unwrap_or_else(|error| panic!("{name} runs again: {error}"));
        assert_eq!(said, "WATCHDOG=1", "{name}");
    }
    println!("threads: {threads:?}");
}

/// How many programs are at an interface's ingress (tcx), where neither ip nor tc shows them: BPF_PROG_QUERY, bpf(2).
const AT_INGRESS: &str = "
import ctypes, os, platform, socket, struct, sys
query = struct.pack('IIIIQI', socket.if_nametoindex(sys.argv[1]), 46, 0, 0, 0, 0) # BPF_TCX_INGRESS
attributes = ctypes.create_string_buffer(query, 64)
bpf = 321 if platform.machine() == 'x86_64' else 280
if ctypes.CDLL(None, use_errno=True).syscall(bpf, 16, attributes, 64):
    sys.exit(os.strerror(ctypes.get_errno()))
print(struct.unpack_from('I', attributes, 24)[0])
";

/// After SIGKILL the system has its interfaces as before: no program, no mirror, no address of ours, and packets reach
/// the system's own stack again. So too if the kernel had taken over flows.
#[test]
fn a_killed_router_leaves_the_system_as_it_was() {
    let Some(site) = open_site() else { return };
    if !has("python3") {
        return;
    }
    let system = site.router();
    let at_ingress = || {
        let said = site.said(&system, "python3", &["-c", AT_INGRESS, "lan"]);
        said.trim().parse::<u32>().expect("a number")
    };
    // By word: an attached program, the mirror, its address.
    let ours = |driver: &str| {
        let state = site.said(&system, "ip", &["-d", "address"]);
        ["xdp", "tw-lan", "10.1.0.1/24"]
            .map(|word| state.contains(word) || word == "xdp" && driver != "af_xdp")
    };
    for (driver, offloads) in [("af_xdp", false), ("af_packet", false), ("af_xdp", true), ("af_packet", true)]
    {
        let before = site.said(&system, "ls", &["/sys/class/net"]);
        let config = match offloads {
            true => offload::config_by(driver, "mirror = true"),
            false => config(driver),
        };
        let mut router = site.run(&config, &[]);
        assert_eq!(ours(driver), [true; 3], "{driver}: they are there");
        assert_eq!(at_ingress() > 0, driver == "af_packet", "{driver}");
        if offloads {
            let (client, server) = (
                offload::socket(&site, &site.namespace(GUEST), "0.0.0.0:0"),
                offload::socket(&site, &site.namespace(OFFICE), "10.1.0.2:7"),
            );
            offload::converse(&client, &server, "10.1.0.2:7", 200);
            assert!(offload::offloaded(&router) > 100, "{driver}: a flow is in the kernel");
        }
        router.process.kill();
        drop(router);
        let is_clean = || ours("af_xdp") == [false; 3] && at_ingress() == 0;
        eventually("nothing of the router is left", || is_clean().then_some(()));
        assert_eq!(site.said(&system, "ls", &["/sys/class/net"]), before);
        site.ip(&system, "address add 10.1.0.1/24 dev lan");
        eventually("packets reach the system", || site.pings(OFFICE, "10.1.0.1").then_some(()));
        site.ip(&system, "address del 10.1.0.1/24 dev lan");
    }
}
