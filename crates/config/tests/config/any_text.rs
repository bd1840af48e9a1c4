//! No text makes the reader panic, and every finding has a position: examples and cases, damaged at random.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use thalweg_config::RouterConfig;

/// Every configuration in the repository.
fn seeds() -> Vec<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let toml = |folder: PathBuf| {
        std::fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|e| e == "toml"))
            .collect::<Vec<_>>()
    };
    let mut paths = toml(here.join("tests/errors"));
    for name in ["small-office", "article", "full-table", "route-server", "transit"] {
        paths.extend(toml(here.join("../../examples").join(name)));
    }
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("text")).collect()
}

fn check(text: &str) {
    if let Err(errors) = RouterConfig::from_text("any.toml", text, Path::new("no/such/folder")) {
        assert!(errors.error_count() > 0);
        for finding in &errors.diagnostics {
            assert!(finding.line >= 1 && finding.column >= 1, "{finding}");
        }
        assert!(errors.to_string().chars().all(|c| c == '\n' || !c.is_control()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_configurations_are_reported(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, "\\PC{0,6}|[\\[\\]{}=\",.#\n0-9-]{1,4}"), 1..6),
    ) {
        let seeds = seeds();
        let mut text: Vec<char> = which.get(&seeds).chars().collect();
        for (at, removed, inserted) in edits {
            if text.is_empty() {
                break;
            }
            let start = at.index(text.len());
            let end = (start + removed).min(text.len());
            text.splice(start..end, inserted.chars());
        }
        check(&text.into_iter().collect::<String>());
    }

    #[test]
    fn any_route_file_is_reported(
        lines in prop::collection::vec(
            "[0-9a-f:./]{0,20} [0-9a-f:.-]{0,12} ?(wan|lan|-|#)?|10\\.[0-9]{1,3}\\.0\\.0/16 192\\.0\\.2\\.9 wan",
            0..30,
        ),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        gzip in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bytes = lines.join("\n").into_bytes();
        bytes.extend(noise);
        if gzip {
            bytes.splice(0..0, [0x1f, 0x8b, 8, 0]);
        }
        std::fs::write(folder.path().join("routes"), bytes).expect("writing");
        let text = "[ports.wan]\nmac = \"02:00:00:00:00:01\"\naddresses = [\"192.0.2.1/24\"]\n\
                    default_mac = \"02:00:00:00:00:02\"\n[routing]\nfiles = \"routes\"\n";
        if let Err(errors) = RouterConfig::from_text("any.toml", text, folder.path()) {
            prop_assert!(errors.diagnostics.iter().all(|d| d.line >= 1 && d.column >= 1));
        }
    }

    #[test]
    fn any_text_is_reported(text in "(?s).{0,200}") {
        check(&text);
    }
}

#[test]
fn deep_nesting_does_not_overflow() {
    for open in ["[", "{a=", "[[", "{a=["] {
        check(&format!("x = {}", open.repeat(20_000)));
    }
    check(&format!("{}x = 1", "a.".repeat(5_000)));
    check(&format!("[{}x]\ny = 1", "a.".repeat(5_000)));
}
