//! A home: the example as it is, with the programs that its page names.

use crate::clients::{Web, asked, curl, dig, example, name_as_examples};
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Process, Router, Site, eventually, has};
use crate::{dhcp, ssh};

/// What the provider's server gives the router.
const PUBLIC: &str = "198.51.100.50";

/// The page's dnsmasq, which also gives the server at home its address and knows a name.
fn servers(site: &Site) -> Process {
    let page = example("home", "README.md").replace("\\\n", " ");
    let command = page.lines().find_map(|line| line.strip_prefix("dnsmasq ")).expect("the page has it");
    let mac = site.mac_of(&site.namespace(OFFICE), "eth0");
    let host = format!("--dhcp-host={mac},{}", OFFICE.v4);
    let options: Vec<&str> =
        command.split_whitespace().chain([&*host, "--address=/printer.test/10.1.0.9"]).collect();
    dhcp::serve(site, &site.router(), &options)
}

/// Takes away what a host has without asking anybody.
fn forget(site: &Site, host: Host, family: &str) {
    let namespace = site.namespace(host);
    site.ip(&namespace, &format!("{family} addr flush dev eth0 scope global"));
    site.ip(&namespace, &format!("{family} route flush default"));
}

fn has_by_itself(site: &Site, host: Host, network: &str) {
    eventually(network, || {
        let own = site.said(&site.namespace(host), "ip", &["-o", "addr", "show", "dev", "eth0", "dynamic"]);
        own.contains(network).then_some(())
    });
}

/// The page that a host gets.
fn fetched(site: &Site, from: Host, url: &str) -> String {
    eventually(&format!("{} fetches {url}", from.port), || curl(site, from, url))
}

/// A host tries in vain, and the router has dropped what it sent for this reason.
fn is_kept_out(router: &Router<'_>, what: &str, reason: &str, got: impl FnOnce() -> Option<String>) {
    let before = router.dropped(reason);
    assert_eq!(got(), None, "{what}");
    eventually(&format!("{what}: {reason}"), || (router.dropped(reason) > before).then_some(()));
}

/// Both reach the Internet by both families, and have names by both.
fn hosts_are_served(site: &Site) {
    let _internet = Web::new(site, OUTSIDE, "[::]:8080");
    for (host, network) in [(OFFICE, "2001:db8:1:"), (GUEST, "2001:db8:2:")] {
        assert_eq!(fetched(site, host, &format!("http://{}:8080/", OUTSIDE.v4)), asked(PUBLIC, OUTSIDE));
        let own = fetched(site, host, &format!("http://[{}]:8080/", OUTSIDE.v6));
        assert!(own.starts_with(network), "IPv6 is not translated: {own}");
        for server in [host.gateway_v4, host.gateway_v6] {
            let said = eventually(&format!("{server} has names"), || {
                dig(site, &site.namespace(host), server, "A", "printer.test")
            });
            assert_eq!(said, "10.1.0.9");
        }
    }
}

/// The family logs in at the router; guests and the Internet cannot, and the Internet gets no names.
fn the_router_is_the_familys(site: &Site, router: &Router<'_>) {
    let _shell = ssh::serve(site, &site.router());
    for to in [OFFICE.gateway_v4, OFFICE.gateway_v6] {
        let [_, server] = eventually("the family logs in", || ssh::login(site, OFFICE, to, 10));
        assert_eq!(server, to);
    }
    let strangers = [
        (GUEST, [GUEST.gateway_v4, OFFICE.gateway_v4, GUEST.gateway_v6]),
        (OUTSIDE, [PUBLIC, "10.1.0.1", OUTSIDE.gateway_v6]),
    ];
    for (host, addresses) in strangers {
        for to in addresses {
            let login = || ssh::login(site, host, to, 1).map(|ends| ends.concat());
            is_kept_out(router, &format!("ssh from {} to {to}", host.port), "firewall-denied", login);
        }
    }
    for to in [PUBLIC, OUTSIDE.gateway_v6] {
        let names = || dig(site, &site.namespace(OUTSIDE), to, "A", "printer.test");
        is_kept_out(router, &format!("dig from outside at {to}"), "firewall-denied", names);
    }
}

/// The server is there for everybody outside, and nothing else is; guests stay among themselves.
fn only_the_server_is_public(site: &Site, router: &Router<'_>) {
    let _servers = [Web::new(site, OFFICE, "[::]:8443"), Web::new(site, OFFICE, "[::]:8444")];
    assert_eq!(fetched(site, OUTSIDE, &format!("http://{PUBLIC}:8443/")), asked(OUTSIDE.v4, OFFICE));
    assert_eq!(fetched(site, OUTSIDE, "http://[2001:db8:1::2]:8443/"), asked(OUTSIDE.v6, OFFICE));
    for (host, to) in
        [(OUTSIDE, "[2001:db8:1::2]:8444"), (GUEST, "10.1.0.2:8443"), (GUEST, "[2001:db8:1::2]:8443")]
    {
        let page = || curl(site, host, &format!("http://{to}/"));
        is_kept_out(router, &format!("curl from {} to {to}", host.port), "firewall-not-asked", page);
    }
}

#[test]
fn the_example_home_serves_family_guests_and_nobody_else() {
    let Some(site) = Site::new() else { return };
    if !dhcp::is_here() || !["curl", "dig"].iter().all(|program| has(program)) || !ssh::is_here() {
        return;
    }
    name_as_examples(&site, [OUTSIDE, OFFICE, GUEST]);
    let mut router = site.run_alone(&example("home", "router.toml"), &[]);
    let (system, outside) = (site.router(), site.namespace(OUTSIDE));
    let only = format!("--dhcp-range={PUBLIC},{PUBLIC},1h");
    let _provider = dhcp::serve(&site, &outside, &["--port=0", "--interface=eth0", &only]);
    let _address = dhcp::ask(&site, &system, "tw-wan");
    // An attempt on an address of the family is the firewall's to stop, not the lack of a route's.
    site.ip(&outside, &format!("route add 10.1.0.0/24 via {PUBLIC} dev eth0 onlink"));
    forget(&site, OFFICE, "-4");
    forget(&site, GUEST, "-4");
    forget(&site, GUEST, "-6");
    site.ip(&site.namespace(OFFICE), "-6 route flush default");
    let _servers = servers(&site);
    let _family = dhcp::ask(&site, &site.namespace(OFFICE), "eth0");
    let _guests = dhcp::ask(&site, &site.namespace(GUEST), "eth0");
    for (host, network) in [(OFFICE, "2001:db8:1:"), (GUEST, "2001:db8:2:")] {
        has_by_itself(&site, host, network);
        for to in [OUTSIDE.v4, OUTSIDE.v6] {
            eventually(&format!("{} reaches {to}", host.port), || site.pings(host, to).then_some(()));
        }
    }

    hosts_are_served(&site);
    the_router_is_the_familys(&site, &router);
    only_the_server_is_public(&site, &router);
    router.packets_add_up();
    assert!(router.process.end(), "the router stops with success");
}
