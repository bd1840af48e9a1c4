//! `thalweg demo` as somebody without rights, in an empty folder.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};
use thalweg_text::units;

use crate::browser::Browser;
use crate::router::{eventually, free_port};
use crate::web::{self, Process};

/// Who has no rights.
const NOBODY: u32 = 65_534;

/// A demonstration, where its console is, and its control socket.
fn start(folder: &Path, wanted: u16) -> (Process, u16, PathBuf) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["demo", "--format", "json", "--port", &wanted.to_string()]);
    command.current_dir(folder).env("TMPDIR", folder).stdout(Stdio::piped());
    if geteuid().is_root() {
        chown(folder, Some(NOBODY), Some(NOBODY)).expect("it is ours");
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut child = command.spawn().expect("the binary runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let said: Value = serde_json::from_str(&line).expect("JSON");
    let port = said["console"].as_str().and_then(|url| url.strip_prefix("http://127.0.0.1:"));
    let port = port.and_then(|rest| rest.trim_end_matches('/').parse().ok());
    let socket = said["socket"].as_str().expect("a path").into();
    (Process(child), port.expect("an address of loopback"), socket)
}

fn items(port: u16, path: &str) -> Vec<Value> {
    web::json(port, path)["items"].as_array().expect("a list").clone()
}

/// A number of every item, by name.
fn each(items: &[Value], name: &str) -> Vec<u64> {
    items.iter().map(|item| item[name].as_u64().expect(name)).collect()
}

/// The neighbors, when all have announced their tables.
fn announced(port: u16) -> Vec<Value> {
    eventually("all neighbors have announced their tables", || {
        let neighbors = items(port, "/api/v1/bgp/neighbors");
        let is_up = neighbors.iter().all(|each| each["state"] == "Established");
        // Two of the customer's 62 prefixes are not its own.
        (is_up && each(&neighbors, "accepted") == [3008, 3008, 800, 60, 400]).then_some(neighbors)
    })
}

/// What `thalweg show` prints for programs.
fn shown(socket: &Path, what: &[&str]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("show").args(what).args(["--format", "json", "--socket"]).arg(socket);
    let output = command.output().expect("the binary runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn it_needs_no_rights_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = free_port();
    let (mut demo, port, socket) = start(folder.path(), wanted);
    assert_eq!(port, wanted);

    let received = || each(&items(port, "/api/v1/ports"), "received");
    let before = eventually("every port receives", || Some(received()).filter(|all| !all.contains(&0)));
    assert_eq!(before.len(), 4);
    eventually("and goes on", || received().iter().zip(&before).all(|(now, then)| now > then).then_some(()));
    let neighbors = announced(port);
    let names: Vec<&Value> = neighbors.iter().map(|each| &each["name"]).collect();
    assert_eq!(names, ["transit-1", "transit-2", "peer", "customer", "exchange"]);
    let way = web::json(port, "/api/v1/fib/208.80.152.2");
    assert_eq!((&way["prefix"], &way["source"]), (&json!("208.80.152.0/22"), &json!("bgp")), "{way}");

    eventually("packets wait in queues, are translated, metered and timed", || {
        let waited =
            items(port, "/api/v1/queues").iter().any(|queue| queue["sojourn_p99_us"].as_f64() > Some(1000.0));
        let nat = web::json(port, "/api/v1/nat/counters");
        let flows = web::json(port, "/api/v1/flows/cache");
        let timed = web::json(port, "/api/v1/counters")["residence"]["packets"].as_u64() > Some(0);
        let counts = [&nat["counters"]["translated_in"], &nat["counters"]["translated_out"]];
        let outlet = &flows["outlets"][0];
        let stored = outlet["records"].as_u64().max(outlet["waiting"].as_u64()) > Some(0);
        (waited && stored && timed && counts.iter().all(|count| count.as_u64() > Some(0))).then_some(())
    });
    let top = web::json(port, "/api/v1/flows/top?key=dst-as&last=1h");
    let rows = top["rows"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["dst_as"].is_u64()), "records know BGP's routes: {top}");
    eventually("nothing is wrong", || {
        (web::json(port, "/api/v1/status")["problems"] == json!([])).then_some(())
    });
    half_open_connections_move_nothing(port, &socket);

    let pid = Pid::from_raw(i32::try_from(demo.0.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(demo.0.wait().unwrap().code(), Some(0));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Clients connect and say nothing, far more than are served: the router holds no more files than before and those of
/// the few that are; packets pass and sessions stay.
fn half_open_connections_move_nothing(port: u16, socket: &Path) {
    const ALL: usize = 600;
    /// Those that the server takes, and files that are opened for a moment.
    const FILES: u64 = 64 + 32;
    // The last neighbor comes and goes.
    let steady = || each(&shown(socket, &["bgp", "neighbors"])[..4], "flaps");
    let (flaps, files) = (steady(), each(&shown(socket, &["status"]), "open_files")[0]);
    let mut clients: Vec<TcpStream> =
        (0..ALL).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("the server listens")).collect();
    // They are taken in turn: when the last has its answer, or its end, all others have theirs.
    let _ = clients[ALL - 1].read(&mut [0]);
    let during = each(&shown(socket, &["status"]), "open_files")[0];
    assert!(during <= files + FILES, "{during} open files, {files} before");
    let received = || each(&shown(socket, &["ports"]), "received");
    let before = received();
    eventually("packets pass", || received().iter().zip(&before).all(|(now, then)| now > then).then_some(()));
    assert_eq!(steady(), flaps);
    drop(clients);
    let metrics = eventually("the API answers again", || {
        web::get(port, "/metrics", "*/*").filter(|(status, _)| *status == 200)
    });
    let counted = metrics.1.lines().find_map(|line| {
        line.strip_prefix("thalweg_web_connections_cut_total{reason=\"client-connections-full\"} ")
    });
    assert!(counted.and_then(|number| number.parse().ok()) > Some(ALL - 64), "{counted:?}");
}

/// The console in a browser: what stands still is what `show` says, and a counter is between two answers of `show`.
#[test]
fn the_console_says_what_show_says() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_demo, port, socket) = start(folder.path(), free_port());
    announced(port);
    browser.navigate(&format!("http://127.0.0.1:{port}/#/bgp"));
    let neighbors = shown(&socket, &["bgp", "neighbors"]);
    // The last one comes and goes.
    for neighbor in &neighbors[..4] {
        let text = |name: &str| neighbor[name].as_str().expect(name).to_owned();
        let accepted = units::count(neighbor["accepted"].as_u64().expect("a number"));
        let row = json!([text("name"), text("state"), text("as"), text("address"), accepted]);
        // The column between them is the time that the session is up.
        browser.until(&format!(
            "[...document.querySelectorAll('tbody tr')].some(({{ cells }}) => \
             JSON.stringify([0, 1, 2, 3, 5].map((at) => cells[at]?.textContent)) === JSON.stringify({row}))"
        ));
    }
    let ports = eventually("every port receives", || {
        Some(shown(&socket, &["ports"])).filter(|ports| !each(ports, "received").contains(&0))
    });
    assert_eq!(ports.len(), 4);
    for before in ports {
        let name = before["name"].as_str().expect("a name");
        browser.navigate(&format!("http://127.0.0.1:{port}/#/ports/{name}"));
        browser.until(&format!(
            "[...document.querySelectorAll('h2')].some((each) => each.textContent === {name:?})"
        ));
        let mac = before["mac"].as_str().expect("an address");
        browser.until(&format!("document.querySelector('main').textContent.includes({mac:?})"));
        for (fact, field) in [("Received", "received"), ("Sent", "sent")] {
            let least = before[field].as_u64().expect(field);
            let number = format!(
                "Number([...document.querySelectorAll('dt')].find((each) => each.textContent === {fact:?}) \
                 .nextElementSibling.textContent.split(' ')[0].replaceAll(',', ''))"
            );
            browser.until(&format!("{number} >= {least}"));
            let said = browser.evaluate(&number).as_u64().expect("a number");
            let after = shown(&socket, &["ports"]).into_iter().find(|each| each["name"] == name);
            let most = after.and_then(|each| each[field].as_u64()).expect(field);
            assert!(said <= most, "{name}, {field}: {said}, but `show` says {least}, then {most}");
        }
    }
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// One takes any port that is free; a second one finds its port taken, and neither disturbs the other.
#[test]
fn two_run_at_once() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_first, port, _) = start(one.path(), 0);
    eventually("the first serves", || Some(items(port, "/api/v1/ports")).filter(|ports| ports.len() == 4));
    let (_second, other, _) = start(two.path(), port);
    assert_ne!(port, other);
    for port in [port, other] {
        eventually("neighbors are up", || {
            let neighbors = items(port, "/api/v1/bgp/neighbors");
            neighbors.iter().all(|each| each["state"] == "Established").then_some(())
        });
    }
}
