//! Counts casts that may lose a part of the value: `as` to a type of 32 bits or fewer, or of a machine word,
//! in product code. A crate's manifest states their number, which may only fall: prefer `try_from`, `from` or
//! a named helper.
//!
//! The count is textual and knows no types, so it includes harmless casts. A new cast must replace another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::source::words;
use super::{Finding, arrows::Crate};

const NARROW: [&str; 8] = ["u8", "i8", "u16", "i16", "u32", "i32", "usize", "isize"];

/// The casts of each crate's product code, by its folder.
#[derive(Debug, Default)]
pub(super) struct Casts(BTreeMap<PathBuf, u64>);

impl Casts {
    /// Counts a file.
    pub(super) fn count(&mut self, file: &Path, code: &str) {
        let (Some(of), true) = (crate_of(file), super::is_product(file)) else { return };
        let to = |after: &str| {
            let after = after.trim_start();
            NARROW.iter().any(|name| words(after, name).next().is_some_and(|(at, _)| at == 0))
        };
        let casts = words(super::without_tests(code), "as").filter(|(_, after)| to(after)).count();
        *self.0.entry(of).or_default() += casts as u64;
    }

    /// Crates with more casts than their manifest allows, or fewer than it states.
    pub(super) fn check(&self, crates: &[Crate]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for one in crates {
            let (file, has) = (one.folder.join("Cargo.toml"), self.0.get(&one.folder).copied().unwrap_or(0));
            let may = one.number("casts-max").unwrap_or(0);
            let message = match has.cmp(&may) {
                std::cmp::Ordering::Equal => continue,
                std::cmp::Ordering::Greater => {
                    format!(
                        "{has} casts to narrow types, {may} allowed: use `try_from` or `from` (see tidy/casts.rs)"
                    )
                }
                std::cmp::Ordering::Less => {
                    format!("{has} casts to narrow types are left: casts-max = {has}")
                }
            };
            findings.push(Finding::failure(&file, 0, message));
        }
        findings
    }
}

/// The folder of a file's crate.
fn crate_of(file: &Path) -> Option<PathBuf> {
    let mut parts = file.iter();
    match (parts.next()?.to_str()?, parts.next()?) {
        ("crates", name) => Some(Path::new("crates").join(name)),
        ("xtask", _) => Some("xtask".into()),
        _ => None,
    }
}
