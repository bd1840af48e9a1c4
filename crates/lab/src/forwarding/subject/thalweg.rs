//! Our own router: `thalweg run` with a configuration written here, in the router's namespace.
//!
//! How it is configured and called is in two functions, `configuration` and `arguments`; nothing else knows.
//! The kernel of the namespace has no addresses, so that it does not answer beside the router. Neighbors are listed in
//! the configuration, as they are permanent entries in the kernel's case.
//!
//! Its processor time is that of all its threads, by the scheduler's statistics: threads that look for packets
//! where there are none cost as much as others, and are counted.

use super::seen::{Seen, Sign};
use super::{Label, Subject, Task};
use crate::bgp::daemon::{end, usage};
use crate::forwarding::ForwardingError;
use crate::forwarding::links::{Links, RouterPort};
use crate::forwarding::load::ONE_ROUTE;
use crate::forwarding::namespace::Namespace;
use crate::forwarding::topology::{
    ROUTER_ADDRESSES, ROUTER_PORTS, SINK_ADDRESS, SINK_MAC, TESTER_ADDRESSES, TESTER_MACS, Topology,
};
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;

/// Its name in results.
pub const NAME: &str = "thalweg";
/// Ways to the interfaces. `+offload` leaves known flows to a program in the kernel.
pub const DRIVERS: [&str; 4] = ["af_packet", "af_xdp", "af_packet+offload", "af_xdp+offload"];
/// The ends of drivers' names, and what they add to a port's configuration.
const MODES: [(&str, &str); 2] = [("+offload", "offload = true\n"), ("+generic", "xdp_mode = \"generic\"\n")];
/// Execution models that run on live ports.
pub const MODELS: [&str; 3] = ["run-to-completion", "pipeline", "farm"];

/// Names of the two ports in the configuration.
pub const PORTS: [&str; 2] = ["inside", "outside"];
/// Its control socket, beside the configuration.
const SOCKET: &str = "router.sock";
/// The route file beside the configuration.
const ROUTE_FILE: &str = "routes.txt";
/// Room for the sessions of every scenario.
const SESSIONS_MAX: u32 = 131_072;
/// How much of its log is told.
const SAID_BYTES: usize = 2000;

/// Our router, with one driver and model.
#[derive(Debug)]
pub struct Thalweg {
    label: Label,
    /// As in its label, but for a change.
    driver: String,
    program: PathBuf,
    folder: PathBuf,
    more: String,
    change: Option<Change>,
    child: Option<Child>,
}

/// How a router differs from the usual one, in one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// In a few words.
    pub name: String,
    /// What its driver's name has in addition.
    pub mode: &'static str,
    /// Its configuration's section on workers.
    pub workers: String,
    /// The kernel gives it no huge pages.
    pub no_huge_pages: bool,
    /// What it then shows.
    pub sign: Sign,
}

impl Thalweg {
    /// To be run from `program`; its files go into `folder`.
    pub fn new(program: &Path, driver: &str, model: &str, folder: &Path) -> Self {
        let folder = folder.join(format!("{NAME}-{driver}-{model}"));
        Self {
            label: Label::new(NAME, driver, model),
            driver: driver.to_owned(),
            program: program.to_path_buf(),
            folder,
            more: String::new(),
            change: None,
            child: None,
        }
    }

    /// With more in its configuration than the task asks for; [`PORTS`] says what its ports are called.
    pub fn with(mut self, more: &str) -> Self {
        more.clone_into(&mut self.more);
        self
    }

    /// Under a name that says how it differs, in a folder of its own.
    pub fn named(mut self, name: &str) -> Self {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.folder.set_file_name(format!("{folder}-{}", name.replace(' ', "-")));
        name.clone_into(&mut self.label.change);
        self
    }

    /// The same router with a change, in a folder of its own.
    pub fn changed(self, change: Change) -> Self {
        let mut this = self.named(&change.name);
        this.driver += change.mode;
        if !change.workers.is_empty() {
            this.more += &format!("\n[workers]\n{}\n", change.workers);
        }
        this.change = Some(change);
        this
    }

    /// The socket it answers questions at while it runs. By the path that the folder was named by, not by the whole one:
    /// sockets have short names.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("router.log")
    }

    fn start(&mut self, router: &Namespace, text: &str, routes: &str) -> Result<(), ForwardingError> {
        self.tear_down();
        let without = self.change.as_ref().is_some_and(|change| change.no_huge_pages);
        // The router inherits this, and so would whatever else starts meanwhile: routers start one at a time.
        let started = allow_huge_pages(!without).and_then(|()| {
            let launched = self.launch(router, text, routes);
            allow_huge_pages(true).and(launched)
        });
        started.map_err(|source| ForwardingError::System { what: format!("starting {}", self.label), source })
    }

    fn launch(&mut self, router: &Namespace, text: &str, routes: &str) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let folder = fs::canonicalize(&self.folder)?;
        let config = folder.join("router.toml");
        fs::write(&config, text.to_owned() + &self.more)?;
        fs::write(folder.join(ROUTE_FILE), routes)?;
        let log = File::create(self.log())?;
        let (program, socket) = (self.program.display().to_string(), self.socket().display().to_string());
        let arguments = arguments(&config, &self.label.model);
        let mut words = vec![program.as_str()];
        words.extend(arguments.iter().map(String::as_str));
        words.extend(["--socket", &socket]);
        self.child = Some(router.spawn(&words, &log)?);
        Ok(())
    }
}

/// Whether programs that this one starts from now on may have huge pages.
fn allow_huge_pages(allowed: bool) -> io::Result<()> {
    rustix::thread::disable_transparent_huge_pages(!allowed).map_err(io::Error::from)
}

/// How the program is called.
fn arguments(config: &Path, model: &str) -> Vec<String> {
    // One worker has nothing to hand over and nobody to share with: the others take two.
    let workers = if model == MODELS[0] { "1" } else { "2" };
    let config = config.display().to_string();
    ["run", &config, "--model", model, "--workers", workers].map(str::to_owned).to_vec()
}

/// The driver itself, and what its mode adds to a port's configuration.
fn driver_of(name: &str) -> (&str, &'static str) {
    let modes = MODES.iter().find_map(|(end, says)| Some((name.strip_suffix(end)?, *says)));
    modes.unwrap_or((name, ""))
}

/// The configuration for a router with several ports.
fn configuration_of_ports(driver: &str, ports: &[RouterPort], mtu: usize) -> String {
    let mut text = "# Written by `thalweg lab forwarding`.\n".to_owned();
    let (driver, mode) = driver_of(driver);
    for RouterPort { name, address, sink, sink_mac, network, .. } in ports {
        text += &format!(
            "\n[ports.{name}]\ninterface = \"{name}\"\ndriver = \"{driver}\"\naddresses = [\"{address}/24\"]\nmtu = {mtu}\n{mode}\
             \n[[neighbors]]\nport = \"{name}\"\naddress = \"{sink}\"\nmac = \"{sink_mac}\"\n\
             \n[[routes]]\nprefix = \"{network}/24\"\nvia = \"{sink}\"\n"
        );
    }
    text
}

/// The configuration for a task.
pub fn configuration(driver: &str, task: &Task<'_>) -> String {
    let mut text = "# Written by `thalweg lab forwarding`.\n".to_owned();
    let (driver, mode) = driver_of(driver);
    for i in 0..2 {
        text += &format!(
            "\n[ports.{}]\ninterface = \"{}\"\ndriver = \"{driver}\"\naddresses = [\"{}/24\"]\nmtu = {}\n{mode}",
            PORTS[i], ROUTER_PORTS[i], ROUTER_ADDRESSES[i], task.mtu
        );
    }
    let neighbors = [
        (PORTS[0], TESTER_ADDRESSES[0], TESTER_MACS[0]),
        (PORTS[1], TESTER_ADDRESSES[1], TESTER_MACS[1]),
        (PORTS[1], SINK_ADDRESS, SINK_MAC),
    ];
    for (port, address, mac) in neighbors {
        text += &format!("\n[[neighbors]]\nport = \"{port}\"\naddress = \"{address}\"\nmac = \"{mac}\"\n");
    }
    let (network, length) = ONE_ROUTE;
    text += &format!("\n[[routes]]\nprefix = \"{network}/{length}\"\nvia = \"{SINK_ADDRESS}\"\n");
    if !task.table.is_empty() {
        text += &format!("\n[routing]\nfiles = [\"{ROUTE_FILE}\"]\n");
    }
    if task.nat {
        text += &format!(
            "\n[nat]\noutside = \"{}\"\ninside = [\"{}\"]\nsessions_max = {SESSIONS_MAX}\n\
             host_sessions_max = 0\nhost_sessions_per_second = 0\n",
            PORTS[1], PORTS[0]
        );
    }
    text
}

impl Subject for Thalweg {
    fn label(&self) -> &Label {
        &self.label
    }

    fn set_up(&mut self, topology: &Topology, task: &Task<'_>) -> Result<(), ForwardingError> {
        let mut routes = String::new();
        for net in task.table {
            let _ = writeln!(routes, "{net} {SINK_ADDRESS} {}", PORTS[1]); // a string takes everything
        }
        let text = configuration(&self.driver, task);
        self.start(&topology.router, &text, &routes)
    }

    fn set_up_ports(&mut self, links: &Links, mtu: usize) -> Option<Result<(), ForwardingError>> {
        let text = configuration_of_ports(&self.driver, &links.ports, mtu);
        Some(self.start(&links.router, &text, ""))
    }

    fn seen(&self) -> Option<Seen> {
        self.child.as_ref().map(|child| Seen::of(child.id(), &self.program, &self.socket()))
    }

    fn sign(&self) -> Option<&Sign> {
        self.change.as_ref().map(|change| &change.sign)
    }

    fn cpu_s(&self) -> f64 {
        let process = self.child.as_ref().map(|child| PathBuf::from(format!("/proc/{}", child.id())));
        process.map_or(0.0, |process| usage(&process).cpu_s)
    }

    fn said(&self) -> String {
        let bytes = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SAID_BYTES)..]).trim().to_owned()
    }

    fn tear_down(&mut self) {
        self.child.take().iter_mut().for_each(terminate);
    }
}

/// Ends a program.
pub(crate) fn terminate(child: &mut Child) {
    if let Some(id) = rustix::process::Pid::from_raw(child.id() as i32) {
        // It may have ended by itself; then it is only waited for.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
    }
    end(child);
}

impl Drop for Thalweg {
    fn drop(&mut self) {
        self.tear_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_says_what_the_task_wants() {
        let table = ["1.0.0.0/24".parse().unwrap()];
        let plain = configuration("af_xdp", &Task { nat: false, table: &[], mtu: 1500 });
        assert!(plain.contains("interface = \"a1\"\ndriver = \"af_xdp\"\naddresses = [\"198.18.0.1/24\"]"));
        assert!(!plain.contains("[nat]") && !plain.contains("[routing]"));
        let offload = configuration("af_xdp+offload", &Task { nat: false, table: &[], mtu: 1500 });
        assert_eq!(offload.matches("driver = \"af_xdp\"\n").count(), 2);
        assert_eq!(offload.matches("offload = true\n").count(), 2);
        let generic = configuration_of_ports("af_xdp+generic", &[0, 1, 2, 3].map(RouterPort::new), 1500);
        for (wanted, count) in [("xdp_mode = \"generic\"", 4), ("\"af_xdp\"", 4), ("via = \"198.18.3.3\"", 1)]
        {
            assert_eq!(generic.matches(wanted).count(), count, "{wanted}: {generic}");
        }
        let both = configuration("af_packet", &Task { nat: true, table: &table, mtu: 9000 });
        for wanted in ["mtu = 9000", "[nat]", "files = [\"routes.txt\"]", "\"af_packet\""] {
            assert!(both.contains(wanted), "{wanted}: {both}");
        }
    }
}
