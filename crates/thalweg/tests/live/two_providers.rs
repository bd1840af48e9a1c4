//! An office with two providers: the example as it is, and one provider after the other dies. Here each datagram is
//! followed; `office.rs` has real clients.
//!
//! The outside is the first provider, the guest the second. Both have the same host of the Internet.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clients::{example, name_as_examples};
use crate::dead_ways::goes_by;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};
use thalweg_testdata::uninterrupted;

/// The host of the Internet.
pub(crate) const INTERNET: &str = "203.0.113.1";
/// The providers, with the router's addresses there.
pub(crate) const PROVIDERS: [Host; 2] = [OUTSIDE, Host { v4: "192.0.2.2", gateway_v4: "192.0.2.1", ..GUEST }];

pub(crate) fn site() -> Option<Site> {
    let site = Site::new()?;
    let guest = site.namespace(GUEST);
    site.ip(&guest, "addr flush dev eth0 scope global");
    site.ip(&guest, &format!("addr add {}/24 dev eth0", PROVIDERS[1].v4));
    for provider in PROVIDERS {
        site.ip(&site.namespace(provider), &format!("addr add {INTERNET}/32 dev lo"));
    }
    Some(site)
}

fn socket(site: &Site, host: Host, at: &str) -> UdpSocket {
    let socket = site.within(&site.namespace(host), || UdpSocket::bind(at)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(250))).expect("a timeout");
    socket
}

/// Who sent this; earlier datagrams may have been late.
fn sender_of(socket: &UdpSocket, what: [u8; 4]) -> Option<SocketAddr> {
    let mut buffer = [0; 16];
    loop {
        let (length, who) = uninterrupted(|| socket.recv_from(&mut buffer)).ok()?;
        if buffer[..length] == what {
            return Some(who);
        }
    }
}

/// A service of the Internet, seen by both providers. It answers who has asked.
struct Service {
    port: u16,
    /// By provider.
    sockets: [UdpSocket; 2],
}

impl Service {
    fn new(site: &Site, port: u16) -> Self {
        let sockets = PROVIDERS.map(|host| socket(site, host, &format!("{INTERNET}:{port}")));
        Self { port, sockets }
    }

    /// The provider by which a host's question has come, and the address that asked; `None` if it got lost.
    fn asked_by(&self, from: &UdpSocket) -> Option<(usize, String)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let question = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        from.send_to(&question, (INTERNET, self.port)).expect("sent");
        let (place, seen) =
            (0..2).find_map(|place| Some((place, sender_of(&self.sockets[place], question)?)))?;
        self.sockets[place].send_to(&question, seen).expect("sent");
        let who = sender_of(from, question)?;
        assert_eq!(who.port(), self.port);
        Some((place, seen.ip().to_string()))
    }

    /// Waits until questions come by this provider, with its address and no other.
    fn comes_by(&self, from: &UdpSocket, provider: usize) {
        let expected = (provider, PROVIDERS[provider].gateway_v4.to_owned());
        eventually(&format!("port {} comes by provider {provider}", self.port), || {
            let found = self.asked_by(from)?;
            let is_own = found.1 == PROVIDERS[found.0].gateway_v4;
            assert!(is_own, "no provider sees the other's address: {found:?}");
            (found == expected).then_some(())
        });
    }
}

/// Asks the office's server from the Internet by a provider, and has it answer.
fn server_answers(site: &Site, provider: Host, server: &UdpSocket) {
    let client = socket(site, provider, &format!("{INTERNET}:0"));
    let public: SocketAddr = format!("{}:4500", provider.gateway_v4).parse().expect("an address");
    let mut buffer = [0; 16];
    eventually(&format!("the server answers by {}", provider.port), || {
        client.send_to(b"there", public).expect("sent");
        let (_, who) = uninterrupted(|| server.recv_from(&mut buffer)).ok()?;
        server.send_to(b"back", who).expect("sent");
        let (_, answered) = uninterrupted(|| client.recv_from(&mut buffer)).ok()?;
        assert_eq!(answered, public, "by the way that the question came");
        Some(())
    });
}

pub(crate) fn checks_are(router: &Router<'_>, states: [&str; 2]) {
    eventually(&format!("the checks are {states:?}"), || {
        let mut checks = router.show(&["checks"])?;
        checks.sort_by_key(|check| check["gateway"] == "192.0.2.2");
        let found: Vec<_> = checks.iter().filter_map(|check| check["state"].as_str()).collect();
        (found == states).then_some(())
    });
}

/// Makes a provider's Internet ignore echo requests, or answer them again.
pub(crate) fn set_silent(site: &Site, provider: Host, is_silent: bool) {
    let key = format!("net.ipv4.icmp_echo_ignore_all={}", u8::from(is_silent));
    site.said(&site.namespace(provider), "sysctl", &["-q", "-w", &key]);
}

#[test]
fn the_example_of_two_providers_uses_both_and_survives_either() {
    let Some(site) = site() else { return };
    name_as_examples(&site, [OUTSIDE, GUEST, OFFICE]);
    let config = example("office-two-providers", "router.toml");
    let router = site.run_alone(&config, &[]);
    checks_are(&router, ["passed"; 2]);
    let (web, voice) = (Service::new(&site, 7000), Service::new(&site, 5060));
    let (browser, phone) = (socket(&site, OFFICE, "10.1.0.2:0"), socket(&site, OFFICE, "10.1.0.2:0"));
    web.comes_by(&browser, 0);
    voice.comes_by(&phone, 1);
    let servers = [4500, 4501].map(|port| socket(&site, OFFICE, &format!("10.1.0.2:{port}")));
    let both_serve = || {
        for (provider, server) in PROVIDERS.iter().zip(&servers) {
            server_answers(&site, *provider, server);
        }
    };
    both_serve();

    // The first provider's gateway stays, and the Internet behind it is gone.
    set_silent(&site, OUTSIDE, true);
    checks_are(&router, ["failed", "passed"]);
    web.comes_by(&browser, 1);
    voice.comes_by(&phone, 1);
    set_silent(&site, OUTSIDE, false);
    checks_are(&router, ["passed"; 2]);
    web.comes_by(&browser, 0);

    // The second provider's link dies: the rule's packets take the route.
    site.ip(&site.namespace(GUEST), "link set eth0 down");
    voice.comes_by(&phone, 0);
    web.comes_by(&browser, 0);
    site.ip(&site.namespace(GUEST), "link set eth0 up");
    checks_are(&router, ["passed"; 2]);
    voice.comes_by(&phone, 1);
    both_serve();

    // A reload gives the rule's number to another rule, and takes the second away.
    router.reload(&config.replace("\"5060-5061\"", "7000")).expect("the reload");
    web.comes_by(&browser, 1);
    voice.comes_by(&phone, 0);
    let rules = router.show(&["acl"]).expect("it answers");
    let of_routing: Vec<_> = rules.iter().filter(|rule| rule["list"] == "[routing]").collect();
    assert_eq!(of_routing.len(), 3, "{rules:?}");
    assert!(of_routing[1]["packets"].as_u64().is_some_and(|packets| packets > 0), "{of_routing:?}");
    let why = router.trace("lan ip 10.1.0.2 -> 203.0.113.1 udp 999 -> 7000").to_string();
    assert!(why.contains("rule voice"), "{why}");
    ends_well(router);
}

/// The example's router has accounted for every packet, and stops.
pub(crate) fn ends_well(mut router: Router<'_>) {
    router.packets_balance();
    assert!(router.process.end(), "the router stops with success");
}

/// Without health checks and rules: a link that dies moves everything.
#[test]
fn a_dead_link_moves_all_sessions_to_the_other_provider() {
    let Some(site) = site() else { return };
    let port = |name: &str, address: &str| {
        format!(
            "[ports.{name}]\ninterface = \"{name}\"\ndriver = \"af_packet\"\naddresses = [\"{address}\"]\n\n"
        )
    };
    let default = |via: &str, metric| {
        format!("[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"{via}\"\nmetric = {metric}\n\n")
    };
    let config = [
        port("wan", "198.51.100.1/24"),
        port("guest", "192.0.2.1/24"),
        port("lan", "10.1.0.1/24"),
        default("198.51.100.2", 10),
        default("192.0.2.2", 20),
        "[nat]\noutside = [\"wan\", \"guest\"]\ninside = \"lan\"\n".to_owned(),
    ]
    .concat();
    let mut router = site.run_alone(&config, &[]);
    let (web, browser) = (Service::new(&site, 7000), socket(&site, OFFICE, "10.1.0.2:0"));
    web.comes_by(&browser, 0);
    site.ip(&site.namespace(OUTSIDE), "link set eth0 down");
    web.comes_by(&browser, 1);
    site.ip(&site.namespace(OUTSIDE), "link set eth0 up");
    goes_by(&router, "0.0.0.0/0", &[OUTSIDE]);
    web.comes_by(&browser, 0);
    let sessions = router.show(&["nat", "--protocol", "udp"]).expect("it answers");
    assert_eq!(sessions.len(), 2, "each provider has its session, and keeps it: {sessions:?}");
    router.packets_add_up();
    assert!(router.process.end(), "the router stops with success");
}
