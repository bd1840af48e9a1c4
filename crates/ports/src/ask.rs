//! Asks web servers: the HTTP API of a router, and ClickHouse.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::collector::{ClickHouseAddress, CollectorError, Tls, TlsOptions};
use crate::http::{PostError, Request, Server, percent_encoded};
use crate::webhook::{AUTHORITIES, Target, WebhookError};

/// The time for an answer: a question may need a table of many days.
const WITHIN: Duration = Duration::from_secs(600);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{0}")]
    Address(#[from] WebhookError),
    #[error("{0}")]
    ClickHouse(#[from] CollectorError),
    #[error("a token has only printable characters, without spaces")]
    Token,
    #[error("{server} does not answer: {source}")]
    Silent { server: String, source: std::io::Error },
    /// An answer, but no success.
    #[error("{line}: {text}")]
    Refused {
        /// The status.
        line: String,
        text: String,
    },
}

/// A web server that answers questions.
pub struct WebServer {
    server: Server,
    /// Of all questions.
    path: String,
    header: String,
}

impl WebServer {
    /// The API of a router: `http://HOST:PORT` or `https://HOST:PORT`, whose certificate must be signed by an authority of
    /// this file, or of the system's.
    pub fn api(url: &str, authorities: Option<PathBuf>, token: Option<&str>) -> Result<Self, AskError> {
        let Target { server, path } = Target::parse(url, authorities)?;
        let header = match token {
            Some(token) if !token.chars().all(|c| c.is_ascii_graphic()) => return Err(AskError::Token),
            Some(token) => format!("Authorization: Bearer {token}\r\n"),
            None => String::new(),
        };
        Ok(Self { server, path: path.trim_end_matches('/').to_owned(), header })
    }

    /// The server that has this table.
    pub fn clickhouse(address: &ClickHouseAddress, authorities: Option<PathBuf>) -> Result<Self, AskError> {
        let authorities = Some(authorities.unwrap_or_else(|| PathBuf::from(AUTHORITIES)));
        let options = TlsOptions { authorities, ..TlsOptions::default() };
        let tls = address.has_tls.then(|| Tls::new(&options, &address.host)).transpose()?;
        let server = Server { host: address.host.clone(), port: address.port, tls };
        // What it says when it fails in the middle is then the answer, and not its end.
        Ok(Self { server, path: "/?wait_end_of_query=1".to_owned(), header: address.credentials()? })
    }

    /// The document at a path, with these parameters.
    pub fn get(&self, path: &str, parameters: &[(&str, String)]) -> Result<Vec<u8>, AskError> {
        let pairs = parameters.iter().map(|(name, value)| format!("{name}={}", percent_encoded(value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        self.ask("GET", &format!("{}{path}?{query}", self.path), &[])
    }

    /// The answer to a text.
    pub fn post(&self, text: &str) -> Result<Vec<u8>, AskError> {
        self.ask("POST", &self.path, text.as_bytes())
    }

    fn ask(&self, method: &'static str, path: &str, body: &[u8]) -> Result<Vec<u8>, AskError> {
        let began = Instant::now();
        let request = Request { method, path, header: &self.header, body };
        self.server.ask(&request, &|| began.elapsed() < WITHIN).map_err(|error| match error {
            PostError::Connect(source) | PostError::Broken(source) => {
                AskError::Silent { server: format!("{}:{}", self.server.host, self.server.port), source }
            }
            PostError::Refused { line, text } => AskError::Refused { line, text },
        })
    }
}
