//! The routers under test.

use super::site::{
    HOLD_S, PORTS, Process, ROUTER_AS, SHARED_ADDRESS, Shape, Site, TABLE_ALL, TRANSIT_AS, neighbor_address,
    outside_address, prefix, router_address,
};
use super::stateful::{self, ADVERTISE_MS};
use super::{Failure, Options};
use crate::forwarding::ForwardingError;
use crate::forwarding::namespace::Namespace;
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

/// How much of a log is told.
const SAID_BYTES: usize = 1000;
/// The health check of `thalweg-check`: a gateway fails it within half a second.
const CHECK: &str = "check = { every_ms = 100, fail = 3, pass = 3 }";

thalweg_base::words! {
    /// A router under test.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum RouterKind {
        /// BGP with both transits.
        ThalwegBgp => "thalweg-bgp",
        /// The same with graceful restart and a saved forwarding table.
        ThalwegSaved => "thalweg-saved",
        /// A route by each transit, with metrics and health checks.
        ThalwegCheck => "thalweg-check",
        /// BIRD with both transits, and the kernel.
        Bird => "bird",
        /// The kernel alone: a group of both next hops, of which each flow has one.
        KernelGroup => "kernel-group",
        /// A pair, each with one transit, that shares the client's gateway by VRRP.
        ThalwegVrrp => "thalweg-vrrp",
        /// The same by keepalived, and the kernel.
        Keepalived => "keepalived",
        /// A pair with NAT and a firewall, of which the second one has the first one's sessions and states.
        ThalwegStandby => "thalweg-standby",
        /// The same by keepalived and conntrackd, and the kernel.
        Conntrackd => "conntrackd",
    }
}

/// What `thalweg-saved` has more than `thalweg-bgp`.
const SAVED: &str = "save_fib = true\ngraceful_restart = true\n";

impl RouterKind {
    /// Whether the failure is one for this router.
    pub fn meets(self, failure: Failure) -> bool {
        match failure {
            Failure::Router => self.is_pair(),
            _ if self.is_pair() => false,
            _ if self == Self::ThalwegSaved => failure == Failure::Process,
            Failure::Link | Failure::Port | Failure::Gateway | Failure::Moved => true,
            Failure::Session => self.needs_bird(),
            Failure::Process => self != Self::KernelGroup,
        }
    }

    /// Whether it is two routers.
    pub(super) fn is_pair(self) -> bool {
        matches!(self, Self::ThalwegVrrp | Self::Keepalived) || self.has_state()
    }

    /// The network that it needs.
    pub(super) fn shape(self) -> Shape {
        match (self.is_pair(), self.has_state()) {
            (false, _) => Shape::One,
            (true, false) => Shape::Pair,
            (true, true) => Shape::PairWithState,
        }
    }

    /// Whether it is two routers that copy the state of connections.
    pub(super) fn has_state(self) -> bool {
        matches!(self, Self::ThalwegStandby | Self::Conntrackd)
    }

    /// Whether it is made of our program.
    fn is_ours(self) -> bool {
        self.speaks_our_bgp() || matches!(self, Self::ThalwegCheck | Self::ThalwegVrrp | Self::ThalwegStandby)
    }

    /// Programs that must be installed, each with its package.
    pub(super) fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::ThalwegBgp | Self::ThalwegSaved | Self::Bird => &[("bird", "bird2")],
            Self::Keepalived => &[("keepalived", "keepalived")],
            Self::Conntrackd => {
                &[("keepalived", "keepalived"), ("conntrackd", "conntrackd"), ("nft", "nftables")]
            }
            Self::ThalwegCheck | Self::KernelGroup | Self::ThalwegVrrp | Self::ThalwegStandby => &[],
        }
    }

    /// Whether BIRD takes part.
    fn needs_bird(self) -> bool {
        self.speaks_our_bgp() || self == Self::Bird
    }

    /// Whether it is our program with BGP.
    fn speaks_our_bgp(self) -> bool {
        matches!(self, Self::ThalwegBgp | Self::ThalwegSaved)
    }
}

/// A running router.
pub(super) struct Router {
    kind: RouterKind,
    process: Option<Process>,
    /// That of the second router of a pair.
    second: Option<Process>,
    /// What runs beside both of a pair.
    beside: [Option<Process>; 2],
    prefixes: u32,
    /// Its control socket, and the program that asks there.
    socket: String,
    program: String,
    log: String,
}

impl Router {
    /// Starts it, and the transits' daemons if they take part.
    pub(super) fn start(
        kind: RouterKind,
        site: &mut Site,
        options: &Options,
    ) -> Result<Self, ForwardingError> {
        let mut router = Self {
            kind,
            process: None,
            second: None,
            beside: [None, None],
            prefixes: options.prefixes.max(1),
            socket: site.path("router.sock"),
            program: options.program.display().to_string(),
            log: site.path(match kind {
                RouterKind::Bird => "bird-r.log",
                _ if kind.is_pair() => "half-0.log",
                _ => "router.log",
            }),
        };
        if matches!(kind, RouterKind::Bird | RouterKind::KernelGroup) {
            kernel_forwards(site)?;
        }
        if kind == RouterKind::KernelGroup {
            router.group(site)?;
        }
        if kind == RouterKind::Conntrackd {
            for (which, half) in [Some(&site.router), site.second.as_ref()].into_iter().enumerate() {
                router.beside[which] = half.map(|half| router.tracker(site, half, which)).transpose()?;
            }
        }
        router.process = router.launch(site, options)?;
        if let Some(second) = &site.second {
            router.second = Some(router.half(site, second, 1, options)?);
        }
        if kind.needs_bird() {
            site.announce(kind == RouterKind::ThalwegSaved)?;
        }
        Ok(router)
    }

    /// Kills the process without a warning, and starts it again.
    pub(super) fn restart(&mut self, site: &Site, options: &Options) -> Result<(), ForwardingError> {
        self.process.iter_mut().for_each(Process::kill);
        self.process = self.launch(site, options)?;
        Ok(())
    }

    /// Kills the process, and what runs beside it, without a warning.
    pub(super) fn kill(&mut self) {
        self.process.iter_mut().chain(&mut self.beside[0]).for_each(Process::kill);
    }

    /// Starts the daemon that copies the kernel's connections to the other half, in a kernel that translates and
    /// filters.
    fn tracker(&self, site: &Site, half: &Namespace, which: usize) -> Result<Process, ForwardingError> {
        let rules = site.file("pair.nft", &stateful::nftables())?;
        half.exec(&["nft", "-f", &rules])?;
        // As our routers: a connection does not begin in its middle.
        half.set("netfilter/nf_conntrack_tcp_loose", "0")?;
        let path = site.whole_path(&format!("conntrackd-{which}"))?;
        let config = site.file(&format!("conntrackd-{which}.conf"), &stateful::conntrackd(which, &path))?;
        let log = site.path(&format!("conntrackd-{which}.said"));
        Process::start(half, &["conntrackd", "-C", &config], log.as_ref())
    }

    /// Starts one router of a pair: the first (0) with the first transit, or the second (1).
    fn half(
        &self,
        site: &Site,
        namespace: &Namespace,
        which: usize,
        options: &Options,
    ) -> Result<Process, ForwardingError> {
        let [name, socket, log] = self.files(which).map(|name| site.path(&name));
        let (address, transit, priority) = (["10.0.1.1", "10.0.1.3"][which], which + 1, [200, 100][which]);
        let via = neighbor_address(transit);
        if self.kind == RouterKind::ThalwegStandby {
            site.file(stateful::KEY_FILE, "a secret for routers of a laboratory\n")?;
            let text = port(&options.driver, PORTS[0], address, false)
                + &port(&options.driver, PORTS[1], &outside_address(which), false)
                + &stateful::thalweg(which, priority);
            let config = site.file(&format!("half-{which}.toml"), &text)?;
            let words = [&*self.program, "run", &config, "--socket", &socket];
            return Process::start(namespace, &words, log.as_ref());
        }
        if self.kind == RouterKind::ThalwegVrrp {
            let text = port(&options.driver, PORTS[0], address, false)
                + &port(&options.driver, PORTS[transit], &router_address(transit), false)
                + &format!(
                    "\n[[routes]]\nprefix = \"{TABLE_ALL}\"\nvia = \"{via}\"\n\n[[vrrp]]\nport = \"{}\"\nid = 1\n\
                     addresses = \"{SHARED_ADDRESS}\"\npriority = {priority}\ninterval_ms = {ADVERTISE_MS}\n",
                    PORTS[0]
                );
            let config = site.file(&format!("half-{which}.toml"), &text)?;
            let words = [&*self.program, "run", &config, "--socket", &socket];
            return Process::start(namespace, &words, log.as_ref());
        }
        namespace.ip(&format!("address add {address}/24 dev {}", PORTS[0]))?;
        namespace.set("ipv4/ip_forward", "1")?;
        let [pid, vrrp] = ["pid", "vrrp"].map(|of| format!("{name}.{of}"));
        if self.kind == RouterKind::Conntrackd {
            namespace.ip(&format!("address add {}/24 dev {}", outside_address(which), PORTS[1]))?;
            namespace.ip(&format!("route add {TABLE_ALL} via {}", neighbor_address(1)))?;
            let tracker = site.whole_path(&format!("conntrackd-{which}.conf"))?;
            let script = site.program(&format!("moved-{which}.sh"), &stateful::script(&tracker))?;
            let config =
                site.file(&format!("keepalived-{which}.conf"), &stateful::keepalived(priority, &script))?;
            let words = ["keepalived", "-n", "-l", "-P", "-f", &config, "-p", &pid, "-r", &vrrp];
            return Process::start(namespace, &words, log.as_ref());
        }
        namespace.ip(&format!("address add {}/24 dev {}", router_address(transit), PORTS[transit]))?;
        namespace.ip(&format!("route add {TABLE_ALL} via {via}"))?;
        let text = format!(
            "global_defs {{\n  vrrp_version 3\n}}\nvrrp_instance shared {{\n  state BACKUP\n  interface {}\n  \
             virtual_router_id 1\n  priority {priority}\n  advert_int {}\n  version 3\n  \
             virtual_ipaddress {{\n    {SHARED_ADDRESS}/24\n  }}\n}}\n",
            PORTS[0],
            f64::from(ADVERTISE_MS) / 1e3
        );
        let config = site.file(&format!("keepalived-{which}.conf"), &text)?;
        let words = ["keepalived", "-n", "-l", "-P", "-f", &config, "-p", &pid, "-r", &vrrp];
        Process::start(namespace, &words, log.as_ref())
    }

    /// Names of the files of one router of a pair: of its own, its socket, its log.
    fn files(&self, which: usize) -> [String; 3] {
        [format!("half-{which}"), format!("half-{which}.sock"), format!("half-{which}.log")]
    }

    /// Whether the first router of a pair has the shared address, and the second one not.
    fn has_shared_address(&self, site: &Site) -> bool {
        let Some(second) = &site.second else {
            return false;
        };
        let is_active = |which: usize, namespace: &Namespace| match self.kind.is_ours() {
            true => {
                let [_, socket, _] = self.files(which).map(|name| site.path(&name));
                self.ask_at(&socket, "vrrp").map(|view| view["state"] == "active")
            }
            false => namespace
                .exec(&["ip", "address", "show", "dev", PORTS[0]])
                .ok()
                .map(|said| said.contains(SHARED_ADDRESS)),
        };
        is_active(0, &site.router) == Some(true) && is_active(1, second) == Some(false)
    }

    /// The process, for routers that have one.
    fn launch(&self, site: &Site, options: &Options) -> Result<Option<Process>, ForwardingError> {
        let text = match self.kind {
            RouterKind::KernelGroup => return Ok(None),
            RouterKind::ThalwegVrrp
            | RouterKind::Keepalived
            | RouterKind::ThalwegStandby
            | RouterKind::Conntrackd => return self.half(site, &site.router, 0, options).map(Some),
            RouterKind::Bird => return site.bird(&site.router, "r", &bird()).map(Some),
            RouterKind::ThalwegBgp => ports(&options.driver, true) + &bgp(""),
            RouterKind::ThalwegSaved => ports(&options.driver, true) + &bgp(SAVED),
            RouterKind::ThalwegCheck => ports(&options.driver, false) + &checked(),
        };
        let config = site.file("router.toml", &text)?;
        let words = [&*self.program, "run", &config, "--socket", &self.socket];
        Process::start(&site.router, &words, self.log.as_ref()).map(Some)
    }

    /// Whether it knows all that it will know.
    pub(super) fn is_ready(&self, site: &Site) -> bool {
        match self.kind {
            RouterKind::KernelGroup => true,
            RouterKind::ThalwegVrrp | RouterKind::Keepalived | RouterKind::Conntrackd => {
                self.has_shared_address(site)
            }
            RouterKind::ThalwegStandby => {
                let [_, socket, _] = self.files(1).map(|name| site.path(&name));
                let is_ready = self.ask_at(&socket, "standby").is_some_and(|view| view["state"] == "ready");
                is_ready && self.has_shared_address(site)
            }
            RouterKind::ThalwegCheck => {
                self.ask_at(&self.socket, "checks").is_some_and(|check| check["state"] == "passed")
            }
            RouterKind::ThalwegBgp | RouterKind::ThalwegSaved => {
                self.ask_at(&self.socket, "forwarding").is_some_and(|view| {
                    let protected = view["protected_prefixes"].as_u64();
                    protected >= Some(self.prefixes.into()) && view["waiting"] == 0
                })
            }
            RouterKind::Bird => {
                let (known, in_kernel) = self.known_to_bird(site);
                known >= 2 * u64::from(self.prefixes) && in_kernel >= self.prefixes.into()
            }
        }
    }

    /// What keeps it from being ready.
    pub(super) fn lacks(&self, site: &Site) -> String {
        match self.kind {
            RouterKind::Bird => {
                let (known, in_kernel) = self.known_to_bird(site);
                format!("BIRD has {known} routes, of {} prefixes, and the kernel {in_kernel}", self.prefixes)
            }
            _ => "it is not ready".to_owned(),
        }
    }

    /// The routes that BIRD has, and once it has those of both transits, how many are in the kernel.
    fn known_to_bird(&self, site: &Site) -> (u64, u64) {
        let control = site.control("r");
        let said = site.router.exec(&["birdc", "-s", &control, "show", "route", "count"]);
        // "400000 of 400000 routes for 200000 networks in table master4"
        let known = said.ok().and_then(|said| {
            let line = said.lines().find(|line| line.contains(" routes for "))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        });
        let known = known.unwrap_or(0);
        if known < 2 * u64::from(self.prefixes) {
            return (known, 0);
        }
        let said = site.router.exec(&["ip", "route", "show", "proto", "bird"]);
        (known, said.map_or(0, |said| said.lines().count() as u64))
    }

    /// The first line of an answer of our router.
    fn ask_at(&self, socket: &str, what: &str) -> Option<serde_json::Value> {
        let mut command = Command::new(&self.program);
        command.args(["show", what, "--socket", socket, "--format", "json"]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        serde_json::from_str(String::from_utf8_lossy(&output.stdout).lines().next()?).ok()
    }

    /// The kernel's table by a group of both next hops.
    fn group(&self, site: &Site) -> Result<(), ForwardingError> {
        let router = &site.router;
        // Without it a member that resolves no more stays in use.
        router.set("ipv4/fib_multipath_use_neigh", "1")?;
        for place in [1, 2] {
            router.ip(&format!(
                "nexthop add id {place} via {} dev {}",
                neighbor_address(place),
                PORTS[place]
            ))?;
        }
        router.ip("nexthop add id 10 group 1/2")?;
        let mut batch = String::new();
        for number in 0..self.prefixes {
            let _ = writeln!(batch, "route add {} nhid 10", prefix(number)); // a string takes everything
        }
        let file = site.file("routes.batch", &batch)?;
        router.exec(&["ip", "-batch", &file]).map(drop)
    }

    /// The end of its log, for the case that it does not forward.
    pub(super) fn said(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SAID_BYTES)..]).trim().to_owned()
    }
}

/// Gives the router's kernel its addresses, and makes it forward.
fn kernel_forwards(site: &Site) -> Result<(), ForwardingError> {
    for (place, port) in PORTS.into_iter().enumerate() {
        site.router.ip(&format!("address add {}/24 dev {port}", router_address(place)))?;
    }
    site.router.set("ipv4/ip_forward", "1")
}

fn ports(driver: &str, mirrored: bool) -> String {
    let of = |(place, name): (usize, &str)| {
        // BGP's connections go through the kernel.
        port(driver, name, &router_address(place), mirrored && place > 0)
    };
    PORTS.into_iter().enumerate().map(of).collect()
}

fn port(driver: &str, name: &str, address: &str, mirrored: bool) -> String {
    let mirror = if mirrored { "mirror = true\n" } else { "" };
    format!(
        "\n[ports.{name}]\ninterface = \"{name}\"\ndriver = \"{driver}\"\naddresses = [\"{address}/24\"]\n{mirror}"
    )
}

fn bgp(more: &str) -> String {
    let mut text = format!(
        "\n[bgp]\nas = {ROUTER_AS}\nrouter_id = \"{}\"\ninstall = \"fib\"\n{more}",
        router_address(0)
    );
    for (place, asn) in (1..).zip(TRANSIT_AS) {
        text += &format!(
            "\n[[bgp.neighbor]]\naddress = \"{}\"\nas = {asn}\nimport = \"accept\"\nexport = \"reject\"\n\
             hold_time_s = {HOLD_S}\n",
            neighbor_address(place)
        );
    }
    text
}

/// One route for the whole table, by the first transit and, with a higher metric, by the second.
fn checked() -> String {
    let route = |place: usize| {
        let via = neighbor_address(place);
        format!("\n[[routes]]\nprefix = \"{TABLE_ALL}\"\nvia = \"{via}\"\nmetric = {place}\n{CHECK}\n")
    };
    route(1) + &route(2)
}

fn bird() -> String {
    let mut text = format!(
        "router id {};\nprotocol device {{ scan time 1; }}\nprotocol direct {{ ipv4; }}\n\
         protocol kernel {{ ipv4 {{ export where source = RTS_BGP; }}; }}\n",
        router_address(0)
    );
    for (place, asn) in (1..).zip(TRANSIT_AS) {
        text += &format!(
            "protocol bgp p{place} {{ local {} as {ROUTER_AS}; neighbor {} as {asn}; direct; check link on;\n  \
             connect delay time 1; connect retry time 1; hold time {HOLD_S};\n  \
             ipv4 {{ import all; export none; }}; }}\n",
            router_address(place),
            neighbor_address(place)
        );
    }
    text
}
