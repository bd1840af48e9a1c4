//! The flows of real captures, counted by another program.

#[path = "ndpi/list.rs"]
mod list;
#[path = "ndpi/meter.rs"]
mod meter;

use std::path::PathBuf;
use thalweg_base::PacketFlags;

fn captures() -> Vec<(String, PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for folder in ["ndpi", "ndpi-head"] {
        let Some(path) = thalweg_testdata::shared(&format!("pcap/{folder}")) else { continue };
        for entry in std::fs::read_dir(path).expect("a folder").flatten() {
            let path = entry.path();
            let list = PathBuf::from(format!("{}.out", path.display()));
            if list.exists() {
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                found.push((name, path, list));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn flows_are_those_of_ndpi() {
    for (name, path, list) in captures() {
        let listed = list::read(&list);
        let capture = meter::meter(&path, |packet, _| {
            packet.flags.has(PacketFlags::LATER_FRAGMENT).then_some("later fragment")
        });
        let mut same = 0;
        let mut diffs = vec![];
        for (ends, l) in &listed {
            match capture.flows.get(ends) {
                Some(m) if m.counted == l.counted => same += 1,
                Some(m) => diffs.push(format!("  other {ends:?} {:?} ours {:?}", l.counted, m.counted)),
                None => diffs.push(match capture.flows.get(&ends.reversed()) {
                    Some(m) => format!("  reversed {ends:?} {:?} {:?}", l.counted, m.counted),
                    None => format!("  missing {ends:?} {:?}", l.counted),
                }),
            }
        }
        for (ends, m) in &capture.flows {
            if !listed.contains_key(ends) && !listed.contains_key(&ends.reversed()) {
                diffs.push(format!("  more {ends:?} {:?}", m.counted));
            }
        }
        println!(
            "{name}: {} packets, {} flows listed, {} metered, {same} same, left out {:?}",
            capture.packets,
            listed.len(),
            capture.flows.len(),
            capture.left_out
        );
        for d in diffs.iter().take(12) {
            println!("{d}");
        }
        if diffs.len() > 12 {
            println!("  ... {} in all", diffs.len());
        }
    }
}
