//! DPDK devices as ports of a router; and the messages of a program without DPDK.

use std::fs;

use crate::programs::config;
use crate::site::Site;

/// What `check` says about the ports, in their order.
fn checked(site: &Site, config: &str) -> Vec<serde_json::Value> {
    let file = site.file("check.toml");
    fs::write(&file, config).expect("the folder is writable");
    let arguments = ["check", file.to_str().expect("text"), "--format", "json"];
    let said = site.said(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &arguments);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    json["ports"].as_array().expect("ports").iter().map(|port| port["interface"].clone()).collect()
}

/// A configuration that asks for DPDK gets an explanation of how to build it in.
#[cfg_attr(not(feature = "dpdk"), test)]
#[cfg_attr(feature = "dpdk", allow(dead_code))]
fn a_program_without_dpdk_says_how_to_get_it() {
    let Some(site) = Site::new() else { return };
    let findings = checked(&site, &config("dpdk"))[0]["findings"].to_string();
    let file = site.file("router.toml").display().to_string();
    fs::write(&file, config("dpdk")).expect("the folder is writable");
    let output = site.output(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &["run", &file]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("port lan: net_pcap1: this program was built without"),
        "{said}"
    );
    for said in [findings, said] {
        for part in ["cargo build --release --features dpdk", "apt-get install libdpdk-dev"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[cfg(feature = "dpdk")]
mod built_in {
    use super::*;
    use crate::programs::everything_works;
    use crate::site::{OFFICE, OUTSIDE, eventually};

    /// All ports on `net_af_packet`. Its default ring of 512 frames would drop frames without counting them.
    fn by_af_packet() -> String {
        config("dpdk").replace("net_pcap", "net_af_packet").replace("phy_mac=1", "framecnt=4096")
    }

    #[test]
    fn everything_works_on_dpdk_run_to_completion() {
        everything_works("dpdk", &["--model", "run-to-completion", "--workers", "2"]);
    }

    #[test]
    fn everything_works_on_dpdk_pipeline() {
        everything_works("dpdk", &["--model", "pipeline", "--workers", "2"]);
    }

    #[test]
    fn everything_works_on_dpdk_farm() {
        everything_works("dpdk", &["--model", "farm", "--workers", "2"]);
    }

    /// Ports stay open across reloads, although each plan has new threads; link states are followed.
    #[test]
    fn reloads_and_links_on_dpdk() {
        let Some(site) = Site::new() else { return };
        let router = site.run(&by_af_packet(), &[]);
        let ports = router.show(&["ports"]).expect("the router answers");
        let of = |key: &str| ports.iter().map(|port| port[key].as_str().unwrap_or("")).collect::<Vec<_>>();
        assert_eq!(of("interface"), ["net_af_packet1", "net_af_packet2", "net_af_packet3"]);
        assert_eq!(of("mode")[0], "dpdk net_af_packet on lan");
        for round in 0..5 {
            let more = format!("[[routes]]\nprefix = \"192.0.2.{round}/32\"\nvia = \"{}\"\n", OUTSIDE.v4);
            router.reload(&(by_af_packet() + &more)).expect("the reload succeeds");
            assert!(site.pings(OFFICE, OUTSIDE.v4), "round {round}");
        }
        let said = router
            .reload(&(by_af_packet() + "[dpdk]\nmbufs = 8192\n"))
            .expect_err("another DPDK option needs a restart");
        assert!(said.contains("[dpdk] differs, which needs a restart"), "{said}");
        let said = router
            .reload(&by_af_packet().replace("framecnt=4096", "framecnt=2048"))
            .expect_err("another DPDK option needs a restart");
        assert!(said.contains("`device` of [ports.lan] differs"), "{said}");
        // The veth's link to the outside goes down and up again.
        site.ip(&site.namespace(OUTSIDE), "link set eth0 down");
        eventually("the link is seen to be down", || (!site.pings(OFFICE, OUTSIDE.v4)).then_some(()));
        site.ip(&site.namespace(OUTSIDE), "link set eth0 up");
        eventually("it is back", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
        router.counters_add_up();
        // An interface belongs to one router only.
        let findings = checked(&site, &by_af_packet())[0]["findings"].to_string();
        assert!(findings.contains("lan: another router (process "), "{findings}");
    }

    #[test]
    fn check_tries_devices() {
        let Some(site) = Site::new() else { return };
        let port =
            |name: &str, device: &str| format!("[ports.{name}]\ndriver = \"dpdk\"\ndevice = \"{device}\"\n");
        let capture = site.file("kept.pcap");
        fs::write(&capture, "kept").expect("the folder is writable");
        let config = [
            port("lan", "net_af_packet0,iface=lan") + "mtu = 9000\n",
            port("null", "net_null0"),
            port("gone", "net_af_packet1,iface=nosuch0"),
            port("file", &format!("net_pcap0,tx_pcap={}", capture.display())),
        ];
        let ports = checked(&site, &config.concat());
        assert_eq!(ports[0]["mode"], "dpdk net_af_packet on lan");
        let findings = ports[0]["findings"].to_string();
        assert!(findings.contains("packets of 1500 bytes, the configuration says 9000"), "{findings}");
        assert_eq!(
            (&ports[1]["mode"], &ports[1]["findings"]),
            (&"dpdk net_null".into(), &serde_json::json!([]))
        );
        assert_eq!(ports[2]["mode"], serde_json::Value::Null);
        assert!(ports[2]["findings"].to_string().contains("No such device"), "{}", ports[2]);
        assert!(ports[3]["mode"].to_string().contains("not tried"), "{}", ports[3]);
        assert_eq!(fs::read_to_string(&capture).expect("it is there"), "kept");
        // An invalid EAL argument: each port reports it.
        let bad = config.concat() + "[dpdk]\neal = [\"--no-such-argument\"]\n";
        let findings = checked(&site, &bad)[1]["findings"].to_string();
        assert!(
            findings.contains("DPDK does not start") && findings.contains("--no-such-argument"),
            "{findings}"
        );
    }
}
