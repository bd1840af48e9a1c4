//! The HTTP API of a running router, in its process and in one of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::router::{Router, eventually, free_port, neighbor, speaker};

/// The body of an answer to GET; `None` while nobody listens.
pub(crate) fn get(port: u16, path: &str, accept: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let head = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut reader = BufReader::new(stream);
    let mut status = String::new();
    reader.read_line(&mut status).ok()?;
    let mut text = String::new();
    reader.read_to_string(&mut text).ok()?;
    let (_, body) = text.split_once("\r\n\r\n")?;
    Some((status.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

#[track_caller]
fn body(port: u16, path: &str) -> String {
    // Who asks all the time is told to wait, and so is everybody while too many are connected.
    let taken = |(status, _): &(u16, String)| ![429, 503].contains(status);
    let (status, body) = eventually("the API answers", || get(port, path, "*/*").filter(taken));
    assert_eq!(status, 200, "{path}: {body}");
    body
}

pub(crate) fn json(port: u16, path: &str) -> Value {
    serde_json::from_str(&body(port, path)).expect("JSON")
}

/// A process that is killed when dropped.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn thalweg_web(config: &Path, router: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    let child = command.arg("web").arg(config).arg("--socket").arg(router).stderr(Stdio::null()).spawn();
    Process(child.expect("the binary runs"))
}

#[test]
fn the_api_says_what_show_says() {
    let directory = tempfile::tempdir().unwrap();
    let (bgp_port, port, second_port) = (free_port(), free_port(), free_port());
    let web = |port| format!("[web]\nlisten = \"127.0.0.1:{port}\"\n");
    let one = format!("{}{}networks = [\"198.51.100.0/24\"]\n", web(port), speaker(1, bgp_port));
    let one = Router::start(directory.path(), "one", &format!("{one}{}", neighbor(1, 2, bgp_port)));
    let two =
        format!("{}networks = [\"203.0.113.0/24\"]\n{}", speaker(2, bgp_port), neighbor(2, 1, bgp_port));
    let two = Router::start(directory.path(), "two", &two);
    one.await_established("r2");
    one.await_route("203.0.113.0/24");
    two.await_route("198.51.100.0/24");

    let alone = directory.path().join("web.toml");
    std::fs::write(&alone, web(second_port)).unwrap();
    let second = thalweg_web(&alone, &directory.path().join("one.sock"));
    for port in [port, second_port] {
        let items = |path: &str| json(port, path)["items"].as_array().expect("a list").clone();
        let mut routes = items("/api/v1/bgp/routes");
        // Routes grow older between two answers.
        routes.iter_mut().for_each(|route| route["age_s"] = 0.into());
        let mut shown = one.json(&["bgp", "routes"]);
        shown.iter_mut().for_each(|route| route["age_s"] = 0.into());
        assert_eq!((routes.len(), &routes), (2, &shown));
        assert_eq!(items("/api/v1/bgp/update-groups"), one.json(&["bgp", "update-groups"]));
        assert_eq!(json(port, "/api/v1/bgp/rib"), one.one(&["bgp", "rib"]));
        let neighbor = json(port, "/api/v1/bgp/neighbors/r2");
        assert_eq!((&neighbor["state"], &neighbor["accepted"]), (&"Established".into(), &1.into()));
        let first = json(port, "/api/v1/bgp/routes?limit=1");
        let cursor = first["cursor"].as_str().expect("there is more");
        let second = json(port, &format!("/api/v1/bgp/routes?limit=1&cursor={cursor}"));
        assert_eq!(second["cursor"], Value::Null);
        let prefixes = [&first["items"][0]["prefix"], &second["items"][0]["prefix"]];
        assert_eq!(prefixes, [&shown[0]["prefix"], &shown[1]["prefix"]]);
        let metrics = body(port, "/metrics");
        assert!(metrics.contains("thalweg_bgp_neighbor_up{neighbor=\"r2\"} 1\n"), "{metrics}");
        assert!(metrics.contains("thalweg_bgp_prefixes{family=\"ipv4\"} 2\n"), "{metrics}");
        assert!(
            metrics.contains("thalweg_bgp_neighbor_messages_received_total{neighbor=\"r2\",type=\"open\"} ")
        );
        assert!(!metrics.contains("thalweg_port_"), "it has no ports:\n{metrics}");
    }
    let denies_itself = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let kinds = ["NoNewPrivs:", "Seccomp:"];
        status.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(kind))).collect::<String>()
    };
    assert_eq!(denies_itself(second.0.id()), denies_itself(one.pid()), "the same sandbox");
    let (status, absent) = get(port, "/api/v1/ports", "*/*").expect("an answer");
    assert!(status == 404 && absent.contains("urn:thalweg:problem:absent"), "{absent}");
}
