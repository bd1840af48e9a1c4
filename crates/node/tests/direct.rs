//! A dynamic neighbor whose AS is not known before its OPEN counts as one hop away only if it turns out to be external.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use thalweg_bgp::session::config::RemoteAs;
use thalweg_config::RouterConfig;
use thalweg_exec::control_plane::{SchedulingKind, SchedulingOptions, schedule};
use thalweg_node::control::{BgpNeighborView, BgpRequest};
use thalweg_node::speaker::{Speaker, SpeakerOptions};

use crate::local::{self, Ending, ask, eventually, greeting};

const SERIAL: SchedulingOptions = SchedulingOptions { kind: SchedulingKind::Serial, threads: 1 };

const CONFIG: &str = r#"
[bgp]
as = 64998
router_id = "198.18.0.1"
listen = []
install = "none"
[[bgp.group]]
name = "all"
as = "any"
dynamic = ["198.18.0.0/16"]
import = "accept"
"#;

#[test]
fn only_external_dynamic_neighbors_are_one_hop_away() {
    let config = RouterConfig::from_text("router.toml", CONFIG, Path::new(""));
    let config = Arc::new(config.unwrap_or_else(|errors| panic!("{errors}")).bgp.unwrap());
    let (network, mut door) = local::network();
    let options = SpeakerOptions::new(network, 1);
    let speaker = Speaker::new(config, options).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let scheduling = scope.spawn(|| schedule(&speaker, SERIAL, &stop));
        let mut ending = Ending(&stop, &speaker, Vec::new());
        let (internal, external) = (Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::new(198, 18, 0, 3));
        for (address, asn) in [(internal, 64_998), (external, 64_512)] {
            let mut stream = door.connect(address);
            stream.write_all(&greeting(asn, address)).unwrap();
            ending.2.push(stream);
        }
        eventually("both are up", || {
            let neighbors = ask::<BgpNeighborView>(&speaker, &BgpRequest::Neighbors);
            neighbors.iter().filter(|neighbor| neighbor.state == "Established").count() == 2
        });
        assert_eq!(speaker.direct_neighbors(), [IpAddr::from(external)]);
        let mut applied = door.applied.lock().unwrap().clone();
        applied.retain(|remote_as| *remote_as != RemoteAs::Any);
        applied.sort_by_key(|remote_as| remote_as.to_string());
        assert_eq!(
            applied,
            [64_512, 64_998].map(RemoteAs::One),
            "connections have the options of what is known"
        );
        drop(ending);
        scheduling.join().unwrap().unwrap();
    });
}
