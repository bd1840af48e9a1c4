//! Wireshark checks the checksums of a replay's output: no packet may leave worse than it arrived. Captures from
//! machines with checksum offload contain wrong checksums, which may stay wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use thalweg_config::RouterConfig;
use thalweg_replay::{ModelKind, Output, ReplayOptions, replay};

/// Captures with NAT, IPv6, fragments, tunnels and wrong checksums in them.
const SHARED: [&str; 4] =
    ["ndpi/http_ipv6.pcap", "ndpi/dns_fragmented.pcap", "ndpi/6in4tunnel.pcap", "tcpdump/edns-opts.pcap"];

/// The packets of a capture with a wrong checksum of any protocol; `None` without tshark.
fn wrong(capture: &Path) -> Option<usize> {
    let mut tshark = Command::new("tshark");
    for protocol in ["ip", "udp", "tcp"] {
        tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let bad = ["ip", "udp", "tcp", "icmp", "icmpv6"].map(|p| format!("{p}.checksum.status==0")).join("||");
    let output = tshark.arg("-n").arg("-r").arg(capture).args(["-Y", &bad, "-T", "fields"]);
    let output = output.args(["-e", "frame.number"]).stdin(Stdio::null()).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count())
}

#[test]
fn wireshark_finds_no_new_wrong_checksum() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/small-office");
    let config = RouterConfig::load(&example.join("router.toml")).unwrap_or_else(|e| panic!("{e}"));
    let mut inputs = vec![example.join("office.pcapng")];
    if let Some(folder) = thalweg_testdata::shared("pcap") {
        inputs.extend(SHARED.map(|name| folder.join(name)));
    }
    for input in inputs {
        let Some(wrong_in) = wrong(&input) else {
            return thalweg_testdata::skipped("tshark is not installed; nobody judges checksums");
        };
        let folder = tempfile::tempdir().expect("a scratch folder");
        let options = ReplayOptions {
            inputs: vec![input.clone()],
            model: ModelKind::Serial,
            output: Output::Captures(folder.path().to_path_buf()),
            ..ReplayOptions::default()
        };
        let summary = replay(&config, &options, &()).unwrap_or_else(|e| panic!("{}: {e}", input.display()));
        assert!(summary.packets_out > 0, "{}: nothing to judge", input.display());
        let outputs = summary.outputs.iter().map(PathBuf::from);
        let wrong_out: usize = outputs.filter_map(|path| wrong(&path)).sum();
        assert!(wrong_out <= wrong_in, "{}: {wrong_in} wrong in, {wrong_out} out", input.display());
    }
}
