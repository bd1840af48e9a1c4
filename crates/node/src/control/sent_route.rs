//! A route as a session carries it: received, before import, or sent, after export.

use serde::{Deserialize, Serialize};
use thalweg_base::IpPrefix;
use thalweg_wire::bgp::{AsPath, Origin};
use thalweg_wire::mrt::PathView;

/// A route that a neighbor sends or is sent, as [`super::RouteFilter::advertised_to`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRouteView {
    pub prefix: String,
    /// The neighbor that sends or receives it.
    pub neighbor: String,
    pub next_hop: String,
    /// The AS_PATH in operators' notation.
    pub as_path: String,
    /// ORIGIN: `igp`, `egp` or `incomplete`.
    pub origin: String,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF, which only routers of one AS send each other.
    pub local_pref: Option<u32>,
    /// Communities of all kinds, in operators' notation.
    pub communities: Vec<String>,
    /// The path identifier (RFC 7911); 0 if the session has none.
    pub path_id: u32,
}

impl SentRouteView {
    /// A route with these path attributes.
    pub fn new(prefix: IpPrefix, path_id: u32, path: &PathView<'_>, neighbor: &str) -> Self {
        let mut scratch = Vec::new();
        let as_path = path.four_octet_path(&mut scratch).unwrap_or_default();
        let next_hop = path.mp_reach.and_then(|reach| reach.next_hop_address());
        let next_hop = next_hop.or(path.next_hop.map(Into::into));
        let word = |bytes: &[u8; 4]| u32::from_be_bytes(*bytes);
        let standard = path.communities.as_chunks::<4>().0.iter().map(word);
        let large = path.large_communities.as_chunks::<4>().0.as_chunks::<3>().0.iter();
        let large = large.map(|each| each.each_ref().map(word));
        let extended = path.extended_communities.as_chunks::<8>().0.iter();
        let extended = extended.map(|each| u64::from_be_bytes(*each));
        Self {
            prefix: prefix.to_string(),
            neighbor: neighbor.to_owned(),
            next_hop: next_hop.map_or_else(String::new, |address| address.to_string()),
            as_path: AsPath::new(as_path).to_string(),
            origin: match path.origin {
                Some(0) => Origin::Igp,
                Some(1) => Origin::Egp,
                _ => Origin::Incomplete,
            }
            .to_string(),
            med: path.med,
            local_pref: path.local_pref,
            communities: communities(standard, large, extended),
            path_id,
        }
    }
}

/// Communities of all kinds, in operators' notation.
pub(crate) fn communities(
    standard: impl Iterator<Item = u32>,
    large: impl Iterator<Item = [u32; 3]>,
    extended: impl Iterator<Item = u64>,
) -> Vec<String> {
    let standard = standard.map(|each| format!("{}:{}", each >> 16, each & 0xffff));
    let large = large.map(|[a, b, c]| format!("{a}:{b}:{c}"));
    standard.chain(large).chain(extended.map(|each| format!("ext:{each:016x}"))).collect()
}
