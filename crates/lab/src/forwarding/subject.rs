//! Routers under test.
//!
//! A [`Subject`] turns the topology's middle namespace into a router, and ends it again. The tester knows nothing
//! else of it. To add one, add a file here and a line where the program lists subjects.
//!
//! The *native* subject is the kernel's own forwarding ([`linux`]): all others are compared with it, as the white
//! paper does with its figures 5 to 7.

pub mod linux;
pub mod thalweg;
pub mod xdp;

use super::ForwardingError;
use super::topology::Topology;
use ipnet::Ipv4Net;
use serde::Serialize;
use std::fmt;

/// Identifies a router under test and how it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Label {
    pub subject: String,
    pub driver: String,
    /// How its work is spread over cores; empty without a choice.
    pub model: String,
}

impl Label {
    /// A label of these words.
    pub fn new(subject: &str, driver: &str, model: &str) -> Self {
        Self { subject: subject.to_owned(), driver: driver.to_owned(), model: model.to_owned() }
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
        Ok(())
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

    /// Why the router cannot do this task; it is then left out with this reason.
    fn refuses(&self, task: &Task<'_>) -> Option<String>;

    /// Turns the topology's middle namespace into the router. The router may still be starting when this returns.
    fn set_up(&mut self, topology: &Topology, task: &Task<'_>) -> Result<(), ForwardingError>;

    /// Processor time of its own processes so far, in seconds; zero for the kernel, which works in others' time.
    fn cpu_s(&self) -> f64;

    /// Its output, for the case that it does not forward.
    fn said(&self) -> String;

    /// Ends its processes. The topology and its configuration are removed afterwards.
    fn tear_down(&mut self);
}

pub(crate) fn has_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&folders).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(Into::into));
    folders.iter().any(|folder| folder.join(name).is_file())
}
