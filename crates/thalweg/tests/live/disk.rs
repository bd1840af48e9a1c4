//! A router whose disk is full or becomes read-only: it says so, continues to forward, and stores records again
//! when it can. It counts lost records and then does not exit with success.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::site::{OFFICE, OUTSIDE, Router, Site, eventually};

/// Bytes that fill the small disk except for about 100 kB.
const FILLER: usize = 8_250_000;
/// All bytes of the small disk.
const DISK: usize = 8 << 20;

fn config(store: &Path) -> String {
    format!(
        "[ports.lan]\ninterface = \"lan\"\naddresses = [\"10.1.0.1/24\"]\ndriver = \"af_packet\"\n\n\
         [ports.wan]\ninterface = \"wan\"\naddresses = [\"198.51.100.1/24\"]\ndriver = \"af_packet\"\n\n\
         [nat]\noutside = \"wan\"\ninside = [\"lan\"]\n\n[flows]\nstore = \"{}\"\n",
        store.join("flows").display()
    )
}

/// The command prefix that runs the router with a small disk at `disk`, on which `filled` bytes are used.
fn on_small_disk(disk: &Path, filled: usize) -> Vec<String> {
    let script = format!(
        "set -e; mount -t tmpfs -o size=8m none \"$0\"; head -c {filled} /dev/zero > \"$0\"/filler; exec \"$@\""
    );
    let command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script];
    command.into_iter().map(str::to_owned).chain([disk.display().to_string()]).collect()
}

fn start<'s>(site: &'s Site, disk: &Path, filled: usize) -> Router<'s> {
    let router = site.run_within(&config(disk), &[], &on_small_disk(disk, filled));
    forwards(site);
    router
}

fn forwards(site: &Site) {
    eventually("the router forwards", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
}

/// Waits until the log has these words `times` times.
fn says(site: &Site, words: &str, times: usize) {
    eventually(words, || (site.log().matches(words).count() >= times).then_some(()));
}

/// Waits until the store reports that it fails, or that it does not.
fn store(router: &Router<'_>, fails: bool) -> Value {
    eventually("the store's state is shown", || {
        let mut view = router.one("flow-cache");
        let outlet = view["outlets"].get_mut(0)?.take();
        (outlet["error"].is_string() == fails).then_some(outlet)
    })
}

fn small_disk(site: &Site) -> PathBuf {
    let disk = site.file("disk");
    fs::create_dir_all(&disk).expect("the folder is writable");
    disk
}

#[test]
fn a_full_disk_stops_no_packet_and_is_told() {
    let Some(site) = Site::new() else { return };
    let disk = small_disk(&site);
    let mut router = start(&site, &disk, FILLER);
    // The failure is reported before records are lost.
    says(&site, "no flow records are written", 1);
    let outlet = store(&router, true);
    assert!(outlet["error"].as_str().is_some_and(|error| error.contains("keep_free")), "{outlet}");
    assert_eq!(outlet["lost"], serde_json::json!({}), "{outlet}");
    let status = router.one("status").to_string();
    assert!(status.contains("flow records do not reach"), "{status}");
    assert!(router.said(&["flow-cache"], 100).contains("keep_free"));
    forwards(&site);
    // With free space, pending records are stored and the error disappears.
    let kept = File::open(router.process.inside(&disk)).expect("the disk");
    fs::remove_file(router.process.inside(&disk).join("filler")).expect("it is there");
    says(&site, "flow records can be written", 1);
    store(&router, false);
    forwards(&site);
    assert_eq!(router.process.end_code(), Some(0), "{}", site.log());
    let data = format!("/proc/{}/fd/{}/flows", std::process::id(), kept.as_raw_fd());
    let program = env!("CARGO_BIN_EXE_thalweg");
    let top = ["flows", "--data", &data, "--format", "json", "top", "proto", "src host 10.1.0.2"];
    let top: Value = serde_json::from_str(&site.said(&site.router(), program, &top)).expect("JSON");
    assert!(top["total"]["packets"].as_u64() >= Some(3), "those of the time without room, too: {top}");

    // Stopped while the disk is full, the router loses pending records and fails.
    let mut router = start(&site, &disk, FILLER);
    says(&site, "no flow records are written", 2);
    store(&router, true);
    assert_eq!(router.process.end_code(), Some(1), "{}", site.log());
    let log = site.log();
    let error = log.lines().rfind(|line| line.starts_with("error: ")).expect("an error");
    assert!(error.contains("did not reach") && error.contains("not-written"), "{error}");
    assert!(error.contains("keep_free"), "{error}");
}

#[test]
fn a_disk_that_turns_read_only_is_as_one_that_is_full() {
    let Some(site) = Site::new() else { return };
    let disk = small_disk(&site);
    let mut router = start(&site, &disk, 0);
    store(&router, false);
    let mount = |script: &str| {
        let root = router.process.inside(Path::new("/"));
        let pid = root.components().nth(2).expect("a process").as_os_str().to_string_lossy().into_owned();
        let path = disk.display().to_string();
        site.said(&site.router(), "nsenter", &["--mount", "--target", &pid, "sh", "-c", script, &path]);
    };
    let read_only = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"";
    mount(read_only);
    says(&site, "Read-only file system", 1);
    let outlet = store(&router, true);
    assert!(outlet["error"].as_str().is_some_and(|error| error.contains("mount it read-write")), "{outlet}");
    forwards(&site);
    mount("umount \"$0\"");
    says(&site, "flow records can be written", 1);
    store(&router, false);
    mount(read_only);
    store(&router, true);
    forwards(&site);
    assert_eq!(router.process.end_code(), Some(1), "{}", site.log());
    let log = site.log();
    assert!(log.contains("not-written") && log.lines().any(|line| line.starts_with("error: ")), "{log}");
}

/// Not even the dataset's lock has room, so the dataset cannot be opened.
#[test]
fn a_router_starts_while_its_disk_is_full_to_the_last_byte() {
    let Some(site) = Site::new() else { return };
    let disk = small_disk(&site);
    let mut router = start(&site, &disk, DISK);
    says(&site, "no flow records are written", 1);
    let outlet = store(&router, true);
    assert!(outlet["error"].as_str().is_some_and(|error| error.contains("No space left")), "{outlet}");
    let status = router.one("status").to_string();
    assert!(status.contains("flow records do not reach"), "{status}");
    forwards(&site);
    fs::remove_file(router.process.inside(&disk).join("filler")).expect("it is there");
    says(&site, "flow records can be written", 1);
    store(&router, false);
    assert_eq!(site.log().matches("no flow records are written").count(), 1, "{}", site.log());
    forwards(&site);
    let kept = File::open(router.process.inside(&disk)).expect("the disk");
    router.process.end_code();
    let data = format!("/proc/{}/fd/{}/flows", std::process::id(), kept.as_raw_fd());
    let top = ["flows", "--data", &data, "--format", "json", "top", "proto", "src host 10.1.0.2"];
    let top = site.said(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &top);
    let top: Value = serde_json::from_str(&top).expect("JSON");
    assert!(top["total"]["packets"].as_u64() >= Some(1), "{top}");
}
