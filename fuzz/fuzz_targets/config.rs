//! Configuration text: no text makes the reader panic, and every finding has a position inside the text and can
//! be printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use thalweg_config::RouterConfig;

fuzz_target!(|text: &str| {
    let Err(errors) = RouterConfig::from_text("fuzz.toml", text, Path::new("no/such/folder")) else { return };
    assert!(errors.error_count() > 0);
    for finding in &errors.diagnostics {
        assert!(finding.column >= 1 && finding.line >= 1, "{finding}");
        assert!(finding.line <= text.lines().count().max(1) + 1, "{finding}");
    }
    assert!(errors.to_string().chars().all(|c| c == '\n' || !c.is_control()));
});
