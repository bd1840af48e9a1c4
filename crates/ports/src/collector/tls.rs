//! TLS: trusted authorities, and our certificate.

use super::CollectorError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The TLS configuration. Files are PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificates of authorities that sign collectors' certificates. Without it, no collector is trusted.
    pub authorities: Option<PathBuf>,
    /// The name that the collector's certificate must have, if not the address's.
    pub server_name: Option<String>,
    /// Our own certificate and its key, if the collector requests one (RFC 7011, 11.3).
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The TLS state of a connection.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server_name: ServerName<'static>,
}

impl Tls {
    /// `host` is the name that the server's certificate must have, if the options do not say another.
    pub(crate) fn new(options: &TlsOptions, host: &str) -> Result<Self, CollectorError> {
        let failed = |error: rustls::Error| CollectorError::Tls { reason: error.to_string() };
        let Some(path) = &options.authorities else {
            return Err(CollectorError::NoAuthorities { whose: "collectors'" });
        };
        let mut authorities = RootCertStore::empty();
        for certificate in certificates(path)? {
            authorities.add(certificate).map_err(|error| file_error(path, error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(authorities);
        let config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let key_der = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| file_error(key, format!("expected a private key in PEM: {error}")))?;
                builder.with_client_auth_cert(chain, key_der).map_err(|error| file_error(key, error))?
            }
        };
        let name = options.server_name.as_deref().unwrap_or(host);
        let server_name = ServerName::try_from(name.to_owned()).map_err(|_| CollectorError::Tls {
            reason: format!("`{name}` is neither a host's name nor an address"),
        })?;
        Ok(Self { config: Arc::new(config), server_name })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CollectorError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| file_error(path, format!("expected certificates in PEM: {error}")))?;
    match found.is_empty() {
        true => Err(file_error(path, "expected certificates in PEM, found none")),
        false => Ok(found),
    }
}

fn file_error(path: &Path, reason: impl ToString) -> CollectorError {
    CollectorError::TlsFile { path: path.to_owned(), reason: reason.to_string() }
}
