//! `[[nat.one_to_one]]` and `[[nat.exceptions]]`: inside hosts with public addresses of their own, and packets that are
//! not translated; and lists of public addresses.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use ipnet::{IpNet, Ipv4Net};
use thalweg_dataplane::nat::{AddressPair, NatConfig, NatException, PortForward};

use crate::diagnostic::ErrorKind;
use crate::items::PREFIX_LIST;
use crate::key::{Key, Sub, table};
use crate::nat_publics::Publics;
use crate::ports::Ports;
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::sets;
use crate::types::{PortIndex, VrfIndex};
use crate::values;

pub(crate) static ONE_TO_ONE: Key<Sub> =
    Key::sections("one_to_one", &PAIRS_TABLE).help("inside hosts with public addresses of their own");
table! {
    static PAIRS_TABLE: "nat.one_to_one", "[[nat.one_to_one]]";

    static PAIR_INSIDE: Key<Ipv4Net> = Key::text("inside", NETWORK, network)
        .required("\"192.168.1.10\"")
        .help("the inside host, or a network");
    static PAIR_PUBLIC: Key<Ipv4Net> = Key::text("public", NETWORK, network)
        .required("\"203.0.113.5\"")
        .help("its public address, or a network of the same length, address by address");
    static PAIR_VRF: Key<()> = Key::raw("vrf", "a VRF")
        .otherwise("that of the outside port")
        .help("the [VRF](vrf.md) of the inside host");
    static PAIR_OUTSIDE: Key<()> = Key::raw("outside", "a port")
        .otherwise("the one whose network has the public address, else the first")
        .help("the outside port, where there are several");
}

pub(crate) static EXCEPTIONS: Key<Sub> =
    Key::sections("exceptions", &EXCEPTIONS_TABLE).help("packets from inside that are not translated");
table! {
    static EXCEPTIONS_TABLE: "nat.exceptions", "[[nat.exceptions]]";

    static SOURCE: Key<Vec<IpNet>> =
        Key::by("source", PREFIX_LIST, sets::prefixes).otherwise("any").help("IPv4 prefixes, or a set: `\"@branches\"`");
    static DESTINATION: Key<Vec<IpNet>> =
        Key::by("destination", PREFIX_LIST, sets::prefixes).otherwise("any").help("IPv4 prefixes, or a set");
    static EXCEPTION_VRF: Key<()> = Key::raw("vrf", "a VRF")
        .otherwise("any")
        .help("only packets that arrive in this [VRF](vrf.md)");
}

const NETWORK: &str = "an IPv4 address or prefix";
const PAIRS_MAX: usize = 1024;
const ADDRESSES_MAX: usize = 256;

fn network(text: &str) -> Result<Ipv4Net, &'static str> {
    let net = text.parse::<IpAddr>().map_or_else(|_| values::prefix(text), |address| Ok(address.into()));
    match net? {
        IpNet::V4(net) => Ok(net),
        IpNet::V6(_) => Err(NETWORK),
    }
}

/// Reads `[[nat.one_to_one]]`; `publics` are the addresses of all other hosts.
pub(crate) fn read_pairs(
    reader: &mut Reader,
    nat: &mut Section<'_>,
    ports: &Ports,
    publics: &Publics<'_>,
    forwards: &[PortForward],
) -> Vec<AddressPair> {
    let outsides = publics.outsides;
    let mut pairs: Vec<(AddressPair, Range<usize>)> = Vec::new();
    for mut section in nat.sections(reader, &ONE_TO_ONE) {
        let (inside, public) = (section.read(reader, &PAIR_INSIDE), section.read(reader, &PAIR_PUBLIC));
        let outside = match section.take(&PAIR_OUTSIDE) {
            Some(item) => publics.outside(reader, ports, &item),
            None => public.as_ref().map(|public| {
                let first = IpAddr::V4(public.value.network());
                let has = |port: &PortIndex| ports.connected(first, ports.vrf_of(*port)) == Some(*port);
                outsides.iter().position(has).unwrap_or(0)
            }),
        };
        let vrf = match section.take(&PAIR_VRF) {
            Some(item) => ports.vrfs.named(reader, &item),
            None => outside.map(|outside| publics.vrf_of(ports, outside)),
        };
        section.finish(reader);
        let (Some(inside), Some(public), Some(outside), Some(vrf)) = (inside, public, outside, vrf) else {
            continue;
        };
        let pair = AddressPair { inside: inside.value, vrf, public: public.value, outside };
        if pairs.len() >= PAIRS_MAX {
            let expected = format!("at most {PAIRS_MAX}");
            reader.error(ErrorKind::TooMany, &public.span, "too many pairs of addresses", expected);
            break;
        }
        if is_inside(reader, ports, (outsides, vrf), &inside)
            && is_public(reader, ports, (publics, outside), &public)
            && fits(reader, (ports, publics), &pairs, forwards, (&pair, &inside, &public))
        {
            pairs.push((pair, public.span));
        }
    }
    pairs.into_iter().map(|(pair, _)| pair).collect()
}

/// Whether a network is inside; if not, reports why.
fn is_inside(
    reader: &mut Reader,
    ports: &Ports,
    (outsides, vrf): (&[PortIndex], VrfIndex),
    inside: &At<Ipv4Net>,
) -> bool {
    let first = IpAddr::V4(inside.value.network());
    let leads_out = ports.connected(first, vrf).is_some_and(|port| outsides.contains(&port));
    let is_own = inside.value.prefix_len() == 32 && ports.owner(first, vrf).is_some();
    if values::is_unicast(first) && !leads_out && !is_own {
        return true;
    }
    let message = format!("{} is not inside", inside.value);
    reader.error(ErrorKind::Conflict, &inside.span, message, "inside hosts");
    false
}

/// Whether a network can be public on an outside port; if not, reports why.
fn is_public(
    reader: &mut Reader,
    ports: &Ports,
    (publics, outside): (&Publics<'_>, usize),
    public: &At<Ipv4Net>,
) -> bool {
    let (first, vrf) = (IpAddr::V4(public.value.network()), publics.vrf_of(ports, outside));
    let taken = publics.of_vrf(ports, vrf).find(|address| public.value.contains(address));
    if let Some(address) = taken {
        let message = format!("{address} is the address of many hosts");
        reader.error(
            ErrorKind::Conflict,
            &public.span,
            message,
            "an address that `addresses` and `pools` leave out",
        );
        return false;
    }
    let is_elsewhere = ports.connected(first, vrf).is_some_and(|port| !publics.outsides.contains(&port));
    if is_elsewhere || !values::is_unicast(first) {
        let message = format!("{} cannot be public", public.value);
        reader.error(
            ErrorKind::Conflict,
            &public.span,
            message,
            "addresses of the outside network, or routed here",
        );
        return false;
    }
    true
}

/// Whether both sides are of one length and have no other translation; if not, reports it.
fn fits(
    reader: &mut Reader,
    (ports, publics): (&Ports, &Publics<'_>),
    pairs: &[(AddressPair, Range<usize>)],
    forwards: &[PortForward],
    (pair, inside, public): (&AddressPair, &At<Ipv4Net>, &At<Ipv4Net>),
) -> bool {
    if inside.value.prefix_len() != public.value.prefix_len() {
        let message = format!("{} has another length than {}", public.value, inside.value);
        let expected = format!("a network of length {}", inside.value.prefix_len());
        reader.error(ErrorKind::Conflict, &public.span, message, expected);
        return false;
    }
    let overlap = |a: &Ipv4Net, b: &Ipv4Net| a.contains(b) || b.contains(a);
    for (other, first) in pairs {
        let vrf_of = |pair: &AddressPair| publics.vrf_of(ports, pair.outside);
        let (is_inside, is_public) = (other.vrf == pair.vrf, vrf_of(other) == vrf_of(pair));
        let sides = [(is_inside, inside, &other.inside), (is_public, public, &other.public)].into_iter();
        let mut twice = sides.filter(|(is_beside, own, other)| *is_beside && overlap(&own.value, other));
        if let Some((_, at, _)) = twice.next() {
            let own = at.value;
            let message = format!("{own} is given twice");
            let expected = format!("addresses other than those of {}", reader.line(first));
            reader.error(ErrorKind::Overlap, &at.span, message, expected);
            return false;
        }
    }
    let leads_there =
        |forward: &&PortForward| forward.vrf == pair.vrf && inside.value.contains(&forward.inside_address);
    if let Some(forward) = forwards.iter().find(leads_there) {
        let message = format!(
            "a port forward leads to {}, which has a public address of its own",
            forward.inside_address
        );
        reader.error(ErrorKind::Conflict, &inside.span, message, "one of them");
        return false;
    }
    true
}

/// Reads `[[nat.exceptions]]`.
pub(crate) fn read_exceptions(
    reader: &mut Reader,
    nat: &mut Section<'_>,
    ports: &Ports,
) -> Vec<NatException> {
    let mut exceptions: Vec<NatException> = Vec::new();
    for mut section in nat.sections(reader, &EXCEPTIONS) {
        let (sources, destinations) = (section.read(reader, &SOURCE), section.read(reader, &DESTINATION));
        let vrf = section.take(&EXCEPTION_VRF).map(|item| ports.vrfs.named(reader, &item));
        let span = section.finish(reader).unwrap_or_default();
        if vrf == Some(None) {
            continue;
        }
        if sources.is_none() && destinations.is_none() {
            let expected = "`source`, `destination` or both";
            reader.error(ErrorKind::MissingKey, &span, "an exception for all packets", expected);
            continue;
        }
        exceptions.push(NatException {
            vrf: vrf.flatten(),
            sources: sources.map(|at| of_ipv4(&at.value)).unwrap_or_default(),
            destinations: destinations.map(|at| of_ipv4(&at.value)).unwrap_or_default(),
        });
        if exceptions.iter().map(NatException::pairs).sum::<usize>() > NatConfig::EXCEPTIONS_MAX {
            let expected = format!("at most {} pairs of source and destination", NatConfig::EXCEPTIONS_MAX);
            reader.error(ErrorKind::TooMany, &span, "too many exceptions", expected);
            break;
        }
    }
    exceptions
}

/// The IPv4 prefixes; one that nobody has if there is none, since an empty list admits all.
fn of_ipv4(nets: &[IpNet]) -> Vec<Ipv4Net> {
    let ipv4 = nets.iter().filter_map(|net| match net {
        IpNet::V4(net) => Some(*net),
        IpNet::V6(_) => None,
    });
    let nets: Vec<Ipv4Net> = ipv4.collect();
    if nets.is_empty() { vec![Ipv4Addr::UNSPECIFIED.into()] } else { nets }
}

/// The addresses of one outside port; `taken` are those of others, with their VRFs.
pub(crate) fn read_addresses(
    reader: &mut Reader,
    (section, item): (Range<usize>, Option<Item<'_>>),
    ports: &Ports,
    (outside, taken): (PortIndex, &[(VrfIndex, Ipv4Addr)]),
    inside: &[PortIndex],
) -> Vec<Ipv4Addr> {
    let (mut addresses, vrf) = (Vec::new(), ports.vrf_of(outside));
    let Some(item) = item else {
        addresses.extend(own_v4(ports, outside));
        let pending = mirror_of(ports, outside).filter(|_| addresses.is_empty());
        if let Some((port, mirror)) = pending {
            let message =
                format!("port {port} has no IPv4 address: NAT waits for one on its mirror {mirror}");
            let expected = "a DHCP client there, or `addresses` of the port";
            reader.warning(ErrorKind::MissingKey, &section, message, expected);
        } else if addresses.is_empty() {
            let message = format!("no public address: port {} has no IPv4 address", ports.name(outside));
            reader.error(ErrorKind::MissingKey, &section, message, "`addresses = [\"...\"]`");
        }
        return addresses;
    };
    for entry in reader.filled_list(&item) {
        let Some(at) = reader.parse(&entry, values::address_v4) else { continue };
        let address = at.value;
        if let Some(why) = ports.nobodys(IpAddr::V4(address), vrf) {
            let message = format!("public address {why}");
            reader.error(ErrorKind::BadValue, &at.span, message, "a unicast address");
            continue;
        }
        if !values::is_unicast(IpAddr::V4(address)) {
            let message = format!("{address} cannot be a public address");
            reader.error(ErrorKind::BadValue, &at.span, message, "a unicast address");
            continue;
        }
        if addresses.contains(&address) || taken.contains(&(vrf, address)) {
            let message = format!("public address {address} is given twice");
            reader.error(ErrorKind::Duplicate, &at.span, message, "each address once");
            continue;
        }
        if addresses.len() >= ADDRESSES_MAX {
            let expected = format!("at most {ADDRESSES_MAX}");
            reader.error(ErrorKind::TooMany, &at.span, "too many public addresses", expected);
            break;
        }
        addresses.push(address);
        let owner = ports.owner(IpAddr::V4(address), vrf);
        if let Some(port) = owner.filter(|port| inside.contains(port)) {
            let message = format!("public address {address} belongs to the inside port {}", ports.name(port));
            reader.error(ErrorKind::Conflict, &at.span, message, "an address of the outside network");
        } else if let Some(port) =
            ports.connected(IpAddr::V4(address), vrf).filter(|port| inside.contains(port))
        {
            let message =
                format!("public address {address} is in the network of the inside port {}", ports.name(port));
            reader.error(ErrorKind::Conflict, &at.span, message, "an address of the outside network");
        } else if owner != Some(outside) && !ports.shared.contains(&(outside, address.into())) {
            let message =
                format!("public address {address} is not an address of port {}", ports.name(outside));
            let finding =
                reader.warning(ErrorKind::NotConnected, &at.span, message, "an address of the outside port");
            finding.help = Some("fine if the next router has a route to it through this one".to_owned());
        }
    }
    addresses
}

/// A port's name and its mirror, on which a DHCP client may run.
fn mirror_of(ports: &Ports, port: PortIndex) -> Option<(&str, &str)> {
    let config = ports.configs.get(usize::from(port))?;
    Some((&config.name, config.interface.as_ref()?.mirror.as_deref()?))
}

fn own_v4(ports: &Ports, port: PortIndex) -> impl Iterator<Item = Ipv4Addr> {
    ports.addresses.iter().filter(move |(p, _)| *p == port).filter_map(|(_, net)| match net.value.addr() {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    })
}
