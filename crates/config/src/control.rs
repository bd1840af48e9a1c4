//! `[control]`: where the router answers `show` and similar commands, and whom.

use std::path::PathBuf;

use crate::key::{Differs, Key, Sub, table};
use crate::reader::Reader;
use crate::section::Section;
use crate::system::{GROUP_WHAT, account_name};
use crate::types::ControlConfig;

pub(crate) static CONTROL: Key<Sub> =
    Key::section("control", &TABLE).help("control socket of `show`, `reload` and the like");
table! {
    static TABLE: "control", "[control]";

    static SOCKET: Key<PathBuf> = Key::by("socket", "a path", Reader::made_path)
        .default_toml("\"/run/thalweg/thalweg.sock\"")
        .restart(Differs::Process)
        .help("path of the control socket, relative to this file; `--socket` overrides it");
    static GROUP: Key<String> = Key::text("group", GROUP_WHAT, account_name)
        .restart(Differs::Process)
        .help("group whose members may open the control socket, beside the router's own user");
    static READ_SOCKET: Key<PathBuf> =
        Key::by("read_socket", "a path", Reader::made_path).restart(Differs::Process).help(
            "path of a second socket, which everybody on this host may open and on which no request changes anything: for \
             `show` and for `thalweg web` as another user",
        );
    static READ_GROUP: Key<String> = Key::text("read_group", GROUP_WHAT, account_name)
        .restart(Differs::Process)
        .help("group whose members alone may open that second socket");
}

/// Reads the section.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>) -> ControlConfig {
    let mut section = root.section_or_empty(reader, &CONTROL);
    let control = ControlConfig {
        socket: section.get(reader, &SOCKET).unwrap_or_default(),
        group: section.get(reader, &GROUP),
        read_socket: section.get(reader, &READ_SOCKET),
        read_group: section.get(reader, &READ_GROUP),
    };
    section.finish(reader);
    control
}
