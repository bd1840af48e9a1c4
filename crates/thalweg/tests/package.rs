//! The Debian package and its units: built from the shipped files with this binary, and installed into a copy of this
//! system that nothing of it leaves.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::browser::Browser;
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

/// The first steps of `docs/operate.md` as they are printed there, in a system of its own whose first process is
/// systemd, between two hosts in namespaces: the console shows their traffic. Then the unit comes back when it is killed
/// and when it is stopped, reloads, is upgraded, ends, and is removed.
#[test]
fn a_new_user_sees_traffic_and_systemd_keeps_the_service_up() {
    for (program, version) in [("systemctl", "--version"), ("apt-get", "--version"), ("ping", "-V")] {
        if run(program, &[version]).is_none() {
            return thalweg_testdata::skipped(&format!("no {program}: the unit does not run"));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(package) = package(folder.path()) else { return };
    let page = fs::read_to_string(root().join("docs/operate.md")).expect("the page");
    let printed = page.split("\n## In five minutes\n").nth(1).expect("the section").lines();
    let printed = printed.skip(1).map_while(|line| line.strip_prefix("    "));
    // Root needs no sudo.
    let commands: Vec<&str> = printed.map(|line| line.strip_prefix("sudo ").unwrap_or(line)).collect();
    assert!(commands.len() > 4, "{commands:?}");
    let name = package.rsplit('/').next().expect("a name");
    let commands = commands.join("\n").replace("thalweg_0.1.0_amd64.deb", name);
    for (name, text) in [("boot", BOOT), ("steps", SERVICE_STEPS), ("commands", &commands)] {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    let mut system = System::boot(folder.path());
    if system.comes_to("ready", folder.path()) {
        the_console_shows_traffic(&system);
        fs::write(folder.path().join("seen"), "").expect("a file");
    }
    let _ = system.0.wait();
    let Ok(said) = fs::read_to_string(folder.path().join("said")) else {
        let booted = fs::read_to_string(folder.path().join("booted")).unwrap_or_default();
        return thalweg_testdata::skipped(&format!("systemd does not come up here: {booted}"));
    };
    assert!(said.contains("ALL DONE"), "{said}");
    let lost = said.lines().find(|line| line.starts_with("an echo each"));
    println!("{}", lost.expect("ping says it"));
}

/// A system in namespaces of its own, which ends with this.
struct System(Child);

impl System {
    fn boot(folder: &Path) -> Self {
        let said = File::create(folder.join("booted")).expect("a file");
        let system = Command::new("unshare")
            .args(["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child", "sh"])
            .arg(folder.join("boot"))
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(said.try_clone().expect("a descriptor"))
            .stderr(said)
            .spawn();
        Self(system.expect("unshare runs"))
    }

    /// Waits until it has made a file; `false` if it ends before.
    fn comes_to(&mut self, file: &str, folder: &Path) -> bool {
        while !folder.join(file).exists() {
            if self.0.try_wait().expect("it is a child").is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(50));
        }
        true
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both ports of the router receive and send packets, says the console to a browser in the system's network.
fn the_console_shows_traffic(system: &System) {
    let mut shell = Command::new("nsenter");
    shell.args([format!("--net=/proc/{}/ns/net", system.0.id()).as_str(), "sh"]);
    let Some(mut browser) = Browser::start_by(shell) else { return };
    browser.navigate("http://127.0.0.1:8080/#/ports");
    for port in ["lan", "wan"] {
        // The columns are Port, Link, Received, Packets in, Sent, Packets out.
        browser.until(&format!(
            "[...document.querySelectorAll('tbody tr')].some(({{ cells }}) => cells[0].textContent === {port:?} \
             && [3, 5].every((column) => /[1-9]/.test(cells[column].textContent)))"
        ));
    }
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// Makes systemd the first process, in a file system above this one, or above that of another Debian (`THALWEG_ROOT`).
/// Gets a folder. Whatever fails before systemd runs leaves no file `said`.
const BOOT: &str = r#"set -eu
mkdir "$1/over" "$1/root"
root=$1/root
mount -t tmpfs tmpfs "$1/over"
mkdir "$1/over/up" "$1/over/work"
mount -t overlay overlay -o "lowerdir=${THALWEG_ROOT:-/},upperdir=$1/over/up,workdir=$1/over/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/dev"
mkdir "$root/dev/net" "$root/dev/shm" "$root/dev/pts"
# Units with devices of their own get these, too.
mount -t devpts devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
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
for port in lan wan; do
    ip link add $port type veth peer name $port-host
    ip link set $port up
done
ip address add 10.1.0.1/24 dev lan
ip address add 198.51.100.1/30 dev wan
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
# Not chroot: where the root is not that of the mounts, the kernel makes no user namespaces (PrivateUsers=).
cd "$root"
mkdir old
pivot_root . old
umount -l old
cd /
# As each manager of containers does: a service's credentials are mounted in another namespace, and come from there.
mount --make-rshared /
export container=lxc
exec /lib/systemd/systemd --system --unit=steps.service
"#;

/// What the first service does: the steps of a new user, then what happens to a service; it ends the system.
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
# Name, interface, address, gateway.
host() {
    ip netns add "$1"
    ip link set "$2" netns "$1"
    ip -n "$1" address add "$3" dev "$2"
    ip -n "$1" link set "$2" up
    ip -n "$1" route add default via "$4"
}
host client lan-host 10.1.0.2/24 10.1.0.1
host server wan-host 198.51.100.2/30 198.51.100.1

cd /test
export DEBIAN_FRONTEND=noninteractive
. ./commands
test "$(ps -o user= -p "$(of MainPID)")" = thalweg
ip netns exec client ping -c 3 -W 10 198.51.100.2
ip netns exec client ping -q -i 0.2 198.51.100.2 >/dev/null &
touch ready
set +x
while [ ! -e seen ]; do sleep 0.1; done
set -x
kill $!

sed -i '/^# \[bgp\]/,/^$/ s/^# //' /etc/thalweg/router.toml
printf '[flows]\nstore = "/var/lib/thalweg/flows"\n' >>/etc/thalweg/router.toml
printf '[control]\nread_socket = "/run/thalweg/read.sock"\n' >>/etc/thalweg/router.toml
ip netns exec client ping -q -i 0.01 198.51.100.2 >pinged &
pinging=$!
kill -KILL "$(of MainPID)"
until_is NRestarts 1
until_is ActiveState active
# One answer in time, whichever echo it is of: the first may go while interfaces are opened.
ip netns exec client ping -q -c 1 -w 10 198.51.100.2
kill -INT $pinging
wait $pinging
sed -n "s/.*transmitted/an echo each 10 ms over SIGKILL: &/p" pinged
thalweg show ports | grep -q lan
thalweg show bgp rib
thalweg show flow-cache
systemd-analyze security --no-pager --threshold=26 thalweg >security || { cat security; exit 1; }

# The other unit, which is another user, shows flows of the router's cache to who has its token.
sed 's/:8080/:8081/; /^# \[\[web.token\]\]/,/^$/ s/^# //' /usr/share/doc/thalweg/examples/web.toml >/etc/thalweg/web.toml
token=/etc/thalweg/web/monitoring.token
(umask 077 && echo 0123456789abcdef >$token)
thalweg check /etc/thalweg/web.toml | grep -q "thalweg-web.service/web_monitoring.token"
systemctl start thalweg-web
web="thalweg flows --url http://127.0.0.1:8081 top src --format json"
tries=0
until $web --token-file $token >shown; do sleep 0.1; tries=$((tries + 1)); [ $tries -lt 300 ]; done
grep -q '"10\.1\.0\.2"' shown
grep -q '"writer": "answered"' shown
$web && exit 1
test "$(stat -c %G:%a /var/lib/thalweg/flows/.live.sock)" = thalweg-flows:660
# Its groups open this, and not what changes the router.
as_web="setpriv --reuid nobody --regid nogroup --groups thalweg-flows"
$as_web thalweg flows --data /var/lib/thalweg/flows top src | grep -q 10.1.0.2
$as_web thalweg show status --socket /run/thalweg/read.sock
$as_web thalweg show status && exit 1
systemd-analyze security --no-pager --threshold=26 thalweg-web >security || { cat security; exit 1; }
kill -STOP "$(of MainPID)"
until_is NRestarts 2
until_is ActiveState active
journalctl --no-pager -u thalweg | grep -q "Watchdog timeout"
systemctl reload thalweg
thalweg show status

# Another version of the same: what an upgrade is to dpkg.
dpkg-deb -R /test/*.deb next
sed -i 's/^Version: .*/&+next/' next/DEBIAN/control
dpkg-deb -Znone -b next next.deb
# The index of manual pages would take most of the time.
upgrade() { dpkg --no-triggers --force-confold -i next.deb 2>&1 | tee upgraded; }
before=$(of MainPID)
upgrade
test "$(of MainPID)" != "$before"
until_is ActiveState active
# One that refuses what is configured does not stop what runs.
before=$(of MainPID)
mv /etc/thalweg/router.toml good
echo 'wrong = 1' >/etc/thalweg/router.toml
upgrade
grep -q "the old one goes on" upgraded
test "$(of MainPID)" = "$before"
# It does not come up with it, and is not tried again and again.
systemctl restart thalweg && exit 1
test "$(of ExecMainStatus)/$(of NRestarts)/$(of ActiveState)" = 2/0/failed
mv good /etc/thalweg/router.toml
systemctl start thalweg
ip netns exec client ping -q -c 1 -w 10 198.51.100.2

systemctl stop thalweg
test "$(of Result)" = success
test ! -e /run/thalweg/thalweg.sock
# Records in files, too, are for the console's service.
$web --token-file $token | grep -q '"10\.1\.0\.2"'
systemctl stop thalweg-web
rm /etc/thalweg/web.toml $token
systemctl start thalweg
dpkg --no-triggers -r thalweg
test "$(of ActiveState)" = inactive
test ! -e /etc/systemd/system/multi-user.target.wants/thalweg.service
dpkg --no-triggers -P thalweg
test ! -e /etc/thalweg
test ! -e /var/lib/thalweg
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
test -e /usr/share/zsh/vendor-completions/_thalweg
test -e /usr/share/fish/vendor_completions.d/thalweg.fish
test "$(stat -c %a /etc/thalweg/web)" = 700
test "$(stat -c %U:%G:%a /var/lib/thalweg/flows)" = thalweg:thalweg-flows:2750
/usr/bin/thalweg check --offline /usr/share/doc/thalweg/examples/web.toml
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
