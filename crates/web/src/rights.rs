//! Who may do what: tokens, and what is allowed without one.

use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap};
use serde::Serialize;
use subtle::ConstantTimeEq;
use thalweg_config::{WebRight, WebToken};

/// The cookie of browsers.
pub(crate) const COOKIE_NAME: &str = "thalweg";

/// Token files are read again after this.
const READ_EVERY: Duration = Duration::from_secs(1);
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: usize = 256;

/// The way that a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Unix,
    Tcp { client: IpAddr, is_tls: bool },
}

/// The rights of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Grant {
    #[serde(serialize_with = "word")]
    pub(crate) may: Option<WebRight>,
    /// The token's name.
    pub(crate) name: Option<String>,
}

fn word<S: serde::Serializer>(may: &Option<WebRight>, serializer: S) -> Result<S::Ok, S::Error> {
    may.map(WebRight::name).serialize(serializer)
}

/// The configured tokens.
#[derive(Debug)]
pub(crate) struct Rights {
    tokens: Vec<WebToken>,
    read: Mutex<Secrets>,
}

#[derive(Debug)]
struct Secrets {
    at: Instant,
    /// By token; `None` for one whose file cannot be read.
    secrets: Vec<Option<String>>,
}

impl Rights {
    /// Fails if a file has no token in it.
    pub(crate) fn new(tokens: Vec<WebToken>) -> io::Result<Self> {
        let secrets = tokens.iter().map(|token| read(&token.file).map(Some)).collect::<io::Result<_>>()?;
        Ok(Self { tokens, read: Mutex::new(Secrets { at: Instant::now(), secrets }) })
    }

    /// What a request may do.
    pub(crate) fn of(&self, via: Via, headers: &HeaderMap) -> Grant {
        let Via::Tcp { client, .. } = via else {
            // The socket's mode says who may open it.
            return Grant { may: Some(WebRight::Operate), name: None };
        };
        if let Some(grant) = shown(headers).and_then(|secret| self.of_token(secret)) {
            return grant;
        }
        let is_open = self.tokens.is_empty() && client.is_loopback();
        Grant { may: is_open.then_some(WebRight::Read), name: None }
    }

    /// The rights that a token gives.
    pub(crate) fn of_token(&self, secret: &str) -> Option<Grant> {
        let mut read = self.read.lock();
        self.refresh(&mut read);
        // All are compared, so that the time says nothing about which is right.
        let mut found = None;
        for (token, known) in self.tokens.iter().zip(&read.secrets) {
            let known = known.as_deref().unwrap_or_default();
            let is_it = bool::from(known.as_bytes().ct_eq(secret.as_bytes())) && !known.is_empty();
            if is_it {
                found = Some(token);
            }
        }
        found.map(|token| Grant { may: Some(token.may), name: Some(token.name.clone()) })
    }

    fn refresh(&self, read_before: &mut Secrets) {
        if read_before.at.elapsed() < READ_EVERY {
            return;
        }
        read_before.at = Instant::now();
        for (token, known) in self.tokens.iter().zip(&mut read_before.secrets) {
            let now = read(&token.file);
            match (&now, &known) {
                (Err(error), Some(_)) => {
                    tracing::warn!("token {} is not valid any more: {error}", token.name);
                }
                (Ok(new), Some(old)) if new == old => {}
                (Ok(_), _) => tracing::info!("token {} was read again", token.name),
                (Err(_), None) => {}
            }
            *known = now.ok();
        }
    }
}

/// The token in a file.
fn read(path: &Path) -> io::Result<String> {
    let failed = |why: &str| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{}: {why}: expected {TOKEN_MIN} to {TOKEN_MAX} characters without spaces",
                path.display()
            ),
        )
    };
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(4 * TOKEN_MAX as u64).read_to_string(&mut text))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if !(TOKEN_MIN..=TOKEN_MAX).contains(&token.len()) {
        return Err(failed("no token"));
    }
    match token.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';' && byte != b',') {
        true => Ok(token.to_owned()),
        false => Err(failed("a character that no header can carry")),
    }
}

/// The token that a request shows.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = header(AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    bearer.or_else(|| {
        let mut pairs = header(COOKIE)?.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, token)| token)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const SECRET: &str = "0123456789abcdef";

    fn rights(folder: &Path) -> Rights {
        let file = folder.join("token");
        std::fs::write(&file, format!("{SECRET}\n")).expect("writing");
        Rights::new(vec![WebToken { name: "ops".to_owned(), file, may: WebRight::Operate }]).expect("a token")
    }

    fn with(name: hyper::header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("a header"))])
    }

    #[test]
    fn a_token_gives_its_right_and_nothing_else_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let rights = rights(folder.path());
        let via = Via::Tcp { client: [127, 0, 0, 1].into(), is_tls: false };
        let may = |headers: HeaderMap| rights.of(via, &headers).may;
        assert_eq!(may(with(AUTHORIZATION, &format!("Bearer {SECRET}"))), Some(WebRight::Operate));
        assert_eq!(may(with(COOKIE, &format!("a=b; thalweg={SECRET}"))), Some(WebRight::Operate));
        for wrong in ["", "Bearer", "Bearer ", "Bearer 0123456789abcdeg", "Basic 0123456789abcdef", SECRET] {
            assert_eq!(may(with(AUTHORIZATION, wrong)), None, "{wrong}");
        }
        assert_eq!(may(with(COOKIE, "thalweg=")), None);
        assert_eq!(may(HeaderMap::new()), None, "with tokens, loopback needs one too");
        assert_eq!(rights.of(Via::Unix, &HeaderMap::new()).may, Some(WebRight::Operate));
    }

    #[test]
    fn without_tokens_loopback_reads() {
        let rights = Rights::new(Vec::new()).expect("no file");
        let may = |client: IpAddr| rights.of(Via::Tcp { client, is_tls: false }, &HeaderMap::new()).may;
        assert_eq!(may([127, 0, 0, 1].into()), Some(WebRight::Read));
        assert_eq!(may([192, 0, 2, 1].into()), None);
    }

    #[test]
    fn files_are_read_again_and_must_hold_a_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let rights = rights(folder.path());
        let file = folder.path().join("token");
        let later = |rights: &Rights| rights.read.lock().at -= 2 * READ_EVERY;
        assert!(rights.of_token(SECRET).is_some());
        std::fs::write(&file, "fedcba9876543210").expect("writing");
        later(&rights);
        assert!(rights.of_token(SECRET).is_none() && rights.of_token("fedcba9876543210").is_some());
        std::fs::remove_file(&file).expect("removing");
        later(&rights);
        assert!(rights.of_token("fedcba9876543210").is_none() && rights.of_token("").is_none());
        for bad in ["", "short", "has a space in it, long", &"x".repeat(300)] {
            std::fs::write(&file, bad).expect("writing");
            assert!(read(&file).is_err(), "{bad}");
        }
    }
}
