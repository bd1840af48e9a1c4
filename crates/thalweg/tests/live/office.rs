//! The example of an office with two providers as it is, with real clients: curl, dig, iperf3, sipp, ssh; and keepalived
//! as the office's second router.

use std::fs;
use std::path::PathBuf;

use crate::clients::{Web, asked, curl, dig, example, iperf3, name_as_examples};
use crate::site::{GUEST, OFFICE, OUTSIDE, Process, Router, Site, eventually, has};
use crate::two_providers::{INTERNET, PROVIDERS, checks_are, ends_well, set_silent, site};
use crate::vrrp::{Instance, keepalived, keepalived_has, share_link, stays_a_backup};
use crate::{dhcp, ssh};

/// The host for backups, and the address that the office's routers share.
const BACKUPS: &str = "10.1.0.200";
const GATEWAY: &str = "10.1.0.254";

fn run(site: &Site) -> Router<'_> {
    let router = site.run_alone(&example("office-two-providers", "router.toml"), &[]);
    checks_are(&router, ["passed"; 2]);
    router
}

/// The page, fetched by this provider with the router's address there; it must never be the other's address.
fn web_comes_by(site: &Site, provider: usize) {
    let pages = PROVIDERS.map(|provider| asked(provider.gateway_v4, provider));
    eventually(&format!("curl comes by provider {provider}"), || {
        let page = curl(site, OFFICE, &format!("http://{INTERNET}:8080/"))?;
        assert!(pages.contains(&page), "no provider sees another address: {page}");
        (page == pages[provider]).then_some(())
    });
}

/// The Internet as both providers have it: a web server, names, telephones.
struct Internet<'s> {
    site: &'s Site,
    /// What each provider's telephone has received.
    messages: [PathBuf; 2],
    _web: [Web; 2],
    _names: [Process; 2],
    _phones: [Process; 2],
}

impl<'s> Internet<'s> {
    fn new(site: &'s Site) -> Self {
        let messages = PROVIDERS.map(|provider| site.file(&format!("{}.sip", provider.port)));
        let names = PROVIDERS.map(|provider| {
            let (at, text) = (
                format!("--listen-address={INTERNET}"),
                format!("--txt-record=provider.test,{}", provider.port),
            );
            dhcp::serve(site, &site.namespace(provider), &["--bind-interfaces", &at, &text])
        });
        let phones = [0, 1].map(|number: usize| {
            let file = messages[number].display().to_string();
            let phone = ["-sn", "uas", "-i", INTERNET, "-nostdin", "-trace_msg", "-message_file", &file];
            site.start(&site.namespace(PROVIDERS[number]), "sipp", &phone)
        });
        let web = PROVIDERS.map(|provider| Web::new(site, provider, &format!("{INTERNET}:8080")));
        Self { site, messages, _web: web, _names: names, _phones: phones }
    }

    fn names_come_by(&self, provider: usize) {
        let expected = format!("\"{}\"", PROVIDERS[provider].port);
        eventually(&format!("dig comes by provider {provider}"), || {
            let said = dig(self.site, &self.site.namespace(OFFICE), INTERNET, "TXT", "provider.test")?;
            (said == expected).then_some(())
        });
    }

    fn calls(&self, provider: usize) -> usize {
        let text = fs::read(&self.messages[provider]).unwrap_or_default();
        String::from_utf8_lossy(&text).matches("\nINVITE sip:").count()
    }

    /// A call is set up and ended, and the telephone behind this provider was called.
    fn calls_come_by(&self, provider: usize) {
        let caller = ["-sn", "uac", INTERNET, "-i", OFFICE.v4, "-m", "1", "-nostdin", "-timeout", "5s"];
        let caller = [&caller[..], &["-timeout_error"]].concat();
        eventually(&format!("calls come by provider {provider}"), || {
            let before = self.calls(provider);
            let output = self.site.output(&self.site.namespace(OFFICE), "sipp", &caller);
            (output.status.success() && self.calls(provider) > before).then_some(())
        });
    }

    /// A stream from an address of the office, which the server sees as the router's at this provider.
    fn stream_comes_by(&self, from: &str, provider: usize) {
        let to = PROVIDERS[provider];
        let (who, sent) = iperf3(self.site, OFFICE, (to, INTERNET), &["-n", "1M", "-B", from]);
        assert_eq!(who, to.gateway_v4, "{from}");
        assert!(sent >= 1_000_000, "{sent}");
    }
}

/// Who is in the office logs in at the router; the Internet cannot.
fn the_router_is_the_offices(site: &Site) {
    let _shell = ssh::serve(site, &site.router());
    let to = OFFICE.gateway_v4;
    let ends = eventually("the office logs in", || ssh::login(site, OFFICE, to, 10));
    assert_eq!(ends, [OFFICE.v4, to]);
    for provider in PROVIDERS {
        assert_eq!(ssh::login(site, provider, provider.gateway_v4, 1), None, "{}", provider.port);
    }
}

#[test]
fn the_example_of_two_providers_serves_real_clients() {
    let Some(site) = site() else { return };
    let programs = ["curl", "dig", "dnsmasq", "iperf3", "sipp"];
    if !programs.iter().all(|program| has(program)) || !ssh::is_here() {
        return;
    }
    name_as_examples(&site, [OUTSIDE, GUEST, OFFICE]);
    site.ip(&site.namespace(OFFICE), &format!("addr add {BACKUPS}/24 dev eth0"));
    site.ip(&site.namespace(OFFICE), &format!("route replace default via {GATEWAY} src {}", OFFICE.v4));
    let router = run(&site);
    let internet = Internet::new(&site);
    web_comes_by(&site, 0);
    internet.names_come_by(0);
    internet.calls_come_by(1);
    internet.stream_comes_by(OFFICE.v4, 0);
    internet.stream_comes_by(BACKUPS, 1);
    the_router_is_the_offices(&site);

    // The first provider's gateway stays, and the Internet behind it is gone.
    set_silent(&site, OUTSIDE, true);
    checks_are(&router, ["failed", "passed"]);
    web_comes_by(&site, 1);
    internet.names_come_by(1);
    internet.stream_comes_by(OFFICE.v4, 1);
    internet.calls_come_by(1);
    set_silent(&site, OUTSIDE, false);
    checks_are(&router, ["passed"; 2]);
    web_comes_by(&site, 0);
    internet.names_come_by(0);
    internet.stream_comes_by(OFFICE.v4, 0);

    // The second provider's link dies: telephones and backups go by the first.
    site.ip(&site.namespace(GUEST), "link set eth0 down");
    internet.calls_come_by(0);
    internet.stream_comes_by(BACKUPS, 0);
    web_comes_by(&site, 0);
    site.ip(&site.namespace(GUEST), "link set eth0 up");
    checks_are(&router, ["passed"; 2]);
    internet.calls_come_by(1);
    internet.stream_comes_by(BACKUPS, 1);
    ends_well(router);
}

/// The second router is in the second provider's namespace: what it forwards arrives with the host's own address.
#[test]
fn the_example_of_two_providers_shares_its_gateway_with_keepalived() {
    let Some(site) = site() else { return };
    if !["curl", "keepalived"].iter().all(|program| has(program)) {
        return;
    }
    name_as_examples(&site, [OUTSIDE, GUEST, OFFICE]);
    share_link(&site, OFFICE, "eth9");
    site.ip(&site.namespace(GUEST), "addr add 10.1.0.3/24 dev eth9");
    site.ip(&site.namespace(OFFICE), &format!("route replace default via {GATEWAY}"));
    let _web = PROVIDERS.map(|provider| Web::new(&site, provider, &format!("{INTERNET}:8080")));
    let mut router = run(&site);
    web_comes_by(&site, 0);
    let address = format!("{GATEWAY}/24");
    let _second = keepalived(
        &site,
        &[Instance { id: 10, priority: 100, interval_s: "1", address: &address, options: "" }],
    );
    eventually("keepalived is a backup", || site.log().contains("Entering BACKUP STATE").then_some(()));
    stays_a_backup(&site, &router, GATEWAY);
    web_comes_by(&site, 0);

    router.process.kill();
    eventually("keepalived takes over", || keepalived_has(&site, GATEWAY).then_some(()));
    eventually("the office goes by the second router", || {
        let page = curl(&site, OFFICE, &format!("http://{INTERNET}:8080/"))?;
        (page == asked(OFFICE.v4, GUEST)).then_some(())
    });

    let router = run(&site);
    eventually("keepalived steps back", || (!keepalived_has(&site, GATEWAY)).then_some(()));
    eventually("the office goes by its own router again", || {
        let page = curl(&site, OFFICE, &format!("http://{INTERNET}:8080/"))?;
        (page == asked(OUTSIDE.gateway_v4, OUTSIDE)).then_some(())
    });
    ends_well(router);
}
