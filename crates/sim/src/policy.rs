//! Writes the configurations of routers as an operator would, from the relationships with their neighbors.

use std::fmt::Write;
use std::net::Ipv4Addr;

use thalweg_base::IpPrefix;

use crate::topology::{AsGraph, Relation};

/// The kind of policy that all routers use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Routes of customers are preferred to those of peers, and those to routes of providers. Peers and
    /// providers receive only our own and our customers' routes. Communities mark where a route came from.
    #[default]
    Relationships,
    /// The same, with roles (RFC 9234), which prevent leaks by themselves.
    Roles,
    /// Every route is accepted and announced.
    Everything,
}

/// The timers of sessions, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// The hold time.
    pub hold_s: u32,
    /// Changes are sent at most once in this time; 0 means at once.
    pub mrai_s: u32,
    /// Whether MRAI delays withdrawals too.
    pub mrai_withdrawals: bool,
}

impl Default for Timers {
    fn default() -> Self {
        Self { hold_s: 90, mrai_s: 0, mrai_withdrawals: true }
    }
}

/// The address and BGP identifier of a router. Addresses are in the order of AS numbers, so ties between
/// equal paths are too.
pub fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 1)) + node as u32)
}

/// The LOCAL_PREF of a relation, which also marks its routes.
fn local_pref(relation: Relation) -> u32 {
    match relation {
        Relation::Customer => 200,
        Relation::Peer => 100,
        Relation::Provider => 50,
    }
}

/// The `router.toml` of an AS with one router.
///
/// `keys` are further lines of `[bgp]`.
pub fn router(
    graph: &AsGraph,
    node: usize,
    networks: &[IpPrefix],
    policy: Policy,
    timers: Timers,
    keys: &str,
) -> String {
    let networks: Vec<String> = networks.iter().map(IpPrefix::to_string).collect();
    let mut text = format!(
        "[bgp]\nas = {}\nrouter_id = \"{}\"\nlisten = []\ninstall = \"none\"\nhold_time_s = {}\nnetworks = {networks:?}\n",
        graph.asn(node),
        address(node),
        timers.hold_s,
    );
    if timers.mrai_s > 0 {
        let _ = writeln!(text, "mrai_ms = {}", timers.mrai_s * 1000);
        if !timers.mrai_withdrawals {
            text += "mrai_withdrawals = false\n";
        }
    }
    text += keys;
    if policy == Policy::Everything {
        text += "import = \"accept\"\nexport = \"accept\"\n";
    }
    for (other, what, _) in graph.links_of(node) {
        let relation = what.name();
        let _ =
            write!(text, "[[bgp.neighbor]]\naddress = \"{}\"\nas = {}\n", address(other), graph.asn(other));
        if policy != Policy::Everything {
            let export = if what == Relation::Customer { "accept" } else { "own-and-customers" };
            // Marks do not leave the AS.
            let _ = write!(
                text,
                "import = \"from-{relation}\"\nexport = \"{export}\"\nsend_communities = false\n"
            );
        }
        if policy == Policy::Roles {
            let _ = writeln!(text, "role = \"{relation}\"");
        }
    }
    if policy != Policy::Everything {
        text += &rules();
    }
    text
}

fn rules() -> String {
    let mut text = String::new();
    for relation in [Relation::Customer, Relation::Peer, Relation::Provider] {
        let pref = local_pref(relation);
        let _ = write!(
            text,
            "[[policy.rules.from-{}]]\nset = {{ local_pref = {pref}, communities_set = [\"64512:{pref}\"] }}\n\
             action = \"accept\"\n",
            relation.name()
        );
    }
    let customers = local_pref(Relation::Customer);
    let _ = write!(
        text,
        "[[policy.rules.own-and-customers]]\nmatch = {{ source = \"local\" }}\naction = \"accept\"\n\
         [[policy.rules.own-and-customers]]\nmatch = {{ community = \"64512:{customers}\" }}\naction = \"accept\"\n\
         [[policy.rules.own-and-customers]]\ndefault = \"reject\"\n"
    );
    text
}
