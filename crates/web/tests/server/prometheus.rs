//! The real Prometheus scrapes the server.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thalweg_testdata::free_port;

use crate::client::get;
use crate::router::Fixture;

/// Where Debian's package may be unpacked.
const PROGRAMS: [&str; 2] = ["/usr/bin/prometheus", "/opt/prometheus/usr/bin/prometheus"];

/// The time limit, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prometheus_takes_every_sample() {
    let Some(program) = PROGRAMS.into_iter().find(|path| Path::new(path).exists()) else {
        eprintln!("SKIPPED: no prometheus (Debian's package) at any of {PROGRAMS:?}");
        return;
    };
    let server = Fixture::open();
    let (address, folder) = (SocketAddr::from(([127, 0, 0, 1], free_port())), server.folder.path());
    let config = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n  - job_name: thalweg\n    static_configs: [{{ targets: [\"{}\"] }}]\n",
        server.address()
    );
    std::fs::write(folder.join("prometheus.yml"), config).expect("writing");
    let child = Command::new(program)
        .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let _process = Process(child);
    let begun = Instant::now();
    let value = |query: &str| {
        loop {
            if TcpStream::connect(address).is_ok() {
                let answer = get(address, &format!("/api/v1/query?query={query}"));
                // While it starts, Prometheus answers 503.
                let value = (answer.status == 200).then(|| answer.json());
                if let Some(value) =
                    value.as_ref().and_then(|value| value["data"]["result"][0]["value"][1].as_str())
                {
                    return value.to_owned();
                }
            }
            assert!(begun.elapsed() < DEADLINE, "no {query}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    assert_eq!(value("thalweg_uptime_seconds"), "3600");
    assert_eq!(value("up"), "1");
    assert_eq!(value("sum(thalweg_port_received_packets_total)"), "14");
    let lines = get(server.address(), "/metrics").text();
    let samples = lines.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(value("scrape_samples_scraped"), samples.to_string());
}
