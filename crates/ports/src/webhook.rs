//! Posts texts to a web server: HTTP/1.1, a connection for each, from a thread of its own.
//!
//! A text that is not accepted (no connection, no answer 2xx in time) is tried three times and then given up.
//! Meanwhile `WAITING_MAX` others may wait; a text without room is dropped. Who posts never waits, and everything
//! that was not accepted is counted. Redirections are not followed.

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use thalweg_flow::alarm::WebhookCounters;

use crate::collector::{CollectorError, Tls, TlsOptions};
use crate::http::{PostError, Request, Server};

/// Texts that may wait.
const WAITING_MAX: usize = 256;
/// How often a text is tried, and the pause before each further time.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);
/// The time for an answer.
const WITHIN: Duration = Duration::from_secs(5);
/// The time for all texts that wait at the end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Where distributions keep the authorities that everybody trusts.
pub(crate) const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error(
        "{0:?}: expected http://HOST/PATH or https://HOST/PATH, with :PORT behind the host if it is another"
    )]
    Address(String),
    #[error("{0}")]
    Tls(#[from] CollectorError),
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// A web server that receives texts.
pub struct Webhook {
    texts: Option<Sender<String>>,
    counts: Arc<Mutex<WebhookCounters>>,
    /// When the end began.
    ending: Arc<OnceLock<Instant>>,
    thread: Option<JoinHandle<()>>,
}

impl Webhook {
    /// Starts the thread; does not connect yet. Servers of https must be signed by an authority of this file, or of
    /// the system's.
    pub fn start(url: &str, authorities: Option<PathBuf>) -> Result<Self, WebhookError> {
        Self::start_with(url, authorities, PAUSE)
    }

    fn start_with(url: &str, authorities: Option<PathBuf>, pause: Duration) -> Result<Self, WebhookError> {
        let (texts, waiting) = bounded(WAITING_MAX);
        let (counts, ending) =
            (Arc::<Mutex<WebhookCounters>>::default(), Arc::<OnceLock<Instant>>::default());
        let target = Target::parse(url, authorities)?;
        let poster = Poster { target, pause, counts: Arc::clone(&counts), ending: Arc::clone(&ending) };
        let thread = std::thread::Builder::new().name("webhook".to_owned());
        let thread = thread.spawn(move || poster.run(&waiting)).map_err(WebhookError::Thread)?;
        Ok(Self { texts: Some(texts), counts, ending, thread: Some(thread) })
    }

    /// Posts a text of JSON.
    pub fn post(&self, text: String) {
        if self.texts.as_ref().is_none_or(|texts| texts.try_send(text).is_err()) {
            self.counts.lock().dropped += 1;
        }
    }

    /// What became of texts so far.
    pub fn counts(&self) -> WebhookCounters {
        self.counts.lock().clone()
    }

    /// Waits until the texts that wait were tried once more, for `END_WITHIN` and a try at most.
    pub fn finish(mut self) -> WebhookCounters {
        self.end();
        self.counts()
    }

    fn end(&mut self) {
        self.ending.get_or_init(Instant::now);
        self.texts = None;
        if let Some(thread) = self.thread.take() {
            // Its counts stay as they were if it panicked.
            let _ = thread.join();
        }
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.end();
    }
}

/// A server, and the place on it.
pub(crate) struct Target {
    pub(crate) server: Server,
    pub(crate) path: String,
}

impl Target {
    pub(crate) fn parse(url: &str, authorities: Option<PathBuf>) -> Result<Self, WebhookError> {
        let wrong = || WebhookError::Address(url.to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let standard_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(wrong()),
        };
        let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // The brackets of an IPv6 address have colons of their own.
        let (host, port) = match place.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (place, standard_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong());
        }
        let path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        let authorities = Some(authorities.unwrap_or_else(|| PathBuf::from(AUTHORITIES)));
        let tls = (scheme == "https")
            .then(|| Tls::new(&TlsOptions { authorities, ..TlsOptions::default() }, &host))
            .transpose()?;
        Ok(Self { server: Server { host, port, tls }, path })
    }

    fn post(&self, text: &str) -> Result<(), String> {
        let began = Instant::now();
        let header = "Content-Type: application/json\r\n";
        let request = Request { method: "POST", path: &self.path, header, body: text.as_bytes() };
        self.server.post(&request, &|| began.elapsed() < WITHIN).map_err(|error| match error {
            PostError::Connect(error) | PostError::Broken(error) => error.to_string(),
            PostError::Refused { line, .. } => format!("expected an answer 2xx, found {line:?}"),
        })
    }
}

struct Poster {
    target: Target,
    pause: Duration,
    counts: Arc<Mutex<WebhookCounters>>,
    ending: Arc<OnceLock<Instant>>,
}

impl Poster {
    fn run(&self, texts: &Receiver<String>) {
        while let Ok(text) = texts.recv() {
            let is_accepted = (0..TRIES).any(|number| {
                let ending = self.ending.get();
                if ending.is_some_and(|since| number > 0 || since.elapsed() >= END_WITHIN) {
                    return false;
                }
                if number > 0 {
                    std::thread::sleep(self.pause);
                }
                let error = self.target.post(&text).err();
                let is_accepted = error.is_none();
                self.counts.lock().error = error;
                is_accepted
            });
            let mut counts = self.counts.lock();
            match is_accepted {
                true => counts.accepted += 1,
                false => counts.given_up += 1,
            }
        }
    }
}
