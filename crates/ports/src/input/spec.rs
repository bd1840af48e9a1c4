//! Input arguments: `PATH`, `port=PATH`, `-` or `port=-`.

use std::io::{self, Read};
use std::path::PathBuf;

/// One input and, optionally, the port that its packets arrive on.
pub struct InputSpec {
    pub(super) location: Location,
    /// The port of all its packets, whatever the input itself says.
    pub port: Option<String>,
    name: String,
}

pub(super) enum Location {
    Path(PathBuf),
    Stdin,
    Reader(Box<dyn Read + Send>),
}

impl Location {
    /// Bytes to read; `None` if unknown.
    pub(super) fn bytes(&self) -> io::Result<Option<u64>> {
        match self {
            Location::Path(path) => {
                let metadata = std::fs::metadata(path)?;
                if metadata.is_dir() {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                Ok(metadata.is_file().then_some(metadata.len()))
            }
            Location::Stdin | Location::Reader(_) => Ok(None),
        }
    }
}

impl InputSpec {
    /// Parses an argument. In `port=PATH` the port is a name without a slash before the first `=`. A file
    /// with `=` in its name needs its directory: `./a=b.pcap`.
    pub fn parse(argument: &str) -> Self {
        let (port, path) = match argument.split_once('=') {
            Some((port, path)) if !port.is_empty() && !port.contains('/') => (Some(port.to_string()), path),
            _ => (None, argument),
        };
        let location = if path == "-" { Location::Stdin } else { Location::Path(path.into()) };
        let name = if path == "-" { "standard input" } else { path };
        Self { location, port, name: name.to_string() }
    }

    /// A file.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { name: path.display().to_string(), location: Location::Path(path), port: None }
    }

    /// Any reader; messages use `name`.
    pub fn reader(name: &str, reader: impl Read + Send + 'static) -> Self {
        Self { name: name.to_string(), location: Location::Reader(Box::new(reader)), port: None }
    }

    /// Bytes to read, if that can be known before.
    pub fn bytes(&self) -> Option<u64> {
        self.location.bytes().ok().flatten()
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for InputSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InputSpec")
            .field("name", &self.name)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
