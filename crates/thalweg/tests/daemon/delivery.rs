//! A router's flow records on their way to collectors that are away, or speak TLS.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::router::{Router, eventually, free_port, speaker};
use crate::web::Process;

/// [`config_in_sandbox`] without the sandbox.
fn config(flows: &str) -> String {
    format!("[system]\nsandbox = false\n{}", config_in_sandbox(flows))
}

/// A router without rights or network: its one port plays a capture. `flows` are more lines of its section.
pub(crate) fn config_in_sandbox(flows: &str) -> String {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/small-office/office.pcapng")
        .canonicalize();
    format!(
        "[workers]\npriority = \"normal\"\n\
         [ports.office]\ndriver = \"capture\"\ncapture = {:?}\ncapture_rate = 2000\ninterface = \"eth0\"\n\
         mac = \"02:00:00:00:00:10\"\naddresses = [\"192.168.10.1/24\"]\n\
         {}[flows]\nidle_timeout_s = 1\nactive_timeout_s = 1\n{flows}",
        capture.expect("the example"),
        speaker(1, free_port()),
    )
}

fn outlet(router: &Router) -> Value {
    router.json(&["flow-cache"])[0]["outlets"][0].clone()
}

#[test]
fn records_wait_in_the_spool_for_a_collector_that_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let spool = folder.path().join("spool");
    let flows = format!("collectors = \"ipfix+tcp://127.0.0.1:{port}\"\nspool = \"spool\"\n");
    let router = Router::start(folder.path(), "one", &config(&flows));
    eventually("records wait in files", || {
        let files = fs::read_dir(spool.join("0")).ok()?.flatten();
        files.filter_map(|file| file.metadata().ok()).any(|file| file.len() > 0).then_some(())
    });
    let mut import = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    import.args(["flows", "import", &format!("tcp://127.0.0.1:{port}"), "--format", "json", "--data"]);
    import.arg(folder.path().join("data")).stdout(Stdio::piped());
    let mut import = Process(import.spawn().expect("the binary runs"));
    eventually("records arrive", || (outlet(&router)["records"].as_u64() > Some(0)).then_some(()));
    eventually("nothing waits", || (outlet(&router)["waiting"] == 0).then_some(()));
    let (status, log) = router.stop();
    assert!(status.success(), "no record was lost: {log}");
    assert!(log.contains("metering flows"), "{log}");
    let pid = rustix::process::Pid::from_child(&import.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let mut said = String::new();
    let out = import.0.stdout.as_mut().expect("a pipe");
    std::io::Read::read_to_string(out, &mut said).expect("text");
    let summary: Value = serde_json::from_str(&said).expect("JSON");
    let exporter = &summary["exporters"][0];
    assert!(summary["records"].as_u64() > Some(0) && summary["conserved"] == true, "{summary}");
    assert_eq!(exporter["units_missing"], 0, "{summary}");
}

#[test]
fn a_collector_with_tls_is_trusted_by_its_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: no openssl");
        return;
    }
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    fs::write(file("cert.pem"), signed.cert.pem()).expect("it can be written");
    fs::write(file("key.pem"), signed.signing_key.serialize_pem()).expect("it can be written");
    let port = free_port();
    let mut server = Command::new("openssl");
    server.args(["s_server", "-quiet", "-naccept", "1", "-accept", &port.to_string()]);
    server.arg("-cert").arg(file("cert.pem")).arg("-key").arg(file("key.pem")).stdin(Stdio::piped());
    server.stdout(fs::File::create(file("received")).expect("a file"));
    let _server = Process(server.spawn().expect("openssl runs"));
    let flows = format!("collectors = \"ipfix+tls://127.0.0.1:{port}\"\ncollector_ca = \"cert.pem\"\n");
    let router = Router::start(folder.path(), "one", &config(&flows));
    let received = eventually("messages arrive", || {
        let bytes = fs::read(file("received")).expect("it was made");
        (bytes.len() > 16).then_some(bytes)
    });
    assert_eq!(received[..2], [0, 10], "IPFIX");
    drop(router);
}
