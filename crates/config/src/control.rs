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
    static READ_SOCKET: Key<PathBuf> =
        Key::by("read_socket", "a path", Reader::path).restart(Differs::Process).help(
            "path of a second socket, which everybody on this host may open and on which no request changes anything: for \
             `show` and for `thalweg web` as another user",
        );
}

/// Reads the section: the paths of the socket and of the second one, for reading.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>) -> (PathBuf, Option<PathBuf>) {
    let mut section = root.section_or_empty(reader, &CONTROL);
    let (socket, read_socket) = (section.get(reader, &SOCKET), section.get(reader, &READ_SOCKET));
    section.finish(reader);
    (socket.unwrap_or_default(), read_socket)
}
