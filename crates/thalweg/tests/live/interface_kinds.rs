//! Ports on the kernel's other kinds of interfaces: tunnels, with and without a link layer, and what is built over an
//! interface.
//!
//! ```text
//! office ── lan  router  far ══ over wan ══ far ── outside
//! ```
//!
//! A kind that this kernel does not have is skipped, loudly. WireGuard then runs in user space, over a TUN device.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use socket2::SockRef;

use crate::site::{OFFICE, OUTSIDE, Process, Site, eventually, has};

/// The two ends of what the interfaces are made over, and of the interfaces, each of the router and the outside.
const OVER: [&str; 2] = [OUTSIDE.gateway_v4, OUTSIDE.v4];
const ENDS: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
const ENDS_V6: [&str; 2] = ["fd09::1", "fd09::2"];
/// The MTU at the router's end: less than the far end's, so that packets are too long only here.
const MTU: u32 = 1400;
const TRANSFER_BYTES: usize = 4 << 20;

/// Makes an interface at both ends; what has to run for it. `None` if this kernel or system has no such interface.
type Make = fn(&Site, [&str; 2]) -> Option<Vec<Process>>;

/// Runs `ip` at both ends; an error says that the kernel does not know the kind.
fn make(site: &Site, names: [&str; 2], arguments: impl Fn(usize) -> String) -> Result<(), String> {
    for (end, namespace) in [site.router(), site.namespace(OUTSIDE)].iter().enumerate() {
        let arguments = format!("-n {namespace} link add {} {}", names[end], arguments(end));
        let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip runs");
        if !output.status.success() {
            return Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
    }
    Ok(())
}

/// Whether `make` succeeds; says loudly if not.
fn made(site: &Site, names: [&str; 2], arguments: impl Fn(usize) -> String) -> bool {
    make(site, names, arguments).inspect_err(|why| thalweg_testdata::skipped(why)).is_ok()
}

fn tunnel(site: &Site, names: [&str; 2], kind: &str) -> Option<Vec<Process>> {
    let ends = |end: usize| format!("type {kind} local {} remote {} ttl 64", OVER[end], OVER[1 - end]);
    made(site, names, ends).then(Vec::new)
}

fn wireguard(site: &Site, names: [&str; 2]) -> Option<Vec<Process>> {
    if !has("wg") {
        return None;
    }
    let namespaces = [site.router(), site.namespace(OUTSIDE)];
    let mut running = Vec::new();
    // Where the kernel's own is missing, the one in user space takes its place.
    if make(site, names, |_| "type wireguard".to_owned()).is_err() {
        if !has("wireguard-go") {
            return None;
        }
        running = [0, 1].map(|end| site.start(&namespaces[end], "wireguard-go", &["-f", names[end]])).into();
    }
    let key = |end: usize| site.file(names[end]).display().to_string();
    let public = [0, 1].map(|end| {
        let make = format!("umask 077; wg genkey > {0}; wg pubkey < {0}", key(end));
        site.said(&namespaces[end], "sh", &["-c", &make]).trim().to_owned()
    });
    for (end, namespace) in namespaces.iter().enumerate() {
        let set = format!(
            "wg set {} private-key {} listen-port 51820 peer {} allowed-ips 0.0.0.0/0,::/0 endpoint {}:51820",
            names[end],
            key(end),
            public[1 - end],
            OVER[1 - end]
        );
        eventually("the interface is there", || {
            site.output(namespace, "sh", &["-c", &set]).status.success().then_some(())
        });
    }
    Some(running)
}

/// PPP over Ethernet: the outside is the provider.
fn pppoe(site: &Site, names: [&str; 2]) -> Option<Vec<Process>> {
    if !has("pppd") || !has("pppoe-server") {
        return None;
    }
    if !std::path::Path::new("/dev/ppp").exists() {
        thalweg_testdata::skipped("this kernel has no PPP");
        return None;
    }
    let options = names.map(|name| {
        let file = site.file(&format!("{name}.ppp"));
        let text = format!(
            "noauth\nnoccp\nlcp-echo-interval 0\nmtu 1480\nmru 1480\nnodefaultroute\n+ipv6\nifname {name}\n"
        );
        std::fs::write(&file, text).expect("the folder is writable");
        file.display().to_string()
    });
    let outside = site.namespace(OUTSIDE);
    let serve = ["-F", "-I", "eth0", "-O", &options[1], "-L", ENDS[1], "-R", ENDS[0]];
    let server = site.start(&outside, "pppoe-server", &serve);
    let dial = ["plugin", "rp-pppoe.so", "wan", "nodetach", "file", &options[0]];
    let client = site.start(&site.router(), "pppd", &dial);
    for (namespace, name) in [(site.router(), names[0]), (outside, names[1])] {
        eventually("the link is there", || {
            let said = site.output(&namespace, "ip", &["addr", "show", name]);
            String::from_utf8_lossy(&said.stdout).contains("10.9.0.").then_some(())
        });
        // Addresses are the test's.
        site.ip(&namespace, &format!("addr flush dev {name}"));
    }
    Some(vec![server, client])
}

fn bond(site: &Site, names: [&str; 2]) -> Option<Vec<Process>> {
    if !made(site, names, |_| "type bond mode active-backup miimon 100".to_owned()) {
        return None;
    }
    for (namespace, (under, name)) in
        [(site.router(), ("wan", names[0])), (site.namespace(OUTSIDE), ("eth0", names[1]))]
    {
        site.ip(&namespace, &format!("link set {under} down"));
        site.ip(&namespace, &format!("link set {under} master {name}"));
    }
    Some(Vec::new())
}

fn bridge(site: &Site, names: [&str; 2]) -> Option<Vec<Process>> {
    if !made(site, names, |_| "type bridge".to_owned()) {
        return None;
    }
    site.ip(&site.router(), &format!("link set wan master {}", names[0]));
    site.ip(&site.namespace(OUTSIDE), &format!("link set eth0 master {}", names[1]));
    Some(Vec::new())
}

fn macvlan(site: &Site, names: [&str; 2]) -> Option<Vec<Process>> {
    let over = |end: usize| format!("link {} type macvlan mode bridge", ["wan", "eth0"][end]);
    made(site, names, over).then(Vec::new)
}

fn vxlan(site: &Site, names: [&str; 2]) -> Option<Vec<Process>> {
    let ends =
        |end: usize| format!("type vxlan id 7 local {} remote {} dstport 4789", OVER[end], OVER[1 - end]);
    made(site, names, ends).then(Vec::new)
}

fn config(driver: &str, far: &str) -> String {
    format!(
        "[ports.lan]\ninterface = \"lan\"\ndriver = \"af_packet\"\naddresses = [\"{}/24\", \"{}/64\"]\n\n\
         [ports.far]\ninterface = \"{far}\"\ndriver = \"{driver}\"\nmirror = \"system\"\nmss = \"mtu\"\n\
         addresses = [\"{}/30\", \"{}/64\"]\n\n\
         [[routes]]\nprefix = \"192.0.2.0/24\"\nvia = \"{}\"\n\n\
         [[routes]]\nprefix = \"198.18.0.0/15\"\nport = \"far\"\n",
        OFFICE.gateway_v4, OFFICE.gateway_v6, ENDS[0], ENDS_V6[0], ENDS[1]
    )
}

/// Makes the interfaces, and puts the router's own and the outside's addresses where they belong.
fn prepared(site: &Site, names: [&str; 2], kind: Make) -> Option<Vec<Process>> {
    let (here, outside) = (site.router(), site.namespace(OUTSIDE));
    site.ip(&here, &format!("addr add {}/24 dev wan", OVER[0]));
    let running = kind(site, names)?;
    site.ip(&here, &format!("link set {} up mtu {MTU}", names[0]));
    site.ip(&outside, &format!("link set {} up mtu 1480", names[1]));
    site.ip(&outside, &format!("addr add {}/30 dev {}", ENDS[1], names[1]));
    site.ip(&outside, &format!("addr add {}/64 dev {} nodad", ENDS_V6[1], names[1]));
    for beyond in ["192.0.2.9/32", "198.18.0.9/32"] {
        site.ip(&outside, &format!("addr add {beyond} dev lo"));
    }
    // The far end announces larger segments than its way has room for.
    let to = |network: &str, gateway: &str, advertised: u32| {
        format!("route add {network} via {gateway} dev {} mtu {MTU} advmss {advertised}", names[1])
    };
    site.ip(&outside, &to("10.1.0.0/24", ENDS[0], MTU + 40));
    site.ip(&outside, &format!("-6 {}", to("2001:db8:1::/64", ENDS_V6[0], MTU + 20)));
    Some(running)
}

/// Moves bytes both ways at once, and checks each; returns the segment sizes that both ends then use.
fn transfer(site: &Site, server: &str) -> [u32; 2] {
    let listener =
        site.within(&site.namespace(OUTSIDE), || TcpListener::bind(server)).expect("the server listens");
    let client =
        site.within(&site.namespace(OFFICE), || TcpStream::connect(server)).expect("the client connects");
    let (served, _) = listener.accept().expect("a connection");
    let byte = |at: usize| (at * 31 / 8) as u8;
    let bytes: Vec<u8> = (0..TRANSFER_BYTES).map(byte).collect();
    std::thread::scope(|scope| {
        for (end, other) in [(&client, &served), (&served, &client)] {
            let bytes = &bytes;
            scope.spawn(move || { end }.write_all(bytes).expect("sent"));
            let mut got = vec![0; TRANSFER_BYTES];
            { other }.read_exact(&mut got).expect("it arrives");
            assert!(got == *bytes, "what arrives is what was sent");
        }
    });
    [&client, &served].map(|end| SockRef::from(end).tcp_mss().expect("a size"))
}

/// Whether the office is told the MTU that a packet exceeds.
fn is_told(site: &Site, to: &str, mtu: u32) {
    let arguments = ["-c", "1", "-W", "1", "-M", "do", "-s", "1440", to];
    eventually("the sender is told the MTU", || {
        let said = site.output(&site.namespace(OFFICE), "ping", &arguments);
        let said = [said.stdout, said.stderr].concat();
        let said = String::from_utf8_lossy(&said).to_lowercase();
        [format!("mtu = {mtu}"), format!("mtu={mtu}"), format!("mtu: {mtu}")]
            .iter()
            .any(|told| said.contains(told))
            .then_some(())
    });
}

/// What is on the link: nothing but IP packets, or Ethernet frames. `v6`: IPv6 too. `takes_xdp`: AF_XDP may drive it.
struct Link {
    is_bare: bool,
    takes_xdp: bool,
    v6: bool,
}

const BARE: Link = Link { is_bare: true, takes_xdp: false, v6: true };
const ETHERNET: Link = Link { is_bare: false, ..BARE };

fn serves_as_a_port(kind: Make, Link { is_bare, takes_xdp, v6 }: Link) {
    let Some(site) = Site::new() else { return };
    let name = site.router();
    let [near, far] = ["a", "b"].map(|end| format!("w{}{end}", &name[4..]));
    let Some(_running) = prepared(&site, [&near, &far], kind) else { return };
    let (here, outside) = (site.router(), site.namespace(OUTSIDE));
    if !takes_xdp {
        let [file, socket] = ["xdp.toml", "xdp.sock"].map(|name| site.file(name).display().to_string());
        std::fs::write(&file, config("af_xdp", &near)).expect("the folder is writable");
        let refused = site.output(&here, env!("CARGO_BIN_EXE_thalweg"), &["run", &file, "--socket", &socket]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && why.contains("use driver af_packet"), "{why}");
    }
    let router = site.run_alone(&config(if takes_xdp { "af_packet" } else { "auto" }, &near), &[]);
    let port = || {
        let ports = router.show(&["ports"]).expect("the router answers");
        ports.into_iter().find(|port| port["name"] == "far").expect("the port")
    };
    assert_eq!(port()["mode"] == "af_packet, IP without a link layer", is_bare, "{}", port());

    // To the far end, through a gateway, and by a route to the port alone; in pieces.
    let far_ends = || [ENDS[1], ENDS_V6[1]].into_iter().take(if v6 { 2 } else { 1 });
    for to in far_ends().chain(["192.0.2.9", "198.18.0.9"]) {
        eventually(to, || site.pings(OFFICE, to).then_some(()));
    }
    if is_bare {
        let neighbors = router.show(&["neighbors"]).expect("the router answers");
        assert!(neighbors.iter().all(|neighbor| neighbor["port"] != "far"), "{neighbors:?}");
    }
    eventually("a long datagram passes in pieces", || {
        let arguments = ["-c", "1", "-W", "1", "-s", "4000", ENDS[1]];
        site.output(&site.namespace(OFFICE), "ping", &arguments).status.success().then_some(())
    });
    far_ends().for_each(|to| is_told(&site, to, MTU));

    // TCP: whole frames of a host's kernel, their checksums unfinished, into the interface and out of it.
    const TIMESTAMPS: u32 = 12;
    let segments = transfer(&site, &format!("{}:7000", ENDS[1]));
    assert_eq!(segments, [MTU - 40 - TIMESTAMPS; 2], "the port lowers what both ends announce");
    if v6 {
        let segments = transfer(&site, &format!("[{}]:7000", ENDS_V6[1]));
        assert_eq!(segments, [MTU - 60 - TIMESTAMPS; 2]);
    }

    // The system's programs, by the mirror.
    for to in far_ends() {
        eventually("the system reaches the far end", || {
            site.output(&here, "ping", &["-c", "1", "-W", "1", to]).status.success().then_some(())
        });
    }
    for to in [ENDS[0], ENDS_V6[0]].into_iter().take(if v6 { 2 } else { 1 }) {
        eventually("the far end reaches the system", || {
            site.output(&outside, "ping", &["-c", "1", "-W", "1", to]).status.success().then_some(())
        });
    }

    // The interface goes down, and comes back.
    site.ip(&here, &format!("link set {near} down"));
    eventually("nothing passes", || (!site.pings(OFFICE, ENDS[1])).then_some(()));
    site.ip(&here, &format!("link set {near} up"));
    eventually("packets pass again", || site.pings(OFFICE, ENDS[1]).then_some(()));
    let counters = router.counters_add_up();
    assert_eq!(counters["queued"], 0, "{counters}");
}

#[test]
fn wireguard_is_a_port() {
    serves_as_a_port(wireguard, BARE);
}

#[test]
fn gre_is_a_port() {
    serves_as_a_port(|site, names| tunnel(site, names, "gre"), BARE);
}

#[test]
fn ipip_is_a_port() {
    serves_as_a_port(|site, names| tunnel(site, names, "ipip"), Link { v6: false, ..BARE });
}

#[test]
fn pppoe_is_a_port() {
    serves_as_a_port(pppoe, BARE);
}

#[test]
fn a_bond_is_a_port() {
    serves_as_a_port(bond, Link { takes_xdp: true, ..ETHERNET });
}

#[test]
fn a_bridge_is_a_port() {
    serves_as_a_port(bridge, ETHERNET);
}

#[test]
fn a_macvlan_is_a_port() {
    serves_as_a_port(macvlan, ETHERNET);
}

#[test]
fn a_vxlan_is_a_port() {
    serves_as_a_port(vxlan, ETHERNET);
}
