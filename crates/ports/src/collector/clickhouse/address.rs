//! The address of a table: `clickhouse://HOST[:PORT]/[DATABASE.]TABLE[?KEY=VALUE[&KEY=VALUE...]]`, with
//! `clickhouse+tls://` for HTTPS.

use crate::collector::CollectorError;
use crate::collector::address::host_and_port;
use crate::collector::error::password;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const SCHEME: &str = "clickhouse://";
const TLS_SCHEME: &str = "clickhouse+tls://";
/// The server's ports for HTTP and HTTPS.
const PORT: u16 = 8123;
const TLS_PORT: u16 = 8443;
/// The default for `wait_ms`.
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MS_MAX: u64 = 60_000;

/// A table and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickHouseAddress {
    text: String,
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
    pub has_tls: bool,
    /// The table, behind its database if it has one.
    pub table: String,
    /// Who inserts or asks; without it the server's `default`.
    pub user: Option<String>,
    /// A file with the user's password. An address is in lists of processes and in logs, where none belongs.
    pub password_file: Option<PathBuf>,
    /// How long records wait for others of their insert.
    pub wait: Duration,
}

impl ClickHouseAddress {
    /// Whether the text begins like such an address.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with(SCHEME) || text.starts_with(TLS_SCHEME)
    }

    /// The lines of the header that say who inserts or asks.
    pub(crate) fn credentials(&self) -> Result<String, CollectorError> {
        let mut header = String::new();
        if let Some(user) = &self.user {
            header += &format!("X-ClickHouse-User: {user}\r\n");
        }
        if let Some(path) = &self.password_file {
            let password = password(path)?;
            if !is_header_text(&password) {
                let source = std::io::Error::other("expected printable characters on the first line");
                return Err(CollectorError::PasswordFile { path: path.clone(), source });
            }
            header += &format!("X-ClickHouse-Key: {password}\r\n");
        }
        Ok(header)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), (usize, &'static str)> {
        let at = key.len() + 1;
        match key {
            "user" if !value.is_empty() && is_header_text(value) => self.user = Some(value.to_owned()),
            "user" => return Err((at, "a user's name")),
            "password_file" if !value.is_empty() => self.password_file = Some(value.into()),
            "password_file" => return Err((at, "a file with the password on its first line")),
            "wait_ms" => {
                let wait = value.parse().ok().filter(|wait| *wait <= WAIT_MS_MAX);
                self.wait = Duration::from_millis(wait.ok_or((at, "milliseconds, 0 to 60000"))?);
            }
            _ => return Err((0, "user=, password_file= or wait_ms=")),
        }
        Ok(())
    }
}

impl fmt::Display for ClickHouseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ClickHouseAddress {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Self, CollectorError> {
        let error = |at: usize, expected: &'static str| CollectorError::Address {
            text: text.to_owned(),
            column: text[..at.min(text.len())].chars().count() + 1,
            expected,
        };
        let (scheme, has_tls) = match text.starts_with(TLS_SCHEME) {
            true => (TLS_SCHEME, true),
            false => (SCHEME, false),
        };
        let rest = text.strip_prefix(scheme).ok_or_else(|| error(0, "clickhouse://HOST:PORT/TABLE"))?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, table) = place
            .split_once('/')
            .ok_or_else(|| error(scheme.len() + place.len(), "a slash and a table behind the server"))?;
        let port = if has_tls { TLS_PORT } else { PORT };
        let (host, port) = host_and_port(server, port)
            .map_err(|(inside, expected)| error(scheme.len() + inside, expected))?;
        if !is_table(table) {
            let expected = "a table, or a database, a dot and a table: letters, digits and `_`";
            return Err(error(scheme.len() + server.len() + 1, expected));
        }
        let (table, text) = (table.to_owned(), text.to_owned());
        let mut address =
            Self { text, host, port, has_tls, table, user: None, password_file: None, wait: WAIT };
        let mut at = scheme.len() + place.len() + 1;
        if place.len() < rest.len() {
            for parameter in parameters.split('&') {
                let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                address.set(key, value).map_err(|(inside, expected)| error(at + inside, expected))?;
                at += parameter.len() + 1;
            }
        }
        Ok(address)
    }
}

/// Names that need no quotes.
fn is_table(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    match text.split_once('.') {
        Some((database, table)) => is_name(database) && is_name(table),
        None => is_name(text),
    }
}

fn is_header_text(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_graphic() || c == ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let address: ClickHouseAddress = "clickhouse://[2001:db8::1]/net.flows".parse().unwrap();
        assert_eq!((address.host.as_str(), address.port, address.has_tls), ("2001:db8::1", 8123, false));
        assert_eq!((address.table.as_str(), address.wait), ("net.flows", Duration::from_secs(1)));
        let text = "clickhouse+tls://db/flows?user=thalweg&password_file=/etc/p&wait_ms=0";
        let address: ClickHouseAddress = text.parse().unwrap();
        assert_eq!((address.port, address.has_tls, address.wait), (8443, true, Duration::ZERO));
        assert_eq!((address.user.as_deref(), address.to_string().as_str()), (Some("thalweg"), text));
        assert_eq!(address.password_file, Some("/etc/p".into()));
        assert!(matches!(address.credentials(), Err(CollectorError::PasswordFile { .. })));
    }

    #[test]
    fn what_is_wrong_is_told_by_column() {
        for (text, column, word) in [
            ("http://a/t", 1, "clickhouse://"),
            ("clickhouse://a:1", 17, "slash"),
            ("clickhouse:///t", 14, "host"),
            ("clickhouse://a:0/t", 15, "port"),
            ("clickhouse://a/", 16, "table"),
            ("clickhouse://a/t;drop", 16, "table"),
            ("clickhouse+tls://a/b.c.d", 20, "table"),
            ("clickhouse://a/t?", 18, "user="),
            ("clickhouse://a/t?user=", 23, "name"),
            ("clickhouse://a/t?user=x&wait_ms=-1", 33, "milliseconds"),
            ("clickhouse://a/t?password=x", 18, "password_file="),
        ] {
            match text.parse::<ClickHouseAddress>() {
                Err(CollectorError::Address { column: told, expected, .. }) => {
                    assert_eq!(told, column, "{text}");
                    assert!(expected.contains(word), "{text}: {expected}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
