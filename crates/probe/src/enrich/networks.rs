//! Names of networks and hosts, from a list of the user's.
//!
//! ```text
//! # what lies behind a further comma is not read
//! 10.0.0.0/8,office
//! 10.1.7.0/24,office guests,3rd floor
//! 2001:db8::53,resolver
//! ```

use std::net::IpAddr;

use thalweg_base::{IpPrefix, Name};

use super::ranges::Table;

/// The most lines with a name.
const LINES_MAX: usize = 1 << 20;

/// The line, from 1, and what was expected there.
pub(super) type Fault = (usize, &'static str);

pub(super) fn parse(text: &str) -> Result<Table<Name>, Fault> {
    let mut networks = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or("").trim();
        if text.is_empty() {
            continue;
        }
        if networks.len() == LINES_MAX {
            return Err((line, "at most 1048576 networks"));
        }
        let mut fields = text.split(',').map(str::trim);
        let prefix = fields.next().and_then(prefix);
        let prefix = prefix.ok_or((line, "PREFIX,NAME or ADDRESS,NAME, such as 10.0.0.0/8,office"))?;
        let name = fields.next().filter(|name| !name.is_empty());
        networks.push((prefix, Name::of(name.ok_or((line, "a name behind the prefix and a comma"))?)));
    }
    Ok(Table::new(networks))
}

fn prefix(text: &str) -> Option<IpPrefix> {
    text.parse::<IpAddr>().map(IpPrefix::host).ok().or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_names_an_address_and_bad_lines_are_told() {
        let table = parse(
            "# sites\n10.0.0.0/8,office\n10.1.7.0/24,office guests,3rd floor\n\n2001:db8::53, resolver # v6\n10.1.7.9,printer\n",
        );
        let table = table.expect("a list");
        let name = |address: &str| {
            table.get(address.parse().expect("an address")).map(|name| name.text().into_owned())
        };
        assert_eq!(name("10.1.8.1").as_deref(), Some("office"));
        assert_eq!(name("10.1.7.8").as_deref(), Some("office guests"));
        assert_eq!(name("10.1.7.9").as_deref(), Some("printer"));
        assert_eq!(name("2001:db8::53").as_deref(), Some("resolver"));
        assert_eq!((name("2001:db8::54"), name("11.0.0.0")), (None, None));
        assert_eq!(table.prefixes(), 4);
        for (text, line) in [("office", 1), ("\n10.0.0.0/8", 2), ("10.0.0.0/8,", 1), ("10.0.0.1/8,x", 1)] {
            assert_eq!(parse(text).map(|_| ()).map_err(|(line, _)| line), Err(line), "{text}");
        }
    }
}
