//! Errors of netlink.

use std::fmt;
use std::io;

use thalweg_base::IpPrefix;

/// Why the kernel's tables cannot be read or written at all. A [`RouteFailure`] is a single refused route.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error("cannot talk to the kernel (rtnetlink): {source}")]
    Open { source: io::Error },
    #[error(
        "changing the kernel's routes needs root or CAP_NET_ADMIN; or configure another place for routes"
    )]
    NotPermitted,
    #[error("cannot talk to the kernel (rtnetlink): {source}")]
    Socket { source: io::Error },
    /// The kernel refused a dump.
    #[error("the kernel refuses to list {what}: {refusal}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        refusal: Refusal,
    },
    /// The kernel's answers did not fit the socket's buffer, although few were requested.
    #[error("answers of the kernel were lost: raise net.core.rmem_max, or run with CAP_NET_ADMIN")]
    Overrun,
}

/// The kernel's reason for a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: i32,
    /// The kernel's text, if it gave one.
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
    pub prefix: IpPrefix,
    pub refusal: Refusal,
}

impl fmt::Display for RouteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.prefix, self.refusal)
    }
}
