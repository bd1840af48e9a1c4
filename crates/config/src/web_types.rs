//! Where the HTTP API is served, and to whom: plain data.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::files::Files;

thalweg_base::words! {
    /// What the holder of a token may do. Each right includes those before.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum WebRight {
        /// Read about BGP.
        LookingGlass => "looking-glass",
        /// Read everything.
        Read => "read",
        /// Change things too.
        Operate => "operate",
    }
}

/// A token: a secret that a client shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebToken {
    pub name: String,
    /// The file whose first line it is.
    pub file: PathBuf,
    pub may: WebRight,
}

/// Where the API is served, and to whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebConfig {
    pub socket: Option<PathBuf>,
    pub listen: Vec<SocketAddr>,
    /// Names that the header `Host` may have.
    pub hosts: Vec<String>,
    /// Certificates and private key.
    pub tls: Option<(PathBuf, PathBuf)>,
    pub looking_glass: Vec<SocketAddr>,
    /// Neighbors that the looking glass does not show.
    pub looking_glass_hidden: Vec<String>,
    /// The folder of the laboratory's reports.
    pub reports: Option<PathBuf>,
    pub tokens: Vec<WebToken>,
}

/// What `thalweg web` takes from a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSetup {
    pub web: WebConfig,
    /// The router's control socket.
    pub control_socket: PathBuf,
    /// The folder of stored flow records.
    pub store: Option<PathBuf>,
    /// What these sections name.
    pub files: Files,
}
