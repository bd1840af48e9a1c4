//! The console in headless Chromium, with recorded answers instead of a router (`server.py`).
//!
//! A test without Chromium or python3 is skipped, and says so. The recorded answers have the shapes of the views: that
//! test needs neither.

mod browser;
mod views;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use thalweg_node::control::{
    BgpNeighborView, CountersView, FirewallCountersView, FirewallRuleView, FirewallSetView, FlowCacheView,
    ForwardingView, GatewayCheckView, NatCountersView, PortView, QueueView, RibView, RouteView, RpkiView,
    StandbyView, StatusView, VirtualRouterView,
};
use thalweg_text::units;

use browser::Browser;
use views::{fixture, item, items};

/// The address of each page, and its heading.
const PAGES: [(&str, &str); 16] = [
    ("overview", "Overview"),
    ("ports", "Ports"),
    ("qos", "QoS"),
    ("nat", "NAT"),
    ("firewall", "Firewall"),
    ("bgp", "BGP"),
    ("bgp/peer-3", "peer-3"),
    ("failover", "Failover"),
    ("route/192.0.2.77", "Route"),
    ("trace?port=lan&from=10.1.0.23&to=192.0.2.77", "Trace a packet"),
    ("flows", "Flows"),
    ("flows?view=graph&back=1", "Flows"),
    ("flows?view=sankey", "Flows"),
    ("captures", "Captures"),
    ("laboratory", "Laboratory"),
    ("configuration", "Configuration"),
];

/// The recorded router's server, which ends with its standard input.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(options: &[&str]) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/console/server.py");
        let spawned = Command::new("python3")
            .arg(script)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                thalweg_testdata::skipped(&format!("the console: python3: {error}"));
                return None;
            }
        };
        let mut port = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut port).expect("the server's port");
        Some(Self { child, address: format!("http://127.0.0.1:{}/", port.trim()) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A browser and its server, or nothing if the machine lacks one of them.
fn console(options: &[&str]) -> Option<(Browser, Server)> {
    let browser = Browser::start()?;
    Some((browser, Server::start(options)?))
}

/// Goes to a page and waits until its heading is there and nothing is on its way.
fn open(browser: &mut Browser, server: &Server, page: &str, heading: &str) {
    browser.navigate(&format!("{}#/{page}", server.address));
    browser.until(&format!(
        "document.querySelector('h1')?.textContent === {heading:?} && document.querySelector('.bar .state.good') \
         && ![...document.querySelectorAll('[role=status]')].some((each) => each.textContent.endsWith('…'))"
    ));
}

#[test]
fn every_page_in_both_themes_and_widths_is_without_an_error() {
    let Some((mut browser, server)) = console(&[]) else { return };
    for theme in ["light", "dark"] {
        for width in [1440, 360] {
            browser.look(theme, width);
            for (page, heading) in PAGES {
                open(&mut browser, &server, page, heading);
                let needed = browser.evaluate("document.documentElement.scrollWidth").as_u64();
                assert!(needed <= Some(width.into()), "{page} is {needed:?} px wide at {width} px");
                let ground = browser.evaluate("getComputedStyle(document.body).backgroundColor + getComputedStyle(document.documentElement).backgroundColor");
                assert_eq!(ground.as_str().unwrap_or("").contains("15, 20, 24"), theme == "dark", "{ground}");
                for (what, flaw) in FLAWS {
                    let found = browser.evaluate(flaw);
                    assert_eq!(found, json!([]), "{page}, {theme}, {width} px: {what}");
                }
                assert_eq!(browser.errors(), Vec::<String>::new(), "{page}, {theme}, {width} px");
            }
        }
    }
}

/// What a page must not have: an expression lists it.
const FLAWS: [(&str, &str); 6] = [
    (
        "a heading that is not first",
        "document.querySelector('main').firstElementChild.matches('h1, .head') ? [] : [document.querySelector('main').innerText]",
    ),
    (
        "a table without a caption or a column without a sort state",
        "[...document.querySelectorAll('table')].filter((table) => !table.caption?.textContent \
         || [...table.tHead.rows[0].cells].some((cell) => !cell.hasAttribute('aria-sort'))).map((table) => table.innerText)",
    ),
    (
        "a field without a label",
        "[...document.querySelectorAll('input, select, textarea')].filter((field) => !field.labels?.length \
         && !field.ariaLabel).map((field) => field.outerHTML)",
    ),
    (
        "a button without a name",
        "[...document.querySelectorAll('button')].filter((button) => !button.textContent.trim()).map((button) => button.outerHTML)",
    ),
    (
        "a plot without a table behind it",
        "[...document.querySelectorAll('.plot')].filter((plot) => !plot.querySelector('details')).map((plot) => plot.innerText)",
    ),
    (
        "a name twice",
        "[...document.querySelectorAll('[id]')].map((each) => each.id).filter((id, at, all) => all.indexOf(id) !== at)",
    ),
];

#[test]
fn what_neighbors_and_files_say_stays_text() {
    let Some((mut browser, server)) = console(&[]) else { return };
    let hostile = "<script>window.owned=1</script>";
    for (page, heading) in [
        ("overview", "Overview"),
        ("bgp", "BGP"),
        ("bgp/peer-3", "peer-3"),
        ("flows", "Flows"),
        ("configuration", "Configuration"),
    ] {
        open(&mut browser, &server, page, heading);
        browser.until(&format!("document.querySelector('main').textContent.includes({hostile:?})"));
        let inert = "window.owned === undefined && !document.querySelector('main img, main script')";
        assert_eq!(browser.evaluate(inert), json!(true), "{page}");
        assert_eq!(browser.errors(), Vec::<String>::new(), "{page}");
    }
}

/// What the page about failover must say.
fn of_failover() -> Vec<String> {
    let checks: Vec<GatewayCheckView> = items("checks");
    let routers: Vec<VirtualRouterView> = items("vrrp");
    let [standby]: [StandbyView; 1] = items("standby").try_into().expect("one standby");
    let forwarding: ForwardingView = item("forwarding");
    let of_checks = checks.into_iter().flat_map(|check| {
        let numbers = [check.requests, check.answers, check.failures].map(units::count);
        [check.gateway, check.target, check.state].into_iter().chain(numbers)
    });
    let of_routers = routers.into_iter().flat_map(|router| {
        let numbers = [router.sent, router.received].map(units::count);
        [router.addresses.join(", "), router.state].into_iter().chain(router.active).chain(numbers)
    });
    let entries = [standby.sessions, standby.states, standby.peer_sessions, standby.peer_states];
    let saved = [forwarding.saved_prefixes, forwarding.protected_prefixes];
    let numbers = entries.into_iter().chain(standby.counters.into_values()).chain(saved).map(units::count);
    of_checks.chain(of_routers).chain([standby.state, standby.means]).chain(numbers).collect()
}

/// What each page must say: the numbers of `show`, in the program's own format.
fn expected() -> Vec<(&'static str, &'static str, Vec<String>)> {
    let (status, counters): (StatusView, CountersView) = (item("status"), item("counters"));
    let ports: Vec<PortView> = items("ports");
    let neighbors: Vec<BgpNeighborView> = items("bgp/neighbors");
    let (rib, nat): (RibView, NatCountersView) = (item("bgp/rib"), item("nat/counters"));
    let queues: Vec<QueueView> = items("queues");
    let routes: Vec<RouteView> = items("bgp/routes/any");
    let firewall: FirewallCountersView = item("firewall/counters");
    let rpki: RpkiView = item("bgp/rpki");
    let flows: FlowCacheView = item("flows/cache");
    let (rules, sets): (Vec<FirewallRuleView>, Vec<FirewallSetView>) =
        (items("firewall/rules"), items("firewall/sets"));
    let installed = status.installed.expect("installed routes");
    let sessions = status.nat.expect("NAT").sessions;
    let mut overview = vec![
        units::count(installed.ipv4 + installed.ipv6),
        units::count(sessions),
        units::bytes(status.memory_bytes),
        units::age(status.uptime_s),
    ];
    overview.extend(status.problems);
    overview
        .extend(counters.dropped.values().filter(|number| **number > 0).map(|number| units::count(*number)));
    let rates = ports.iter().filter_map(|port| port.rates);
    overview.push(units::bit_rate(rates.map(|rates| rates.bits_received_per_s).sum::<u64>() as f64));
    let of_ports = ports.iter().flat_map(|port| {
        let rates = port.rates.unwrap_or_default();
        [port.name.clone(), units::bit_rate(rates.bits_sent_per_s as f64), units::count(port.missed)]
    });
    let first = [ports[0].received, ports[0].received_bytes, ports[0].sent_bytes].map(units::count);
    let of_neighbors = neighbors.iter().flat_map(|each| {
        [
            each.address.to_string(),
            each.state.clone(),
            units::count(each.accepted),
            units::count(each.updates_received),
        ]
    });
    let of_queues = queues.iter().flat_map(|queue| [units::count(queue.sent), units::count(queue.marked)]);
    let of_routes =
        routes.iter().flat_map(|route| [route.as_path.clone(), route.why.clone().unwrap_or_default()]);
    let of_rules = rules.iter().flat_map(|rule| {
        let rates = [
            rule.packets_per_s.map(|rate| units::packet_rate(rate as f64)),
            rule.bits_per_s.map(|rate| units::bit_rate(rate as f64)),
        ];
        [rule.rule.clone(), units::count(rule.packets)].into_iter().chain(rates.into_iter().flatten())
    });
    let of_sets = sets.iter().flat_map(|set| [units::count(set.addresses), units::age(set.age_s)]);
    let of_rpki = rpki.sources.iter().flat_map(|source| {
        let vrps = units::count(source.vrps.ipv4 + source.vrps.ipv6);
        [source.source.clone(), vrps]
            .into_iter()
            .chain(source.age_s.map(|age| format!("{} ago", units::age(age))))
    });
    let of_paths = [rpki.valid_paths, rpki.not_found_paths, rpki.invalid_paths]
        .map(|paths| units::count(paths.ipv4 + paths.ipv6));
    let alarms = &flows.alarms;
    let of_alarms = alarms.active.iter().flat_map(|alarm| {
        [
            alarm.rule.clone(),
            format!("{} {}", alarm.key, alarm.of),
            units::count(alarm.peak),
            alarm.since.clone(),
        ]
    });
    let of_events = alarms.events.iter().flat_map(|event| [event.at.clone(), units::count(event.value)]);
    let of_blackholes = alarms.blackholes.iter().flat_map(|each| [each.prefix.clone(), each.until.clone()]);
    let of_firewall = firewall.counters.values().map(|number| units::count(*number));
    vec![
        ("overview", "Overview", overview),
        ("ports", "Ports", of_ports.chain(first).collect()),
        (
            "bgp",
            "BGP",
            of_neighbors
                .chain([units::count(rib.prefixes.ipv4), units::count(rib.attribute_sets)])
                .chain(of_rpki)
                .chain(of_paths)
                .collect(),
        ),
        ("failover", "Failover", of_failover()),
        ("flows", "Flows", of_alarms.chain(of_events).chain(of_blackholes).collect()),
        ("qos", "QoS", of_queues.collect()),
        ("nat", "NAT", nat.counters.values().map(|number| units::count(*number)).collect()),
        ("firewall", "Firewall", of_firewall.chain(of_rules).chain(of_sets).collect()),
        ("route/192.0.2.77", "Route", of_routes.collect()),
    ]
}

#[test]
fn numbers_are_those_of_the_router() {
    let Some((mut browser, server)) = console(&[]) else { return };
    for (page, heading, texts) in expected() {
        open(&mut browser, &server, page, heading);
        for expected in texts {
            browser
                .until(&format!("document.querySelector('main').textContent.includes({})", json!(expected)));
        }
    }
}

#[test]
fn the_keyboard_leads_everywhere() {
    let Some((mut browser, server)) = console(&[]) else { return };
    open(&mut browser, &server, "overview", "Overview");
    browser.keys("gp");
    browser.until("document.querySelector('h1')?.textContent === 'Ports'");
    browser.keys("gv");
    browser.until("document.querySelector('h1')?.textContent === 'Failover'");
    browser.keys("/");
    browser.until("document.activeElement.id === 'search'");
    browser.keys("192.0.2.77\r");
    browser.until("location.hash === '#/route/192.0.2.77' && document.querySelector('.route.best')");
    browser.keys("?");
    browser.until("document.querySelector('dialog[open] h2')?.textContent === 'Keys'");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// Each sentence about what is wrong leads to the page that says more.
#[test]
fn problems_lead_to_their_pages() {
    let Some((mut browser, server)) = console(&[]) else { return };
    open(&mut browser, &server, "overview", "Overview");
    let links = browser.evaluate(
        "[...document.querySelectorAll('.problems li')].map((each) => each.querySelector('a')?.getAttribute('href'))",
    );
    assert_eq!(links, json!(["#/bgp/peer-3", "#/ports/guest", "#/failover", "#/failover"]));
}

/// A router with nothing optional: every page says what would make it show something.
#[test]
fn a_router_that_lacks_parts_says_so() {
    let Some((mut browser, server)) = console(&["--bare"]) else { return };
    for (page, heading, sentences) in [
        ("overview", "Overview", &["This router forwards no packets"][..]),
        ("qos", "QoS", &[]),
        ("nat", "NAT", &["This router translates nothing"]),
        ("firewall", "Firewall", &["This router has no firewall"]),
        ("bgp", "BGP", &["This router does not speak BGP"]),
        (
            "failover",
            "Failover",
            &[
                "No routes of BGP are in use",
                "No gateway has a health check",
                "No virtual router",
                "No standby",
            ],
        ),
        ("flows", "Flows", &["This router keeps no flow records"]),
    ] {
        browser.look("light", 360);
        open(&mut browser, &server, page, heading);
        for sentence in sentences {
            browser
                .until(&format!("document.querySelector('main').textContent.includes({})", json!(sentence)));
        }
        let needed = browser.evaluate("document.documentElement.scrollWidth").as_u64();
        assert!(needed <= Some(360), "{page} is {needed:?} px wide");
    }
}

#[test]
fn a_route_is_asked_for_in_a_vrf() {
    let Some((mut browser, server)) = console(&[]) else { return };
    open(&mut browser, &server, "route/192.0.2.77", "Route");
    browser.until("document.querySelector('select[name=vrf]')?.options.length === 2");
    browser.evaluate(
        "((vrf) => { vrf.value = 'guests'; vrf.dispatchEvent(new Event('change')); })(document.querySelector('select[name=vrf]'))",
    );
    browser.until("location.hash === '#/route/192.0.2.77?vrf=guests' && document.querySelector('.path')");
    assert_eq!(browser.evaluate("document.querySelector('select[name=vrf]').value"), json!("guests"));
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn a_lost_connection_is_said_in_words() {
    let Some((mut browser, server)) = console(&[]) else { return };
    open(&mut browser, &server, "overview", "Overview");
    drop(server);
    browser
        .until("/connection lost, trying again in \\d+ s/.test(document.querySelector('.bar').textContent)");
}

#[test]
fn a_server_that_wants_a_token_is_given_one() {
    let Some((mut browser, server)) = console(&["--token"]) else { return };
    browser.navigate(&server.address);
    browser.until("document.querySelector('input[type=password]')");
    browser.evaluate("document.querySelector('input[type=password]').focus()");
    browser.keys("secret\r");
    browser
        .until("document.querySelector('h1')?.textContent === 'Overview' && document.querySelector('.stat')");
}

#[test]
fn recorded_answers_have_the_shapes_of_the_views() {
    assert_eq!(views::misshapen(), Vec::<String>::new());
    assert!(matches!(fixture("flows/graph")["series"], Value::Array(_)));
}
