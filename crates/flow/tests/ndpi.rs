//! Compares the flows of real captures with those that nDPI's `ndpiReader` counted: Debian's version (4.2) and a
//! later one.
//!
//! Every flow of every list is compared: addresses, ports, protocol, VLAN, packets and bytes in each direction,
//! and the initiator. What nDPI does differently is a [`Difference`]; [`DIFFERENCES`] has their numbers by
//! capture. Everything else must be equal, except for [`EXCEPTIONS`]. `docs/flows.md` has the same for readers.

#[path = "ndpi/list.rs"]
mod list;
#[path = "ndpi/meter.rs"]
mod meter;
#[path = "ndpi/names.rs"]
mod names;

use list::Counted;
use meter::Difference::{self, *};
use std::path::PathBuf;

/// Packets that nDPI treats differently, by capture. Other captures have none.
const DIFFERENCES: &[(&str, &[(Difference, u64)])] = &[
    ("ndpi/4in4tunnel.pcap", &[(InnerTag, 5)]),
    ("ndpi/badpackets.pcap", &[(ClaimsMore, 93)]),
    ("ndpi/capwap.pcap", &[(CapwapWithoutIp, 162)]),
    ("ndpi/dns_fragmented.pcap", &[(LaterFragment, 7)]),
    ("ndpi/dnscrypt-v1-and-resolver-pings.pcap", &[(LaterFragment, 120)]),
    (
        "ndpi/fuzz-2006-06-26-2594.pcap",
        &[(LaterFragment, 28), (ClaimsMore, 23), (CutHeader, 1), (OtherEtherType, 19)],
    ),
    ("ndpi/ip_fragmented_garbage.pcap", &[(LaterFragment, 9048), (CutHeader, 29)]),
    ("ndpi/ipv6_in_gtp.pcap", &[(InnerTag, 2)]),
    ("ndpi/reasm_crash_anon.pcapng", &[(ClaimsMore, 9)]),
    ("ndpi/teredo.pcap", &[(Teredo, 24)]),
];

/// A flow that differs from the list.
struct Exception {
    capture: &'static str,
    /// Source and destination port, which identify it.
    ports: (u16, u16),
    listed: Option<Counted>,
    ours: Option<Counted>,
    why: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        capture: "ndpi/synscan.pcap",
        ports: (36050, 22),
        listed: Some([(5, 298), (0, 0)]),
        ours: Some([(1, 58), (4, 240)]),
        why: "nDPI totals four answers as the client's; they come from 64.13.134.52, as tcpdump has it",
    },
    Exception {
        capture: "ndpi/fuzz-2006-06-26-2594.pcap",
        ports: (27315, 0),
        listed: Some([(1, 86), (0, 0)]),
        ours: None,
        why: "an IPv4 header that says it has four bytes, of which nDPI takes the next for ports",
    },
];

struct Capture {
    name: String,
    path: PathBuf,
    list: PathBuf,
}

/// Captures with a list beside them.
fn captures() -> Vec<Capture> {
    let mut found = Vec::new();
    for folder in ["ndpi", "ndpi-head"] {
        let Some(path) = thalweg_testdata::shared(&format!("pcap/{folder}")) else { continue };
        for entry in std::fs::read_dir(path).expect("a folder").flatten() {
            let path = entry.path();
            let list = PathBuf::from(format!("{}.out", path.display()));
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if list.exists() {
                found.push(Capture { name, path, list });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

#[test]
fn flows_are_those_of_ndpi() {
    let (mut flows, mut packets, mut exceptions) = (0, 0, 0);
    for Capture { name, path, list } in captures() {
        let listed = list::read(&list);
        let capture = meter::meter(&path);
        let expected = DIFFERENCES.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, counts)| counts);
        let differences: Vec<(Difference, u64)> = capture.differences.into_iter().collect();
        assert_eq!(differences, expected, "{name}");
        let mut all: Vec<_> = listed.keys().chain(capture.flows.keys()).collect();
        all.sort();
        all.dedup();
        for ends in all {
            let theirs = listed.get(ends).map(|flow| flow.counted);
            let ours = capture.flows.get(ends).map(|flow| flow.counted);
            let exception = EXCEPTIONS
                .iter()
                .find(|exception| exception.capture == name && exception.ports == (ends.src.1, ends.dst.1));
            match exception {
                Some(exception) => {
                    assert_eq!(
                        (theirs, ours),
                        (exception.listed, exception.ours),
                        "{name}: {}",
                        exception.why
                    );
                    exceptions += 1;
                }
                None => assert_eq!(theirs, ours, "{name}: {ends:?}, nDPI's and ours"),
            }
            flows += u64::from(theirs.is_some());
            packets += theirs.map_or(0, |[(there, _), (back, _)]| there + back);
        }
    }
    if flows > 0 {
        println!("{flows} flows of {packets} packets compared, {exceptions} of them exceptions");
        assert_eq!((flows, exceptions), (4589, EXCEPTIONS.len()));
    }
}

/// The same with the crate's own meter and biflows, for captures from which nDPI only leaves out packets.
#[test]
fn the_meter_counts_as_ndpi_does() {
    let mut flows = 0;
    for Capture { name, path, list } in captures() {
        let differences =
            DIFFERENCES.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, counts)| counts);
        if !differences.iter().all(|(difference, _)| difference.leaves_out()) {
            continue;
        }
        let mut listed: Vec<_> =
            list::read(&list).into_iter().map(|(ends, flow)| (ends, flow.counted)).collect();
        let ours = meter::meter_in_earnest(&path).into_iter();
        let mut ours: Vec<_> = ours.map(|(ends, (counted, ..))| (ends, counted)).collect();
        for exception in EXCEPTIONS.iter().filter(|exception| exception.capture == name) {
            listed.retain(|(ends, _)| exception.ports != (ends.src.1, ends.dst.1));
            ours.retain(|(ends, _)| exception.ports != (ends.src.1, ends.dst.1));
        }
        listed.sort();
        ours.sort();
        for (theirs, ours) in listed.iter().zip(&ours) {
            assert_eq!(theirs, ours, "{name}: nDPI's and ours");
        }
        assert_eq!(listed.len(), ours.len(), "{name}");
        flows += ours.len();
    }
    println!("{flows} flows");
}

#[test]
fn applications_are_those_of_ndpi() {
    names::compare();
}

#[test]
fn records_have_the_applications_of_ndpi() {
    names::compare_records();
}
