//! Exports captures with the binary to other people's collectors. Their totals must equal those that tshark
//! counts in the captures.
#![cfg(target_os = "linux")]

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{root, thalweg};
use thalweg_testdata::collectors::{nfdump, pmacct, program, run, tshark};
use thalweg_testdata::{shared, uninterrupted, with_room};

/// Totals for IPv4 and IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// Totals by tshark, from the length fields of the outermost headers. Removes captures that tshark does not read
/// to the end, and captures with packets whose length fields lie.
fn counted_by_tshark(captures: &mut Vec<PathBuf>) -> Option<Totals> {
    let tshark = program("tshark", "tshark")?;
    let mut totals = Totals::default();
    captures.retain(|capture| match totals_of(&tshark, capture) {
        Some(Totals { packets, bytes }) => {
            for family in 0..2 {
                totals.packets[family] += packets[family];
                totals.bytes[family] += bytes[family];
            }
            true
        }
        None => false,
    });
    Some(totals)
}

fn totals_of(tshark: &Path, capture: &Path) -> Option<Totals> {
    let fields = ["ip.len", "ipv6.plen", "frame.len", "frame.protocols"].map(|name| ["-e", name]).concat();
    let options = ["-o", "ip.defragment:false", "-o", "ipv6.defragment:false"];
    let output = Command::new(tshark)
        .args(["-n", "-T", "fields", "-E", "occurrence=f", "-r"])
        .arg(capture)
        .args(fields)
        .args(options)
        .output()
        .expect("tshark runs");
    let mut totals = Totals::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [v4, v6, frame, protocols] = columns[..] else { panic!("{line}") };
        let number = |text: &str| text.parse::<u64>().ok();
        let outermost = protocols.split(':').find(|name| ["ip", "ipv6"].contains(name));
        let (family, bytes) = match outermost {
            Some("ip") => (0, number(v4)),
            Some(_) => (1, number(v6).map(|bytes| bytes + 40)),
            None => continue,
        };
        let bytes = bytes.filter(|bytes| Some(*bytes) <= number(frame))?;
        totals.packets[family] += 1;
        totals.bytes[family] += bytes;
    }
    output.status.success().then_some(totals)
}

/// Reads captures with the probe. Returns the messages that it sent to a collector of this protocol, and its
/// summary.
fn probed(captures: &[PathBuf], scheme: &str, more: &[&str]) -> (Vec<Vec<u8>>, serde_json::Value) {
    let socket = with_room(UdpSocket::bind("127.0.0.1:0").expect("a port is free"));
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("the timeout can be set");
    let to = format!("{scheme}://{}", socket.local_addr().expect("it has one"));
    let is_over = AtomicBool::new(false);
    let (messages, output) = std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let (mut messages, mut message) = (Vec::new(), [0; 65_536]);
            loop {
                match uninterrupted(|| socket.recv(&mut message)) {
                    Ok(bytes) => messages.push(message[..bytes].to_vec()),
                    Err(_) if is_over.load(Ordering::SeqCst) => return messages,
                    Err(_) => {}
                }
            }
        });
        let names: Vec<_> = captures.iter().map(|path| path.to_str().expect("the path is UTF-8")).collect();
        // Slow enough for a small receive buffer.
        let options = ["--export", &to, "--export-rate", "2000", "--format", "json"];
        let output = thalweg(&[&["probe"], &names[..], &options, more].concat());
        is_over.store(true, Ordering::SeqCst);
        (collector.join().expect("it reads"), output)
    });
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    (messages, serde_json::from_slice(&output.stdout).expect("one object"))
}

/// Flows, packets and bytes by nfcapd and nfdump.
fn by_nfdump(messages: &[Vec<u8>]) -> Option<[u64; 3]> {
    let (nfcapd, reader) = (program("nfcapd", "nfdump")?, program("nfdump", "nfdump")?);
    let mut collector = nfdump::Nfcapd::start(&nfcapd);
    nfdump::deliver(collector.port, messages);
    let (log, data) = collector.end();
    nfdump::check_log(&log);
    let totals = run(Command::new(reader).arg("-R").arg(data).arg("-I"));
    assert_eq!(nfdump::summary(&totals, "Sequence failures"), 0, "{log}");
    Some(["Flows", "Packets", "Bytes"].map(|name| nfdump::summary(&totals, name)))
}

fn by_pmacct(messages: &[Vec<u8>], more: &str) -> Option<[u64; 2]> {
    let keys = "src_host,dst_host,src_port,dst_port,proto,tos,vlan,in_iface,timestamp_start";
    let (rows, log) = pmacct::collect(messages, keys, more)?;
    pmacct::check_log(&log);
    Some(["PACKETS", "BYTES"].map(|name| pmacct::sum(&rows, name)))
}

/// Sends the captures to all three collectors in each protocol.
fn compare(mut captures: Vec<PathBuf>) {
    let Some(totals) = counted_by_tshark(&mut captures) else { return };
    assert!(!captures.is_empty());
    for (scheme, families) in [("v5", 1), ("v9", 2), ("ipfix", 2)] {
        let (messages, summary) = probed(&captures, scheme, &[]);
        let mut expected = [totals.packets, totals.bytes].map(|of| of[..families].iter().sum::<u64>());
        let outlet = &summary["outlets"][0];
        if outlet["lost"]["duration"].as_u64() > Some(0) {
            // NetFlow 5 cannot express a flow of several years, which captures read one after another can
            // produce.
            let sent = [&outlet["packets"], &outlet["bytes"]].map(|count| count.as_u64().expect("a number"));
            assert!(families == 1 && sent[0] < expected[0] && sent[1] < expected[1], "{outlet:#}");
            expected = sent;
        }
        if families == 2 {
            assert_eq!([&summary["packets_exported"], &summary["bytes_exported"]], expected, "{summary:#}");
            assert_eq!(outlet["lost"], serde_json::json!({}), "{outlet:#}");
        }
        if let Some([flows, packets, bytes]) = by_nfdump(&messages) {
            assert_eq!(
                (flows, [packets, bytes]),
                (outlet["records"].as_u64().unwrap_or(0), expected),
                "{scheme}"
            );
        }
        if let Some(sums) = by_pmacct(&messages, "") {
            assert_eq!(sums, expected, "{scheme}");
        }
        if let Some(text) = tshark::dissect(&messages) {
            tshark::check(&text, scheme);
        }
    }
}

#[test]
fn the_example_arrives_in_every_collector() {
    compare(vec![root().join("examples/small-office/office.pcapng")]);
}

#[test]
fn real_captures_arrive_in_every_collector() {
    let Some(folder) = shared("pcap/ndpi") else { return };
    let mut captures: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| is_capture(path) && path.metadata().is_ok_and(|file| file.len() < 2 << 20))
        .collect();
    captures.sort();
    assert!(captures.len() > 10, "{captures:?}");
    compare(captures);
}

fn is_capture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng")
}

/// With sampling of 1 in 2, a collector that renormalizes reports twice the sampled packets.
#[test]
fn sampling_is_multiplied() {
    let captures = [root().join("examples/small-office/office.pcapng")];
    for scheme in ["v9", "ipfix"] {
        let (messages, summary) = probed(&captures, scheme, &["--sample", "1:2"]);
        let exported = [&summary["packets_exported"], &summary["bytes_exported"]];
        let exported = exported.map(|count| count.as_u64().expect("a number"));
        assert!(exported[0] > 0 && summary["dropped"]["unsampled"].as_u64() > Some(0), "{summary:#}");
        if let Some(sums) = by_pmacct(&messages, "nfacctd_renormalize: true") {
            assert_eq!(sums, exported.map(|count| 2 * count), "{scheme}");
        }
    }
}
