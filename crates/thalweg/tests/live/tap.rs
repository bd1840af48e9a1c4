//! The system as a neighbor of the router, on an interface that the router creates.

use crate::site::{OUTSIDE, Site, eventually};

const CONFIG: &str = r#"
[ports.system]
interface = "twsystem"
driver = "tap"
addresses = ["10.9.0.1/24", "2001:db8:99::1/64"]

[ports.wan]
interface = "wan"
addresses = ["198.51.100.1/24", "2001:db8:9::1/64"]
"#;

/// Without `mac`, the router's address on the TAP link differs from the system's, otherwise they could not reach
/// each other.
#[test]
fn the_system_is_a_neighbor() {
    let Some(site) = Site::new() else { return };
    let (system, outside) = (site.router(), site.namespace(OUTSIDE));
    site.ip(&outside, "route add default via 198.51.100.1");
    let router = site.run_alone(CONFIG, &[]);
    let set_up = || {
        site.ip(&system, "addr add 10.9.0.2/24 dev twsystem");
        site.ip(&system, "addr add 2001:db8:99::2/64 dev twsystem nodad");
        site.ip(&system, "route replace 198.51.100.0/24 via 10.9.0.1");
        site.ip(&system, "route replace 2001:db8:9::/64 via 2001:db8:99::1");
    };
    let reaches = || {
        for to in ["10.9.0.1", "2001:db8:99::1", OUTSIDE.v4, OUTSIDE.v6] {
            eventually(to, || {
                site.output(&system, "ping", &["-c", "1", "-W", "1", to]).status.success().then_some(())
            });
        }
    };
    set_up();
    reaches();
    let macs = || {
        let said = site.said(&system, "ip", &["neigh", "show", "10.9.0.1", "dev", "twsystem"]);
        let found = said.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).map(str::to_owned);
        let own = site.said(&system, "cat", &["/sys/class/net/twsystem/address"]);
        (found.expect("the neighbor entry is resolved"), own.trim().to_owned())
    };
    let (routers, own) = macs();
    assert_ne!(routers, own);
    let ports = router.show(&["ports"]).expect("the router answers");
    let port = ports.iter().find(|port| port["name"] == "system").expect("the port is there");
    assert_eq!(port["mac"], routers, "{ports:?}");

    // When the system changes its address, even to the router's own, the router's address differs again.
    for mac in ["02:00:00:00:99:02", &routers] {
        site.ip(&system, &format!("link set twsystem address {mac}"));
        site.ip(&system, "neigh flush dev twsystem");
        reaches();
        let (routers, own) = macs();
        assert_eq!(own, *mac);
        assert_ne!(routers, own);
    }

    // The interface is deleted; the router creates it again.
    site.ip(&system, "link del twsystem");
    eventually("the interface is there again", || {
        site.output(&system, "ip", &["link", "show", "twsystem"]).status.success().then_some(())
    });
    set_up();
    reaches();
    router.counters_add_up();
}
