//! Why a collector is not available.

use std::io;
use std::path::PathBuf;
use thalweg_flow::export::ExportOptionsError;

/// Why a collector is not available. Displays as a sentence that says what was expected.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The address is none.
    #[error("collector `{text}`, column {column}: expected {expected}")]
    Address {
        /// What was written.
        text: String,
        /// Where it goes wrong, from 1.
        column: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// The export options do not go together.
    #[error("export: {0}")]
    Options(ExportOptionsError),
    /// The host's name leads nowhere.
    #[error(
        "collector's host `{host}`{}",
        .source.as_ref().map_or(" has no address".to_owned(), |error| format!(": {error}"))
    )]
    Resolve {
        /// The name.
        host: String,
        /// Why, if the resolver said so.
        source: Option<io::Error>,
    },
    /// No socket.
    #[error("{collector}: {source}")]
    Socket { collector: String, source: io::Error },
    /// A file of TLS cannot be used.
    #[error("{path}: {reason}")]
    TlsFile {
        path: PathBuf,
        /// What was expected of it, and what is wrong.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("TLS: {reason}")]
    Tls { reason: String },
    /// The spool cannot be used.
    #[error("spool {path}: {source}")]
    Spool {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// Another process uses the spool.
    #[error("spool {path}: another process uses it; each collector needs its own folder")]
    SpoolTaken {
        /// The folder.
        path: PathBuf,
    },
    /// The address needs a part of the program that was not built in.
    #[error(
        "collector `{collector}`: this program was built without it: build it with `cargo build --release --features \
         {feature}`"
    )]
    NotBuilt {
        collector: String,
        /// The cargo feature that builds it in.
        feature: &'static str,
    },
    /// The client of Kafka is not available.
    #[error("{collector}: {reason}")]
    Kafka {
        /// The address.
        collector: String,
        /// What the client says.
        reason: String,
    },
    /// No thread.
    #[error("cannot start a thread for a collector: {source}")]
    Thread { source: io::Error },
}
