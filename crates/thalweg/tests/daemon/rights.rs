//! The rights of a router's process: what is refused to it, what it keeps of root's, who may open its sockets.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use thalweg_testdata::s3_server;

use crate::delivery::config_in_sandbox;
use crate::router::{Router, free_port, speaker};

/// A user and a group that each Debian has.
const USER: &str = "nobody";
const GROUP: &str = "daemon";

fn thalweg(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg")).args(arguments).output().expect("the binary runs")
}

/// A folder that every user can reach, or `None`, with a loud message, if this is not root, who alone can become others.
fn folder_of_all(test: &str) -> Option<TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    // Only root may give files away.
    if chown(folder.path(), Some(0), Some(0)).is_err() {
        thalweg_testdata::skipped(&format!("{test}: only root can become another user"));
        return None;
    }
    Some(folder)
}

/// The number of a user or group in a file of the system.
fn number(path: &str, name: &str) -> u32 {
    let text = fs::read_to_string(path).expect("the accounts");
    let line = text.lines().find(|line| line.starts_with(&format!("{name}:"))).expect("each Debian has it");
    line.split(':').nth(2).and_then(|number| number.parse().ok()).expect("a number")
}

/// What the kernel says about each thread of a process, line by line.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let status =
        |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("status")).ok();
    tasks.filter_map(status).collect()
}

/// What an intruder would want is tried by the shipped binary, as root; without the sandbox the same trials succeed.
#[test]
fn what_the_sandbox_forbids_is_refused() {
    let Some(folder) = folder_of_all("sandbox") else { return };
    let file = folder.path().join("a.toml");
    let path = file.display().to_string();
    let tried = |system: &str| {
        fs::write(&file, format!("[control]\nsocket = \"a.sock\"\n[system]\n{system}\n{}", speaker(1, 1179)))
            .expect("a file");
        let output = thalweg(&["check", &path, "--sandbox"]);
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let offered: serde_json::Value = {
        fs::write(&file, speaker(1, 1179)).expect("a file");
        serde_json::from_slice(&thalweg(&["check", &path, "--format", "json"]).stdout).expect("JSON")
    };
    let missing = offered["rights"]["sandbox"]["missing"].as_array().expect("a list");
    if !missing.is_empty() {
        return thalweg_testdata::skipped(&format!("sandbox: {missing:?}"));
    }
    for system in ["", "user = \"nobody\""] {
        let (succeeds, said) = tried(system);
        assert!(succeeds && !said.contains("ALLOWED"), "{system}: {said}");
        for act in [
            "list /",
            "read /etc/passwd",
            "temporary files",
            "run /bin/true",
            "ptrace",
            "mount",
            "init_module",
        ] {
            let line =
                said.lines().find(|line| line.contains(act)).unwrap_or_else(|| panic!("{act}: {said}"));
            assert!(line.ends_with("refused"), "{line}");
        }
    }
    let (succeeds, said) = tried("sandbox = false");
    assert!(!succeeds, "{said}");
    for act in ["list /", "read /etc/passwd", "temporary files", "run /bin/true", "call ptrace"] {
        let line = said.lines().find(|line| line.contains(act)).unwrap_or_else(|| panic!("{act}: {said}"));
        assert!(line.ends_with("ALLOWED"), "{line}");
    }
}

/// All threads are the user's, without a capability, and in the sandbox; queries, a reload and the end work, and the
/// sockets belong to the groups that the configuration names.
#[test]
fn root_becomes_the_user_before_the_first_thread() {
    let Some(folder) = folder_of_all("user") else { return };
    let system = format!(
        "[system]\nuser = \"{USER}\"\n[control]\nsocket = \"run/control.sock\"\ngroup = \"{GROUP}\"\n\
         read_socket = \"run/read.sock\"\nread_group = \"{GROUP}\"\n"
    );
    let config = format!("{system}{}", speaker(1, free_port()));
    let run = folder.path().join("run");
    let socket = run.join("control.sock").display().to_string();
    let router = Router::start_with(folder.path(), "one", &config, &["--socket", &socket]);
    let (uid, gid) = (number("/etc/passwd", USER), number("/etc/group", GROUP));
    let threads = threads(router.pid());
    assert!(threads.len() > 3, "{threads:?}");
    for status in &threads {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(field("Uid:"), vec![uid.to_string(); 4], "{status}");
        // Its port is not reserved, so it needs none.
        for set in ["CapEff:", "CapPrm:", "CapBnd:", "CapInh:", "CapAmb:"] {
            assert_eq!(field(set), ["0".repeat(16)], "{set} {status}");
        }
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), (vec!["1".to_owned()], vec!["2".to_owned()]));
        assert!(field("Groups:").contains(&gid.to_string()), "{status}");
    }
    for name in ["control.sock", "read.sock"] {
        let found = fs::metadata(run.join(name)).expect("a socket");
        assert_eq!((found.mode() & 0o777, found.uid(), found.gid()), (0o660, uid, gid), "{name}");
    }
    assert_eq!(router.text("reload", &[]), "nothing changed\n");
    fs::write(&router.config, config.replace(&format!("group = \"{GROUP}\"\nread"), "read")).expect("a file");
    assert_eq!(router.text("reload", &[]), "[control] changed: it takes effect with a restart\n");
    let (status, log) = router.stop();
    assert!(status.success() && log.contains("gave up root"), "{log}");
    assert!(!run.join("read.sock").exists(), "its sockets are gone");
}

/// A reload that names a file where the router did not read at its start says that this takes a restart; one beside the
/// configuration is read.
#[test]
fn a_reload_reads_beside_the_configuration_and_not_elsewhere() {
    let (folder, elsewhere) =
        (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let port = free_port();
    let router = Router::start(folder.path(), "one", &speaker(1, port));
    if !router.log().contains("landlock=") {
        return thalweg_testdata::skipped("no Landlock: files are not restricted");
    }
    let set = |path: &Path| {
        fs::write(path, "192.0.2.0/24\n").expect("a file");
        format!("{}[policy.prefix_sets.p]\nfiles = [{:?}]\n", speaker(1, port), path.display().to_string())
    };
    fs::write(&router.config, set(&folder.path().join("new.prefixes"))).expect("a file");
    router.text("reload", &[]);
    fs::write(&router.config, set(&elsewhere.path().join("new.prefixes"))).expect("a file");
    let said = router.error("reload", &[]);
    assert!(said.contains("Permission denied") && said.contains("needs a restart"), "{said}");
}

/// Files that addresses of receivers name are opened behind the sandbox, each in a folder of its own: passwords, an
/// authority, and credentials of S3 by the address or by the environment. What lies in the folder above stays closed.
#[test]
fn files_that_addresses_name_are_read_in_the_sandbox() {
    let (folder, elsewhere) =
        (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let put = |name: &str, text: &str| {
        let path = elsewhere.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let credentials = format!(
        "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
        s3_server::ACCESS_KEY,
        s3_server::SECRET_KEY
    );
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let [click, kafka, feed] = ["click/pw", "kafka/pw", "feed/pw"].map(|name| put(name, "secret\n"));
    let (by_address, by_variable) = (put("s3/keys", &credentials), put("variable/keys", &credentials));
    let authority = put("authority/ca.pem", &signed.cert.pem());
    // Nobody listens there: all of these files are opened before anything is sent.
    let nobody = format!("127.0.0.1:{}", free_port());
    let collectors = match cfg!(feature = "kafka") {
        true => format!(
            "\"clickhouse://{nobody}/t?user=a&password_file={click}\", \
             \"kafka://{nobody}/t?user=a&password_file={kafka}\"]\n\
             feed = \"kafka://{nobody}/f?user=a&password_file={feed}\""
        ),
        false => format!("\"clickhouse://{nobody}/t?user=a&password_file={click}\"]"),
    };
    let with = |archive: &str| {
        config_in_sandbox(&format!(
            "collectors = [{collectors}\nstore = \"flows\"\narchive = \"s3://b/a?endpoint=https://{nobody}&{archive}\"\n"
        ))
    };
    let start = |archive: &str| {
        Router::start_by(folder.path(), "one", &with(archive), |_, command| {
            command.env("AWS_SHARED_CREDENTIALS_FILE", &by_variable);
            command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        })
    };
    let router = start(&format!("tls_ca={authority}"));
    assert!(router.log().contains("metering flows"), "{}", router.log());
    drop(router);
    let archive = format!("tls_ca={authority}&credentials_file={by_address}");
    let router = start(&archive);
    if !router.log().contains("landlock=") {
        return thalweg_testdata::skipped("no Landlock: files are not restricted");
    }
    let closed = put("closed.prefixes", "192.0.2.0/24\n");
    for (closed, whose) in [(closed.as_str(), "the folder above"), (by_variable.as_str(), "the variable")] {
        let set = format!("{}[policy.prefix_sets.p]\nfiles = [{closed:?}]\n", with(&archive));
        fs::write(&router.config, set).expect("a file");
        let said = router.error("reload", &[]);
        assert!(said.contains("Permission denied") && said.contains("needs a restart"), "{whose}: {said}");
    }
    // `check` says which files these are, and what became of opening them.
    fs::write(&router.config, with(&archive)).expect("a file");
    fs::remove_file(&click).expect("it is ours");
    let path = router.config.display().to_string();
    let checked = thalweg(&["check", &path, "--format", "json"]);
    let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let error_of = |file: &str| {
        let reads = checked["rights"]["reads"].as_array().expect("a list");
        let found = reads.iter().find(|read| read["path"] == file);
        found.unwrap_or_else(|| panic!("{file}: {reads:?}"))["error"].clone()
    };
    assert_eq!((error_of(&by_address), error_of(&authority)), (Value::Null, Value::Null));
    assert!(error_of(&click).as_str().is_some_and(|why| why.contains("No such file")), "{checked}");
    let said = String::from_utf8(thalweg(&["check", &path]).stdout).expect("text");
    let line = said.lines().find(|line| line.contains(&click)).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("No such file"), "{line}");
}

/// Nothing that may be in use is taken away: another user's socket, and what is no socket.
#[test]
fn only_a_stale_socket_is_replaced() {
    let Some(folder) = folder_of_all("sockets") else { return };
    let config = folder.path().join("a.toml");
    fs::write(&config, speaker(1, free_port())).expect("a file");
    let socket = folder.path().join("a.sock");
    let refused = |command: &mut Command| {
        let output = command.args(["run", "--socket"]).args([&socket, &config]).output().expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    fs::write(&socket, "precious").expect("a file");
    let said = refused(&mut Command::new(env!("CARGO_BIN_EXE_thalweg")));
    assert!(
        said.contains("is no socket") && fs::read(&socket).is_ok_and(|text| text == b"precious"),
        "{said}"
    );
    fs::remove_file(&socket).expect("it is ours");

    let _listener = UnixListener::bind(&socket).expect("it is free");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).expect("it is ours");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    // The binary may lie where another user cannot reach it.
    let binary = folder.path().join("thalweg");
    // By another program: a child that another test makes meanwhile would have a file open for writing that is open here,
    // and the kernel starts no such file.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_thalweg")).arg(&binary).status();
    assert!(copied.is_ok_and(|copied| copied.success()), "a copy");
    let mut other = Command::new("setpriv");
    other.args(["--reuid", USER, "--clear-groups"]).arg(&binary);
    let said = refused(&mut other);
    assert!(said.contains("belongs to another user") && socket.exists(), "{said}");
    let show = Command::new("setpriv")
        .args(["--reuid", USER, "--clear-groups"])
        .arg(&binary)
        .args(["show", "status", "--socket"])
        .arg(&socket)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&show.stderr);
    assert!(said.contains("[control] group") && !said.contains("root"), "{said}");
    let user = format!("[system]\nuser = \"{GROUP}\"\n{}", speaker(1, free_port()));
    fs::write(&config, user).expect("a file");
    let mut other = Command::new("setpriv");
    other.args(["--reuid", USER, "--clear-groups"]).arg(&binary);
    assert!(refused(&mut other).contains("only root can become"));
    fs::write(&config, format!("[system]\nuser = \"no.such.user\"\n{}", speaker(1, 1179))).expect("a file");
    let said = refused(&mut Command::new(env!("CARGO_BIN_EXE_thalweg")));
    assert!(said.contains("no user no.such.user"), "{said}");
}
