//! Routers under test.
//!
//! A [`Subject`] turns the topology's middle namespace into a router, and ends it again. The tester knows nothing
//! else of it. To add one, add a file here and a line where the program lists subjects.
//!
//! The *native* subject is the kernel's own forwarding ([`linux`]): all others are compared with it, as the white
//! paper does with its figures 5 to 7.

pub mod bridge;
pub mod linux;
pub mod seen;
pub mod thalweg;
pub mod xdp;

use super::ForwardingError;
use super::links::Links;
use super::topology::Topology;
use ipnet::Ipv4Net;
use seen::{Seen, Sign};
use serde::Serialize;
use std::fmt;

/// Identifies a router under test and how it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Label {
    pub subject: String,
    pub driver: String,
    /// How its work is spread over cores; empty without a choice.
    pub model: String,
    /// How it differs from the usual one; empty if it does not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub change: String,
}

impl Label {
    /// A label of these words.
    pub fn new(subject: &str, driver: &str, model: &str) -> Self {
        Self {
            subject: subject.to_owned(),
            driver: driver.to_owned(),
            model: model.to_owned(),
            change: String::new(),
        }
    }

    /// The same router without its change.
    pub fn unchanged(&self) -> Self {
        Self { change: String::new(), ..self.clone() }
    }

    /// Whether the others are compared with this one.
    pub fn is_native(&self) -> bool {
        self.subject == linux::NAME
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        for word in [&self.driver, &self.model] {
            if !word.is_empty() {
                write!(f, " {word}")?;
            }
        }
        if self.change.is_empty() { Ok(()) } else { write!(f, ", {}", self.change) }
    }
}

/// What a router must do.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Translate sources on tester-a's side to the router's address on the other.
    pub nat: bool,
    /// Routes to the sink besides the basic one.
    pub table: &'a [Ipv4Net],
    /// The links' MTU.
    pub mtu: usize,
}

/// A router that can be measured.
pub trait Subject {
    fn label(&self) -> &Label;

    /// Whether it forwards frames unchanged; then only applications are measured.
    fn is_switch(&self) -> bool {
        false
    }

    /// Why the router cannot do this task; it is then left out with this reason.
    fn refuses(&self, _task: &Task<'_>) -> Option<String> {
        None
    }

    /// Turns the topology's middle namespace into the router. The router may still be starting when this returns.
    fn set_up(&mut self, topology: &Topology, task: &Task<'_>) -> Result<(), ForwardingError>;

    /// Turns the links' router namespace into a router of all ports; `None` if this subject has two ports only.
    fn set_up_ports(&mut self, _links: &Links, _mtu: usize) -> Option<Result<(), ForwardingError>> {
        None
    }

    /// What can be seen of it while it runs.
    fn seen(&self) -> Option<Seen> {
        None
    }

    /// What must be seen of it if its change took effect.
    fn sign(&self) -> Option<&Sign> {
        None
    }

    /// Processor time of its own processes so far, in seconds; zero for the kernel, which works in others' time.
    fn cpu_s(&self) -> f64 {
        0.0
    }

    /// Its output, for the case that it does not forward.
    fn said(&self) -> String {
        String::new()
    }

    /// Ends its processes. The topology and its configuration are removed afterwards.
    fn tear_down(&mut self) {}
}

pub(crate) fn has_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&folders).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(Into::into));
    folders.iter().any(|folder| folder.join(name).is_file())
}
