//! One configuration file: what it may say, and every way to get it wrong.
//!
//! Reading a configuration has three steps, and each reports everything it finds instead of stopping at
//! the first mistake:
//!
//! 1. **Syntax.** The TOML parser recovers from errors, so several can be reported at once.
//! 2. **Sections.** Each section reader takes the keys it knows from its table; what is left over is an
//!    unknown key, with the nearest known one as a suggestion. Values are checked where they stand.
//! 3. **Sense.** Names become indices, next hops find their port, prefixes and port ranges are compared
//!    with each other.
//!
//! A [`Diagnostic`] therefore always has a place in the file: line, column, the line itself and a mark
//! under what is wrong. The result, [`RouterConfig`], is plain data that later parts of the node can use
//! without checking anything again.

mod diagnostic;
mod types;

pub use diagnostic::{ConfigErrors, Diagnostic, ErrorKind, Severity};
pub use types::{
    Class, ClassIndex, Filtering, ForwardProtocol, MacAddress, Match, Meter, NatConfig, NatTimeouts,
    Neighbour, NextHop, Policer, PortConfig, PortForward, PortIndex, PortRange, PortSelection, QosConfig,
    RedAction, RouteSources, RouteTarget, RouterConfig, RoutingConfig, Service, TargetIndex, ValidateConfig,
};
