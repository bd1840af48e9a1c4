//! Starts cargo and git for all tasks.

use std::env;
use std::path::Path;
use std::process::Command;

/// Cargo's priority against other programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    Usual,
    /// Other programs have priority.
    WhenIdle,
}

/// Cargo without the variables by which the cargo that started us describes xtask. Build scripts depend on
/// them: with them, `ring` and all its users would be compiled again at each change between `cargo xtask` and
/// plain `cargo`.
pub(crate) fn cargo_command() -> Command {
    cargo_command_with(Urgency::Usual)
}

fn cargo_command_with(urgency: Urgency) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = match urgency {
        Urgency::Usual => Command::new(cargo),
        Urgency::WhenIdle => {
            let mut nice = Command::new("nice");
            nice.args(["-n", "10"]).arg(cargo);
            nice
        }
    };
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|p| text.starts_with(p))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Runs cargo and prints the command.
pub(crate) fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    cargo_with(root, args, env, Urgency::Usual)
}

/// Runs cargo with this priority. Output of a low-priority run is printed at its end, in one piece, because
/// other output appears meanwhile.
pub(crate) fn cargo_with(
    root: &Path,
    args: &[&str],
    env: &[(&str, &str)],
    urgency: Urgency,
) -> Result<(), String> {
    println!("    cargo {}", args.join(" "));
    let mut command = cargo_command_with(urgency);
    command.current_dir(root).args(args).envs(env.iter().copied());
    let status = match urgency {
        Urgency::Usual => command.status(),
        Urgency::WhenIdle => command.output().map(|output| {
            let said = [output.stdout, output.stderr].concat();
            print!("{}", String::from_utf8_lossy(&said));
            output.status
        }),
    };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(format!("cargo did not start: {error}")),
    }
}

/// Runs git; returns what it prints.
pub(crate) fn git(folder: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(folder).args(args).output();
    let output = output.map_err(|error| format!("git did not start: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
