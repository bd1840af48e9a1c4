//! The recorded answers, and whether they have the shapes that the router's answers have.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thalweg_node::control::{
    AclRuleView, BgpNeighborView, ConfigView, CountersView, FibRouteView, FibView, FirewallCountersView,
    FirewallRuleView, FirewallSetView, FirewallStateView, FlowCacheView, ForwardingView, GatewayCheckView,
    MemoryView, NatBlockView, NatCountersView, NatSessionView, NeighborView, PolicerView, PortView,
    QueueView, RibView, RouteView, RpkiView, StandbyView, StatusView, UpdateGroupView, ValidityView,
    VirtualRouterView, VrfView, WorkerView, to_json,
};
use thalweg_node::trace::TraceView;

/// A recorded answer.
pub(super) fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A recorded view.
pub(super) fn item<V: DeserializeOwned>(name: &str) -> V {
    serde_json::from_value(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A recorded list of views.
pub(super) fn items<V: DeserializeOwned>(name: &str) -> Vec<V> {
    serde_json::from_value(fixture(name)["items"].clone()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Answers that are not what the router would write: another field, one more, one less.
pub(super) fn misshapen() -> Vec<String> {
    [
        one::<StatusView>("status"),
        one::<ConfigView>("config"),
        one::<CountersView>("counters"),
        one::<ForwardingView>("forwarding"),
        one::<FibView>("fib/any"),
        one::<NatCountersView>("nat/counters"),
        one::<FirewallCountersView>("firewall/counters"),
        list::<FirewallRuleView>("firewall/rules"),
        list::<FirewallSetView>("firewall/sets"),
        list::<FirewallStateView>("firewall/states"),
        one::<RibView>("bgp/rib"),
        one::<MemoryView>("bgp/memory"),
        one::<FlowCacheView>("flows/cache"),
        one::<RpkiView>("bgp/rpki"),
        list::<GatewayCheckView>("checks"),
        list::<VirtualRouterView>("vrrp"),
        list::<StandbyView>("standby"),
        one::<TraceView>("trace"),
        one::<BgpNeighborView>("bgp/neighbors/peer-3"),
        list::<PortView>("ports"),
        list::<WorkerView>("workers"),
        list::<QueueView>("queues"),
        list::<PolicerView>("policers"),
        list::<AclRuleView>("acl"),
        list::<NeighborView>("arp"),
        list::<FibRouteView>("fib"),
        list::<VrfView>("vrfs"),
        list::<NatSessionView>("nat/sessions"),
        list::<NatBlockView>("nat/blocks"),
        list::<BgpNeighborView>("bgp/neighbors"),
        list::<UpdateGroupView>("bgp/update-groups"),
        list::<RouteView>("bgp/routes"),
        list::<RouteView>("bgp/routes/any"),
        one::<ValidityView>("bgp/rpki/any"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn one<V: DeserializeOwned + Serialize>(name: &str) -> Option<String> {
    differs::<V>(name, fixture(name))
}

fn list<V: DeserializeOwned + Serialize>(name: &str) -> Option<String> {
    let answer = fixture(name);
    let items = answer["items"].as_array().cloned().unwrap_or_default();
    assert!(!items.is_empty(), "{name} has no item");
    items.into_iter().find_map(|item| differs::<V>(name, item))
}

fn differs<V: DeserializeOwned + Serialize>(name: &str, recorded: Value) -> Option<String> {
    match serde_json::from_value::<V>(recorded.clone()) {
        Ok(view) if to_json(&view) == recorded => None,
        Ok(view) => Some(format!("{name}: {recorded}\n  the router writes {}", to_json(&view))),
        Err(error) => Some(format!("{name}: {error}")),
    }
}
