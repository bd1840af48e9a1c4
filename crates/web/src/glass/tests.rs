use super::*;

fn glass() -> Glass {
    Glass { now_ns: 1_795_364_562_000_000_000, version: "0.0.0", hidden: Vec::new() }
}

#[test]
fn questions_are_read_from_their_paths() {
    let question = |path| Question::read(path, "").map_err(|problem| problem.kind);
    assert_eq!(question("/routes/protocol/r1"), Ok(Question::OfNeighbor("r1".to_owned())));
    assert_eq!(question("/routes/table/master6"), Ok(Question::OfFamily("ipv6")));
    assert_eq!(question("/routes/table/other"), Err(ProblemKind::NotFound));
    assert_eq!(question("/route/net/10.0.0.0/8"), Ok(Question::OfPrefix("10.0.0.0/8".to_owned())));
    assert_eq!(question("/routes/prefix"), Err(ProblemKind::BadRequest));
    assert_eq!(question("/"), Err(ProblemKind::NotFound));
}

#[test]
fn names_become_ids() {
    assert_eq!(views::id("a-b_c.d:1"), "a-b_c.d:1");
    assert_eq!(views::id("peer one/<ü>"), "peer_one____");
}

#[test]
fn extended_communities_are_three_texts() {
    let of = |hex: &str| {
        let community = format!("ext:{hex}");
        let route = RouteView { communities: vec![community], ..route() };
        glass().route(&route, None)["bgp"]["ext_communities"].clone()
    };
    assert_eq!(of("0002fbf100000005"), serde_json::json!([["rt", "64497", "5"]]));
    assert_eq!(of("0103c000020100ff"), serde_json::json!([["ro", "192.0.2.1", "255"]]));
    assert_eq!(of("02020001000000ff"), serde_json::json!([["rt", "65536", "255"]]));
    assert_eq!(of("030b000000000001"), serde_json::json!([["generic", "0x30b0000", "0x1"]]));
    assert_eq!(of("not hex"), serde_json::json!([]));
}

fn route() -> RouteView {
    serde_json::from_value(serde_json::json!({
        "prefix": "10.0.0.0/8", "best": true, "neighbor": "local", "next_hop": "", "as_path": "", "origin": "incomplete",
        "med": null, "local_pref": 100, "weight": 0, "communities": [], "discard": false, "path_id": 0, "age_s": 0,
        "stale": false, "why": null
    }))
    .expect("a route")
}

#[test]
fn a_route_of_our_own_has_no_gateway() {
    let view = glass().route(&route(), None);
    assert_eq!((&view["gateway"], &view["learnt_from"]), (&"".into(), &"".into()));
    assert_eq!(
        (&view["bgp"]["origin"], &view["bgp"]["as_path"]),
        (&"Incomplete".into(), &serde_json::json!([]))
    );
    assert!(view["bgp"].get("med").is_none());
}
