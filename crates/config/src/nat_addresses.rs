//! `[[nat.one_to_one]]` and `[[nat.exceptions]]`: inside hosts with public addresses of their own, and packets that are
//! not translated.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use ipnet::{IpNet, Ipv4Net};
use thalweg_dataplane::nat::{AddressPair, NatConfig, NatException, PortForward};

use crate::diagnostic::{ErrorKind, one_of};
use crate::items::PREFIX_LIST;
use crate::key::{Key, Sub, table};
use crate::ports::Ports;
use crate::reader::{At, Reader};
use crate::section::Section;
use crate::sets;
use crate::types::PortIndex;
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
}

const NETWORK: &str = "an IPv4 address or prefix";
const PAIRS_MAX: usize = 1024;

fn network(text: &str) -> Result<Ipv4Net, &'static str> {
    let net = text.parse::<IpAddr>().map_or_else(|_| values::prefix(text), |address| Ok(address.into()));
    match net? {
        IpNet::V4(net) => Ok(net),
        IpNet::V6(_) => Err(NETWORK),
    }
}

/// Reads `[[nat.one_to_one]]`; `pools` are the public addresses of all outside ports.
pub(crate) fn read_pairs(
    reader: &mut Reader,
    nat: &mut Section<'_>,
    ports: &Ports,
    (outsides, pools): (&[PortIndex], &[Ipv4Addr]),
    forwards: &[PortForward],
) -> Vec<AddressPair> {
    let mut pairs: Vec<(AddressPair, Range<usize>)> = Vec::new();
    for mut section in nat.sections(reader, &ONE_TO_ONE) {
        let (inside, public) = (section.read(reader, &PAIR_INSIDE), section.read(reader, &PAIR_PUBLIC));
        let outside = match section.take(&PAIR_OUTSIDE) {
            Some(item) => ports.named(reader, &item).and_then(|port| {
                let place = outsides.iter().position(|outside| *outside == port);
                if place.is_none() {
                    let message = format!("`{}` is no outside port", ports.name(port));
                    let expected = one_of(outsides.iter().map(|port| ports.name(*port)));
                    reader.error(ErrorKind::UnknownName, &item.span, message, expected);
                }
                place
            }),
            None => public.as_ref().map(|public| {
                let port = ports.connected(IpAddr::V4(public.value.network()), 0);
                outsides.iter().position(|outside| Some(*outside) == port).unwrap_or(0)
            }),
        };
        section.finish(reader);
        let (Some(inside), Some(public), Some(outside)) = (inside, public, outside) else { continue };
        let pair = AddressPair { inside: inside.value, public: public.value, outside };
        if pairs.len() >= PAIRS_MAX {
            let expected = format!("at most {PAIRS_MAX}");
            reader.error(ErrorKind::TooMany, &public.span, "too many pairs of addresses", expected);
            break;
        }
        if is_inside(reader, ports, outsides, &inside)
            && is_public(reader, ports, (outsides, pools), &public)
            && fits(reader, &pairs, forwards, (&inside, &public))
        {
            pairs.push((pair, public.span));
        }
    }
    pairs.into_iter().map(|(pair, _)| pair).collect()
}

/// Whether a network is inside; if not, reports why.
fn is_inside(reader: &mut Reader, ports: &Ports, outsides: &[PortIndex], inside: &At<Ipv4Net>) -> bool {
    let first = IpAddr::V4(inside.value.network());
    let leads_out = ports.connected(first, 0).is_some_and(|port| outsides.contains(&port));
    let is_own = inside.value.prefix_len() == 32 && ports.owner(first, 0).is_some();
    if values::is_unicast(first) && !leads_out && !is_own {
        return true;
    }
    let message = format!("{} is not inside", inside.value);
    reader.error(ErrorKind::Conflict, &inside.span, message, "inside hosts");
    false
}

/// Whether a network can be public; if not, reports why.
fn is_public(
    reader: &mut Reader,
    ports: &Ports,
    (outsides, pools): (&[PortIndex], &[Ipv4Addr]),
    public: &At<Ipv4Net>,
) -> bool {
    let first = IpAddr::V4(public.value.network());
    if let Some(address) = pools.iter().find(|address| public.value.contains(*address)) {
        let message = format!("{address} is the address of many hosts");
        reader.error(
            ErrorKind::Conflict,
            &public.span,
            message,
            "an address that `addresses` and `pools` leave out",
        );
        return false;
    }
    let is_elsewhere = ports.connected(first, 0).is_some_and(|port| !outsides.contains(&port));
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
    pairs: &[(AddressPair, Range<usize>)],
    forwards: &[PortForward],
    (inside, public): (&At<Ipv4Net>, &At<Ipv4Net>),
) -> bool {
    if inside.value.prefix_len() != public.value.prefix_len() {
        let message = format!("{} has another length than {}", public.value, inside.value);
        let expected = format!("a network of length {}", inside.value.prefix_len());
        reader.error(ErrorKind::Conflict, &public.span, message, expected);
        return false;
    }
    let overlap = |a: &Ipv4Net, b: &Ipv4Net| a.contains(b) || b.contains(a);
    for (other, first) in pairs {
        let twice = [(&inside.value, &other.inside, inside), (&public.value, &other.public, public)]
            .into_iter()
            .find(|(own, other, _)| overlap(own, other));
        if let Some((own, _, at)) = twice {
            let message = format!("{own} is given twice");
            let expected = format!("addresses other than those of {}", reader.line(first));
            reader.error(ErrorKind::Overlap, &at.span, message, expected);
            return false;
        }
    }
    if let Some(forward) = forwards.iter().find(|forward| inside.value.contains(&forward.inside_address)) {
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
pub(crate) fn read_exceptions(reader: &mut Reader, nat: &mut Section<'_>) -> Vec<NatException> {
    let mut exceptions: Vec<NatException> = Vec::new();
    for mut section in nat.sections(reader, &EXCEPTIONS) {
        let (sources, destinations) = (section.read(reader, &SOURCE), section.read(reader, &DESTINATION));
        let span = section.finish(reader).unwrap_or_default();
        if sources.is_none() && destinations.is_none() {
            let expected = "`source`, `destination` or both";
            reader.error(ErrorKind::MissingKey, &span, "an exception for all packets", expected);
            continue;
        }
        exceptions.push(NatException {
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
