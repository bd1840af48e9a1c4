//! Programs that several tests use as hosts do: curl and a server of pages, dig, iperf3; and examples of the repository
//! as they stand.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use thalweg_testdata::uninterrupted;

use crate::site::{Host, Site, eventually};

/// A file of an example.
pub(crate) fn example(name: &str, file: &str) -> String {
    let examples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    std::fs::read_to_string(examples.join(name).join(file)).expect("the example")
}

/// Gives the router's interfaces the names that examples use: eth0, eth1, eth2. So configurations need no change.
pub(crate) fn name_as_examples(site: &Site, hosts: [Host; 3]) {
    for (number, host) in hosts.iter().enumerate() {
        for change in ["down".to_owned(), format!("name eth{number}")] {
            site.ip(&site.router(), &format!("link set dev {} {change}", host.port));
        }
        site.ip(&site.router(), &format!("link set dev eth{number} up"));
    }
}

/// A web server. Its only page says who asks, and behind which of the router's ports it is itself.
pub(crate) struct Web {
    stop: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Web {
    pub(crate) fn new(site: &Site, host: Host, at: &str) -> Self {
        let listener = site.within(&site.namespace(host), || TcpListener::bind(at)).expect("a port");
        listener.set_nonblocking(true).expect("a listener that does not wait");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let server = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A client whose way has died is gone; the next one may come.
                    Ok((stream, _)) => {
                        answer(stream, host).unwrap_or_else(|gone| println!("a client is gone: {gone}"))
                    }
                    Err(nobody) => {
                        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock, "{nobody}");
                        thread::sleep(Duration::from_millis(10));
                    }
                }
            }
        });
        Self { stop, server: Some(server) }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.server.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the web server does not panic");
    }
}

fn answer(mut stream: TcpStream, host: Host) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let page = asked(&stream.peer_addr()?.ip().to_canonical().to_string(), host);
    uninterrupted(|| stream.read(&mut [0; 1024]))?;
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len())
}

/// The page of a `Web` for who asks from an address.
pub(crate) fn asked(from: &str, host: Host) -> String {
    format!("{from} asks at {}", host.port)
}

/// The page that curl fetches.
pub(crate) fn curl(site: &Site, from: Host, url: &str) -> Option<String> {
    let output = site.output(&site.namespace(from), "curl", &["-s", "-S", "-g", "-m", "2", url]);
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a server says of a name.
pub(crate) fn dig(site: &Site, namespace: &str, server: &str, kind: &str, name: &str) -> Option<String> {
    let asked = format!("@{server}");
    let output = site.output(namespace, "dig", &[&asked, "+short", "+time=2", "+tries=1", kind, name]);
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !said.is_empty()).then_some(said)
}

/// Sends by iperf3 to an address of another host; `more` has the amount. Returns who sent in the eyes of the server, and
/// how many bytes.
pub(crate) fn iperf3(site: &Site, from: Host, (to, address): (Host, &str), more: &[&str]) -> (String, u64) {
    let _server = site.start(&site.namespace(to), "iperf3", &["-s", "-J"]);
    let arguments = ["-c", address, "-J", "--get-server-output", "--connect-timeout", "2000"];
    eventually("iperf3 sends", || {
        let output = site.output(&site.namespace(from), "iperf3", &[&arguments, more].concat());
        // It says why it failed in JSON too, as while nothing listens yet.
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let who = said["server_output_json"]["start"]["accepted_connection"]["host"].as_str()?;
        Some((who.to_owned(), said["end"]["sum_sent"]["bytes"].as_u64()?))
    })
}
