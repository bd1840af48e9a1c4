//! `[[prefix_translation]]`: IPv6 prefixes that stand for each other (NPTv6).

use ipnet::{IpNet, Ipv6Net};
use thalweg_dataplane::prefix_translation::{PREFIX_LEN_MAX, PrefixPair};

use crate::diagnostic::ErrorKind;
use crate::key::{Key, Sub, table};
use crate::ports::Ports;
use crate::reader::{At, Reader};
use crate::section::Section;
use crate::values;

pub(crate) static PREFIX_TRANSLATION: Key<Sub> = Key::sections("prefix_translation", &TABLE)
    .help("IPv6 prefixes that stand for each other: see [nat.md](nat.md#prefixes-of-ipv6)");
table! {
    static TABLE: "prefix_translation", "[[prefix_translation]]";

    static INSIDE: Key<Ipv6Net> = Key::text("inside", PREFIX, prefix)
        .required("\"fd00:1::/48\"")
        .help("the prefix that hosts have");
    static OUTSIDE: Key<Ipv6Net> = Key::text("outside", PREFIX, prefix)
        .required("\"2001:db8:1::/48\"")
        .help("the prefix that others see, of the same length; none of the router's own addresses has it");
    static PORT: Key<()> = Key::raw("port", "a port").required("\"wan\"").help("the port toward those others");
}

const PREFIX: &str = "an IPv6 prefix of at most 64 bits, such as \"2001:db8:1::/48\"";
/// Packets are compared with each.
const PAIRS_MAX: usize = 16;

fn prefix(text: &str) -> Result<Ipv6Net, &'static str> {
    match values::prefix(text)? {
        IpNet::V6(net) if net.prefix_len() <= PREFIX_LEN_MAX => Ok(net),
        _ => Err(PREFIX),
    }
}

/// Reads `[[prefix_translation]]`.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &Ports) -> Vec<PrefixPair> {
    let mut pairs: Vec<PrefixPair> = Vec::new();
    for mut section in root.sections(reader, &PREFIX_TRANSLATION) {
        let (inside, outside) = (section.read(reader, &INSIDE), section.read(reader, &OUTSIDE));
        let port = section.take(&PORT).and_then(|item| ports.named(reader, &item));
        section.finish(reader);
        let (Some(inside), Some(outside), Some(port)) = (inside, outside, port) else { continue };
        let pair = PrefixPair { inside: inside.value, outside: outside.value, port };
        if pairs.len() >= PAIRS_MAX {
            let expected = format!("at most {PAIRS_MAX}");
            reader.error(ErrorKind::TooMany, &outside.span, "too many pairs of prefixes", expected);
            break;
        }
        if fits(reader, ports, &pairs, &pair, (&inside, &outside)) {
            pairs.push(pair);
        }
    }
    pairs
}

/// Whether a pair can be beside the others; if not, reports why.
fn fits(
    reader: &mut Reader,
    ports: &Ports,
    pairs: &[PrefixPair],
    pair: &PrefixPair,
    (inside, outside): (&At<Ipv6Net>, &At<Ipv6Net>),
) -> bool {
    let overlap = |a: Ipv6Net, b: Ipv6Net| a.contains(&b) || b.contains(&a);
    let is_taken = |other: &PrefixPair| {
        overlap(other.outside, pair.outside) || other.port == pair.port && overlap(other.inside, pair.inside)
    };
    let has_own =
        |net: Ipv6Net| ports.addresses.iter().find(|(_, own)| IpNet::from(net).contains(&own.value.addr()));
    if inside.value.prefix_len() != outside.value.prefix_len() {
        let message = format!("{} and {} are of two sizes", inside.value, outside.value);
        reader.error(ErrorKind::Conflict, &outside.span, message, "two prefixes of one length");
    } else if overlap(pair.inside, pair.outside) || pairs.iter().any(is_taken) {
        let message = format!("{} has two translations", outside.value);
        reader.error(ErrorKind::Overlap, &outside.span, message, "each prefix once");
    } else if let Some((port, own)) = has_own(outside.value) {
        let message = format!(
            "the router's own address {} on port {} has this prefix",
            own.value.addr(),
            ports.name(*port)
        );
        reader.error(ErrorKind::Conflict, &outside.span, message, "a prefix that is routed to this router");
    } else {
        return true;
    }
    false
}
