//! `[control]`: where the router listens for `show` and its like.
//!
//! ```toml
//! [control]
//! socket = "/run/thalweg.sock"   # relative paths begin at the configuration
//! ```

use std::path::{Path, PathBuf};

use crate::bgp::path;
use crate::reader::{Reader, Section};

const SOCKET_DEFAULT: &str = "/run/thalweg.sock";

/// Reads the section: the path of the socket.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, folder: &Path) -> PathBuf {
    let default = PathBuf::from(SOCKET_DEFAULT);
    let Some(item) = root.take("control") else { return default };
    let Some(mut section) = reader.section(&item, "[control]".to_owned()) else { return default };
    let socket = section.take("socket").and_then(|item| path(reader, &item, folder));
    section.finish(reader);
    socket.unwrap_or(default)
}
