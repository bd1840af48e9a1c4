//! Errors of collectors.

use std::io;
use std::path::{Path, PathBuf};
use thalweg_flow::export::ExportOptionsError;

/// The password on the first line of a file.
pub(super) fn password(path: &Path) -> Result<String, CollectorError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| CollectorError::PasswordFile { path: path.to_path_buf(), source })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Why a collector is not available. Displays as a sentence that says what was expected.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The address is malformed.
    #[error("collector `{text}`, column {column}: expected {expected}")]
    Address {
        text: String,
        /// Where parsing failed, from 1.
        column: usize,
        expected: &'static str,
    },
    /// The export options contradict each other.
    #[error("export: {0}")]
    Options(ExportOptionsError),
    /// The host's name cannot be resolved.
    #[error(
        "collector's host `{host}`{}",
        .source.as_ref().map_or(" has no address".to_owned(), |error| format!(": {error}"))
    )]
    Resolve {
        host: String,
        /// The resolver's error, if there was one.
        source: Option<io::Error>,
    },
    #[error("{collector}: {source}")]
    Socket { collector: String, source: io::Error },
    #[error("{path}: {reason}")]
    TlsFile {
        path: PathBuf,
        /// What was expected of it, and what is wrong.
        reason: String,
    },
    #[error(
        "TLS: no file of authorities (--tls-ca, collector_ca): expected the certificates that {whose} are signed by"
    )]
    NoAuthorities { whose: &'static str },
    #[error("TLS: {reason}")]
    Tls { reason: String },
    #[error("password {path}: {source}")]
    PasswordFile { path: PathBuf, source: io::Error },
    #[error("spool {path}: {source}")]
    Spool {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    #[error("spool {path}: another process uses it; each collector needs its own folder")]
    SpoolTaken {
        /// The folder.
        path: PathBuf,
    },
    /// The address needs a cargo feature that was not built in.
    #[error(
        "collector `{collector}`: this program was built without it: build it with `cargo build --release --features \
         {feature}`"
    )]
    NotBuilt {
        collector: String,
        /// The cargo feature that builds it in.
        feature: &'static str,
    },
    /// The Kafka client is not available.
    #[error("{collector}: {reason}")]
    Kafka {
        /// The address.
        collector: String,
        reason: String,
    },
    /// The thread could not be started.
    #[error("cannot start a thread for a collector: {source}")]
    Thread { source: io::Error },
}
