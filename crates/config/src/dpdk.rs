//! `[dpdk]`, and the devices that ports name.
//!
//! ```toml
//! [ports.lan]
//! driver = "dpdk"
//! device = "net_af_packet0,iface=eth0"   # a virtual device with what its driver is told, or "0000:03:00.0"
//!
//! [dpdk]
//! eal = ["--in-memory", "-l", "0"]       # all arguments of DPDK's environment; default: made up, without hugepages
//! mbufs = 4096                           # frames that there is memory for, of each port, each way
//! ```

use crate::diagnostic::ErrorKind;
use crate::ports::Ports;
use crate::reader::{Reader, Section};
use crate::types::{DpdkConfig, Driver};

/// Fewer would be all in rings.
const MBUFS: std::ops::RangeInclusive<u64> = 2048..=4_194_304;
/// DPDK's own limit is 63.
const NAME_MAX: usize = 63;
const DEVICE_MAX: usize = 1024;
/// These print a text and end the process.
const ENDING: [&str; 2] = ["-h", "--help"];

/// Reads the section.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &Ports) -> DpdkConfig {
    let mut config = DpdkConfig::default();
    let Some(item) = root.take("dpdk") else { return config };
    let Some(mut section) = reader.section(&item, "[dpdk]".to_owned()) else { return config };
    if let Some(eal) = section.take("eal") {
        for entry in reader.filled_list(&eal) {
            if let Some(argument) = reader.parse(&entry, argument) {
                config.eal.push(argument.value);
            }
        }
    }
    if let Some(mbufs) = section.take("mbufs") {
        config.mbufs = reader.integer(&mbufs, MBUFS, "frames").map_or(config.mbufs, |number| number as u32);
    }
    section.finish(reader);
    let is_used = |port: &crate::types::PortConfig| {
        port.interface.as_ref().is_some_and(|interface| interface.driver == Driver::Dpdk)
    };
    if !ports.configs.iter().any(is_used) {
        let message = "no port is driven by DPDK, so [dpdk] does nothing";
        reader.warning(ErrorKind::Conflict, &item.span, message, "a port with driver = \"dpdk\"");
    }
    config
}

fn argument(text: &str) -> Result<String, &'static str> {
    let is_good = !text.is_empty() && !text.contains('\0') && !ENDING.contains(&text);
    if is_good { Ok(text.to_owned()) } else { Err("an argument of DPDK's environment, not `-h` or `--help`") }
}

/// A device with what its driver is told. A place on the PCI bus gets its domain.
pub(crate) fn device(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str = "a virtual device of DPDK's (\"net_af_packet0,iface=eth0\") or a place on the PCI bus (\"0000:03:00.0\")";
    let name = name_of(text);
    let rest = &text[name.len()..];
    let is_virtual = name
        .strip_prefix("net_")
        .is_some_and(|kind| !kind.is_empty() && kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    if text.len() > DEVICE_MAX || name.len() > NAME_MAX || text.chars().any(char::is_control) {
        return Err(EXPECTED);
    }
    match pci(name) {
        Some(place) => Ok(place + rest),
        None if is_virtual => Ok(text.to_owned()),
        None => Err(EXPECTED),
    }
}

/// The name of a device, without what its driver is told.
pub(crate) fn name_of(device: &str) -> &str {
    device.split(',').next().unwrap_or_default()
}

/// `03:00.0` or `0000:03:00.0`, with the domain.
fn pci(name: &str) -> Option<String> {
    let is_hex = |text: &str, digits| text.len() == digits && text.bytes().all(|c| c.is_ascii_hexdigit());
    let (before, function) = name.split_once('.')?;
    let mut parts = before.rsplit(':');
    let (slot, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0000"));
    let is_place = is_hex(domain, 4) && is_hex(bus, 2) && is_hex(slot, 2) && is_hex(function, 1);
    (is_place && parts.next().is_none()).then(|| format!("{domain}:{bus}:{slot}.{function}").to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_virtual_or_have_a_place_on_the_bus() {
        let good = |text: &str| device(text).ok();
        for text in ["net_null0", "net_pcap0,rx_pcap=/tmp/a b.pcap,tx_pcap=/x", "net_af_packet12,iface=eth0"]
        {
            assert_eq!(good(text).as_deref(), Some(text));
        }
        assert_eq!(good("0000:03:00.0").as_deref(), Some("0000:03:00.0"));
        assert_eq!(good("0A:1f.7,queues=2").as_deref(), Some("0000:0a:1f.7,queues=2"));
        for text in [
            "",
            "eth0",
            "net_",
            "net_null 0",
            "03:00",
            "0:0:03:00.0",
            "03:00.g",
            "net_null0,a\0",
            "00:00:03:00.0",
        ] {
            assert_eq!(good(text), None, "{text}");
        }
        assert_eq!(good(&format!("net_{}", "x".repeat(60))), None);
        assert_eq!(good(&format!("net_null0,{}", "x".repeat(1024))), None);
    }
}
