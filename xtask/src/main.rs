//! Development tasks: `cargo xtask test`, `quick`, `ci`, `tidy`, `fuzz`, `planted`, `soak`, `package`.
//!
//! People and the machine that checks a push use the same steps: `.ci/run` calls them. Every task prints what
//! it does before it does it, stops at the first failure, and then prints what to do next. Exit codes: 0
//! done, 1 failed, 2 bad usage.

mod bounded;
mod cargo;
mod ci;
mod fuzz;
mod options;
mod package;
mod planted;
mod quick;
mod sbom;
mod soak;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use options::Options;

const USAGE: &str = "\
cargo xtask CHORE

  test [ARGUMENT OF CARGO].. [-- ARGUMENT OF TEST PROGRAMS..]
                          all tests, three test programs at a time, each as soon as it is built
  quick                   after each change: fmt, tidy, clippy, tests of the crates that changed
  ci [--only STEP].. [--without STEP].. [-- ARGUMENT OF CARGO..]
                          everything a push must pass: fmt, tidy, planted, deny, fuzz-lock, tests, clippy, docs,
                          wasm
  tidy                    crate arrows, file sizes, forbidden words, unsafe, the map
  fuzz [--seconds N] [TARGET]..
                          run fuzz targets (all of them by default), N seconds each (60)
  planted [--seeds N] [NAME]..
                          put each fault of xtask/planted into a copy; seeds must find it
  package [--package NAME] [--profile NAME]
                          build the last commit twice, compare, and make its Debian package and bill of materials
  soak [OPTION]..         a million seeds, or as `thalweg lab seeds OPTION..` says
  soak --minutes N        a live router under faults for so long, a third of it by each driver
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    match args.split_first().map(|(chore, rest)| (chore.as_str(), rest)) {
        Some(("ci", rest)) => parsed(ci::Options::parse(rest), |options| ci::run(&root, options)),
        Some(("test", rest)) => done(test::run(&root, &test::Options::parse(rest), || Ok(()))),
        Some(("quick", [])) => done(quick::run(&root)),
        Some(("tidy", [])) => done(tidy::run(&root)),
        Some(("fuzz", rest)) => {
            let options = Options::parse("fuzz", "--seconds", fuzz::SECONDS_DEFAULT, rest);
            parsed(options, |options| fuzz::run(&root, options))
        }
        Some(("planted", rest)) => {
            let options = Options::parse("planted", "--seeds", planted::SEEDS_DEFAULT, rest);
            parsed(options, |options| planted::run(&root, options))
        }
        Some(("package", rest)) => {
            parsed(package::Options::parse(rest), |options| package::run(&root, options))
        }
        Some(("soak", rest)) => done(soak::run(&root, rest)),
        Some(("help" | "--help" | "-h", _)) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Some((other, _)) => bad_usage(&format!("`{other}` is no chore, or takes no such arguments")),
        None => bad_usage("which chore?"),
    }
}

fn parsed<O>(options: Result<O, String>, run: impl FnOnce(&O) -> Result<(), String>) -> ExitCode {
    match options {
        Ok(options) => done(run(&options)),
        Err(message) => bad_usage(&message),
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("\nxtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn bad_usage(message: &str) -> ExitCode {
    eprintln!("xtask: {message}\n\n{USAGE}");
    ExitCode::from(2)
}

/// The folder above this crate's own, which cargo names to what it runs: in the binary it would be a path of the machine
/// that built it.
fn workspace_root() -> PathBuf {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    here.parent().map(Path::to_path_buf).unwrap_or(here)
}
