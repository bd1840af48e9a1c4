//! Makes the Debian package of the last commit, after building it twice, at two places, and comparing; beside it, what
//! it is made of.
//!
//! What a compiler writes about its own surroundings is the same at both: paths are mapped, the commit and its time
//! stand for the date, and the lock file fixes the dependencies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{cargo_command, git};
use crate::planted;
use crate::sbom::{self, FEATURES, PROGRAM};

/// Two folders, of different length: a path in the binary would move what follows.
const PLACES: [&str; 2] = ["one", "another"];
/// In each, the copy of the last commit.
const SOURCE: &str = "source";

/// What is built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    package: String,
    profile: String,
}

impl Options {
    /// `[--package NAME] [--profile NAME]`; other packages than the router only show that the comparison works.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self { package: PROGRAM.to_owned(), profile: "release".to_owned() };
        for pair in args.chunks(2) {
            match pair {
                [name, value] if name == "--package" => options.package.clone_from(value),
                [name, value] if name == "--profile" => options.profile.clone_from(value),
                other => return Err(format!("package does not know `{}`", other.join(" "))),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let folder = root.join("target/package");
    let [one, another] = PLACES.map(|place| folder.join(place));
    // The same for both, whatever is committed meanwhile.
    let commit = git(root, &["rev-parse", "HEAD"])?;
    let build = |folder| build(root, folder, commit.trim(), options);
    let (one, other) = (build(&one)?, build(&another)?);
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    if let Some(difference) = difference(&read(&one)?, &read(&other)?) {
        return Err(format!("{} and {} differ {difference}", one.display(), other.display()));
    }
    println!("==> two builds of {} are the same, byte by byte", options.package);
    if options.package != PROGRAM {
        return Ok(());
    }
    // What is packed is the commit, too.
    let source = folder.join(PLACES[0]).join(SOURCE);
    let bill = folder.join("thalweg.cdx.json");
    fs::write(&bill, sbom::of(&source)?).map_err(|error| format!("{}: {error}", bill.display()))?;
    println!("{}", bill.display());
    let packed = Command::new(source.join("packaging/deb")).arg(one).arg(&folder).status();
    match packed {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("packaging/deb: {status}")),
        Err(error) => Err(format!("packaging/deb did not start: {error}")),
    }
}

/// Builds a commit in a folder; returns the binary.
fn build(root: &Path, folder: &Path, commit: &str, options: &Options) -> Result<PathBuf, String> {
    let source = planted::copy(root, &folder.join(SOURCE), commit)?;
    let target = folder.join("target");
    let name = git(root, &["rev-parse", "--short=12", commit])?;
    let date = git(root, &["log", "-1", "--format=%ct", commit])?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    // The folder has the source and what build scripts write.
    let mapped = [Some((folder.to_owned(), "/thalweg")), home.map(|home| (home, "/cargo"))];
    let flags =
        mapped.iter().flatten().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    println!("==> {} in {}", options.package, folder.display());
    let features: &[&str] = if options.package == PROGRAM { &FEATURES } else { &[] };
    let status = cargo_command()
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\x1f"))
        .env("THALWEG_COMMIT", name.trim())
        .env("SOURCE_DATE_EPOCH", date.trim())
        .args(["build", "--locked", "--package", &options.package, "--profile", &options.profile])
        .args(features)
        .status()
        .map_err(|error| format!("cargo did not start: {error}"))?;
    if !status.success() {
        return Err(format!("cargo build: {status}"));
    }
    // Two profiles have a folder of another name.
    let profile =
        if ["dev", "test"].contains(&options.profile.as_str()) { "debug" } else { &options.profile };
    Ok(target.join(profile).join(&options.package))
}

/// Where two files differ first.
fn difference(one: &[u8], other: &[u8]) -> Option<String> {
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    if same == one.len() && same == other.len() {
        return None;
    }
    let around = |bytes: &[u8]| {
        let piece = bytes.get(same.saturating_sub(16)..).unwrap_or_default();
        piece.get(..piece.len().min(64)).unwrap_or_default().escape_ascii().to_string()
    };
    let sizes = (one.len(), other.len());
    Some(format!(
        "from byte {same} of {} and {} on:\n  {}\n  {}",
        sizes.0,
        sizes.1,
        around(one),
        around(other)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_its_place() {
        assert_eq!(difference(b"same", b"same"), None);
        let found = difference(b"the path /one/x", b"the path /another/x").expect("they differ");
        assert!(found.contains("byte 10 of 15 and 19") && found.contains("/another"), "{found}");
        assert!(difference(b"ab", b"abc").expect("one is longer").contains("byte 2"));
        assert!(difference(b"", b"a").is_some());
    }

    #[test]
    fn the_router_is_what_is_packaged() {
        let parse =
            |args: &[&str]| Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        let options = |package: &str, profile: &str| {
            Ok(Options { package: package.to_owned(), profile: profile.to_owned() })
        };
        assert_eq!(parse(&[]), options("thalweg", "release"));
        assert_eq!(parse(&["--package", "xtask", "--profile", "dev"]), options("xtask", "dev"));
        assert!(parse(&["--package"]).is_err() && parse(&["--what", "x"]).is_err());
    }
}
