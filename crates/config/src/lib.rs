//! The configuration file: its keys, how it is read, and precise reports of errors.
//!
//! Every key has a row (`key.rs`): its type, range and default, its meaning, and whether a reload can change
//! it. Rows are beside the code that reads them, so a new key is a row, a line that reads it, and the code
//! that uses the value. Values are stored in the structs of the data plane and of BGP wherever these match
//! the configuration.
//!
//! Reading a configuration has three steps, and each reports everything it finds instead of stopping at the
//! first error:
//!
//! 1. **Syntax.** The TOML parser recovers from errors, so several can be reported at once.
//! 2. **Sections.** Each section reader takes the keys of its table (`section.rs`); any other key is reported
//!    as unknown, with the nearest known one as a suggestion. Values are checked where they are read.
//! 3. **Consistency.** Names become indices, next hops find their port, prefixes and port ranges are compared
//!    with each other.
//!
//! So a [`Diagnostic`] always has a position in the file: line, column, the line itself and a mark under the
//! error. The result, [`RouterConfig`], is plain data that the router can use without further checks.

mod acl;
mod alarms;
mod bgp;
mod bgp_neighbors;
mod bgp_settings;
mod bgp_types;
mod control;
mod diagnostic;
mod dpdk;
mod egress;
mod files;
mod firewall;
mod flows;
mod flows_types;
mod gateway_checks;
mod interfaces;
mod items;
mod kernel;
mod key;
mod mask;
mod nat;
mod nat_addresses;
mod nat_events;
mod nat_groups;
mod nat_publics;
mod nat_subscribers;
mod policy;
mod policy_rules;
mod policy_sets;
mod policy_test;
mod ports;
mod prefix_translation;
mod qos;
pub mod quantity;
mod reader;
mod registry;
mod reload;
mod route_file;
mod route_table;
mod routing;
mod rpki;
mod section;
mod sets;
mod standby;
mod system;
mod text_file;
mod types;
mod values;
mod vrf;
mod vrrp;
mod web;
mod web_types;
mod workers;

use std::path::{Path, PathBuf};

use thalweg_dataplane::vrrp::VrrpConfig;
use toml::Spanned;
use toml::de::DeTable;

use diagnostic::SourceText;
use reader::Reader;
use registry::ROOT;
use section::Section;
use text_file::read_text;

pub use alarms::alarms_of;
pub use bgp_types::{
    BgpConfig, GroupConfig, Install, KernelConfig, MrtConfig, NextHopCheck, OnStop, RpkiPlace, RpkiSource,
};
pub use diagnostic::{ConfigErrors, Diagnostic, ErrorKind, Severity};
pub use files::Files;
pub use flows_types::{CollectorTls, FlowsConfig, KeepConfig, SpoolConfig};
pub use key::{KeyInfo, SectionInfo, ValueInfo};
pub use mask::masked;
pub use policy_rules::ROLES;
pub use ports::LearnedAddress;
pub use registry::keys;
pub use reload::{BgpDiff, Refiltered, diff, needs_restart, port_needs_restart};
pub use types::{
    AclConfig, Capture, Class, ClassIndex, ClassQueue, CodelConfig, ControlConfig, DpdkConfig, Driver,
    FirewallConfig, InterfaceConfig, KernelSync, MAIN_VRF, NamedSet, NextHop, PORTS_MAX, PortConfig,
    PortEgress, PortIndex, QosConfig, RouteSources, RouteTarget, RouterConfig, RoutingConfig, StandbyConfig,
    StaticNeighbor, SubInterface, SystemConfig, TargetIndex, ValidateConfig, VrfConfig, VrfIndex,
    WorkersConfig, XdpPlace,
};
pub use values::{DSCP_NAMES, ports_text};
pub use vrf::VrfRoutes;
pub use web_types::{WebConfig, WebRight, WebSetup, WebToken};

impl RouterConfig {
    /// Reads and checks a configuration file and the route files it names.
    pub fn load(path: &Path) -> Result<RouterConfig, ConfigErrors> {
        ConfigSource::read(path)?.config(&[])
    }

    /// Checks a configuration. Findings name it `file`; route files are relative to `folder`.
    pub fn from_text(file: &str, text: &str, folder: &Path) -> Result<RouterConfig, ConfigErrors> {
        ConfigSource::of_text(file, text, folder).config(&[])
    }
}

/// The numbers that a running router has given out: the names of its ports and of its tables of routes, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    pub ports: Vec<String>,
    pub vrfs: Vec<String>,
}

impl Places {
    /// Those of a configuration.
    pub fn of(config: &RouterConfig) -> Self {
        let mut places = Self::default();
        places.extend(config);
        places
    }

    /// Fixes the numbers of what is new.
    pub fn extend(&mut self, config: &RouterConfig) {
        self.ports.extend(config.ports.iter().skip(self.ports.len()).map(|port| port.name.clone()));
        let vrfs = config.routing.vrf_names().skip(self.vrfs.len()).map(str::to_owned);
        self.vrfs.extend(vrfs);
    }
}

/// The text of a configuration, for parsing it again without reading the file again.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    /// The name in findings.
    file: String,
    text: String,
    /// Route files are relative to it.
    folder: PathBuf,
}

impl ConfigSource {
    /// A given text; see [`RouterConfig::from_text`].
    pub fn of_text(file: &str, text: &str, folder: &Path) -> Self {
        Self { file: file.to_owned(), text: text.to_owned(), folder: folder.to_owned() }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigErrors> {
        let file = path.display().to_string();
        let text = read_text(path).map_err(|why| ConfigErrors {
            diagnostics: vec![Diagnostic {
                severity: Severity::Error,
                kind: ErrorKind::File,
                message: why.to_string(),
                file: file.clone(),
                line: 0,
                column: 0,
                length: 0,
                text: String::new(),
                expected: String::new(),
                help: Some("give the path of a configuration file; examples/ has some".to_owned()),
            }],
        })?;
        Ok(Self { file, text, folder: path.parent().unwrap_or(Path::new("")).to_owned() })
    }

    /// The name in findings.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A copy with masked passwords, for comparison with a configuration that another process shows.
    pub fn masked(&self) -> Self {
        Self { text: masked(&self.text), ..self.clone() }
    }

    /// What serving the HTTP API takes; `None` without `[web]`. Sections that it does not need are not checked, so that
    /// a file of its own may lack them.
    pub fn web(&self) -> Result<Option<WebSetup>, ConfigErrors> {
        let (mut reader, document) = self.parsed()?;
        let mut root = Section::new(document.get_ref(), &ROOT, ROOT.title.to_owned(), 0..0);
        let control_socket = control::read(&mut reader, &mut root).socket;
        let store = flows::read_store(&mut reader, &mut root);
        let web = web::read(&mut reader, &mut root);
        let files = std::mem::take(&mut reader.files);
        match reader.finish() {
            (diagnostics, true) => Err(ConfigErrors { diagnostics }),
            _ => Ok(web.map(|web| WebSetup { web, control_socket, store, files })),
        }
    }

    /// Whether this is a file for `thalweg web` and no router: it has `[web]`, and beside it only the sections that tell
    /// that program where router and flow records are.
    pub fn is_for_web_alone(&self) -> bool {
        let Ok((_, document)) = self.parsed() else { return false };
        let sections = document.get_ref();
        sections.contains_key("web")
            && sections.keys().all(|key| ["web", "control", "flows"].contains(&key.get_ref().as_ref()))
    }

    /// The document, if its syntax is right, and what reads it.
    fn parsed(&self) -> Result<(Reader, Spanned<DeTable<'_>>), ConfigErrors> {
        let mut reader = Reader::new(SourceText::new(&self.file, &self.text), &self.folder);
        let (document, errors) = DeTable::parse_recoverable(&self.text);
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            let (message, expected) = syntax_message(error.message());
            reader.error(ErrorKind::Syntax, &span, message, expected);
        }
        match errors.is_empty() {
            true => Ok((reader, document)),
            // After syntax errors the parser guesses the rest; findings in a guess would mislead.
            false => Err(ConfigErrors { diagnostics: reader.finish().0 }),
        }
    }

    /// The configuration, with addresses that programs have given to mirrors of ports. Errors caused by these
    /// addresses are reported at their port.
    pub fn config(&self, learned: &[LearnedAddress]) -> Result<RouterConfig, ConfigErrors> {
        self.config_in_places(learned, &Places::default())
    }

    /// [`Self::config`] for a running router: ports in `places` have their index there as their number, so
    /// that state by port number stays valid. New ports follow; the number of a removed port is
    /// [vacant](PortConfig::is_vacant), and the port gets it back when it returns. The same holds for VRFs.
    pub fn config_in_places(
        &self,
        learned: &[LearnedAddress],
        places: &Places,
    ) -> Result<RouterConfig, ConfigErrors> {
        let (text, folder) = (&self.text, self.folder.as_path());
        let (mut reader, document) = self.parsed()?;
        let mut root = Section::new(document.get_ref(), &ROOT, ROOT.title.to_owned(), 0..0);
        sets::read(&mut reader, &mut root);
        let vrfs = vrf::Vrfs::read(&mut reader, &mut root, &places.vrfs);
        let mut ports = ports::Ports::read(&mut reader, &mut root, learned, &places.ports, vrfs);
        ports::read_static_neighbors(&mut reader, &mut root, &mut ports);
        let mut routing = routing::read(&mut reader, &mut root, &ports, folder);
        let vrrp = vrrp::read(&mut reader, &mut root, &ports);
        let of =
            |router: &VrrpConfig| router.addresses.iter().map(|own| (router.port, *own)).collect::<Vec<_>>();
        ports.shared = vrrp.iter().flat_map(of).collect();
        let nat = nat::read(&mut reader, &mut root, &ports, &mut routing);
        if let Some(nat) = &nat {
            ports.check_sources_for(nat, &routing);
        }
        let prefix_pairs = prefix_translation::read(&mut reader, &mut root, &ports);
        let acls = acl::read(&mut reader, &mut root, &mut ports);
        let bgp = bgp::read(&mut reader, &mut root, &ports, folder);
        let firewall = firewall::read(&mut reader, &mut root, &ports, &routing, nat.as_ref(), bgp.as_ref());
        let others = standby::Others {
            has_virtual_routers: !vrrp.is_empty(),
            has_state: nat.is_some() || firewall.is_some(),
            has_blocks: nat.as_ref().is_some_and(|nat| nat.subscribers.is_some()),
        };
        let standby = standby::read(&mut reader, &mut root, &others);
        let qos = qos::read(&mut reader, &mut root, &ports);
        let validate = qos::read_validate(&mut reader, &mut root);
        let control = control::read(&mut reader, &mut root);
        let dpdk = dpdk::read(&mut reader, &mut root, &ports);
        let alarms = alarms::read(&mut reader, &mut root);
        alarms::check_blackholes(&mut reader, &alarms, bgp.is_some());
        let flows = flows::read(&mut reader, &mut root, &ports, nat.as_ref(), &alarms);
        let kernel = kernel::read(&mut reader, &mut root, &ports, bgp.as_ref().map(|bgp| bgp.install));
        let workers = workers::read(&mut reader, &mut root, &ports);
        let web = web::read(&mut reader, &mut root);
        let system = system::read(&mut reader, &mut root);
        root.finish(&mut reader);
        let sets = std::mem::take(&mut reader.sets);
        let files = std::mem::take(&mut reader.files);
        let (diagnostics, failed) = reader.finish();
        if failed {
            return Err(ConfigErrors { diagnostics });
        }
        Ok(RouterConfig {
            ports: ports.configs,
            neighbors: ports.neighbors,
            routing,
            vrrp,
            standby,
            nat,
            prefix_pairs,
            acls,
            firewall,
            sets,
            qos,
            validate,
            bgp,
            kernel,
            dpdk,
            flows,
            alarms: alarms.into_iter().map(|alarm| alarm.value).collect(),
            workers,
            web,
            control,
            system,
            files,
            warnings: diagnostics,
            text: text.as_str().into(),
        })
    }
}

/// The parser says "what, expected this, that"; a finding separates the two.
fn syntax_message(message: &str) -> (String, String) {
    let message = message.trim().replace('\n', ", ");
    match message.split_once(", expected ") {
        Some((what, expected)) => (what.to_owned(), expected.to_owned()),
        None if message.starts_with("duplicate") => (message, "each key once".to_owned()),
        None => (message, String::new()),
    }
}
