//! A BGP table from an MRT file: of several routes to a prefix the one with the shortest AS_PATH counts, of
//! equally long ones the first.

use std::path::Path;

use thalweg_base::IpPrefix;
use thalweg_ports::{MrtError, MrtReader};
use thalweg_wire::mrt::{Action, visit_changes};

use super::ranges::Table;

/// What a BGP table says about a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// 0 if it is unknown, or the prefix is the router's own.
    pub(super) origin_as: u32,
    pub(super) neighbor_as: u32,
    pub(super) length: u8,
}

/// Reads a table; the second number is that of damaged records, which are left out.
pub(super) fn read(path: &Path) -> Result<(Table<Route>, u64), MrtError> {
    let mut reader = MrtReader::open(path)?;
    let mut routes: Vec<(IpPrefix, usize, Route)> = Vec::new();
    let (mut scratch, mut damaged) = (Vec::new(), 0);
    while let Some(item) = reader.next() {
        let item = match item {
            Ok(item) => item,
            Err(error) if error.is_last() => return Err(error),
            Err(_) => {
                damaged += 1;
                continue;
            }
        };
        let visited = visit_changes(&item.content, |change| {
            let Action::Route { entry, path } = &change.action else { return };
            let ends = path.ends(&mut scratch);
            let route =
                Route { origin_as: ends.origin, neighbor_as: ends.neighbor, length: entry.prefix.length() };
            match routes.last_mut() {
                // Routes of a prefix come one after the other, from dozens of neighbors.
                Some((prefix, hops, known)) if *prefix == entry.prefix => {
                    if ends.hops < *hops {
                        (*hops, *known) = (ends.hops, route);
                    }
                }
                _ => routes.push((entry.prefix, ends.hops, route)),
            }
        });
        damaged += u64::from(visited.is_err());
    }
    // The first of equal prefixes counts.
    routes.sort_by_key(|(prefix, hops, _)| (*prefix, *hops));
    Ok((Table::new(routes.into_iter().map(|(prefix, _, route)| (prefix, route))), damaged))
}
