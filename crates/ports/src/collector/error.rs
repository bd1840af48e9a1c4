//! Why a collector cannot be had.

use std::fmt;
use std::io;
use std::path::PathBuf;
use thalweg_flow::export::ExportOptionsError;

/// Why a collector cannot be had. Displays as a sentence that says what was expected.
#[derive(Debug)]
pub enum CollectorError {
    /// The address is none.
    Address {
        /// What was written.
        text: String,
        /// Where it goes wrong, from 1.
        column: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// The export options do not go together.
    Options(ExportOptionsError),
    /// The host's name leads nowhere.
    Resolve {
        /// The name.
        host: String,
        /// Why, if the resolver said so.
        source: Option<io::Error>,
    },
    /// No socket.
    Socket {
        /// The collector.
        collector: String,
        /// Why.
        source: io::Error,
    },
    /// A file of TLS cannot be used.
    TlsFile {
        /// Which.
        path: PathBuf,
        /// What was expected of it, and what is wrong.
        reason: String,
    },
    /// TLS cannot be set up.
    Tls {
        /// Why.
        reason: String,
    },
    /// The spool cannot be used.
    Spool {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process uses the spool.
    SpoolTaken {
        /// The folder.
        path: PathBuf,
    },
    /// The address needs a part of the program that was not built in.
    NotBuilt {
        /// The collector.
        collector: String,
        /// The cargo feature that builds it in.
        feature: &'static str,
    },
    /// The client of Kafka cannot be had.
    Kafka {
        /// The address.
        collector: String,
        /// What the client says.
        reason: String,
    },
    /// No thread.
    Thread {
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for CollectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { text, column, expected } => {
                write!(f, "collector `{text}`, column {column}: expected {expected}")
            }
            Self::Options(error) => write!(f, "export: {error}"),
            Self::Resolve { host, source: Some(source) } => write!(f, "collector's host `{host}`: {source}"),
            Self::Resolve { host, source: None } => write!(f, "collector's host `{host}` has no address"),
            Self::Socket { collector, source } => write!(f, "{collector}: {source}"),
            Self::TlsFile { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Tls { reason } => write!(f, "TLS: {reason}"),
            Self::Spool { path, source } => write!(f, "spool {}: {source}", path.display()),
            Self::SpoolTaken { path } => {
                write!(
                    f,
                    "spool {}: another process uses it; each collector needs a folder of its own",
                    path.display()
                )
            }
            Self::NotBuilt { collector, feature } => write!(
                f,
                "collector `{collector}`: this program was built without it; `cargo build --release --features {feature}` \
                 builds it in"
            ),
            Self::Kafka { collector, reason } => write!(f, "{collector}: {reason}"),
            Self::Thread { source } => write!(f, "no thread for a collector: {source}"),
        }
    }
}

impl std::error::Error for CollectorError {}
