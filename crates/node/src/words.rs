//! Parses short descriptions that users type into words, and reports errors in them.

use std::fmt;
use std::net::IpAddr;

use thalweg_config::DSCP_NAMES;

use thalweg_wire::tcp::FLAG_NAMES;

/// An error in a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The kind of description, such as `the packet`.
    pub what: &'static str,
    pub text: String,
    /// Position of the error in characters, starting at 1.
    pub column: usize,
    /// The word there; empty at the end.
    pub found: String,
    /// What was expected instead.
    pub expected: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = match self.found.is_empty() {
            true => format!("{} ends", self.what),
            false => format!("`{}`", self.found),
        };
        writeln!(f, "column {}: {found}, expected {}", self.column, self.expected)?;
        writeln!(f, "  | {}", self.text)?;
        write!(f, "  | {}{}", " ".repeat(self.column - 1), "^".repeat(self.found.chars().count().max(1)))
    }
}

impl std::error::Error for SpecError {}

/// The words of a description, with their columns.
pub(crate) struct Words<'t> {
    /// The kind of description, for errors.
    what: &'static str,
    text: &'t str,
    words: Vec<(usize, String)>,
    pub(crate) next: usize,
}

impl<'t> Words<'t> {
    pub(crate) fn of(what: &'static str, text: &'t str) -> Self {
        let mut words: Vec<(usize, String)> = Vec::new();
        let mut is_open = false;
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            if chars[at] == '-' && chars.get(at + 1) == Some(&'>') {
                words.push((at + 1, "->".to_owned()));
                (is_open, at) = (false, at + 2);
                continue;
            }
            match (chars[at].is_whitespace(), is_open) {
                (true, _) => is_open = false,
                (false, false) => {
                    words.push((at + 1, chars[at].to_string()));
                    is_open = true;
                }
                (false, true) => {
                    if let Some((_, word)) = words.last_mut() {
                        word.push(chars[at]);
                    }
                }
            }
            at += 1;
        }
        Self { what, text, words, next: 0 }
    }

    pub(crate) fn peek(&self) -> Option<&str> {
        self.words.get(self.next).map(|(_, word)| word.as_str())
    }

    /// An error at the next word, or `back` words before it.
    pub(crate) fn error(&self, back: usize, expected: impl Into<String>) -> SpecError {
        let end = (self.text.chars().count() + 1, String::new());
        let (column, found) = self.words.get(self.next - back).cloned().unwrap_or(end);
        SpecError { what: self.what, text: self.text.to_owned(), column, found, expected: expected.into() }
    }

    pub(crate) fn take(&mut self, expected: &str) -> Result<String, SpecError> {
        let word = self.words.get(self.next).map(|(_, word)| word.clone());
        let word = word.ok_or_else(|| self.error(0, expected))?;
        self.next += 1;
        Ok(word)
    }

    pub(crate) fn expect(&mut self, word: &str, expected: &str) -> Result<(), SpecError> {
        match self.take(expected)? == word {
            true => Ok(()),
            false => Err(self.error(1, expected)),
        }
    }

    pub(crate) fn number(&mut self, least: u64, most: u64, what: &str) -> Result<u64, SpecError> {
        let expected = format!("{what} from {least} to {most}");
        let word = self.take(&expected)?;
        let number = word.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| self.error(1, expected))
    }

    pub(crate) fn address(&mut self) -> Result<IpAddr, SpecError> {
        let expected = "an IPv4 or IPv6 address";
        self.take(expected)?.parse().map_err(|_| self.error(1, expected))
    }

    /// Takes a DSCP: its number or name.
    pub(crate) fn dscp(&mut self) -> Result<u8, SpecError> {
        let expected = "a code point from 0 to 63, or its name, such as ef";
        let word = self.take(expected)?;
        let named = DSCP_NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&word));
        let value = named.map(|(_, value)| *value).or_else(|| word.parse().ok());
        value.filter(|value| *value < 64).ok_or_else(|| self.error(1, expected))
    }

    /// Takes TCP flags, separated by commas.
    pub(crate) fn flags(&mut self) -> Result<u8, SpecError> {
        let expected = "flags, such as syn,ack";
        let word = self.take(expected)?;
        word.split(',').try_fold(0, |flags, name| {
            let known = FLAG_NAMES.iter().find(|(known, _)| *known == name);
            known.map(|(_, bit)| flags | bit).ok_or_else(|| self.error(1, expected))
        })
    }
}
