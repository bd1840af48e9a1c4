//! The interface keys of a port, and the names of interfaces: each name belongs to one port, as its interface
//! or its mirror.

use std::ops::Range;
use std::path::PathBuf;

use thalweg_exec::THREADS_MAX;

use crate::diagnostic::ErrorKind;
use crate::key::{Differs, Key};
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::types::{Capture, Driver, InterfaceConfig, PortConfig, XdpPlace};

pub(crate) static INTERFACE: Key<String> = Key::text("interface", "a name", interface_name)
    .otherwise("none: for replays")
    .help("the interface that [`thalweg run`](live.md) opens; `mac` may then be left out for the interface's own");
pub(crate) static DRIVER: Key<Driver> = Key::word("driver", &Driver::NAMES)
    .otherwise("`\"auto\"`: AF_XDP where it works, else AF_PACKET")
    .restart(Differs::Port(|old, new| differ(old, new, |interface| interface.driver)))
    .help("[how](drivers.md) it is driven; [`\"dpdk\"`](drivers.md#dpdk) needs a `device`");
pub(crate) static DEVICE: Key<String> = Key::text("device", "a device of DPDK's", dpdk_device)
    .restart(Differs::Port(|old, new| differ(old, new, |interface| interface.device.clone())))
    .help("with driver `dpdk`, in place of `interface`: `\"net_af_packet0,iface=eth0\"`, `\"0000:03:00.0\"`");
pub(crate) static CAPTURE: Key<PathBuf> = Key::by("capture", "a path", Reader::path)
    .restart(Differs::Port(|old, new| differ(old, new, |interface| interface.capture.clone())))
    .help(
        "with driver [`\"capture\"`](drivers.md#a-capture-as-an-interface): the file that is played, relative to this file; \
         `interface` is an interface in it",
    );
pub(crate) static CAPTURE_RATE: Key<u32> = Key::number("capture_rate", 1..=1_000_000)
    .unit("frames per second")
    .otherwise("`100`")
    .restart(Differs::Port(|old, new| differ(old, new, |interface| interface.capture.clone())))
    .help("how fast, all interfaces of the file together");
pub(crate) static MIRROR: Key<()> = Key::raw("mirror", "a name, or true or false").help(
    "an interface of the system that [stands for the port](live.md#mirrors): its name, or `true` for `tw-` and the port's \
     name; at most 15 bytes, as all names of interfaces, and no other port's",
);
pub(crate) static ROUTER_ADVERTISEMENTS: Key<bool> =
    Key::flag("router_advertisements").default(false).help("send router advertisements on the link");
pub(crate) static OFFLOAD: Key<bool> = Key::flag("offload")
    .default(false)
    .restart(Differs::Port(|old, new| differ(old, new, |interface| interface.offload)))
    .help(
        "let the kernel forward [flows that have been decided on](drivers.md#flows-that-the-kernel-forwards); driver \
         `af_packet`, `af_xdp` or `auto`",
    );
pub(crate) static XDP_MODE: Key<XdpPlace> = Key::word("xdp_mode", &XdpPlace::NAMES)
    .otherwise("the best that works")
    .restart(Differs::Port(|old, new| differ(old, new, |interface| interface.xdp_mode)))
    .help(
        "where the XDP program runs: `\"native\"` (in the driver) or `\"generic\"` (behind it); driver `af_xdp` or `auto`",
    );
pub(crate) static QUEUES: Key<u16> = Key::number("queues", 1..=QUEUES_MAX as u64)
    .otherwise("as many as workers have use for")
    .restart(Differs::Port(|old, new| differ(old, new, |interface| interface.queues)))
    .help(
        "receive queues that are [worked on apart](live.md#several-workers): sockets of `af_packet`; of `af_xdp`, which has \
         the interface's queues, the most",
    );
pub(crate) static QUEUE_WORKERS: Key<Vec<usize>> = Key::by("queue_workers", "a list of workers, each 0 to 1023", workers)
    .otherwise("queue n belongs to worker n, starting again after the last")
    .restart(Differs::Port(|old, new| differ(old, new, |interface| interface.queue_workers.clone())))
    .help(
        "which [worker](live.md#several-workers) each receive queue belongs to: `[0, 1]`, queue i to the i-th; there are as \
         many `queues`",
    );

/// Whether an existing port's interface would have to be opened in another way. A sub-interface uses its
/// parent's.
pub(crate) fn differ<T: PartialEq>(
    old: &PortConfig,
    new: &PortConfig,
    of: fn(&InterfaceConfig) -> T,
) -> bool {
    let interfaces = old.interface.as_ref().zip(new.interface.as_ref());
    old.sub_interface.is_none() && interfaces.is_some_and(|(old, new)| of(old) != of(new))
}

const RATE_DEFAULT: u32 = 100;
/// Receive queues of a port.
const QUEUES_MAX: usize = 64;
/// DPDK's own limit is 63.
const NAME_MAX: usize = 63;
const DEVICE_MAX: usize = 1024;
/// The longest interface name in Linux (IFNAMSIZ minus the terminating byte).
const INTERFACE_NAME_MAX: usize = 15;

thalweg_base::words! {
    /// What a name is used for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Use {
        /// The interface that the port opens.
        Interface => "interface",
        /// The interface that represents the port in the system.
        Mirror => "mirror",
    }
}

/// The names in use.
#[derive(Default)]
pub(crate) struct InterfaceNames(Vec<(Use, String, At<String>)>);

impl InterfaceNames {
    /// Assigns a name to a port, or reports the port that has it.
    pub(crate) fn take(
        &mut self,
        reader: &mut Reader,
        what: Use,
        port: &str,
        name: &str,
        span: &Range<usize>,
    ) {
        let Some((other, holder, first)) = self.0.iter().find(|(.., at)| at.value == name) else {
            let at = At { value: name.to_owned(), span: span.clone() };
            return self.0.push((what, port.to_owned(), at));
        };
        let message = match (what, other) {
            (Use::Interface, Use::Interface) => format!("two ports have interface {name}"),
            _ => format!("{} {name} of port {port} is {} {name} of port {holder}", what.name(), other.name()),
        };
        let expected = format!("a name other than that on {}", reader.line(&first.span));
        let finding = reader.error(ErrorKind::Duplicate, span, message, expected);
        if (what, *other) == (Use::Interface, Use::Interface) {
            finding.help = Some(format!(
                "several VLANs of {name} are ports with `parent = \"{holder}\"` and `vlan`; several networks are \
                 several `addresses` of one port"
            ));
        }
    }

    /// Reads the name of the mirror, if one is enabled.
    pub(crate) fn mirror(&mut self, reader: &mut Reader, item: &Item<'_>, port: &str) -> Option<String> {
        let name = match item.value {
            toml::de::DeValue::Boolean(false) => return None,
            toml::de::DeValue::Boolean(true) => format!("tw-{port}"),
            _ => reader.parse(item, interface_name)?.value,
        };
        if name.len() > INTERFACE_NAME_MAX {
            let message = format!("mirror `{name}` would have a name of {} bytes", name.len());
            let expected =
                format!("a name of its own, of at most {INTERFACE_NAME_MAX} bytes: `mirror = \"tw-..\"`");
            reader.error(ErrorKind::BadValue, &item.span, message, expected);
            return None;
        }
        self.take(reader, Use::Mirror, port, &name, &item.span);
        Some(name)
    }
}

pub(crate) fn interface_name(text: &str) -> Result<String, &'static str> {
    let allowed = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
    let fits = (1..=INTERFACE_NAME_MAX).contains(&text.len()) && text != "." && text != "..";
    if fits && text.chars().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err("the name of an interface: 1 to 15 characters without blanks, `/` and `:`")
    }
}

/// Reads the interface keys of a live port; `None` if no interface is named.
pub(crate) fn read_interface(
    reader: &mut Reader,
    section: &mut Section<'_>,
    port: &str,
    names: &mut InterfaceNames,
) -> Option<InterfaceConfig> {
    let item = section.take(&INTERFACE);
    let driver = section.take(&DRIVER);
    let device = section.take(&DEVICE);
    let capture = section.take(&CAPTURE);
    let capture_rate = section.take(&CAPTURE_RATE);
    let mirror = section.take(&MIRROR);
    let advertise = section.take(&ROUTER_ADVERTISEMENTS);
    let offload = section.take(&OFFLOAD);
    let xdp_mode = section.take(&XDP_MODE);
    let queues = section.take(&QUEUES);
    let queue_workers = section.take(&QUEUE_WORKERS);
    let wants_advertisements = |reader: &mut Reader| {
        advertise.as_ref().is_some_and(|item| ROUTER_ADVERTISEMENTS.value(reader, item) == Some(true))
    };
    if section.has("parent") {
        for key in
            [&item, &driver, &device, &capture, &capture_rate, &offload, &xdp_mode, &queues, &queue_workers]
                .into_iter()
                .flatten()
        {
            let message = format!("`{}` is set on the parent", key.key);
            reader.error(ErrorKind::Conflict, &key.span, message, "no such key where there is a `parent`");
        }
        return Some(InterfaceConfig {
            mirror: mirror.and_then(|item| names.mirror(reader, &item, port)),
            router_advertisements: wants_advertisements(reader),
            // The parent's, which is resolved later.
            ..InterfaceConfig::named(String::new(), Driver::default())
        });
    }
    let driver_key = driver.as_ref().map(|item| item.span.clone());
    let driver = driver.map(|item| (DRIVER.value(reader, &item).unwrap_or_default(), item));
    let is_dpdk = driver.as_ref().is_some_and(|(driver, _)| *driver == Driver::Dpdk);
    let device = read_device(reader, is_dpdk, driver_key.clone(), &item, device);
    let item = item.filter(|_| !is_dpdk);
    if item.is_none() && !is_dpdk {
        let driver = driver.map(|(_, item)| item);
        for key in
            [driver, capture, capture_rate, mirror, advertise, offload, xdp_mode, queues, queue_workers]
                .into_iter()
                .flatten()
        {
            let message = format!("`{}` says something about an interface, and the port has none", key.key);
            reader.error(ErrorKind::MissingKey, &key.span, message, "a key `interface` beside it");
        }
        return None;
    }
    let name = match (item, &device) {
        (Some(item), _) => {
            let name = INTERFACE.value(reader, &item)?;
            names.take(reader, Use::Interface, port, &name, &item.span);
            name
        }
        // A malformed device still counts as one, and the port needs no `mac`.
        (None, device) => dpdk_name(device.as_deref().unwrap_or_default()).to_owned(),
    };
    let driver = driver.map(|(driver, _)| driver).unwrap_or_default();
    let capture = read_capture(reader, driver, driver_key, capture, capture_rate);
    let queues = queues.and_then(|item| read_queues(reader, &item, driver));
    let queue_workers = queue_workers.and_then(|item| read_queue_workers(reader, &item, driver, queues));
    Some(InterfaceConfig {
        device,
        capture,
        mirror: mirror.and_then(|item| names.mirror(reader, &item, port)),
        router_advertisements: wants_advertisements(reader),
        offload: offload.is_some_and(|item| read_offload(reader, &item, driver)),
        xdp_mode: xdp_mode.and_then(|item| read_xdp_mode(reader, &item, driver)),
        queues: queue_workers.as_ref().map(|workers| workers.len() as u16).or(queues),
        queue_workers,
        ..InterfaceConfig::named(name, driver)
    })
}

fn read_offload(reader: &mut Reader, item: &Item<'_>, driver: Driver) -> bool {
    let wanted = OFFLOAD.value(reader, item).unwrap_or(false);
    if wanted && !driver.takes_interface() {
        let message = format!("the kernel forwards no flows of a port whose driver is {}", driver.name());
        reader.error(ErrorKind::Conflict, &item.span, message, "driver `af_packet`, `af_xdp` or `auto`");
    }
    wanted
}

fn read_xdp_mode(reader: &mut Reader, item: &Item<'_>, driver: Driver) -> Option<XdpPlace> {
    if !driver.has_xdp() {
        let message =
            format!("`xdp_mode` says where an XDP program runs, and the driver is {}", driver.name());
        reader.error(ErrorKind::Conflict, &item.span, message, "driver `af_xdp` or `auto`");
    }
    XDP_MODE.value(reader, item)
}

fn read_queues(reader: &mut Reader, item: &Item<'_>, driver: Driver) -> Option<u16> {
    let wanted = QUEUES.value(reader, item)?;
    check_has_queues(reader, item, driver, wanted);
    Some(wanted)
}

fn check_has_queues(reader: &mut Reader, item: &Item<'_>, driver: Driver, wanted: u16) {
    if wanted > 1 && !driver.takes_interface() {
        let message = format!("a port of driver {} has one queue", driver.name());
        let expected = format!("no key `{}`, or another driver", item.key);
        reader.error(ErrorKind::Conflict, &item.span, message, expected);
    }
}

fn workers(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<usize>> {
    let entries = reader.filled_list(item);
    let named = entries.iter().map(|entry| reader.integer(entry, 0..=THREADS_MAX as u64 - 1, ""));
    let named: Option<Vec<usize>> = named.collect();
    named.filter(|workers| !workers.is_empty())
}

fn read_queue_workers(
    reader: &mut Reader,
    item: &Item<'_>,
    driver: Driver,
    queues: Option<u16>,
) -> Option<Vec<usize>> {
    let named = QUEUE_WORKERS.value(reader, item)?;
    let count = named.len();
    check_has_queues(reader, item, driver, count.min(usize::from(u16::MAX)) as u16);
    if count > QUEUES_MAX || queues.is_some_and(|queues| usize::from(queues) != count) {
        let message = format!("workers for {count} queues");
        let expected = match queues {
            Some(queues) => format!("{queues} workers, as the port has {queues} `queues`"),
            None => format!("1 to {QUEUES_MAX} workers"),
        };
        reader.error(ErrorKind::BadValue, &item.span, message, expected);
    }
    Some(named)
}

/// Reads the device of a DPDK port; reports a missing or superfluous one.
fn read_device(
    reader: &mut Reader,
    is_dpdk: bool,
    driver: Option<Range<usize>>,
    interface: &Option<Item<'_>>,
    device: Option<Item<'_>>,
) -> Option<String> {
    match (is_dpdk, device, driver) {
        (true, Some(device), _) => {
            if let Some(interface) = interface {
                let message = "DPDK drives devices, not interfaces";
                reader.error(ErrorKind::Conflict, &interface.span, message, "no `interface` beside `device`");
            }
            DEVICE.value(reader, &device)
        }
        (true, None, driver) => {
            let message = "DPDK has to be told which device";
            let expected = "a key `device` beside it, as `device = \"net_af_packet0,iface=eth0\"`";
            reader.error(ErrorKind::MissingKey, &driver.unwrap_or_default(), message, expected);
            None
        }
        (false, Some(device), _) => {
            let message = "`device` is one of DPDK's";
            reader.error(ErrorKind::Conflict, &device.span, message, "driver = \"dpdk\", or `interface`");
            None
        }
        (false, None, _) => None,
    }
}

/// Reads what a port plays; reports a missing or superfluous key.
fn read_capture(
    reader: &mut Reader,
    driver: Driver,
    driver_key: Option<Range<usize>>,
    capture: Option<Item<'_>>,
    rate: Option<Item<'_>>,
) -> Option<Capture> {
    if driver != Driver::Capture {
        for key in [capture, rate].into_iter().flatten() {
            let message =
                format!("`{}` is for driver `capture`, and the driver is {}", key.key, driver.name());
            reader.error(ErrorKind::Conflict, &key.span, message, "driver = \"capture\"");
        }
        return None;
    }
    let rate = rate.map_or(Some(RATE_DEFAULT), |item| CAPTURE_RATE.value(reader, &item));
    let Some(capture) = capture else {
        let message = "driver `capture` has to be told which file";
        let expected = "a key `capture` beside it, as `capture = \"office.pcapng\"`";
        reader.error(ErrorKind::MissingKey, &driver_key.unwrap_or_default(), message, expected);
        return None;
    };
    Some(Capture { path: CAPTURE.value(reader, &capture)?, rate: rate? })
}

/// A device with its driver's arguments. A PCI address gets its domain.
fn dpdk_device(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str = "a virtual device of DPDK's (\"net_af_packet0,iface=eth0\") or a place on the PCI bus (\"0000:03:00.0\")";
    let name = dpdk_name(text);
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

/// The name of a device, without its driver's arguments.
fn dpdk_name(device: &str) -> &str {
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
        let good = |text: &str| dpdk_device(text).ok();
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
