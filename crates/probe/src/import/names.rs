//! Names of exporters and their interfaces, from a file of the user's.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thalweg_base::Name;
use thalweg_flow::{ExporterId, FlowRecord, InterfaceName};

/// The most lines with a name.
const LINES_MAX: usize = 1 << 18;

/// Where messages come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer<'a> {
    Socket(SocketAddr),
    /// A file of messages, which has no addresses.
    File(&'a str),
}

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(f),
            Self::File(name) => f.write_str(name),
        }
    }
}

/// Names by address and, where it matters, observation domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExporterNames {
    exporters: BTreeMap<Place, Name>,
    interfaces: BTreeMap<(Place, u32), InterfaceName>,
}

/// An exporter, or one of its domains.
type Place = (IpAddr, Option<u32>);

/// A line that names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}")]
pub struct NamesError {
    /// From 1.
    pub line: usize,
    pub expected: &'static str,
}

/// One line for each name; `#` begins a comment.
///
/// ```text
/// exporter 192.0.2.1   edge1
/// exporter 192.0.2.1,7 edge1-lc0     # its observation domain 7
/// interface 192.0.2.1 531 xe-0/0/1 Transit A
/// ```
impl FromStr for ExporterNames {
    type Err = NamesError;

    fn from_str(text: &str) -> Result<Self, NamesError> {
        let mut names = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or("");
            let mut words = text.split_whitespace();
            let fault = |expected| NamesError { line, expected };
            match words.next() {
                None => continue,
                Some(_) if line > LINES_MAX => return Err(fault("at most 262144 lines")),
                Some(what @ ("exporter" | "interface")) => {
                    let place = words.next().and_then(place);
                    let place = place.ok_or_else(|| fault("an address, or ADDRESS,DOMAIN"))?;
                    let is_exporter = what == "exporter";
                    let number =
                        if is_exporter { Some(0) } else { words.next().and_then(|word| word.parse().ok()) };
                    let number = number.ok_or_else(|| fault("an interface's number behind the address"))?;
                    let name = words.next().ok_or_else(|| fault("a name"))?;
                    let rest = words.collect::<Vec<_>>().join(" ");
                    if !is_exporter {
                        let interface = InterfaceName { name: Name::of(name), description: Name::of(&rest) };
                        names.interfaces.insert((place, number), interface);
                    } else if rest.is_empty() {
                        names.exporters.insert(place, Name::of(name));
                    } else {
                        return Err(fault("a name without spaces"));
                    }
                }
                Some(_) => {
                    return Err(fault(
                        "`exporter ADDRESS NAME` or `interface ADDRESS NUMBER NAME DESCRIPTION`",
                    ));
                }
            }
        }
        Ok(names)
    }
}

fn place(text: &str) -> Option<Place> {
    match text.split_once(',') {
        Some((address, domain)) => Some((address.parse().ok()?, Some(domain.parse().ok()?))),
        None => Some((text.parse().ok()?, None)),
    }
}

impl ExporterNames {
    /// The exporter that sent a message of this domain.
    pub(super) fn exporter(&self, peer: Peer<'_>, domain: u32) -> ExporterId {
        let Peer::Socket(socket) = peer else {
            return ExporterId { address: None, domain: Some(domain), name: Name::of(&peer.to_string()) };
        };
        let address = socket.ip().to_canonical();
        let by_domain = self.exporters.get(&(address, Some(domain)));
        let named = by_domain.or_else(|| self.exporters.get(&(address, None))).copied();
        let name = named.unwrap_or_else(|| Name::of(&address.to_string()));
        ExporterId { address: Some(address), domain: Some(domain), name }
    }

    /// Names the interfaces of a record of a known exporter; what it calls them itself counts less.
    pub(super) fn name_interfaces(&self, record: &mut FlowRecord) {
        let ExporterId { address: Some(address), domain, .. } = record.exporter else { return };
        if self.interfaces.is_empty() {
            return;
        }
        for (number, interface) in
            [(record.key.ingress, &mut record.ingress_name), (record.egress, &mut record.egress_name)]
        {
            let own = self.interfaces.get(&((address, domain), number));
            let named = own.or_else(|| self.interfaces.get(&((address, None), number)));
            *interface = named.copied().unwrap_or(*interface);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_name_counts_and_an_address_names_itself() {
        let text = "# of the lab\nexporter 192.0.2.1 edge1\nexporter 192.0.2.1,7 edge1-lc0 # card\n\n";
        let names: ExporterNames = text.parse().unwrap();
        let name = |address: &str, domain| {
            let exporter = names.exporter(Peer::Socket(address.parse().unwrap()), domain);
            assert_eq!(exporter.domain, Some(domain));
            exporter.name.text()
        };
        assert_eq!(name("192.0.2.1:2055", 0), "edge1");
        assert_eq!(name("[::ffff:192.0.2.1]:2055", 7), "edge1-lc0", "on a socket of both families");
        assert_eq!(name("192.0.2.2:9995", 7), "192.0.2.2");
        let file = names.exporter(Peer::File("a.ipfix"), 3);
        assert_eq!((file.address, &*file.name.text()), (None, "a.ipfix"));
        for (text, line) in [
            ("exporter", 1),
            ("\nexporter 192.0.2.1", 2),
            ("exporter 192.0.2.1,x a", 1),
            ("exporter 192.0.2.1 a b", 1),
            ("interface 192.0.2.1 xe-0/0/1", 1),
            ("host a", 1),
        ] {
            assert_eq!(text.parse::<ExporterNames>().map_err(|error| error.line), Err(line), "{text}");
        }
    }
}
