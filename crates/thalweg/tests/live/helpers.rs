//! Helpers with real programs: vsftpd and curl, sipp; and two clients of PPTP with raw sockets for their calls.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::Value;

use crate::calls::scenario;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Process, Router, Site, eventually, has};
use thalweg_testdata::uninterrupted;
use thalweg_wire::ip_protocol::GRE;

/// NAT and a firewall that lets nobody in who was not asked, but to what is forwarded.
fn config(more_of_nat: &str, more: &str) -> String {
    let port = |host: Host| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\naddresses = [\"{1}/24\"]\ndriver = \"af_packet\"\n\n",
            host.port, host.gateway_v4
        )
    };
    let ports = [OFFICE, GUEST, OUTSIDE].map(port).concat();
    format!(
        "{ports}[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\n{more_of_nat}\n\n\
         [firewall]\noutside = \"wan\"\n[firewall.zones]\nwan = \"wan\"\nlan = [\"lan\", \"guest\"]\n{more}"
    )
}

const HELPS: &str = "helpers = [\"ftp\", \"sip\", \"pptp\"]";

/// A server outside needs a forward and a rule.
fn forwarded(protocol: &str, port: u16) -> String {
    let nat = format!(
        "{HELPS}\n[[nat.forwards]]\nprotocol = \"{protocol}\"\nport = {port}\nto = \"10.1.0.2:{port}\""
    );
    let rule = format!(
        "[[firewall.rules]]\naction = \"permit\"\nfrom = \"wan\"\nto = \"lan\"\nprotocol = \"{protocol}\"\n\
         destination_ports = {port}\n"
    );
    config(&nat, &rule)
}

const TEXT: &str = "what the server has\n";

/// A server of FTP with one file.
fn ftp_server(site: &Site, host: Host) -> Process {
    let (files, empty) = (site.file("ftp"), site.file("empty"));
    for folder in [&files, &empty] {
        fs::create_dir(folder).expect("a folder");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("rights");
    }
    fs::write(files.join("text"), TEXT).expect("a file");
    fs::set_permissions(files.join("text"), fs::Permissions::from_mode(0o644)).expect("rights");
    let text = format!(
        "listen=YES\nlisten_address={}\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\nanon_root={}\n\
         ftp_username=daemon\nsecure_chroot_dir={}\nseccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\n\
         connect_from_port_20=YES\nxferlog_enable=NO\n",
        host.v4,
        files.display(),
        empty.display()
    );
    let file = site.file("vsftpd.conf");
    fs::write(&file, text).expect("a file");
    site.start(&site.namespace(host), "vsftpd", &[&file.display().to_string()])
}

fn fetch(site: &Site, from: Host, server: &str, how: &[&str]) -> Option<String> {
    let url = format!("ftp://{server}/text");
    let output =
        site.output(&site.namespace(from), "curl", &[&["-sS", "--max-time", "20", &url], how].concat());
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn counter(router: &Router<'_>, what: &[&str], name: &str) -> u64 {
    let view = router.show(what).and_then(|mut views| views.pop()).expect("the router answers");
    view["counters"][name].as_u64().unwrap_or(0)
}

/// Active by `EPRT` and by `PORT`, passive by `PASV` and by `EPSV`.
const MODES: [&[&str]; 4] =
    [&["--ftp-port", "-"], &["--ftp-port", "-", "--disable-eprt"], &["--disable-epsv"], &[]];

#[test]
fn curl_fetches_a_file_in_every_mode() {
    let Some(site) = Site::new() else { return };
    if !has("vsftpd") || !has("curl") {
        return;
    }
    let router = site.run(&config("", ""), &[]);
    let _server = ftp_server(&site, OUTSIDE);
    let is = |how: &[&str]| fetch(&site, OFFICE, OUTSIDE.v4, how).is_some_and(|text| text == TEXT);
    eventually("the server listens", || is(&["--disable-epsv"]).then_some(()));
    assert!(!is(&["--ftp-port", "-"]), "without a helper the server cannot reach the client");
    router.reload(&config(HELPS, "")).expect("the configuration is good");
    for how in MODES {
        assert!(is(how), "{how:?}: {}", site.log());
    }
    assert!(counter(&router, &["nat", "--counters"], "helped") >= 2);
    assert!(counter(&router, &["firewall", "--counters"], "related") >= 2);
    router.counters_add_up();
}

/// The kernel with a rule like ours: who was not asked is let in by its helper alone.
const KERNEL: &str = "table ip t {
    ct helper f { type \"ftp\" protocol tcp; }
    chain pre { type filter hook prerouting priority 0; tcp dport 21 ct helper set \"f\"; }
    chain post { type nat hook postrouting priority 100; oifname \"wan\" masquerade; }
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname \"lan\" accept
    }
}
";

#[test]
fn the_kernels_helper_lets_the_same_in() {
    let Some(site) = Site::new() else { return };
    if !has("vsftpd") || !has("curl") || !has("nft") {
        return;
    }
    let (router, rules) = (site.router(), site.file("rules"));
    for host in [OFFICE, OUTSIDE] {
        site.ip(&router, &format!("addr add {}/24 dev {}", host.gateway_v4, host.port));
    }
    fs::write(&rules, KERNEL).expect("a file");
    let set_up = format!("echo 1 > /proc/sys/net/ipv4/ip_forward && nft -f {}", rules.display());
    if !site.output(&router, "sh", &["-c", &set_up]).status.success() {
        thalweg_testdata::skipped("the kernel has no helper for FTP: nothing was compared with it");
        return;
    }
    let _server = ftp_server(&site, OUTSIDE);
    let is = |how: &[&str]| fetch(&site, OFFICE, OUTSIDE.v4, how).is_some_and(|text| text == TEXT);
    eventually("the server listens", || is(&["--disable-epsv"]).then_some(()));
    for how in MODES {
        assert!(is(how), "{how:?}: {}", site.log());
    }
}

#[test]
fn a_server_of_ftp_is_inside() {
    let Some(site) = Site::new() else { return };
    if !has("vsftpd") || !has("curl") {
        return;
    }
    let router = site.run(&forwarded("tcp", 21), &[]);
    let _server = ftp_server(&site, OFFICE);
    let fetched = |how: &[&str]| fetch(&site, OUTSIDE, OUTSIDE.gateway_v4, how).filter(|text| text == TEXT);
    let believes = "--no-ftp-skip-pasv-ip";
    eventually("the server listens", || fetched(&["--disable-epsv", believes]));
    for how in [&[][..], &["--ftp-port", "-"], &["--disable-epsv", believes]] {
        assert!(fetched(how).is_some(), "{how:?}: {}", site.log());
    }
    assert!(counter(&router, &["nat", "--counters"], "helped") >= 1);
    router.counters_add_up();
}

/// The called side is inside, and its answer names its inside address and port.
#[test]
fn media_reach_a_phone_inside() {
    let Some(site) = Site::new() else { return };
    if !has("sipp") {
        return;
    }
    let router = site.run(&forwarded("udp", 5060), &[]);
    let (office, outside) = (site.namespace(OFFICE), site.namespace(OUTSIDE));
    let (media, file) = (site.file("media.raw"), site.file("call.xml"));
    fs::write(&media, vec![7; 16_000]).expect("a file");
    fs::write(&file, scenario(&media.display().to_string())).expect("a file");
    let phone = ["-sn", "uas", "-i", OFFICE.v4, "-mi", OFFICE.v4, "-mp", "6000", "-rtp_echo", "-nostdin"];
    let _phone = site.start(&office, "sipp", &phone);
    let file = file.display().to_string();
    let caller = [
        "-sf",
        &file,
        OUTSIDE.gateway_v4,
        "-i",
        OUTSIDE.v4,
        "-mi",
        OUTSIDE.v4,
        "-m",
        "2",
        "-nostdin",
        "-timeout",
        "60s",
    ];
    let output = site.output(&outside, "sipp", &caller);
    assert!(output.status.success(), "the calls succeed: {}", String::from_utf8_lossy(&output.stdout));
    let sessions = router.show(&["nat", "--inside", OFFICE.v4, "--protocol", "udp"]).expect("sessions");
    let media =
        sessions.iter().find(|session| session["inside"] == "10.1.0.2:6000").expect("a session of media");
    let packets = |way: &str| media[way].as_u64().unwrap_or(0);
    assert!(packets("packets_in") > 50 && packets("packets_out") > 50, "{media}");
    router.counters_add_up();
}

/// A control message of PPTP with one or two numbers of calls.
fn message(kind: u8, calls: [u16; 2]) -> Vec<u8> {
    let mut bytes = vec![0, 32, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, kind, 0, 0];
    bytes.extend(calls.iter().flat_map(|call| call.to_be_bytes()));
    bytes.resize(32, 0);
    bytes
}

fn gre(call: u16, text: &[u8]) -> Vec<u8> {
    let [high, low] = call.to_be_bytes();
    [&[0x30, 0x81, 0x88, 0x0b, 0, text.len() as u8, high, low, 0, 0, 0, 1][..], text].concat()
}

fn raw(site: &Site, host: Host) -> socket2::Socket {
    let open =
        || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(i32::from(GRE).into()));
    let socket = site.within(&site.namespace(host), open).expect("a raw socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket
}

/// The number of the call and the text of the next packet of GRE.
fn heard(mut socket: &socket2::Socket) -> (u16, Vec<u8>) {
    let mut buffer = [0; 256];
    let length = uninterrupted(|| socket.read(&mut buffer)).expect("a packet");
    let packet = &buffer[20..length];
    (u16::from_be_bytes([packet[6], packet[7]]), packet[12..].to_vec())
}

fn told(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = [0; 32];
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream.read_exact(&mut bytes).expect("a message");
    bytes.to_vec()
}

#[test]
fn two_clients_of_pptp_have_calls_with_one_server() {
    let Some(site) = Site::new() else { return };
    let router = site.run(&config(HELPS, ""), &[]);
    let server: SocketAddr = format!("{}:1723", OUTSIDE.v4).parse().expect("an address");
    let listener = site.within(&site.namespace(OUTSIDE), || TcpListener::bind(server)).expect("a listener");
    let at_server = raw(&site, OUTSIDE);
    let public: SocketAddr = format!("{}:0", OUTSIDE.gateway_v4).parse().expect("an address");
    let mut clients = Vec::new();
    for (n, host) in [(1, OFFICE), (2, GUEST)] {
        let client = site.within(&site.namespace(host), || TcpStream::connect(server)).expect("a connection");
        let (accepted, _) = listener.accept().expect("a client");
        // Both choose the same number.
        (&client).write_all(&message(7, [5, 0])).expect("sent");
        let request = told(&accepted);
        let call = u16::from_be_bytes([request[12], request[13]]);
        (&accepted).write_all(&message(8, [100 + n, call])).expect("sent");
        assert_eq!(told(&client)[14..16], [0, 5], "the client's own number comes back");
        let socket = raw(&site, host);
        socket.send_to(&gre(100 + n, b"up"), &server.into()).expect("sent");
        assert_eq!(heard(&at_server), (100 + n, b"up".to_vec()));
        clients.push((client, accepted, socket, call));
    }
    assert_ne!(clients[0].3, clients[1].3, "outside they differ");
    for (n, (.., call)) in clients.iter().enumerate() {
        at_server.send_to(&gre(*call, &[n as u8]), &public.into()).expect("sent");
    }
    for (n, (_, _, socket, _)) in clients.iter().enumerate() {
        assert_eq!(heard(socket), (5, vec![n as u8]));
    }
    let sessions: Vec<Value> = router.show(&["nat", "--protocol", "gre"]).expect("sessions");
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    router.counters_add_up();
}
