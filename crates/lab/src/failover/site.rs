//! The network of the experiment.
//!
//! ```text
//!                                   10.0.2.0/24
//!   client ====== toc  router  toa ============= transit a      both take every packet for the table, 32.0.0.0/3;
//!           10.0.1.0/24        tob ============= transit b      they announce its prefixes by BGP, a's path is shorter
//!                                   10.0.3.0/24
//! ```
//!
//! A pair of routers has toa and tob on one each, and both on the client's link, whose end there is a bridge. One that
//! copies state has both on the first transit's link too, and a link between the two.
//!
//! The router's interfaces are up and have no addresses: the router under test sets them. Unlike the topology of
//! other experiments, neighbors are resolved by ARP.

use super::{Failure, Options};
use crate::forwarding::ForwardingError;
use crate::forwarding::namespace::Namespace;
use crate::forwarding::subject::thalweg::terminate;
use crate::forwarding::topology::link;
use std::fmt::Write;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use thalweg_wire::MacAddr;

/// Destinations of the stream, spread over the table.
pub(super) const DESTINATIONS: u8 = 16;
/// The router's interfaces, to the client and to the transits.
pub(super) const PORTS: [&str; 3] = ["toc", "toa", "tob"];
/// The address that a pair of routers shares.
pub(super) const SHARED_ADDRESS: &str = "10.0.1.254";
/// The same on the first transit's link, for a pair that copies state.
pub(super) const SHARED_OUTSIDE: &str = "10.0.2.254";
/// The interface of a pair's own link.
pub(super) const SYNC_PORT: &str = "sync";
/// The AS numbers of the transits.
pub(super) const TRANSIT_AS: [u32; 2] = [65_002, 65_003];
const MTU: usize = 1500;
/// The table's first address; /24 prefixes follow each other.
const TABLE: u32 = u32::from_be_bytes([32, 0, 0, 0]);
pub(super) const TABLE_ALL: &str = "32.0.0.0/3";
const FIRST_MAC: MacAddr = MacAddr([2, 0, 0, 0, 2, 2]);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 2, 0x99]);

/// The router's address on one of [`PORTS`].
pub(super) fn router_address(place: usize) -> String {
    format!("10.0.{}.1", place + 1)
}

/// The address of one router of a pair on the first transit's link.
pub(super) fn outside_address(which: usize) -> String {
    format!("10.0.2.{}", [1, 3][which])
}

/// Its address on the link to the other one.
pub(super) fn sync_address(which: usize) -> String {
    format!("10.0.9.{}", which + 1)
}

/// The address at the other end.
pub(super) fn neighbor_address(place: usize) -> String {
    format!("10.0.{}.2", place + 1)
}

/// A prefix of the table.
pub(super) fn prefix(number: u32) -> String {
    format!("{}/24", Ipv4Addr::from(TABLE + (number << 8)))
}

/// A program in a namespace, which ends with the value.
pub(super) struct Process(Child);

impl Process {
    /// Starts it; its output goes to a file.
    pub(super) fn start(namespace: &Namespace, words: &[&str], log: &Path) -> Result<Self, ForwardingError> {
        let failed =
            |source| ForwardingError::System { what: format!("starting {}", words.join(" ")), source };
        let log = File::create(log).map_err(failed)?;
        namespace.spawn(words, &log).map(Self).map_err(failed)
    }

    /// Kills it without a warning.
    pub(super) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        terminate(&mut self.0);
    }
}

/// How many routers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    Pair,
    /// Two that copy state.
    PairWithState,
}

/// The namespaces, and the transits' daemons.
pub(super) struct Site {
    /// Before the namespaces, so that they end first.
    daemons: Vec<Process>,
    pub(super) client: Namespace,
    pub(super) router: Namespace,
    /// The second one of a pair.
    pub(super) second: Option<Namespace>,
    pub(super) transits: [Namespace; 2],
    prefixes: u32,
    folder: PathBuf,
}

impl Site {
    /// The network for one router, or for a pair.
    pub(super) fn new(shape: Shape, options: &Options) -> Result<Self, ForwardingError> {
        let failed = |source| ForwardingError::System { what: options.folder.display().to_string(), source };
        fs::create_dir_all(&options.folder).map_err(failed)?;
        let site = Self {
            daemons: Vec::new(),
            client: Namespace::new("c")?,
            router: Namespace::new("r")?,
            second: (shape != Shape::One).then(|| Namespace::new("s")).transpose()?,
            transits: [Namespace::new("a")?, Namespace::new("b")?],
            prefixes: options.prefixes.max(1),
            // Not the whole path: sockets have short names.
            folder: options.folder.clone(),
        };
        let ends = [&site.client, &site.transits[0], &site.transits[1]];
        for (place, ((end, port), net)) in ends.into_iter().zip(PORTS).zip(1..).enumerate() {
            let [near, far] = [1, 2].map(|host| MacAddr([2, 0, 0, 0, net, host]));
            let router = site.second.as_ref().filter(|_| place == 2).unwrap_or(&site.router);
            link((end, "eth0", far), (router, port, near), MTU)?;
            end.ip(&format!("address add {}/24 dev eth0", neighbor_address(place)))?;
            end.ip(&format!("route add default via {}", router_address(place)))?;
        }
        if let Some(second) = &site.second {
            site.join(second, &site.client, 0)?;
            site.client.ip(&format!("route add default via {SHARED_ADDRESS}"))?;
            if shape == Shape::PairWithState {
                site.join(second, &site.transits[0], 1)?;
                let macs = [1, 2].map(|host| MacAddr([2, 0, 0, 0, 9, host]));
                link((&site.router, SYNC_PORT, macs[0]), (second, SYNC_PORT, macs[1]), MTU)?;
                for (which, half) in [&site.router, second].into_iter().enumerate() {
                    half.ip(&format!("address add {}/24 dev {SYNC_PORT}", sync_address(which)))?;
                }
            }
        }
        for transit in &site.transits {
            transit.ip(&format!("route add local {TABLE_ALL} dev lo"))?;
        }
        Ok(site)
    }

    /// Puts a second router on the link of one of [`PORTS`], behind a bridge at the link's other end.
    fn join(&self, second: &Namespace, end: &Namespace, place: u8) -> Result<(), ForwardingError> {
        let [near, far] = [3, 4].map(|host| MacAddr([2, 0, 0, 0, place + 1, host]));
        let place = usize::from(place);
        link((end, "eth1", far), (second, PORTS[place], near), MTU)?;
        end.ip("link add br0 type bridge forward_delay 0")?;
        end.ip("address flush dev eth0")?;
        for port in ["eth0", "eth1"] {
            end.ip(&format!("link set {port} master br0"))?;
        }
        end.ip("link set br0 up")?;
        end.ip(&format!("address add {}/24 dev br0", neighbor_address(place)))
    }

    /// Starts the transits' BGP daemons, with graceful restart or without.
    pub(super) fn announce(&mut self, graceful: bool) -> Result<(), ForwardingError> {
        let mut routes = String::new();
        let graceful = if graceful { "graceful restart yes;" } else { "" };
        for number in 0..self.prefixes {
            let _ = write!(routes, "route {} blackhole;", prefix(number)); // a string takes everything
        }
        for (place, asn) in (1..).zip(TRANSIT_AS) {
            let (own, router) = (neighbor_address(place), router_address(place));
            let longer = if place == 1 { String::new() } else { format!("bgp_path.prepend({asn});") };
            let text = format!(
                "router id {own};\nprotocol device {{}}\nprotocol static {{ ipv4; {routes} }}\n\
                 protocol bgp peer {{ local {own} as {asn}; neighbor {router} as {ROUTER_AS};\n  \
                 connect delay time 1; connect retry time 1; error wait time 1,1; hold time {HOLD_S}; {graceful}\n  \
                 ipv4 {{ import none; export filter {{ {longer} accept; }}; }}; }}\n"
            );
            let daemon = self.bird(&self.transits[place - 1], PORTS[place], &text)?;
            self.daemons.push(daemon);
        }
        Ok(())
    }

    /// Starts BIRD with a configuration; its files have this name.
    pub(super) fn bird(
        &self,
        namespace: &Namespace,
        name: &str,
        text: &str,
    ) -> Result<Process, ForwardingError> {
        let config = self.file(&format!("bird-{name}.conf"), text)?;
        let control = self.control(name);
        let words = ["bird", "-f", "-c", &config, "-s", &control];
        Process::start(namespace, &words, &self.folder.join(format!("bird-{name}.log")))
    }

    /// The control socket of BIRD with this name.
    pub(super) fn control(&self, name: &str) -> String {
        self.path(&format!("bird-{name}.ctl"))
    }

    /// The path of a file of this site.
    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Writes a file; returns its path.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<String, ForwardingError> {
        let path = self.path(name);
        let failed = |source| ForwardingError::System { what: path.clone(), source };
        fs::write(&path, text).map_err(failed)?;
        Ok(path)
    }

    /// Writes a script that can be run; returns its path, the whole of it.
    pub(super) fn program(&self, name: &str, text: &str) -> Result<String, ForwardingError> {
        let path = self.file(name, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .map_err(|source| ForwardingError::System { what: path, source })?;
        self.whole_path(name)
    }

    /// The path of a file for programs that work elsewhere.
    pub(super) fn whole_path(&self, name: &str) -> Result<String, ForwardingError> {
        let failed = |source| ForwardingError::System { what: self.folder.display().to_string(), source };
        Ok(fs::canonicalize(&self.folder).map_err(failed)?.join(name).display().to_string())
    }

    /// One host in each of so many prefixes.
    pub(super) fn destinations(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let last = self.prefixes - 1;
        (0..DESTINATIONS).map(move |place| {
            let number = u64::from(last) * u64::from(place) / u64::from(DESTINATIONS - 1);
            let number = u32::try_from(number).unwrap_or(last);
            Ipv4Addr::from(TABLE + (number << 8) + 1 + u32::from(place))
        })
    }

    /// Makes something fail that is not a process of the router.
    pub(super) fn fail(&mut self, failure: Failure) -> Result<(), ForwardingError> {
        let [first, _] = &self.transits;
        match failure {
            Failure::Link => first.ip("link set eth0 down"),
            Failure::Port => self.router.ip(&format!("link set {} down", PORTS[1])),
            // Frames to the address that the router knows are for somebody else now; nobody answers who asks for the
            // new one.
            Failure::Gateway => {
                first.ip("link set eth0 arp off")?;
                first.ip(&format!("link set eth0 address {OTHER_MAC}"))
            }
            Failure::Moved => first.ip(&format!("link set eth0 address {OTHER_MAC}")),
            Failure::Session => {
                self.daemons.first_mut().into_iter().for_each(Process::kill);
                Ok(())
            }
            Failure::Router => {
                let ports = [PORTS[0], PORTS[1]];
                ports.iter().try_for_each(|port| self.router.ip(&format!("link set {port} down")))
            }
            Failure::Process => Ok(()),
        }
    }

    /// Mends it.
    pub(super) fn mend(&self, failure: Failure) -> Result<(), ForwardingError> {
        let [first, _] = &self.transits;
        match failure {
            Failure::Gateway => {
                first.ip(&format!("link set eth0 address {FIRST_MAC}"))?;
                first.ip("link set eth0 arp on")?;
            }
            _ => first.ip("link set eth0 up")?,
        }
        // The kernel forgets its routes when a link goes down.
        first.ip(&format!("route replace default via {}", router_address(1)))
    }
}

/// The router's AS.
pub(super) const ROUTER_AS: u32 = 65_001;
/// Hold time of the sessions: the shortest that all take without another word.
pub(super) const HOLD_S: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_follow_each_other() {
        assert_eq!(
            (prefix(0), prefix(256), prefix(2_097_151)),
            ("32.0.0.0/24".to_owned(), "32.1.0.0/24".to_owned(), "63.255.255.0/24".to_owned())
        );
    }
}
