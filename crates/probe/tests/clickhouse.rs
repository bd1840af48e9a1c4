//! Records in a table of a real ClickHouse server. Debian 12 has version 18.16, which knows fewer types than the
//! shipped table uses; types of the same bytes take their places, so the bytes of the rows are tested all the same.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Traffic, folder, options, run};
use thalweg_ports::ask::WebServer;
use thalweg_ports::collector::ClickHouseAddress;
use thalweg_probe::{ExportTargets, ProbeOptions};
use thalweg_store::query::clickhouse::Table;
use thalweg_store::query::{Key, Metric, Query};
use thalweg_store::{Filter, StoreError, Window};
use thalweg_testdata::free_port;

/// A server on loopback.
struct Server {
    child: Child,
    folder: tempfile::TempDir,
    program: PathBuf,
    port: u16,
}

impl Server {
    /// `None` if the program is not there.
    fn start() -> Option<Self> {
        let places = ["/usr/sbin/clickhouse-server", "/usr/bin/clickhouse-server"];
        let unpacked = "/opt/clickhouse/usr/sbin/clickhouse-server";
        let program = places.into_iter().chain([unpacked]).map(PathBuf::from).find(|path| path.exists())?;
        let folder = tempfile::tempdir().unwrap();
        let (port, tcp_port) = (free_port(), free_port());
        let path = folder.path().display();
        let config = format!(
            "<yandex><logger><level>warning</level><console>1</console></logger><http_port>{port}</http_port><tcp_port>{tcp_port}</tcp_port><listen_host>127.0.0.1</listen_host>
            <path>{path}/data/</path><tmp_path>{path}/tmp/</tmp_path><mark_cache_size>67108864</mark_cache_size>
            <users_config>{path}/users.xml</users_config><default_profile>default</default_profile>
            <default_database>default</default_database></yandex>"
        );
        let users = "<yandex><profiles><default></default></profiles><quotas><default></default></quotas><users>
            <probe><password>secret</password><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
            <quota>default</quota></probe></users></yandex>";
        std::fs::write(folder.path().join("config.xml"), config).unwrap();
        std::fs::write(folder.path().join("users.xml"), users).unwrap();
        std::fs::write(folder.path().join("password"), "secret\n").unwrap();
        let mut server = Self { child: spawn(&program, folder.path()), folder, program, port };
        server.wait();
        Some(server)
    }

    /// Kills it without notice and starts it again.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = spawn(&self.program, self.folder.path());
        self.wait();
    }

    /// Waits until it answers.
    fn wait(&mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert_eq!(self.child.try_wait().unwrap(), None, "the server ended");
            assert!(Instant::now() < until, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&self, question: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let length = question.len();
        // Of HTTP/1.0 an answer is not in chunks.
        let request = format!(
            "POST / HTTP/1.0\r\nX-ClickHouse-User: probe\r\nX-ClickHouse-Key: secret\r\nContent-Length: {length}\r\n\r\n{question}"
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 OK"), "{question}: {answer}");
        body.trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &Path, folder: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg(format!("--config-file={}", folder.join("config.xml").display())).current_dir(folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The shipped table, with types and an engine of the old server.
fn old_table() -> String {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/clickhouse/flows.sql");
    let text = std::fs::read_to_string(shipped).unwrap();
    let start = text.find("CREATE TABLE").unwrap();
    let end = text.find("ENGINE = MergeTree").unwrap();
    let lines = text[start..end].lines().map(|line| match line.split_once(" COMMENT ") {
        Some((column, comment)) => format!("{column}{}\n", if comment.ends_with(',') { "," } else { "" }),
        None => format!("{line}\n"),
    });
    let mut table: String = lines.collect();
    for (new, old) in [
        ("DateTime64(9, 'UTC')", "Int64"),
        ("IPv6", "FixedString(16)"),
        ("LowCardinality(Nullable(String))", "Nullable(String)"),
        ("LowCardinality(String)", "String"),
    ] {
        table = table.replace(new, old);
    }
    table + "ENGINE = MergeTree PARTITION BY tuple() ORDER BY flow_end"
}

fn address_of(server: &Server) -> String {
    let password = server.folder.path().join("password");
    format!(
        "clickhouse://127.0.0.1:{}/flows?user=probe&password_file={}&wait_ms=100",
        server.port,
        password.display()
    )
}

/// The questions of `thalweg flows --url` to the table, in the words of the old server.
fn asks_as_flows_does(address: &str, traffic: &Traffic) {
    let address: ClickHouseAddress = address.parse().unwrap();
    let server = WebServer::clickhouse(&address, None).unwrap();
    let ask = |statement: &str| {
        let words = [
            ("fromUnixTimestamp64Nano(toInt64(", "(toInt64("),
            (", 'UTC')", ")"),
            ("toUnixTimestamp64Nano(", "toInt64("),
            ("toIPv6(", "IPv6StringToNum("),
        ];
        let old = words.iter().fold(statement.to_owned(), |text, (new, old)| text.replace(new, old));
        let answer = server.post(&format!("{old} FORMAT JSONEachRow"));
        answer.map_err(|error| StoreError::Asked(format!("{old}: {error}")))
    };
    let table = Table { name: "flows", ask: &ask };
    let query = |filter: &str| Query::new(Window::ALL, Filter::parse(filter).unwrap());
    let keys: Vec<Key> =
        ["src", "dst", "src-port", "dst-port", "proto"].map(|key| key.parse().unwrap()).into();
    let all = table.top(&query("any"), &keys, Metric::Bytes, usize::MAX >> 1).unwrap();
    assert_eq!((all.keys as usize, all.total.packets), (traffic.sums.len(), traffic.ip_packets()));
    let mut told = std::collections::BTreeMap::new();
    for row in all.rows {
        let text: Vec<String> = row.key.iter().map(ToString::to_string).collect();
        told.insert(text.join(" "), (row.sums.packets, row.sums.bytes));
    }
    let sums = traffic.sums.iter();
    let sent = sums.map(|((src, dst, src_port, dst_port, protocol), sums)| {
        (format!("{src} {dst} {src_port} {dst_port} {protocol}"), *sums)
    });
    assert_eq!(told, sent.collect());
    let tcp = traffic.sums.iter().filter(|((src, .., protocol), _)| *protocol == 6 && src.is_ipv4());
    let packets: u64 = tcp.map(|(_, (packets, _))| packets).sum();
    let filtered =
        query("tcp and net 0.0.0.0/0 and not ipv6 and duration >= 0 and packets > 0 and not event any");
    let host = table.top(&filtered, &["host".parse().unwrap()], Metric::Packets, 5).unwrap();
    assert_eq!((host.total.packets, host.rows.len() as u64), (packets, host.keys.min(5)));
}

/// What is metered is in the table, flow by flow, also what is metered while the server is killed.
#[test]
fn a_table_has_what_was_metered_although_the_server_was_killed() {
    let Some(mut server) = Server::start() else {
        println!("SKIPPED a_table_has_what_was_metered: no clickhouse-server (Debian: clickhouse-server)");
        return;
    };
    server.ask(&old_table());
    let traffic = Traffic::mixed(8_000, 500, 21);
    let (_folder, capture, lines) = folder(&traffic);
    let address = address_of(&server);
    let export = ExportTargets { addresses: vec![address.clone()], ..ExportTargets::default() };
    let options = ProbeOptions { export, ..options(&capture, &lines) };
    let summary = run(&options);
    let outlet = summary.outlets.last().unwrap();
    assert_eq!((outlet.records, outlet.lost.len()), (summary.records_exported, 0), "{outlet:?}");
    // By flow, from the lines of the same run.
    let sums = "SELECT src_port, dst_port, protocol, count(), sum(packets), sum(bytes), min(flow_start), max(flow_end), \
                hex(any(src)) FROM flows GROUP BY src, dst, src_port, dst_port, protocol ORDER BY src, dst, src_port, dst_port, protocol";
    let first = server.ask(sums);
    assert_eq!(first.lines().count(), traffic.sums.len());
    let packets = |flows: &str| -> u64 {
        flows.lines().map(|line| line.split('\t').nth(4).unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!(packets(&first), traffic.ip_packets());
    let bytes = traffic.sums.values().map(|(_, bytes)| bytes).sum::<u64>();
    assert_eq!(server.ask("SELECT sum(bytes) FROM flows"), bytes.to_string());
    for ((src, dst, src_port, dst_port, protocol), (packets, bytes)) in traffic.sums.iter().take(50) {
        let hex = |address: &std::net::IpAddr| match address {
            std::net::IpAddr::V4(v4) => format!("{:032X}", v4.to_ipv6_mapped().to_bits()),
            std::net::IpAddr::V6(v6) => format!("{:032X}", v6.to_bits()),
        };
        let told = server.ask(&format!(
            "SELECT sum(packets), sum(bytes) FROM flows WHERE src = unhex('{}') AND dst = unhex('{}') AND src_port = \
             {src_port} AND dst_port = {dst_port} AND protocol = {protocol}",
            hex(src),
            hex(dst)
        ));
        assert_eq!(told, format!("{packets}\t{bytes}"));
    }
    let span = server.ask("SELECT min(flow_start), max(flow_end) FROM flows");
    let times = traffic.frames.iter().map(|(at, _)| *at);
    assert_eq!(span, format!("{}\t{}", times.clone().min().unwrap(), times.max().unwrap()));
    asks_as_flows_does(&address, &traffic);
    // The same again while it is down: the end of the run waits until it is back.
    server.kill();
    let summary = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&options));
        server.start_again();
        running.join().unwrap()
    });
    let outlet = summary.outlets.last().unwrap();
    assert_eq!((outlet.records, outlet.lost.len()), (summary.records_exported, 0), "{outlet:?}");
    assert_eq!(packets(&server.ask(sums)), 2 * traffic.ip_packets());
}
