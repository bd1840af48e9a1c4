//! Every possible mistake in a configuration and its message: text in, text out.
//!
//! Each `errors/NAME.toml` is refused with exactly the text of `NAME.expected`; each `warnings/NAME.toml` is
//! accepted with exactly those warnings. `THALWEG_BLESS=1` rewrites the expectations; read the difference before
//! you commit it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use thalweg_config::{ErrorKind, RouterConfig};

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder of cases")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

/// Compares with the expectation beside the case, or rewrites it.
fn compare(case: &Path, actual: &str, failures: &mut Vec<String>) {
    let expected_path = case.with_extension("expected");
    if std::env::var_os("THALWEG_BLESS").is_some() {
        std::fs::write(&expected_path, actual).expect("writing the expectation");
        return;
    }
    let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
    if actual != expected {
        failures.push(format!("{}\n--- expected\n{expected}\n--- actual\n{actual}", case.display()));
    }
}

/// Reads a case as if its folder were the current one, so that the text contains no path of this machine.
fn read(case: &Path) -> Result<RouterConfig, thalweg_config::ConfigErrors> {
    let text = std::fs::read_to_string(case).expect("the case");
    let name = case.file_name().expect("a name").to_string_lossy().into_owned();
    let folder = case.parent().expect("a folder");
    RouterConfig::from_text(&name, &text, folder)
}

fn without_folder(case: &Path, text: String) -> String {
    text.replace(&format!("{}/", case.parent().expect("a folder").display()), "")
}

#[test]
fn every_mistake_is_reported_where_it_stands() {
    let mut failures = Vec::new();
    let mut kinds = HashSet::new();
    for case in cases("errors") {
        match read(&case) {
            Ok(_) => failures.push(format!("{} was accepted", case.display())),
            Err(errors) => {
                assert!(errors.error_count() > 0, "{}", case.display());
                kinds.extend(errors.diagnostics.iter().map(|d| d.kind));
                for d in &errors.diagnostics {
                    assert!(d.line >= 1 && d.column >= 1, "no place: {d}");
                }
                compare(&case, &without_folder(&case, format!("{errors}\n")), &mut failures);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let all = [
        ErrorKind::File,
        ErrorKind::Syntax,
        ErrorKind::UnknownKey,
        ErrorKind::MissingKey,
        ErrorKind::WrongType,
        ErrorKind::BadValue,
        ErrorKind::UnknownName,
        ErrorKind::Duplicate,
        ErrorKind::Overlap,
        ErrorKind::NotConnected,
        ErrorKind::Conflict,
        ErrorKind::TooMany,
        ErrorKind::TestFailed,
    ];
    for kind in all {
        assert!(kinds.contains(&kind), "no case for {kind:?}");
    }
}

#[test]
fn what_is_allowed_but_unusual_warns() {
    let mut failures = Vec::new();
    for case in cases("warnings") {
        match read(&case) {
            Ok(config) => {
                let text: String = config.warnings.iter().map(|w| format!("{w}\n")).collect();
                assert!(!text.is_empty(), "{} has no warnings", case.display());
                compare(&case, &text, &mut failures);
            }
            Err(errors) => failures.push(format!("{} was refused:\n{errors}", case.display())),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
