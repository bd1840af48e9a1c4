//! Flow metering in a running router: the records that a collector and a dataset receive.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use serde_json::Value;
use thalweg_flow::FlowRecord;
use thalweg_flow::import::Importer;
use thalweg_wire::netflow::decode::Source;

use crate::site::{OFFICE, OUTSIDE, Router, Site, eventually, has};
use thalweg_testdata::{uninterrupted, with_room};

/// An address of the network that BIRD announces.
const BEYOND: &str = "203.0.113.5";
/// Datagrams in each direction.
const DATAGRAMS: usize = 30;

fn config(site: &Site, collector: u16) -> String {
    format!(
        "[ports.lan]\ninterface = \"lan\"\naddresses = [\"10.1.0.1/24\"]\ndriver = \"af_packet\"\nacl_in = \"inside\"\n\n\
         [ports.wan]\ninterface = \"wan\"\naddresses = [\"198.51.100.1/24\"]\ndriver = \"af_packet\"\nmirror = true\n\n\
         [nat]\noutside = \"wan\"\ninside = [\"lan\"]\n\n\
         [[acl]]\nname = \"inside\"\ndefault = \"permit\"\n\n\
         [[acl.rules]]\naction = \"deny\"\nprotocol = \"udp\"\ndestination_ports = \"9\"\n\n\
         [[alarms]]\nname = \"busy\"\nkey = \"dst\"\nmeasure = \"packets-per-second\"\nabove = 3\n\
         clear = \"1s\"\nblackhole = \"3s\"\nblackhole_within = \"203.0.113.0/24\"\n\n\
         [flows]\ncollectors = [\"ipfix://127.0.0.1:{collector}\"]\nstore = \"{}\"\n\n\
         [bgp]\nas = 65001\nrouter_id = \"198.51.100.1\"\ninstall = \"fib\"\n\n\
         [[bgp.neighbor]]\naddress = \"198.51.100.2\"\nas = 65002\nimport = \"accept\"\nexport = \"accept\"\n",
        site.file("flows").display()
    )
}

/// The arguments of BIRD outside.
fn bird(site: &Site) -> [String; 2] {
    let text = format!(
        "router id {0};\nprotocol device {{}}\nprotocol static {{ ipv4; route 203.0.113.0/24 blackhole; }}\n\
         protocol bgp peer {{ local {0} as 65002; neighbor {1} as 65001; connect delay time 1;\n\
         ipv4 {{ import all; export all; }}; }}\n",
        OUTSIDE.v4, OUTSIDE.gateway_v4
    );
    let file = site.file("bird.conf");
    fs::write(&file, text).expect("the folder is writable");
    [file, site.file("bird.ctl")].map(|path| path.display().to_string())
}

fn amount(view: &Value, name: &str) -> (u64, u64) {
    let of = |unit: &str| view[name][unit].as_u64().expect("a number");
    (of("packets"), of("bytes"))
}

/// Every packet that the meter saw is exported, in the cache, or belongs to no flow.
pub(crate) fn counters_add_up(router: &Router<'_>) -> Value {
    eventually("the flow meter's counters balance", || {
        let view = router.one("flow-cache");
        let mut sum = (0, 0);
        let mut add = |(packets, bytes): (u64, u64)| sum = (sum.0 + packets, sum.1 + bytes);
        ["exported", "cached", "unsampled"].map(|name| amount(&view, name)).into_iter().for_each(&mut add);
        for amount in view["not_metered"].as_object()?.values() {
            add((amount["packets"].as_u64()?, amount["bytes"].as_u64()?));
        }
        (amount(&view, "seen") == sum && view["balances"] == true).then_some(view)
    })
}

/// All records that a collector has received.
pub(crate) fn collected(socket: &UdpSocket) -> Vec<FlowRecord> {
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let (mut importer, mut records) = (Importer::default(), Vec::new());
    let mut message = vec![0; 65_536];
    let source = Source { exporter: 1, is_stream: false };
    while let Ok((length, _)) = uninterrupted(|| socket.recv_from(&mut message)) {
        let report = importer.handle_message(source, &message[..length], 0, &mut records);
        assert_eq!(report.expect("a message of flows").faults, 0);
    }
    records
}

#[test]
fn records_tell_of_nat_routes_bgp_and_drops() {
    let Some(site) = Site::new() else { return };
    if !has("bird") {
        return;
    }
    let collector =
        with_room(site.within(&site.router(), || UdpSocket::bind("127.0.0.1:0")).expect("a collector"));
    site.ip(&site.router(), "link set lo up");
    let outside = site.namespace(OUTSIDE);
    site.ip(&outside, &format!("addr add {BEYOND}/32 dev lo"));
    let mut router = site.run(&config(&site, collector.local_addr().expect("an address").port()), &[]);
    let [file, control] = bird(&site);
    let mut neighbor = site.start(&outside, "bird", &["-f", "-c", &file, "-s", &control]);
    eventually("BGP's route is in the table", || {
        let view = router.show(&["fib", BEYOND])?.pop()?;
        (view["source"] == "bgp").then_some(())
    });

    let server = site.within(&outside, || UdpSocket::bind((BEYOND, 7000))).expect("a server");
    let client = site.within(&site.namespace(OFFICE), || UdpSocket::bind("10.1.0.2:5555")).expect("a client");
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    }
    let mut buffer = [0; 64];
    let mut public = None;
    for _ in 0..DATAGRAMS {
        client.send_to(&[1; 20], (BEYOND, 7000)).expect("sent");
        let (_, seen) = uninterrupted(|| server.recv_from(&mut buffer)).expect("data arrives");
        server.send_to(&[2; 40], seen).expect("sent");
        uninterrupted(|| client.recv_from(&mut buffer)).expect("the answer arrives");
        public = Some(seen);
    }
    let public = public.expect("the public endpoint");
    eventually("an alarm is raised while the flow goes on", || {
        let alarms = router.one("alarms")["alarms"].take();
        let is_ours = |event: &&Value| event["rule"] == "busy" && event["of"] == BEYOND;
        let event = alarms["events"].as_array()?.iter().find(is_ours)?;
        (event["event"] == "raised" && event["value"].as_u64() > Some(3)).then_some(())
    });
    // The neighbor hears of it, and that it is over.
    let heard = || site.said(&outside, "birdc", &["-s", &control, "show", "route", "all"]);
    eventually("the host is announced as a blackhole", || {
        let blackholes = router.one("alarms")["alarms"]["blackholes"].take();
        let is_shown = blackholes[0]["prefix"] == "203.0.113.5/32";
        let heard = heard();
        (is_shown && heard.contains("203.0.113.5/32") && heard.contains("(65535,666)")).then_some(())
    });
    eventually("the blackhole ends", || {
        let alarms = router.one("alarms")["alarms"].take();
        (alarms["blackholes"].is_null() && !heard().contains("203.0.113.5/32")).then_some(())
    });
    // To a host that does not become a blackhole again: that route would have no AS.
    for _ in 0..7 {
        client.send_to(&[3; 20], (OUTSIDE.v4, 9)).expect("sent");
    }
    eventually("the access list has denied all", || {
        let counters = router.one("counters");
        (counters["dropped"]["acl-denied"] == 7).then_some(())
    });
    let counters = counters_add_up(&router);
    assert!(counters["flows"].as_u64() >= Some(3), "{counters}");
    // Nothing is on disk yet. A query of the dataset sees the flows in the cache, with fields from routing
    // tables.
    let program = env!("CARGO_BIN_EXE_thalweg");
    let folder = site.file("flows").display().to_string();
    let top = ["flows", "--data", &folder, "--format", "json", "top", "dst-as", "src net 10.0.0.0/8"];
    let ask = || -> Value {
        serde_json::from_str(&site.said(&site.router(), program, &top)).expect("an answer as JSON")
    };
    let live = ask();
    assert_eq!(live["live"]["writer"], "answered", "{live}");
    assert_eq!(live["live"]["flows"], live["total"]["flows"], "{live}");
    let beyond_as = live["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["dst_as"] == 65002));
    assert!(beyond_as.is_some_and(|row| row["packets"].as_u64() >= Some(DATAGRAMS as u64)), "{live}");
    let mode = fs::metadata(site.file("flows").join(".live.sock")).expect("the socket").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    assert!(router.process.end(), "the router stops with success");
    assert!(neighbor.end(), "BIRD ends");

    let records = collected(&collector);
    let beyond: IpAddr = BEYOND.parse().expect("an address");
    let office: IpAddr = "10.1.0.2".parse().expect("an address");
    let of = |wanted: &dyn Fn(&FlowRecord) -> bool| {
        let found: Vec<_> = records.iter().filter(|record| wanted(record)).copied().collect();
        let sum = |of: fn(&FlowRecord) -> u64| found.iter().map(of).sum::<u64>();
        let (packets, bytes) = (sum(FlowRecord::packets), sum(FlowRecord::bytes));
        (found.first().copied().unwrap_or_else(|| panic!("no such record of {records:?}")), packets, bytes)
    };

    let (out, packets, bytes) = of(&|record| record.key.src == office && record.key.dst_port == 7000);
    assert_eq!((packets, bytes), (DATAGRAMS as u64, DATAGRAMS as u64 * 48));
    let after = out.translation.expect("it was translated");
    assert_eq!((after.src, after.src_port), (public.ip(), public.port()));
    assert_eq!((after.dst, after.dst_port), (beyond, 7000));
    let gateway: IpAddr = OUTSIDE.v4.parse().expect("an address");
    assert_eq!((out.dst_as, out.bgp_next_hop, out.next_hop), (65002, Some(gateway), Some(gateway)));

    let (back, packets, bytes) = of(&|record| record.key.src == beyond);
    assert_eq!((packets, bytes), (DATAGRAMS as u64, DATAGRAMS as u64 * 68));
    assert_eq!((back.key.dst, back.key.dst_port), (public.ip(), public.port()));
    assert_eq!(back.translation.expect("it was translated").dst, office);
    assert_eq!(back.src_as, 65002);
    assert_ne!(back.key.ingress, out.key.ingress);

    let (denied, packets, _) = of(&|record| record.key.dst_port == 9);
    assert_eq!((packets, denied.drops.packets()), (7, 7));

    let kept = ask();
    assert_eq!((&kept["total"]["packets"], &kept["rows"]), (&live["total"]["packets"], &live["rows"]));
    assert_eq!(kept["live"]["writer"], "nobody");
}

/// Datagrams that programs of the router's namespace passed to the kernel; segments of one call count once.
fn given_to_kernel(site: &Site) -> u64 {
    let text = site.said(&site.router(), "cat", &["/proc/net/snmp"]);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let mut columns = || lines.next().expect("a line of UDP").split_ascii_whitespace();
    let place = columns().position(|name| name == "OutDatagrams").expect("the counter");
    columns().nth(place).and_then(|number| number.parse().ok()).expect("a number")
}

/// The number of datagrams that a collector received, and of kernel calls that sent them.
fn datagrams_and_calls(site: &Site, collector: &UdpSocket, send: impl FnOnce()) -> (u64, u64) {
    let before = given_to_kernel(site);
    send();
    let calls = given_to_kernel(site) - before;
    collector.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let mut message = vec![0; 65_536];
    let mut datagrams = 0;
    while uninterrupted(|| collector.recv_from(&mut message)).is_ok() {
        datagrams += 1;
    }
    (datagrams, calls)
}

/// The router stops while the meter's totals are due, as they are right after a reload; it must still deliver the
/// last records and exit.
#[test]
fn a_router_that_is_stopped_while_totals_are_due_ends() {
    let Some(site) = Site::new() else { return };
    let config = "[ports.lan]\ninterface = \"lan\"\naddresses = [\"10.1.0.1/24\"]\ndriver = \"af_packet\"\n\n\
                  [ports.wan]\ninterface = \"wan\"\naddresses = [\"198.51.100.1/24\"]\ndriver = \"af_packet\"\n\n\
                  [flows]\ncollectors = [\"v5://127.0.0.1:9\"]\n";
    for _ in 0..3 {
        let mut router = site.run_alone(config, &[]);
        router.reload(&config.replace("driver", "mtu = 1400\ndriver")).expect("the reload succeeds");
        assert!(router.process.end());
    }
}

#[test]
fn datagrams_go_one_by_one_where_that_is_wanted() {
    let Some(site) = Site::new() else { return };
    let collector =
        with_room(site.within(&site.router(), || UdpSocket::bind("127.0.0.1:0")).expect("a collector"));
    let port = collector.local_addr().expect("an address").port();
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/small-office/office.pcapng");
    let url = format!("v5://127.0.0.1:{port}");
    for no_gso in [false, true] {
        let (datagrams, calls) = datagrams_and_calls(&site, &collector, || {
            let mut arguments = vec!["probe", capture, "--export", &url];
            arguments.extend(no_gso.then_some("--no-gso"));
            site.said(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &arguments);
        });
        assert!(datagrams > 1, "{datagrams} datagrams");
        assert_eq!(calls == datagrams, no_gso, "probe: {calls} calls for {datagrams} datagrams");
    }
    for gso in [true, false] {
        let config = format!(
            "[ports.lan]\ninterface = \"lan\"\naddresses = [\"10.1.0.1/24\"]\ndriver = \"af_packet\"\n\n\
             [ports.wan]\ninterface = \"wan\"\naddresses = [\"198.51.100.1/24\"]\ndriver = \"af_packet\"\n\n\
             [nat]\noutside = \"wan\"\ninside = [\"lan\"]\n\n\
             [flows]\ncollectors = [\"v5://127.0.0.1:{port}\"]\ngso = {gso}\n"
        );
        let mut router = site.run(&config, &[]);
        let client =
            site.within(&site.namespace(OFFICE), || UdpSocket::bind("10.1.0.2:0")).expect("a client");
        for flow in 0..300 {
            client.send_to(&[1; 20], (OUTSIDE.v4, 20_000 + flow)).expect("sent");
        }
        eventually("all flows are in the cache", || {
            (router.one("flow-cache")["flows_created"].as_u64() >= Some(300)).then_some(())
        });
        let (datagrams, calls) = datagrams_and_calls(&site, &collector, || assert!(router.process.end()));
        assert!(datagrams > 1, "{datagrams} datagrams");
        assert_eq!(calls == datagrams, !gso, "router: {calls} calls for {datagrams} datagrams");
    }
}
