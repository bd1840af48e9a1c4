//! `[dpdk]`: how DPDK is started.

use std::ops::RangeInclusive;

use crate::diagnostic::ErrorKind;
use crate::key::{Differs, Key, Sub, table};
use crate::ports::Ports;
use crate::reader::{Item, Reader};
use crate::section::Section;
use crate::types::{DpdkConfig, Driver};

pub(crate) static DPDK: Key<Sub> =
    Key::section("dpdk", &TABLE).help("where a port has `driver = \"dpdk\"`: [DPDK](drivers.md#dpdk)");
table! {
    static TABLE: "dpdk", "[dpdk]";

    static EAL: Key<Vec<String>> = Key::by("eal", "a list of arguments", arguments)
        .otherwise("made up: without hugepages and the PCI bus, unless a port names a card")
        .restart(Differs::Router(|old, new| old.dpdk.eal != new.dpdk.eal))
        .help("arguments of DPDK's EAL, all of them");
    static MBUFS: Key<u32> = Key::number("mbufs", MBUFS_RANGE)
        .unit("frames")
        .default_of(|| DpdkConfig::default().mbufs)
        .restart(Differs::Router(|old, new| old.dpdk.mbufs != new.dpdk.mbufs))
        .help("frames to have memory for, per port and direction");
}

/// Fewer would all be in rings.
const MBUFS_RANGE: RangeInclusive<u64> = 2048..=4_194_304;
/// These print a text and end the process.
const ENDING: [&str; 2] = ["-h", "--help"];

pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &Ports) -> DpdkConfig {
    let mut config = DpdkConfig::default();
    let mut section = root.section_or_empty(reader, &DPDK);
    section.set(reader, &EAL, &mut config.eal);
    section.set(reader, &MBUFS, &mut config.mbufs);
    let span = section.finish(reader);
    let is_used = |port: &crate::types::PortConfig| {
        port.interface.as_ref().is_some_and(|interface| interface.driver == Driver::Dpdk)
    };
    if let Some(span) = span.filter(|_| !ports.configs.iter().any(is_used)) {
        let message = "no port is driven by DPDK, so [dpdk] does nothing";
        reader.warning(ErrorKind::Conflict, &span, message, "a port with driver = \"dpdk\"");
    }
    config
}

fn arguments(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<String>> {
    let entries = reader.filled_list(item);
    let arguments = entries.iter().filter_map(|entry| reader.parse(entry, argument));
    Some(arguments.map(|argument| argument.value).collect())
}

fn argument(text: &str) -> Result<String, &'static str> {
    let is_good = !text.is_empty() && !text.contains('\0') && !ENDING.contains(&text);
    if is_good { Ok(text.to_owned()) } else { Err("an argument of DPDK's environment, not `-h` or `--help`") }
}
