//! How every task starts cargo.

use std::env;
use std::path::Path;
use std::process::Command;

/// Cargo without the variables by which the cargo that started us describes xtask. Build scripts ask for them: with them `ring` and all
/// that uses it would be compiled again in each change between `cargo xtask` and plain `cargo`.
pub(crate) fn cargo_command() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|p| text.starts_with(p))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Runs cargo and says what it runs.
pub(crate) fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    println!("    cargo {}", args.join(" "));
    let mut command = cargo_command();
    command.current_dir(root).args(args).envs(env.iter().copied());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(format!("cargo did not start: {error}")),
    }
}
