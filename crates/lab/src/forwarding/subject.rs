//! Routers under test.
//!
//! A [`Subject`] makes a router of the topology's middle namespace and takes itself away again. The tester knows nothing
//! else of it. Adding one is a file beside this one and a line where the program makes its list.
//!
//! The *native* subject is the kernel's own forwarding ([`linux`]): all others are compared with it, as the
//! white paper does with its figures 5 to 7.

pub mod bridge;
pub mod linux;
pub mod seen;
pub mod thalweg;
pub mod xdp;

use super::ForwardingError;
use super::ports::Links;
use super::topology::Topology;
use ipnet::Ipv4Net;
use seen::Seen;
use serde::Serialize;
use std::fmt;

/// Who, and how it was run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Label {
    /// The program.
    pub subject: String,
    /// What moves packets between it and the interfaces.
    pub driver: String,
    /// How its work is spread over cores; empty where there is nothing to choose.
    pub model: String,
    /// What is different from the usual, if anything.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub change: String,
}

impl Label {
    /// From words.
    pub fn new(subject: &str, driver: &str, model: &str) -> Self {
        Self {
            subject: subject.to_owned(),
            driver: driver.to_owned(),
            model: model.to_owned(),
            change: String::new(),
        }
    }

    /// Whether this is what others are compared with.
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

/// What a router has to be able to do.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Translate sources on tester-a's side to the router's address on the other.
    pub nat: bool,
    /// Routes to the sink beside the one; empty for just that.
    pub table: &'a [Ipv4Net],
    /// The links' MTU.
    pub mtu: usize,
}

/// Somebody who can be measured.
pub trait Subject {
    /// Who.
    fn label(&self) -> &Label;

    /// Whether it forwards frames as they are: then only programs are measured.
    fn is_switch(&self) -> bool {
        false
    }

    /// Why it cannot do this at all, if so. It is then left out, with these words.
    fn refuses(&self, task: &Task<'_>) -> Option<String>;

    /// Makes a router of the topology's middle. It may still be starting when this returns.
    fn set_up(&mut self, topology: &Topology, task: &Task<'_>) -> Result<(), ForwardingError>;

    /// Makes a router of all ports of these links, each the neighbor of the next; `None` of who takes no part.
    fn set_up_ports(&mut self, _: &Links, _: usize) -> Option<Result<(), ForwardingError>> {
        None
    }

    /// What can be seen of it while it runs.
    fn seen(&self) -> Option<Seen> {
        None
    }

    /// Processor time of its own processes so far, seconds. The kernel has none: it works in others' time.
    fn cpu_s(&self) -> f64;

    /// What it has to say if it does not forward.
    fn said(&self) -> String;

    /// Ends its processes. The topology, with all that was set up in it, goes afterwards.
    fn tear_down(&mut self);
}

/// Whether a program is to be found.
pub(crate) fn has_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&folders).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(Into::into));
    folders.iter().any(|folder| folder.join(name).is_file())
}
