//! Captures on a running router: what their files contain, when they end, and that they do not affect forwarding.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;
use thalweg_wire::pcapng::{Block, SectionReader};

use crate::offload::{self, converse, offloaded, socket};
use crate::programs::config;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Process, Site, eventually, has};

const THALWEG: &str = env!("CARGO_BIN_EXE_thalweg");

/// Starts the program's capture into a file of this name and waits until it has begun.
fn start(site: &Site, name: &str, arguments: &[&str]) -> Process {
    let (file, control) = (site.file(name).display().to_string(), site.file("router.sock"));
    let control = control.display().to_string();
    let begun = || site.log().matches("capturing ").count();
    let before = begun();
    let all = [&["capture"], arguments, &["--socket", &control, "-o", &file]].concat();
    let process = site.start(&site.router(), THALWEG, &all);
    eventually("the capture begins", || (begun() > before).then_some(()));
    process
}

/// Waits for a capture that ends by itself.
fn wait(capture: &mut Process) {
    eventually("the capture ends", || capture.has_ended().then_some(()));
}

/// What the captures printed at their ends, in order.
fn said(site: &Site) -> String {
    site.log().lines().rfind(|line| line.contains(" packets captured")).unwrap_or_default().to_owned()
}

/// For each packet of a file, the name of its interface and its frame.
fn packets(site: &Site, name: &str) -> Vec<(String, Vec<u8>)> {
    read(&fs::read(site.file(name)).expect("the capture is there"))
}

fn read(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (mut reader, mut at, mut packets) = (SectionReader::new(), 0, Vec::new());
    while at < bytes.len() {
        at += match reader.next_block(&bytes[at..]).expect("a block") {
            Block::Skip { len } | Block::Interface { len } => len,
            Block::Frame { len, frame } => {
                let packet = bytes[at + frame.at..at + frame.at + frame.captured_len].to_vec();
                let interface = reader.interfaces()[frame.interface].name.as_deref().unwrap_or_default();
                packets.push((String::from_utf8_lossy(interface).into_owned(), packet));
                len
            }
            Block::Need(_) => panic!("the file is cut"),
        };
    }
    packets
}

/// Interface, source and destination of IPv4 packets in Ethernet frames.
fn ends(packets: &[(String, Vec<u8>)]) -> Vec<(&str, String, String)> {
    let address = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(".");
    let ends = packets
        .iter()
        .map(|(interface, frame)| (interface, address(&frame[26..30]), address(&frame[30..34])));
    ends.map(|(interface, source, destination)| (interface.as_str(), source, destination)).collect()
}

/// Sends `count` echo requests, one after another; all must be answered.
fn ping(site: &Site, from: Host, to: &str, count: u32) -> String {
    site.said(&site.namespace(from), "ping", &["-c", &count.to_string(), "-i", "0.01", "-W", "5", to])
}

fn captures_under(arguments: &[&str]) {
    let Some(site) = Site::new() else { return };
    let mut router = site.run(&config("auto"), arguments);
    let mut before =
        start(&site, "arrived", &["arrived", "--filter", "icmp dst 198.51.100.2", "--count", "3"]);
    let mut behind = start(&site, "nat", &["nat", "--filter", "icmp dst 198.51.100.2", "-c", "3"]);
    let mut routed = start(&site, "route", &["route", "--port", "wan", "--filter", "icmp", "-c", "6"]);
    ping(&site, OFFICE, OUTSIDE.v4, 3);
    for capture in [&mut before, &mut behind, &mut routed] {
        wait(capture);
    }
    let from_office = |interface| (interface, OFFICE.v4.to_owned(), OUTSIDE.v4.to_owned());
    let translated = |interface| (interface, "198.51.100.1".to_owned(), OUTSIDE.v4.to_owned());
    let answer = ("lan", OUTSIDE.v4.to_owned(), OFFICE.v4.to_owned());
    assert_eq!(ends(&packets(&site, "arrived")), vec![from_office("lan"); 3]);
    assert_eq!(ends(&packets(&site, "nat")), vec![translated("lan"); 3]);
    // Behind the look-up, packets belong to their egress port and have its link header.
    let routed = packets(&site, "route");
    // The next request may be captured before an answer: order holds only within a flow.
    let (out, back): (Vec<_>, Vec<_>) = routed.into_iter().partition(|(interface, _)| interface == "wan");
    assert_eq!(ends(&out), vec![translated("wan"); 3]);
    assert_eq!(ends(&back), vec![answer; 3]);
    let to_outside = site.mac_of(&site.namespace(OUTSIDE), "eth0");
    assert!(out.iter().all(|(_, frame)| frame[..6] == to_outside));

    // The file has as many dropped packets as the counters.
    let dropped = |counters: &Value| counters["dropped"]["no-route"].as_u64().unwrap_or(0);
    let counted = dropped(&router.counters_add_up());
    let mut lost = start(&site, "dropped", &["--reason", "no-route"]);
    let pinged =
        site.output(&site.namespace(OFFICE), "ping", &["-c", "5", "-i", "0.01", "-W", "5", "192.0.2.1"]);
    assert!(!pinged.status.success());
    let counted = dropped(&router.counters_add_up()) - counted;
    assert!(lost.end(), "Ctrl-C ends a capture well: {}", site.log());
    // NAT translated the packet before the look-up found no route.
    let lost = packets(&site, "dropped");
    assert_eq!(
        ends(&lost),
        vec![("lan", "198.51.100.1".to_owned(), "192.0.2.1".to_owned()); counted as usize]
    );
    assert!(
        counted == 5 && said(&site).starts_with("5 packets captured (the client has enough"),
        "{}",
        said(&site)
    );
    comments_are_read(&site);

    // A capture continues after a reload.
    let mut over = start(&site, "over", &["nat", "--filter", "icmp dst 198.51.100.2", "-c", "4"]);
    ping(&site, OFFICE, OUTSIDE.v4, 2);
    let other = config("auto").replace("200 Mbit/s", "100 Mbit/s");
    router.reload(&other).expect("a valid configuration");
    ping(&site, GUEST, OUTSIDE.v4, 2);
    wait(&mut over);
    assert_eq!(
        ends(&packets(&site, "over")),
        [vec![translated("lan"); 2], vec![translated("guest"); 2]].concat()
    );
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

/// Another program can read the files.
fn comments_are_read(site: &Site) {
    if !has("tshark") {
        return;
    }
    let fields = |name: &str| {
        let file = site.file(name).display().to_string();
        let arguments = [
            "-r",
            &file,
            "-T",
            "fields",
            "-e",
            "frame.interface_name",
            "-e",
            "ip.src",
            "-e",
            "frame.comment",
        ];
        let output = site.output(&site.router(), "tshark", &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let sent = "in lan, class default, translated, out wan, next hop 198.51.100.2";
    assert_eq!(fields("nat"), vec![vec!["lan", "198.51.100.1", &format!("nat, {sent}")]; 3]);
    assert_eq!(fields("arrived"), vec![vec!["lan", "10.1.0.2", &format!("arrived, {sent}")]; 3]);
    let lost = "dropped, in lan, class default, dropped: no-route (No route to the destination.)";
    assert_eq!(fields("dropped"), vec![vec!["lan", "198.51.100.1", lost]; 5]);
}

#[test]
fn captures_run_to_completion() {
    captures_under(&[]);
}

#[test]
fn captures_in_a_pipeline() {
    captures_under(&["--model", "pipeline", "--workers", "3"]);
}

#[test]
fn captures_in_a_farm() {
    captures_under(&["--model", "farm", "--workers", "2"]);
}

/// Packets of the router itself have the TTL that hosts use (RFC 1122), and captures of sent packets contain
/// them.
#[test]
fn the_routers_own_packets_leave_whole() {
    let Some(site) = Site::new() else { return };
    let router = site.run(&config("auto"), &[]);
    let mut own = start(&site, "own", &["sent", "--port", "lan", "--filter", "icmp src 10.1.0.1", "-c", "3"]);
    assert!(ping(&site, OFFICE, OFFICE.gateway_v4, 2).contains(" ttl=64 "));
    site.output(&site.namespace(OFFICE), "ping", &["-c", "1", "-W", "5", "-t", "1", OUTSIDE.v4]);
    wait(&mut own);
    let own = packets(&site, "own");
    let kinds: Vec<(u8, u8)> = own.iter().map(|(_, frame)| (frame[34], frame[22])).collect();
    assert_eq!(kinds, [(0, 64), (0, 64), (11, 64)], "types and TTLs");
    let mut six = start(
        &site,
        "six",
        &[
            "sent",
            "--filter",
            "ipv6 icmp src 2001:db8:1::1 dst 2001:db8:1::2 not dst fe80::/10",
            "--seconds",
            "2",
        ],
    );
    ping(&site, OFFICE, OFFICE.gateway_v6, 2);
    wait(&mut six);
    let answers: Vec<u8> = packets(&site, "six")
        .iter()
        .filter(|(_, frame)| frame[54] == 129)
        .map(|(_, frame)| frame[21])
        .collect();
    assert_eq!(answers, [64, 64], "hop limits");
    router.counters_add_up();
}

/// The number of captures is limited, and a capture without a stop condition ends with its client.
#[test]
fn captures_are_limited_and_end_with_their_clients() {
    let Some(site) = Site::new() else { return };
    let router = site.run(&config("auto"), &[]);
    let mut captures: Vec<Process> =
        (0..4).map(|n| start(&site, &format!("file{n}"), &["dropped", "--port", "lan"])).collect();
    let control = site.file("router.sock").display().to_string();
    let file = site.file("more").display().to_string();
    let one_more = |arguments: &[&str]| {
        let all = [&["capture"], arguments, &["--socket", &control, "-o", &file]].concat();
        let output = site.output(&site.router(), THALWEG, &all);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (done, why) = one_more(&["nat", "--seconds", "1"]);
    assert!(!done && why.contains("4 captures are running already: stop one first"), "{why}");
    assert!(!site.file("more").exists(), "no file of a capture that did not begin");
    captures.remove(1).kill();
    eventually("its place is free", || one_more(&["nat", "--seconds", "1"]).0.then_some(()));
    assert_eq!(packets(&site, "more"), []);
    for (arguments, mistake) in [
        (&["nut"][..], "nothing is called `nut`"),
        (&["--port", "dmz"], "no port is called `dmz`: expected one of lan, guest, wan"),
        (&["--reason", "none"], "no reason is called `none`"),
        (&["--filter", "src 10.0.0.0/8 prot 17"], "column 16: `prot`, expected ip,"),
    ] {
        let (done, why) = one_more(arguments);
        assert!(!done && why.contains(mistake), "{why}");
    }
    router.counters_add_up();
}

/// If a client does not read, its packets are counted as not captured, and still forwarded.
#[test]
fn a_slow_reader_loses_counted_packets_only() {
    let Some(site) = Site::new() else { return };
    let router = site.run(&config("auto"), &[]);
    let mut stream = UnixStream::connect(site.file("router.sock")).expect("the router listens");
    stream
        .write_all(b"{\"request\":\"capture\",\"point\":\"arrived\",\"filter\":\"udp dport 9\"}\n")
        .expect("it reads");
    let mut reader = BufReader::new(stream.try_clone().expect("descriptors are left"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    assert!(line.contains("\"point\":\"arrived\""), "{line}");

    let client = site.within(&site.namespace(OFFICE), || UdpSocket::bind("0.0.0.0:0").expect("a port"));
    let came = || router.one("counters")["received"].as_u64().expect("a number");
    let before = came();
    eventually("more packets arrived than fit into the queue", || {
        for number in 0..2000u32 {
            client.send_to(&number.to_be_bytes(), (OUTSIDE.v4, 9)).expect("sending succeeds");
            if number % 64 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        (came() - before > 20_000).then_some(())
    });
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("the whole answer arrives");
    let end = rest.windows(9).rposition(|bytes| bytes == b"{\"item\":{").expect("a summary");
    let (file, summary) = rest.split_at(end);
    let summary: Value =
        serde_json::from_str(String::from_utf8_lossy(summary).lines().next().expect("a line")).expect("JSON");
    let number = |name: &str| summary["item"][name].as_u64().expect("a number");
    assert_eq!(number("captured"), read(file).len() as u64);
    assert_eq!(number("wanted"), number("captured") + number("queue_full"));
    assert!(number("queue_full") > 5000 && number("captured") > 8000, "{summary}");
    router.counters_add_up();
}

/// While a capture would miss them, flows in the kernel return to the router.
#[test]
fn offload_pauses() {
    let Some(site) = Site::new() else { return };
    let router = site.run(&offload::config(""), &[]);
    eventually("all are known", || site.pings(GUEST, OFFICE.v4).then_some(()));
    let (office, guest) = (site.namespace(OFFICE), site.namespace(GUEST));
    let (client, server) = (socket(&site, &guest, "0.0.0.0:0"), socket(&site, &office, "10.1.0.2:7"));
    converse(&client, &server, "10.1.0.2:7", 300);
    let before = offloaded(&router);
    assert!(before > 100, "{before} of 600 packets were forwarded by the kernel");

    let mut lost = start(&site, "lost", &["dropped"]);
    assert!(!site.log().contains("offload is paused"), "none of these is dropped");
    lost.end();
    let mut all = start(&site, "all", &["sent", "--filter", "udp port 7"]);
    assert!(site.log().contains("offload is paused meanwhile (ports lan, guest, wan)"), "{}", site.log());
    let before = offloaded(&router);
    converse(&client, &server, "10.1.0.2:7", 200);
    assert_eq!(offloaded(&router), before);
    all.end();
    assert_eq!(packets(&site, "all").len(), 400, "each packet is in the file");

    converse(&client, &server, "10.1.0.2:7", 300);
    assert!(offloaded(&router) > before + 100, "the kernel forwards again");
    router.counters_add_up();
}

/// The configuration sets the path of the control socket, without BGP too.
#[test]
fn the_control_socket_is_configured() {
    let Some(site) = Site::new() else { return };
    let (file, control) = (site.file("control.toml"), site.file("elsewhere.sock").display().to_string());
    fs::write(&file, format!("[control]\nsocket = \"elsewhere.sock\"\n\n{}", config("auto")))
        .expect("the folder is writable");
    let mut router = site.start(&site.router(), THALWEG, &["run", &file.display().to_string()]);
    let show = |what| site.output(&site.router(), THALWEG, &["show", what, "--socket", &control]);
    eventually("the router answers on the configured socket", || {
        show("ports").status.success().then_some(())
    });
    fs::write(&file, config("auto")).expect("the folder is writable");
    let reloaded = site.output(&site.router(), THALWEG, &["reload", "--socket", &control]);
    let text = String::from_utf8_lossy(&reloaded.stdout).into_owned();
    assert!(text.contains("[control] changed: it takes effect with a restart"), "{text}");
    assert!(router.end(), "the router stops with success");
}
