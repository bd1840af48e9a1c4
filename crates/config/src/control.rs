//! `[control]`: where the router answers `show` and similar commands.

use std::path::PathBuf;

use crate::key::{Differs, Key, Sub, table};
use crate::reader::Reader;
use crate::section::Section;

pub(crate) static CONTROL: Key<Sub> =
    Key::section("control", &TABLE).help("control socket of `show`, `reload` and the like");
table! {
    static TABLE: "control", "[control]";

    static SOCKET: Key<PathBuf> = Key::by("socket", "a path", Reader::path)
        .default_toml("\"/run/thalweg.sock\"")
        .restart(Differs::Process)
        .help("path of the control socket, relative to this file; `--socket` overrides it");
}

/// Reads the section: the path of the socket.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>) -> PathBuf {
    let mut section = root.section_or_empty(reader, &CONTROL);
    let socket = section.get(reader, &SOCKET);
    section.finish(reader);
    socket.unwrap_or_default()
}
