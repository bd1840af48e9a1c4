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
    // A container's engine is asked for the same, and the binary in it has them.
    let container = fs::read_to_string(root().join("packaging/container/Containerfile")).expect("the file");
    for (before, prefix) in [("--cap-add ", "CAP_"), ("setcap ", "")] {
        let list = container.split(before).nth(1).and_then(|rest| rest.split([' ', '=']).next());
        let mut list: Vec<String> = list
            .expect("a list")
            .split(',')
            .map(|name| format!("{prefix}{}", name.to_ascii_uppercase()))
            .collect();
        list.sort_unstable();
        assert_eq!(list, given, "{before}");
    }
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

/// The package's unit under systemd itself, the first process of namespaces of their own: it starts as its user, comes
/// back when it is killed and when it is stopped, reloads, and ends.
#[test]
fn systemd_keeps_the_service_up() {
    if run("systemctl", &["--version"]).is_none() {
        return thalweg_testdata::skipped("no systemd to run the unit under");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(package) = package(folder.path()) else { return };
    for (name, text) in [("boot", BOOT), ("steps", SERVICE_STEPS), ("router.toml", SERVICE_CONFIG)] {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    let path = folder.path().display().to_string();
    let own = ["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child"];
    let boot = format!("{path}/boot");
    let booted = run("unshare", &[&own[..], &["sh", &boot, &path, &package]].concat()).expect("unshare runs");
    let said = fs::read_to_string(folder.path().join("said"));
    let Ok(said) = said else {
        return thalweg_testdata::skipped(&format!("systemd does not come up here: {}", text(&booted)));
    };
    assert!(said.contains("ALL DONE"), "{said}");
}

const SERVICE_CONFIG: &str = r#"
[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24"]
[bgp]
as = 64500
router_id = "10.1.0.1"
"#;

/// Makes systemd the first process, in a file system above this one with the package installed. Gets a folder and the
/// package. Whatever fails before systemd runs leaves no file `said`.
const BOOT: &str = r#"set -eu
mkdir "$1/over" "$1/root"
root=$1/root
mount -t tmpfs tmpfs "$1/over"
mkdir "$1/over/up" "$1/over/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/over/up,workdir=$1/over/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/dev"
mkdir "$root/dev/net" "$root/dev/shm"
for node in null zero full random urandom tty net/tun; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup "$root/sys/fs/cgroup"
else
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
fi
mkdir "$root/test"
mount --bind "$1" "$root/test"
ip link set lo up
ip link add lan type veth peer name host
ip link set lan up
ip link set host up
DEBIAN_FRONTEND=noninteractive chroot "$root" dpkg --force-depends -i "/test/${2##*/}"
cp "$1/router.toml" "$root/etc/thalweg/router.toml"
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
cd "$root/etc/systemd/system"
mkdir thalweg.service.d
printf '[Service]
WatchdogSec=3
' >thalweg.service.d/test.conf
printf '[Service]
Type=oneshot
ExecStart=/bin/sh /test/steps
' >steps.service
cd /
export container=lxc
exec chroot "$root" /lib/systemd/systemd --system --unit=steps.service
"#;

/// What the first service does: it asks for the unit, and ends the system.
const SERVICE_STEPS: &str = r#"exec >/test/said 2>&1
trap 'journalctl --no-pager -n 60; systemctl poweroff --force --force' EXIT
set -eux
of() { systemctl show --property "$1" --value thalweg; }
until_is() {
    set +x
    tries=0
    while [ "$(of "$1")" != "$2" ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 600 ]
    done
    set -x
}
systemctl start thalweg
test "$(ps -o user= -p "$(of MainPID)")" = thalweg
thalweg show status
kill -KILL "$(of MainPID)"
until_is NRestarts 1
until_is ActiveState active
thalweg show ports | grep -q lan
kill -STOP "$(of MainPID)"
until_is NRestarts 2
until_is ActiveState active
journalctl --no-pager -u thalweg | grep -q "Watchdog timeout"
systemctl reload thalweg
thalweg show status
systemctl stop thalweg
test "$(of Result)" = success
test ! -e /run/thalweg/thalweg.sock
echo ALL DONE
"#;

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
