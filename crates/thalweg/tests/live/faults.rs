//! What goes wrong: links, neighbours, processes. The router recovers, and its counters still add up.

use crate::site::{OFFICE, OUTSIDE, Router, Site, eventually};

fn config(driver: &str) -> String {
    format!(
        "[ports.lan]\ninterface = \"lan\"\ndriver = \"{driver}\"\naddresses = [\"10.1.0.1/24\"]\n\n\
         [ports.wan]\ninterface = \"wan\"\ndriver = \"{driver}\"\naddresses = [\"198.51.100.1/24\"]\n"
    )
}

fn started(site: &Site) {
    // Kept over a link that goes down.
    let outside = site.namespace(OUTSIDE);
    site.ip(&outside, "route add default via 198.51.100.1");
}

fn passes_again(site: &Site) {
    eventually("packets pass again", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
}

fn faults(driver: &str) {
    let Some(site) = Site::new() else { return };
    started(&site);
    let router: Router<'_> = site.run(&config(driver), &[]);
    let (here, outside, office) = (site.router(), site.namespace(OUTSIDE), site.namespace(OFFICE));

    // The port's interface goes down and comes back.
    site.ip(&here, "link set wan down");
    eventually("nothing passes", || (!site.pings(OFFICE, OUTSIDE.v4)).then_some(()));
    site.ip(&here, "link set wan up");
    passes_again(&site);

    // The neighbour gets another MAC address, without a word.
    site.ip(&outside, "link set eth0 down");
    site.ip(&outside, "link set eth0 address 02:00:00:00:77:01");
    site.ip(&outside, "link set eth0 up");
    site.ip(&outside, "route replace default via 198.51.100.1");
    passes_again(&site);

    // A smaller MTU: packets that may not be cut are answered for, and their senders learn.
    site.ip(&here, "link set wan mtu 1280");
    eventually("the sender learns of the smaller MTU", || {
        let arguments = ["-c", "1", "-W", "1", "-M", "do", "-s", "1400", OUTSIDE.v4];
        let said = site.output(&office, "ping", &arguments);
        let said = [said.stdout, said.stderr].concat();
        String::from_utf8_lossy(&said).contains("mtu = 1280").then_some(())
    });
    site.ip(&here, "link set wan mtu 1500");
    passes_again(&site);

    let counters = router.counters_add_up();
    assert_eq!(counters["queued"], 0, "{counters}");
}

#[test]
fn faults_by_af_packet() {
    faults("af_packet");
}

#[test]
fn faults_by_af_xdp() {
    faults("af_xdp");
}

/// A router that was killed leaves nothing behind that its successor minds.
#[test]
fn killed_and_started_again() {
    let Some(site) = Site::new() else { return };
    for driver in ["af_xdp", "af_packet", "af_xdp"] {
        started(&site);
        let mut router = site.run(&config(driver), &[]);
        router.process.kill();
        drop(router);
        site.ip(&site.namespace(OUTSIDE), "route del default");
        eventually("nothing passes", || (!site.pings(OFFICE, OUTSIDE.v4)).then_some(()));
    }
}
