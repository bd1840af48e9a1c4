//! Checks a configuration that a client sends.

use std::path::Path;

use serde_json::json;
use thalweg_config::{Diagnostic, RouterConfig};

use crate::answer::Outlet;

/// What findings call it.
const NAME: &str = "router.toml";

/// Checks a configuration: the body of a thread. Files that it names are read, but what they contain is not shown.
pub(crate) fn answer(text: &str, mut outlet: Outlet) {
    let checked = RouterConfig::from_text(NAME, text, Path::new("/"));
    let (is_ok, findings) = match checked {
        Ok(config) => (true, config.warnings),
        Err(errors) => (false, errors.diagnostics),
    };
    let findings: Vec<Diagnostic> = findings.into_iter().map(without_secrets).collect();
    let document = json!({ "ok": is_ok, "findings": findings });
    // Who is gone needs no answer.
    let _ = outlet.write(document.to_string());
    outlet.end(Ok(()));
}

/// A finding about another file quotes that file.
fn without_secrets(finding: Diagnostic) -> Diagnostic {
    if finding.file == NAME {
        return finding;
    }
    let message = "an error in a file that the configuration names; `thalweg check` shows it".to_owned();
    Diagnostic { message, text: String::new(), expected: String::new(), help: None, ..finding }
}
