//! `[system]`: as whom the router's process runs, and what it denies itself.

use crate::key::{Differs, Key, Sub, table};
use crate::reader::Reader;
use crate::section::Section;
use crate::types::SystemConfig;

pub(crate) static SYSTEM: Key<Sub> =
    Key::section("system", &TABLE).help("live: as whom `thalweg run` runs, and its [sandbox](operate.md)");
table! {
    static TABLE: "system", "[system]";

    static USER: Key<String> = Key::text("user", "a user's name", account_name)
        .restart(Differs::Process)
        .help(
            "user of this host that `thalweg run` becomes if root starts it: with the [capabilities](operate.md#capabilities) that \
             it needs, and no other right of root",
        );
    static SANDBOX: Key<bool> = Key::flag("sandbox").default(true).restart(Differs::Process).help(
        "deny this process [files that the configuration does not name, and system calls](operate.md#sandbox) that a router \
         does not need",
    );
}

pub(crate) const GROUP_WHAT: &str = "a group's name";
/// The longest name that useradd(8) takes.
const NAME_MAX_BYTES: usize = 32;

/// Reads the section.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>) -> SystemConfig {
    let mut section = root.section_or_empty(reader, &SYSTEM);
    let user = section.get(reader, &USER);
    let sandbox = section.get(reader, &SANDBOX).unwrap_or(true);
    section.finish(reader);
    SystemConfig { user, sandbox }
}

/// The name of a user or group; whether the host has it is seen when the router starts.
pub(crate) fn account_name(text: &str) -> Result<String, &'static str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !text.is_empty() && text.len() <= NAME_MAX_BYTES && text.chars().all(is_allowed) {
        true => Ok(text.to_owned()),
        false => Err("the name of an account: up to 32 letters, digits, `-`, `_` and `.`"),
    }
}
