//! `[sets.NAME]`: addresses and ports by name, which rules of access lists and of the firewall use as `"@NAME"`.

use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};

use ipnet::{IpNet, Ipv4Net};

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::items::{PORT_LIST, PREFIX_LIST, port_range, read_prefix};
use crate::key::{Key, Sub, table};
use crate::policy_sets::check_name;
use crate::reader::{Item, Reader};
use crate::section::Section;
use crate::text_file::read_text;
use crate::types::NamedSet;
use crate::values;

pub(crate) static SETS: Key<Sub> = Key::named_sections("sets", &TABLE)
    .help("addresses and ports by name, for rules: see [firewall.md](firewall.md#sets)");
table! {
    static TABLE: "sets.NAME", "[sets.NAME]";

    row ADDRESSES;
    row PORTS;
    row FILE;
}

static ADDRESSES: Key<Vec<IpNet>> =
    Key::by("addresses", PREFIX_LIST, |reader, item| reader.all(item, read_prefix))
        .otherwise("none")
        .help("prefixes of either family");
static PORTS: Key<Vec<RangeInclusive<u16>>> =
    Key::by("ports", PORT_LIST, |reader, item| reader.all(item, port_range))
        .otherwise("none")
        .help("of TCP and UDP, numbers or ranges: `\"8080-8090\"`");
static FILE: Key<()> = Key::raw("file", "a path").otherwise("none").help(
    "a file with more of them: an address, a prefix, a port or a range of ports a line, and comments behind `#`; a \
     reload reads it again",
);

/// Stands for a set without addresses: a rule about nobody matches no packet, because none with this address is
/// forwarded.
const NOBODY: IpNet = IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::UNSPECIFIED, 32));

/// Reads `[sets]`. A set with errors exists but is not complete.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>) {
    let names = root.take(&SETS).and_then(|item| reader.names(&item)).unwrap_or_default();
    for (span, item) in names {
        check_name(reader, item.key, &span);
        let Some(mut section) = reader.section_called(&item, &TABLE, format!("[sets.{}]", item.key)) else {
            continue;
        };
        let mut set = NamedSet::default();
        section.set(reader, &ADDRESSES, &mut set.addresses);
        section.set(reader, &PORTS, &mut set.ports);
        if let Some(file) = section.take(&FILE) {
            read_file(reader, &file, &mut set);
        }
        section.finish(reader);
        reader.sets.insert(item.key.to_owned(), set);
    }
}

fn read_file(reader: &mut Reader, item: &Item<'_>, set: &mut NamedSet) {
    const EXPECTED: &str = "an address, a prefix, a port or a range of ports a line";
    let Some(path) = reader.path(item) else { return };
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(why) => {
            reader.error(ErrorKind::File, &item.span, why.to_string(), "a file that can be read");
            return;
        }
    };
    for (number, line) in (1..).zip(text.lines()) {
        let entry = line.split('#').next().unwrap_or_default().trim();
        let address = || entry.parse::<IpAddr>().ok().map(IpNet::from);
        if entry.is_empty() {
        } else if let Some(net) = values::prefix(entry).ok().or_else(address) {
            set.addresses.push(net);
        } else if let Ok(ports) = values::port_range(entry) {
            set.ports.push(ports);
        } else {
            let message = format!("line {number} of {} is `{entry}`", path.display());
            reader.error(ErrorKind::BadValue, &item.span, message, EXPECTED);
        }
    }
    set.file = Some(path);
}

/// The set that an entry names, if it names one; `None` in the inner place if there is no such set, which is reported.
fn named<'r>(reader: &'r mut Reader, item: &Item<'_>) -> Option<Option<&'r NamedSet>> {
    let toml::de::DeValue::String(text) = item.value else { return None };
    let name = text.strip_prefix('@')?;
    if !reader.sets.contains_key(name) {
        let names: Vec<String> = reader.sets.keys().cloned().collect();
        let names = || names.iter().map(String::as_str);
        let expected =
            if names().next().is_none() { "a section [sets.NAME]".to_owned() } else { one_of(names()) };
        let help = nearest(name, names()).map(|name| format!("did you mean `@{name}`?"));
        let message = format!("no set is named `{name}`");
        reader.error(ErrorKind::UnknownName, &item.span, message, expected).help = help;
        return Some(None);
    }
    Some(reader.sets.get(name))
}

/// Prefixes, some of them by the names of sets.
pub(crate) fn prefixes(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<IpNet>> {
    let mut nets = Vec::new();
    for entry in reader.filled_list(item) {
        match named(reader, &entry) {
            Some(set) => nets.extend(set.iter().flat_map(|set| &set.addresses)),
            None => nets.extend(read_prefix(reader, &entry)),
        }
    }
    if nets.is_empty() {
        nets.push(NOBODY);
    }
    Some(nets)
}

/// Ports, some of them by the names of sets.
pub(crate) fn ports(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<RangeInclusive<u16>>> {
    let mut ports = Vec::new();
    for entry in reader.filled_list(item) {
        let found = match named(reader, &entry) {
            Some(set) => set.map(|set| set.ports.clone()),
            None => port_range(reader, &entry).map(|range| vec![range]),
        };
        let is_empty = found.as_ref().is_some_and(Vec::is_empty);
        ports.extend(found.into_iter().flatten());
        if is_empty {
            let span: Range<usize> = entry.span.clone();
            reader.error(ErrorKind::BadValue, &span, "the set has no ports", "a set with ports");
        }
    }
    Some(ports)
}
