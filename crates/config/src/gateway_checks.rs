//! `check` of `[[routes]]`: health checks of next hops.

use std::net::IpAddr;
use std::ops::Range;

use thalweg_dataplane::gateway_check::CheckConfig;

use crate::diagnostic::ErrorKind;
use crate::key::{Key, Sub, table};
use crate::ports::Ports;
use crate::reader::Reader;
use crate::section::Section;
use crate::types::RouteTarget;
use crate::values;

pub(crate) static CHECK: Key<Sub> = Key::section("check", &CHECK_TABLE).help(
    "health check of the next hops: while one does not answer, no route uses it that has another path; see \
     [failover.md](failover.md#health-checks)",
);
table! {
    static CHECK_TABLE: "routes.check", "[routes.check]";

    static PING: Key<IpAddr> = Key::text("ping", "an address", values::address)
        .otherwise("the next hop itself")
        .help("who must answer echo requests that leave by way of the next hop: itself, or a host behind it");
    static EVERY_MS: Key<u32> =
        Key::number("every_ms", 100..=60_000).unit("milliseconds").default(1000).help("time between requests");
    static FAIL: Key<u8> = Key::number("fail", 1..=100)
        .default(3)
        .help("requests in a row without an answer after which the next hop is not used");
    static PASS: Key<u8> =
        Key::number("pass", 1..=100).default(3).help("answers in a row after which it is used again");
}

/// The most checked gateways of a router.
const CHECKS_MAX: usize = 256;

/// The checks so far, each with the place of its first mention.
#[derive(Default)]
pub(crate) struct GatewayChecks(Vec<(CheckConfig, Range<usize>)>);

impl GatewayChecks {
    /// Reads the `check` of a route.
    pub(crate) fn read(
        &mut self,
        reader: &mut Reader,
        mut section: Section<'_>,
        target: Option<&RouteTarget>,
        ports: &Ports,
    ) {
        let span = section.span.clone();
        let ping = section.read(reader, &PING);
        let (every, fail, pass) =
            (section.get(reader, &EVERY_MS), section.get(reader, &FAIL), section.get(reader, &PASS));
        section.finish(reader);
        let (Some(every), Some(fail), Some(pass), Some(target)) = (every, fail, pass, target) else { return };
        let next_hops = match target {
            RouteTarget::Forward(next_hops) => &next_hops[..],
            _ => &[],
        };
        let gateways = next_hops.iter().filter_map(|hop| Some((hop.port, hop.gateway?)));
        let checks: Vec<_> = gateways
            .map(|(port, gateway)| {
                let target = ping.as_ref().map_or(gateway, |ping| ping.value);
                CheckConfig { port, gateway, target, every_ns: u64::from(every) * 1_000_000, fail, pass }
            })
            .collect();
        if checks.is_empty() {
            let message = "a route without a next hop has nothing to check";
            reader.error(ErrorKind::Conflict, &span, message, "`via` beside `check`");
        }
        if let Some(ping) = ping {
            let vrf = checks.first().map_or(0, |check| ports.vrf_of(check.port));
            let owner = ports.owner(ping.value, vrf).map(|port| ports.name(port));
            if let Some(port) = owner {
                let message = format!("{} is the router's own address on port {port}", ping.value);
                reader.error(ErrorKind::Conflict, &ping.span, message, "the address of another host");
            } else if !values::is_unicast(ping.value) {
                let message = format!("no single host has the address {}", ping.value);
                reader.error(ErrorKind::BadValue, &ping.span, message, "a host's address");
            } else if checks.iter().any(|check| check.gateway.is_ipv4() != ping.value.is_ipv4()) {
                let message = format!("{} is of another family than the next hop", ping.value);
                reader.error(ErrorKind::Conflict, &ping.span, message, "an address of the same family");
            }
        }
        for check in checks {
            self.add(reader, check, &span);
        }
    }

    fn add(&mut self, reader: &mut Reader, check: CheckConfig, span: &Range<usize>) {
        let is_of =
            |known: &&(CheckConfig, _)| (known.0.port, known.0.gateway) == (check.port, check.gateway);
        match self.0.iter().find(is_of) {
            Some((known, _)) if *known == check => {}
            Some((_, first)) => {
                let message = format!("next hop {} has two different checks", check.gateway);
                let expected = format!("the same check, or none: see {}", reader.line(first));
                reader.error(ErrorKind::Conflict, span, message, expected);
            }
            None if self.0.len() >= CHECKS_MAX => {
                let expected = format!("at most {CHECKS_MAX}");
                reader.error(ErrorKind::TooMany, span, "too many next hops have a check", expected);
            }
            None => self.0.push((check, span.clone())),
        }
    }

    pub(crate) fn finish(self) -> Vec<CheckConfig> {
        self.0.into_iter().map(|(check, _)| check).collect()
    }
}
