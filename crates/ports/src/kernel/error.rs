//! What can go wrong between us and the kernel's tables.

use std::fmt;
use std::io;

use thalweg_base::IpPrefix;

/// Why the kernel's tables cannot be read or written at all. A single route that is refused is a [`RouteFailure`].
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// No netlink socket is available.
    #[error("cannot talk to the kernel (rtnetlink): {source}")]
    Open { source: io::Error },
    /// This process may not change routes.
    #[error(
        "changing the kernel's routes needs root or CAP_NET_ADMIN; or configure another place for routes"
    )]
    NotPermitted,
    /// Sending or receiving failed.
    #[error("cannot talk to the kernel (rtnetlink): {source}")]
    Socket { source: io::Error },
    /// The kernel refused to list what was asked for.
    #[error("the kernel refuses to list {what}: {refusal}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        refusal: Refusal,
    },
    /// The kernel's answers did not fit into the socket's buffer, although little was asked for.
    #[error("answers of the kernel were lost: raise net.core.rmem_max, or run with CAP_NET_ADMIN")]
    Overrun,
}

/// The kernel's words for a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number.
    pub errno: i32,
    /// What the kernel says about it, if anything.
    pub message: Option<Box<str>>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        match &self.message {
            Some(message) => write!(f, "{message} ({error})"),
            None => write!(f, "{error}"),
        }
    }
}

/// A route that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFailure {
    /// Where it would lead.
    pub prefix: IpPrefix,
    /// Why it was refused.
    pub refusal: Refusal,
}

impl fmt::Display for RouteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.prefix, self.refusal)
    }
}
