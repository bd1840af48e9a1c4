//! Two routers with a session, and all commands that an operator gives to one of them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::router::{Router, eventually, free_port, neighbor, speaker};

const NETWORK_1: &str = "198.51.100.0/24";
const NETWORK_2: &str = "203.0.113.0/24";

fn config(number: u8, other: u8, port: u16, networks: &[&str]) -> String {
    format!("{}networks = {networks:?}\n{}", speaker(number, port), neighbor(number, other, port))
}

/// Two routers with an established session; each has learned the other's network.
fn pair(directory: &TempDir, arguments: &[&str]) -> (Router, Router, u16) {
    let port = free_port();
    let one = config(1, 2, port, &[NETWORK_1]);
    let one = Router::start_with(directory.path(), "one", &one, arguments);
    let two = config(2, 1, port, &[NETWORK_2]);
    let two = Router::start_with(directory.path(), "two", &two, arguments);
    one.await_established("r2");
    one.await_route(NETWORK_2);
    two.await_route(NETWORK_1);
    (one, two, port)
}

#[test]
fn every_question_is_answered_in_both_formats() {
    let directory = tempfile::tempdir().unwrap();
    let (one, _two, _) = pair(&directory, &["--profile-functions"]);

    let routes = one.json(&["bgp", "routes"]);
    let of = |prefix: &str| routes.iter().find(|route| route["prefix"] == prefix).expect("it is there");
    let learned = of(NETWORK_2);
    assert_eq!((&learned["neighbor"], &learned["as_path"]), (&"r2".into(), &"64502".into()));
    assert_eq!((&learned["next_hop"], &learned["best"]), (&"127.0.0.2".into(), &true.into()));
    assert_eq!(of(NETWORK_1)["neighbor"], "local");

    let text = one.text("show", &["bgp", "routes", "--neighbor", "r2"]);
    assert!(text.contains(NETWORK_2) && !text.contains(NETWORK_1), "{text}");
    let filters: [(&[&str], usize); 6] = [
        (&["--inside", "203.0.0.0/8"], 1),
        (&["--origin-as", "64502", "--best"], 1),
        (&["--through-as", "64999"], 0),
        (&["--family", "ipv6"], 0),
        (&["--limit", "1"], 1),
        (&["--community", "1:2"], 0),
    ];
    for (filter, count) in filters {
        assert_eq!(one.json(&[&["bgp", "routes"], filter].concat()).len(), count, "{filter:?}");
    }

    let why = one.text("show", &["bgp", "route", "203.0.113.77", "--why"]);
    assert!(why.contains("from r2, best") && why.contains("AS path 64502"), "{why}");
    assert_eq!(one.one(&["bgp", "route", NETWORK_2, "--why"])["why"], "best");
    assert_eq!(one.text("show", &["bgp", "route", "192.0.2.1"]), "no route\n");

    let neighbors = one.text("show", &["bgp", "neighbors"]);
    assert!(neighbors.contains("Established") && neighbors.contains("64502"), "{neighbors}");
    assert_eq!(one.one(&["bgp", "neighbors"])["accepted"], 1);
    let page = one.text("show", &["bgp", "neighbor", "127.0.0.2"]);
    assert!(page.contains("timers           hold 90 s, keepalive 30 s\n") && !page.contains('{'), "{page}");
    assert!(page.contains("state            Established, up for "), "{page}");
    assert_eq!(one.one(&["bgp", "neighbor", "127.0.0.2"])["negotiated"]["hold_time_s"], 90);

    let rib = one.one(&["bgp", "rib"]);
    assert_eq!(rib["prefixes"]["ipv4"], 2);
    assert!(one.text("show", &["bgp", "rib"]).contains("attribute sets"));
    assert_eq!(one.one(&["bgp", "update-groups"])["members"], 1);
    assert!(one.text("show", &["bgp", "update-groups"]).contains("Members"));
    assert!(one.one(&["bgp", "memory"])["resident"].as_u64().unwrap() > 0);
    assert!(one.text("show", &["bgp", "memory"]).contains("Resident"));
    let functions = one.one(&["bgp", "functions"]);
    let calls = |name: &str| functions["functions"][name]["calls"].as_u64().expect(name);
    // At least OPEN, KEEPALIVE, an UPDATE and an End-of-RIB.
    assert!(calls("header_parse") >= 4 && calls("header_parse") == calls("payload_parse"), "{functions}");
    for name in ["read", "table_update", "export", "write", "housekeeping"] {
        assert!(calls(name) > 0, "{name}: {functions}");
    }
    assert_eq!(functions["bytes"]["headers"], 19 * calls("header_parse"));
    one.text("show", &["bgp", "functions"]);
}

/// Every answer in JSON is one object per line. Errors are explained, passwords are not printed.
#[test]
fn a_router_says_how_it_is_and_what_it_runs_with() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two, port) = pair(&directory, &[]);
    let status = one.one(&["status"]);
    assert_eq!(status["bgp_neighbors"], serde_json::json!({ "up": 1, "down": 0 }));
    assert_eq!((&status["problems"], &status["ports"]), (&serde_json::json!([]), &serde_json::Value::Null));
    assert!(
        status["threads"].as_u64() > Some(2) && status["memory_bytes"].as_u64() > Some(1 << 20),
        "{status}"
    );
    assert!(one.text("show", &["status"]).contains("nothing is wrong"));
    assert_eq!(one.one(&["version"])["router"], env!("CARGO_PKG_VERSION"));

    two.stop();
    let problem = eventually("it says that the neighbor is down", || {
        let status = one.one(&["status"]);
        (status["bgp_neighbors"]["down"] == 1)
            .then(|| status["problems"][0].as_str().unwrap_or_default().to_owned())
    });
    assert!(problem.starts_with("neighbor r2 is "), "{problem}");

    // The configuration in force is the one last loaded, not the file as it is now.
    let secret = format!("{}password = \"s3cret\"\n", config(1, 2, port, &[NETWORK_1]));
    fs::write(&one.config, &secret).unwrap();
    assert!(!one.text("show", &["config"]).contains("password ="));
    one.text("reload", &[]);
    let shown = one.text("show", &["config"]);
    assert!(shown.contains("password = \"********\"") && !shown.contains("s3cret"), "{shown}");
    assert!(shown.contains(&format!("networks = [{NETWORK_1:?}]")), "{shown}");
    fs::write(&one.config, "[bgp]\nas = \"many\"\n").unwrap();
    let error = one.error("reload", &[]);
    assert!(error.starts_with("error: ") && !error.contains("error: error"), "{error}");
    let status = one.one(&["status"]);
    let refused = status["problems"]
        .as_array()
        .unwrap()
        .iter()
        .any(|each| each.as_str().unwrap().contains("the last reload of the configuration file failed"));
    assert!(refused, "{status}");
    assert!(one.one(&["config"])["text"].as_str().unwrap().contains("********"), "what is in force stays");

    let of_bgp = ["neighbors", "routes", "rib", "update-groups", "memory"].map(|what| vec!["bgp", what]);
    for question in of_bgp.into_iter().chain([vec!["status"], vec!["config"], vec!["version"]]) {
        assert!(one.json(&question).iter().all(serde_json::Value::is_object), "{question:?}");
        for width in ["60", "80", "100", "200"] {
            let output = one.command_with("show", &question, &[("COLUMNS", width)]);
            let text = String::from_utf8(output.stdout).unwrap();
            let limit: usize = width.parse().unwrap();
            let long = text.lines().find(|line| line.chars().count() > limit);
            let is_text = question == ["config"] || question == ["status"];
            assert!(is_text || long.is_none(), "{question:?} at {width}: {long:?}");
        }
    }
}

#[test]
fn questions_without_answer_say_why() {
    let directory = tempfile::tempdir().unwrap();
    let one = Router::start(directory.path(), "one", &speaker(1, free_port()));
    assert!(one.error("show", &["bgp", "neighbor", "nobody"]).contains("no neighbor is called nobody"));
    assert!(one.error("show", &["bgp", "functions"]).contains("--profile-functions"));
    assert!(one.error("show", &["forwarding"]).contains("install"));
    assert!(one.error("show", &["bgp", "routes", "--inside", "x"]).contains('x'));
    assert!(one.error("bgp", &["refresh", "nobody"]).contains("no neighbor"));
    one.stop();
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["show", "--socket"])
        .arg(directory.path().join("one.sock"))
        .args(["bgp", "rib"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("no router answers"));
}

#[test]
fn a_neighbor_is_refreshed_reset_shut_down_and_started() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two, _) = pair(&directory, &[]);

    let updates = one.one(&["bgp", "neighbor", "r2"])["updates_received"].as_u64().unwrap();
    one.text("bgp", &["refresh", "r2"]);
    eventually("the routes come again", || {
        (one.one(&["bgp", "neighbor", "r2"])["updates_received"].as_u64()? > updates).then_some(())
    });
    assert_eq!(one.json(&["bgp", "route", NETWORK_2]).len(), 1);

    one.text("bgp", &["reset", "r2", "new policy"]);
    eventually("it went down and says why", || {
        let view = two.one(&["bgp", "neighbor", "r1"]);
        (view["flaps"].as_u64()? == 1 && view["last_error"].as_str()?.contains("new policy")).then_some(())
    });
    one.await_established("r2");
    one.await_route(NETWORK_2);

    one.text("bgp", &["shutdown", "r2", "maintenance"]);
    one.await_no_route(NETWORK_2);
    two.await_no_route(NETWORK_1);
    assert_eq!(one.one(&["bgp", "neighbor", "r2"])["state"], "Idle");
    one.text("bgp", &["start", "r2"]);
    one.await_established("r2");
    one.await_route(NETWORK_2);
    two.await_route(NETWORK_1);
}

#[test]
fn a_reload_changes_what_differs_and_nothing_if_the_file_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two, port) = pair(&directory, &[]);
    assert_eq!(one.text("reload", &[]), "nothing changed\n");

    fs::write(&one.config, config(1, 2, port, &["192.0.2.0/24"])).unwrap();
    assert!(one.text("reload", &[]).contains("1 network announced, 1 withdrawn"));
    two.await_route("192.0.2.0/24");
    two.await_no_route(NETWORK_1);

    let broken = config(1, 2, port, &[NETWORK_1]).replace("as = 64502", "as = \"many\"");
    fs::write(&one.config, broken).unwrap();
    assert!(one.error("reload", &[]).contains("many"));
    assert_eq!(two.json(&["bgp", "route", "192.0.2.0/24"]).len(), 1);

    // A signal reloads too; errors go to the log.
    one.signal("HUP");
    eventually("the log says so", || one.log().contains("not valid").then_some(()));
    fs::write(&one.config, config(1, 2, port, &[NETWORK_1])).unwrap();
    one.signal("HUP");
    two.await_route(NETWORK_1);

    // The session stayed up all the time.
    assert_eq!(one.one(&["bgp", "neighbor", "r2"])["flaps"], 0);
    assert_eq!(one.one(&["bgp", "neighbor", "r2"])["state"], "Established");

    // A new import policy rejects all routes, and they leave the table.
    let rejecting = config(1, 2, port, &[NETWORK_1]).replace("import = \"accept\"", "import = \"reject\"");
    fs::write(&one.config, rejecting).unwrap();
    assert!(one.text("reload", &[]).contains("import policy"));
    one.await_no_route(NETWORK_2);
    assert_eq!(one.one(&["bgp", "neighbor", "r2"])["flaps"], 0);

    // The configuration without the neighbor.
    fs::write(&one.config, format!("{}networks = [{NETWORK_1:?}]\n", speaker(1, port))).unwrap();
    assert!(one.text("reload", &[]).contains("removed"));
    two.await_no_route(NETWORK_1);
}

#[test]
fn passwords_come_and_go_with_a_reload() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two, port) = pair(&directory, &[]);
    let with = |number: u8, other: u8, network: &str, password: &str| {
        let config = config(number, other, port, &[network]);
        if password.is_empty() { config } else { format!("{config}password = {password:?}\n") }
    };
    for (times, password) in ["first", "second", "", "third"].into_iter().enumerate() {
        fs::write(&one.config, with(1, 2, NETWORK_1, password)).unwrap();
        fs::write(&two.config, with(2, 1, NETWORK_2, password)).unwrap();
        for router in [&one, &two] {
            assert!(router.text("reload", &[]).contains("begins anew"));
        }
        one.await_established("r2");
        one.await_route(NETWORK_2);
        two.await_route(NETWORK_1);
        assert!(one.one(&["bgp", "neighbor", "r2"])["flaps"].as_u64().unwrap() > times as u64);
    }

    // A password that the kernel does not accept makes the router refuse the whole configuration.
    let long = "x".repeat(200);
    fs::write(&one.config, with(1, 2, "192.0.2.0/24", &long)).unwrap();
    assert!(one.error("reload", &[]).contains("password"));
    assert_eq!(one.one(&["bgp", "neighbor", "r2"])["state"], "Established");
    assert_eq!(one.json(&["bgp", "route", "192.0.2.1"]).len(), 0);
}

#[test]
fn a_router_ends_cleanly_and_tells_its_neighbors() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two, port) = pair(&directory, &["--scheduling", "dynamic"]);
    let (status, log) = one.stop();
    assert!(status.success() && log.contains("stopped"), "{status}\n{log}");
    two.await_no_route(NETWORK_1);
    let error = two.one(&["bgp", "neighbor", "r1"])["last_error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("Administrative Shutdown"), "{error}");

    // The neighbor returns.
    let one = Router::start(directory.path(), "one", &config(1, 2, port, &[NETWORK_1]));
    two.await_route(NETWORK_1);
    one.await_route(NETWORK_2);
}

#[test]
fn a_second_router_on_the_same_socket_is_refused_and_a_dead_ones_socket_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let one = Router::start(directory.path(), "one", &speaker(1, free_port()));
    let second = directory.path().join("second.toml");
    fs::write(&second, speaker(2, free_port())).unwrap();
    let socket = directory.path().join("one.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["run", "--socket"])
        .args([&socket, &second])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("a router already answers"), "{output:?}");
    assert_eq!(one.json(&["bgp", "rib"]).len(), 1);

    one.signal("KILL");
    eventually("its socket stops answering", || {
        (!one.command("show", &["bgp", "rib"]).status.success()).then_some(())
    });
    assert!(socket.exists());
    Router::start(directory.path(), "one", &speaker(1, free_port())).stop();
}

#[test]
fn every_scheduling_runs_two_routers() {
    for scheduling in ["serial", "per-peer", "dynamic", "sharded"] {
        let directory = tempfile::tempdir().unwrap();
        let (one, _two, _) = pair(&directory, &["--scheduling", scheduling]);
        assert!(one.one(&["bgp", "rib"])["scheduling"].as_str().unwrap().starts_with(scheduling));
    }
}

/// On the socket for reading, everything that changes anything is refused, and everybody may open it.
#[test]
fn readers_change_nothing() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use thalweg_node::control::{
        BgpRequest, CaptureRequest, FirewallFilter, Line, NatClear, PacketRequest, RefusalKind, Request,
    };

    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = format!("[control]\nread_socket = \"reading.sock\"\n{}", config(1, 2, port, &[NETWORK_1]));
    let one = Router::start(directory.path(), "one", &config);
    let reading = directory.path().join("reading.sock");
    let mode = |path| fs::metadata(path).expect("a socket").permissions().mode() & 0o777;
    assert_eq!((mode(&reading), mode(&directory.path().join("one.sock"))), (0o666, 0o660));
    let ask = |request: &Request| {
        let mut stream = UnixStream::connect(&reading).expect("it listens");
        writeln!(stream, "{}", serde_json::to_string(request).expect("JSON")).expect("sending");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        serde_json::from_str::<Line>(&line).expect("a line of an answer")
    };
    let (neighbor, text) = ("r2".to_owned(), String::new());
    for request in [
        Request::Reload,
        Request::Stop { keep_routes: None },
        Request::Capture(CaptureRequest::default()),
        Request::Packets(PacketRequest::NatClear(NatClear::default())),
        Request::Packets(PacketRequest::FirewallClear(FirewallFilter::default())),
        Request::Bgp(BgpRequest::Refresh { neighbor: neighbor.clone() }),
        Request::Bgp(BgpRequest::Reset { neighbor: neighbor.clone(), text: text.clone() }),
        Request::Bgp(BgpRequest::Shutdown { neighbor: neighbor.clone(), text }),
        Request::Bgp(BgpRequest::Start { neighbor }),
    ] {
        let Line::Error { kind, text } = ask(&request) else { panic!("{request:?} was done") };
        assert!(kind == RefusalKind::Refused && text.contains("for reading"), "{request:?}: {text}");
    }
    assert!(matches!(ask(&Request::Status), Line::Item(_)));
    assert!(matches!(ask(&Request::Bgp(BgpRequest::Neighbors)), Line::Item(_)));
    assert_eq!(one.one(&["bgp", "rib"])["prefixes"]["ipv4"], 1, "it still runs");
    let (status, _) = one.stop();
    assert!(status.success() && !reading.exists(), "its socket is gone");
}

/// In a pipe one answer follows the other until the program is told to stop. Commands may be shortened while they are
/// unique.
#[test]
fn an_answer_is_shown_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let _router = Router::start(directory.path(), "r1", &speaker(1, free_port()));
    let socket = directory.path().join("r1.sock");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments).arg("--socket").arg(&socket).stdout(Stdio::piped());
        command
    };
    let mut child =
        run(&["sh", "stat", "--format", "json", "--watch", "1"]).spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut uptime = || {
        let line = lines.next().expect("another answer").expect("text");
        serde_json::from_str::<Value>(&line).expect("JSON")["uptime_s"].as_u64().expect("a number")
    };
    assert!(uptime() <= uptime());
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let ambiguous = run(&["s", "status"]).stderr(Stdio::null()).status().expect("the binary runs");
    assert_eq!(ambiguous.code(), Some(2), "show or stop");
    let received = run(&["show", "bgp", "routes", "--received", "--watch"]).stderr(Stdio::null()).status();
    assert_eq!(
        received.expect("the binary runs").code(),
        Some(2),
        "neighbors would send everything each time"
    );
}

/// Each reload makes NAT's table anew, some 20 MB, on a thread of its own, and the allocator keeps memory for
/// every thread. What was freed does not stay.
#[test]
fn reloads_do_not_add_memory() {
    const RELOADS: u32 = 40;
    let folder = tempfile::tempdir().expect("a folder");
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/small-office/office.pcapng");
    let port = |name: &str, interface: &str, address: &str| {
        format!(
            "[ports.{name}]\ncapture = {capture:?}\ndriver = \"capture\"\ninterface = \"{interface}\"\n\
             mac = \"02:00:00:00:00:01\"\naddresses = [\"{address}\"]\n"
        )
    };
    let ports = port("lan", "eth0", "192.168.10.1/24") + &port("wan", "eth3", "203.0.113.2/28");
    let bgp = speaker(1, free_port());
    let config = |sessions: u32| {
        format!(
            "{bgp}[system]\nsandbox = false\n[workers]\npriority = \"normal\"\n{ports}\
             [nat]\noutside = \"wan\"\ninside = [\"lan\"]\nsessions_max = {sessions}\n"
        )
    };
    let router = Router::start(folder.path(), "one", &config(500_000));
    let anonymous = || {
        let status = fs::read_to_string(format!("/proc/{}/status", router.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux says");
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number")
    };
    let before = anonymous();
    for number in 0..RELOADS {
        fs::write(&router.config, config(500_000 - number)).expect("a file");
        router.text("reload", &[]);
    }
    let after = anonymous();
    println!("{before} KiB, after {RELOADS} reloads {after} KiB");
    assert!(after < before + 300_000, "{before} KiB, after {RELOADS} reloads {after} KiB");
}
