//! The Debian package and its units: built from the shipped files with this binary, and installed into a copy of this
//! system that nothing of it leaves.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{root, thalweg};

/// Runs a program in the repository's root; packages are not compressed, which would take most of the time.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    command.output().ok()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Packages the binary into a folder; `None`, with a loud message, without dpkg.
fn package(folder: &Path) -> Option<String> {
    if run("dpkg-deb", &["--version"]).is_none() {
        thalweg_testdata::skipped("no dpkg-deb, no package");
        return None;
    }
    let (binary, folder) = (env!("CARGO_BIN_EXE_thalweg"), folder.display().to_string());
    let made = run("packaging/deb", &[binary, &folder]).expect("the script runs");
    assert!(made.status.success(), "{}", text(&made));
    Some(String::from_utf8_lossy(&made.stdout).trim().to_owned())
}

/// systemd's own judgment of the units: the sum of what they leave open.
#[test]
fn units_leave_little_open() {
    for (unit, most) in [("thalweg", 2.6), ("thalweg-web", 1.5)] {
        let path = format!("packaging/{unit}.service");
        let Some(said) = run("systemd-analyze", &["security", "--offline=true", "--no-pager", &path]) else {
            return thalweg_testdata::skipped("no systemd-analyze");
        };
        let said = text(&said);
        let level =
            said.split("Overall exposure level for").nth(1).and_then(|rest| rest.split_whitespace().nth(1));
        let level: f64 = level.and_then(|level| level.parse().ok()).unwrap_or_else(|| panic!("{said}"));
        assert!(level <= most, "{unit}: {said}");
    }
}

/// The unit's capabilities are those that a router with all drivers and BGP needs; what is missing costs priority.
#[test]
fn the_unit_gives_what_check_says() {
    let unit = fs::read_to_string(root().join("packaging/thalweg.service")).expect("the unit");
    let given = unit.lines().find_map(|line| line.strip_prefix("AmbientCapabilities=")).expect("a line");
    let checked = thalweg(&["check", "--offline", "--format", "json", "examples/live-transit/router.toml"]);
    let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let needed = checked["rights"]["capabilities"].as_array().expect("a list").iter();
    let mut needed: Vec<&str> = needed.map(|need| need["name"].as_str().expect("a name")).collect();
    // Replaced by LimitRTPRIO.
    needed.retain(|name| *name != "CAP_SYS_NICE");
    let mut given: Vec<&str> = given.split_whitespace().collect();
    given.sort_unstable();
    needed.sort_unstable();
    assert_eq!(given, needed);
}

#[test]
fn two_packages_of_one_binary_are_the_same() {
    let folders = [tempfile::tempdir(), tempfile::tempdir()].map(|folder| folder.expect("a folder"));
    let read = |path: String| fs::read(path).expect("the package");
    let [Some(one), Some(other)] = folders.each_ref().map(|folder| package(folder.path()).map(read)) else {
        return;
    };
    assert!(one == other, "the packages differ");
}

/// Installed, upgraded with a changed configuration, removed and purged, in a file system of its own above this one.
#[test]
fn the_package_comes_and_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(package) = package(folder.path()) else { return };
    let script = folder.path().join("steps");
    fs::write(&script, STEPS).expect("a file");
    let [folder, script] = [folder.path(), &script].map(|path| path.display().to_string());
    let steps = run("unshare", &["--mount", "sh", &script, &folder, &package]).expect("unshare runs");
    let said = text(&steps);
    if said.contains("NO OVERLAY") {
        return thalweg_testdata::skipped(&format!("no overlay to install a package in: {said}"));
    }
    assert!(steps.status.success() && said.contains("ALL DONE"), "{said}");
}

/// Gets a folder and the package.
const STEPS: &str = r#"set -eu
mkdir "$1/over" "$1/root"
{ mount -t tmpfs tmpfs "$1/over" && mkdir "$1/over/up" "$1/over/work" &&
  mount -t overlay overlay -o "lowerdir=/,upperdir=$1/over/up,workdir=$1/over/work" "$1/root"; } || { echo NO OVERLAY; exit 1; }
cp "$2" "$1/root/thalweg.deb"
mount -t proc proc "$1/root/proc"
in_root() { chroot "$1/root" /bin/sh -euc "$2"; }
# Another version of the same: what an upgrade is to dpkg.
dpkg-deb -R "$2" "$1/over/next"
sed -i 's/^Version: .*/&+next/' "$1/over/next/DEBIAN/control"
echo '# news' >>"$1/over/next/etc/thalweg/router.toml"
dpkg-deb -b "$1/over/next" "$1/root/next.deb" >/dev/null

in_root "$1" 'DEBIAN_FRONTEND=noninteractive dpkg --force-depends -i /thalweg.deb
getent passwd thalweg
test "$(stat -c %a /usr/bin/thalweg)" = 755
test -e /usr/share/man/man1/thalweg-run.1.gz
test -e /usr/share/bash-completion/completions/thalweg
test ! -e /etc/systemd/system/multi-user.target.wants/thalweg.service
/usr/bin/thalweg init route-server -o /etc/thalweg/router.toml --force
/usr/bin/thalweg check --offline /etc/thalweg/router.toml >/dev/null
dpkg --verify thalweg | grep -v " c /etc/thalweg/router.toml" && exit 1
mkdir -p /var/lib/thalweg
dpkg --force-depends --force-confold -i /next.deb
grep -q "route server" /etc/thalweg/router.toml
test -e /etc/thalweg/router.toml.dpkg-dist
dpkg -r thalweg
test ! -e /usr/bin/thalweg
test -e /etc/thalweg/router.toml
dpkg -P thalweg
test ! -e /etc/thalweg
test ! -e /var/lib/thalweg'
echo ALL DONE
"#;
