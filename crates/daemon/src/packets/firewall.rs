//! Answers about the firewall: slices of its table of connections, rules with rates, named sets.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use thalweg_config::{FirewallConfig, NamedSet};
use thalweg_dataplane::acl::RuleCount;
use thalweg_dataplane::firewall::{ROUTER, StateInfo, Zone, ipv4_of};
use thalweg_node::control::{
    Answer, AnswerError, Emit, FirewallCleared, FirewallCountersView, FirewallFilter, FirewallRuleView,
    FirewallSetView, FirewallStateFilter, FirewallStateView, to_json,
};
use thalweg_node::plan::FirewallStage;

use super::nat::Vrfs;
use super::rates::RuleMatches;
use super::slices::{in_slices, protocol_name, protocol_named};

pub(super) fn counters(stage: &FirewallStage, config: &FirewallConfig) -> FirewallCountersView {
    let counters = stage.counters().rows().map(|(name, value)| (name.to_owned(), value)).collect();
    FirewallCountersView { states_max: config.firewall.states_max.into(), counters }
}

/// The connections of a firewall, and what numbers in them mean.
pub(super) struct Connections<'f> {
    pub(super) stage: &'f FirewallStage,
    pub(super) config: &'f FirewallConfig,
    pub(super) vrfs: &'f Vrfs<'f>,
    /// The version of the present rules.
    pub(super) generation: u16,
    pub(super) now_ns: u64,
}

impl Connections<'_> {
    pub(super) fn list(&self, filter: &FirewallStateFilter, emit: Emit<'_>) -> Answer {
        let wanted = match self.wanted(&filter.which) {
            Ok(wanted) => wanted,
            Err(unknown) => return Ok(Err(unknown)),
        };
        in_slices(
            filter.limit,
            |from, into| self.stage.states(from, self.now_ns, |state| wanted.admits(state), into),
            |state| emit(to_json(&self.view(&state))),
        )
    }

    pub(super) fn clear(&self, which: &FirewallFilter) -> Result<FirewallCleared, AnswerError> {
        let wanted = self.wanted(which)?;
        Ok(FirewallCleared { ended: self.stage.end_states(self.now_ns, |state| wanted.admits(state)) })
    }

    fn wanted(&self, filter: &FirewallFilter) -> Result<Wanted, AnswerError> {
        let is_ipv6 = match filter.family.as_deref() {
            None => None,
            Some("ipv4") => Some(false),
            Some("ipv6") => Some(true),
            Some(other) => return Err(AnswerError::Family(other.to_owned())),
        };
        let zone = |name: &Option<String>| {
            let Some(name) = name else { return Ok(None) };
            let zones = (0..=self.config.zone_names.len()).filter_map(|zone| Zone::try_from(zone).ok());
            let mut zones = zones.chain([ROUTER]);
            let found = zones.find(|zone| self.config.zone_name(*zone) == name);
            found.map(Some).ok_or_else(|| AnswerError::Zone(name.clone()))
        };
        Ok(Wanted {
            source: (filter.source, filter.source_port),
            destination: (filter.destination, filter.destination_port),
            from: zone(&filter.from)?,
            to: zone(&filter.to)?,
            vrf: self.vrfs.number(filter.vrf.as_deref())?,
            is_ipv6,
            protocol: filter.protocol.as_deref().map(protocol_named).transpose()?,
            generation: self.generation,
        })
    }

    fn view(&self, state: &StateInfo) -> FirewallStateView {
        let is_present = state.generation == self.generation;
        let zone = |zone: Zone| is_present.then(|| self.config.zone_name(zone).to_owned());
        let end = |(address, port)| SocketAddr::new(address_of(state, address), port);
        FirewallStateView {
            family: if state.is_ipv6 { "ipv6" } else { "ipv4" }.to_owned(),
            protocol: protocol_name(state.protocol),
            source: end(state.origin),
            destination: end(state.other),
            source_vrf: state.vrfs.map(|(vrf, _)| self.vrfs.name(vrf)),
            destination_vrf: state.vrfs.map(|(_, vrf)| self.vrfs.name(vrf)),
            from: zone(state.zones.0),
            to: zone(state.zones.1),
            state: state.phase.name().to_owned(),
            rule: is_present.then(|| self.config.rule_name(state.rule).to_owned()),
            age_s: state.age_s,
            idle_s: state.idle_s,
            remaining_s: state.remaining_s,
        }
    }
}

/// The conditions on a connection.
struct Wanted {
    source: (Option<IpAddr>, Option<u16>),
    destination: (Option<IpAddr>, Option<u16>),
    from: Option<Zone>,
    to: Option<Zone>,
    vrf: Option<u16>,
    is_ipv6: Option<bool>,
    protocol: Option<u8>,
    generation: u16,
}

impl Wanted {
    fn admits(&self, state: &StateInfo) -> bool {
        let is_at = |(wanted, wanted_port): (Option<IpAddr>, Option<u16>), (address, port): (u128, u16)| {
            wanted.is_none_or(|wanted| wanted == address_of(state, address))
                && wanted_port.is_none_or(|wanted| wanted == port)
        };
        // Zones of other rules have other numbers.
        let of = |wanted: Option<Zone>, zone: Zone| {
            wanted.is_none_or(|wanted| wanted == zone && state.generation == self.generation)
        };
        let is_in = |wanted: u16| state.vrfs.is_some_and(|(from, to)| from == wanted || to == wanted);
        self.is_ipv6.is_none_or(|wanted| wanted == state.is_ipv6)
            && self.vrf.is_none_or(is_in)
            && self.protocol.is_none_or(|wanted| wanted == state.protocol)
            && is_at(self.source, state.origin)
            && is_at(self.destination, state.other)
            && of(self.from, state.zones.0)
            && of(self.to, state.zones.1)
    }
}

fn address_of(state: &StateInfo, address: u128) -> IpAddr {
    match state.is_ipv6 {
        true => Ipv6Addr::from(address).into(),
        false => ipv4_of(address).into(),
    }
}

pub(super) fn rules(
    config: &FirewallConfig,
    matches: &RuleMatches,
    rates: Option<&[[u64; 2]]>,
) -> Vec<FirewallRuleView> {
    let names = |zones: &[Zone]| zones.iter().map(|zone| config.zone_name(*zone).to_owned()).collect();
    let view = |(place, count): (usize, &RuleCount)| {
        let (rule, rate) = (config.firewall.rules.get(place), rates.and_then(|rates| rates.get(place)));
        FirewallRuleView {
            rule: config.rule_names.get(place).map_or("policy", String::as_str).to_owned(),
            action: rule.map_or(config.firewall.policy.name(), |rule| rule.rule.action.name()).to_owned(),
            from: rule.map(|rule| names(&rule.from)).unwrap_or_default(),
            to: rule.map(|rule| names(&rule.to)).unwrap_or_default(),
            state: match rule {
                Some(rule) if !rule.states.is_empty() => {
                    rule.states.iter().map(|state| state.name().to_owned()).collect()
                }
                _ => vec!["new".to_owned()],
            },
            packets: count.packets,
            bytes: count.bytes,
            packets_per_s: rate.map(|rate| rate[0]),
            bits_per_s: rate.map(|rate| rate[1]),
        }
    };
    matches.counts.iter().enumerate().map(view).collect()
}

/// When named sets were read, and what that changed.
#[derive(Debug)]
pub(super) struct SetsRead {
    at: Instant,
    /// By set, entries that were added and removed.
    changes: HashMap<String, (u64, u64)>,
}

impl SetsRead {
    pub(super) fn new() -> Mutex<Self> {
        Mutex::new(Self { at: Instant::now(), changes: HashMap::new() })
    }

    /// Notes that a reload has replaced the sets.
    pub(super) fn replaced(
        &mut self,
        before: &BTreeMap<String, NamedSet>,
        after: &BTreeMap<String, NamedSet>,
    ) {
        self.at = Instant::now();
        let none = NamedSet::default();
        let changes = after.iter().map(|(name, set)| {
            let old = before.get(name).unwrap_or(&none);
            let (addresses, ports) =
                (changed(&old.addresses, &set.addresses), changed(&old.ports, &set.ports));
            (name.clone(), (addresses.0 + ports.0, addresses.1 + ports.1))
        });
        self.changes = changes.collect();
    }

    pub(super) fn views(&self, sets: &BTreeMap<String, NamedSet>) -> Vec<FirewallSetView> {
        let view = |(name, set): (&String, &NamedSet)| {
            let (added, removed) = self.changes.get(name).copied().unwrap_or_default();
            FirewallSetView {
                set: name.clone(),
                addresses: set.addresses.len() as u64,
                ports: set.ports.len() as u64,
                file: set.file.clone(),
                age_s: self.at.elapsed().as_secs(),
                added,
                removed,
            }
        };
        sets.iter().map(view).collect()
    }
}

/// How many entries are only in the second and only in the first list.
fn changed<T: Eq + Hash>(before: &[T], after: &[T]) -> (u64, u64) {
    let (old, new): (HashSet<&T>, HashSet<&T>) = (before.iter().collect(), after.iter().collect());
    (new.difference(&old).count() as u64, old.difference(&new).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_says_what_it_changed_in_a_set() {
        let set = |addresses: &[&str], ports: &[u16]| NamedSet {
            addresses: addresses.iter().map(|net| net.parse().expect("a prefix")).collect(),
            ports: ports.iter().map(|port| *port..=*port).collect(),
            file: None,
        };
        let sets = |of: NamedSet| BTreeMap::from([("bad".to_owned(), of)]);
        let before = sets(set(&["192.0.2.0/24", "198.51.100.0/24"], &[80]));
        let after = sets(set(&["192.0.2.0/24", "2001:db8::/32", "2001:db8::/32"], &[80, 443]));
        let read = SetsRead::new();
        let read = &mut *read.lock();
        let seen = |read: &SetsRead, sets: &_| {
            let views = read.views(sets);
            let FirewallSetView { addresses, ports, added, removed, .. } = views[0];
            (addresses, ports, added, removed)
        };
        assert_eq!(seen(read, &before), (2, 1, 0, 0), "nothing was reloaded");
        read.replaced(&before, &after);
        assert_eq!(seen(read, &after), (3, 2, 2, 1));
        read.replaced(&after, &after);
        assert_eq!(seen(read, &after), (3, 2, 0, 0));
    }
}
