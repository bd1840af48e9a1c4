//! A home: the example as it is, with the programs that its page names.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::dhcp;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Process, Router, Site, eventually, has};
use thalweg_testdata::uninterrupted;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/home/");
/// What the provider's server gives the router.
const PUBLIC: &str = "198.51.100.50";

fn example(file: &str) -> String {
    std::fs::read_to_string(format!("{EXAMPLE}{file}")).expect("the example")
}

/// The page's dnsmasq, which also gives the server at home its address and knows a name.
fn servers(site: &Site) -> Process {
    let page = example("README.md").replace("\\\n", " ");
    let command = page.lines().find_map(|line| line.strip_prefix("dnsmasq ")).expect("the page has it");
    let mac = site.mac_of(&site.namespace(OFFICE), "eth0");
    let host = format!("--dhcp-host={mac},{}", OFFICE.v4);
    let options: Vec<&str> =
        command.split_whitespace().chain([&*host, "--address=/printer.test/10.1.0.9"]).collect();
    dhcp::serve(site, &site.router(), &options)
}

/// Takes away what a host has without asking anybody.
fn forget(site: &Site, host: Host, family: &str) {
    let namespace = site.namespace(host);
    site.ip(&namespace, &format!("{family} addr flush dev eth0 scope global"));
    site.ip(&namespace, &format!("{family} route flush default"));
}

fn has_by_itself(site: &Site, host: Host, network: &str) {
    eventually(network, || {
        let own = site.said(&site.namespace(host), "ip", &["-o", "addr", "show", "dev", "eth0", "dynamic"]);
        own.contains(network).then_some(())
    });
}

/// Pages of the Internet, for so many requests.
fn pages(site: &Site, count: usize) -> JoinHandle<()> {
    let listener = site.within(&site.namespace(OUTSIDE), || TcpListener::bind("[::]:8080")).expect("a port");
    thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let mut request = [0; 1024];
            assert!(uninterrupted(|| stream.read(&mut request)).expect("a request") > 0);
            stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\npage").expect("it is read");
        }
    })
}

fn fetches(site: &Site, host: Host, url: &str) {
    let said = site.said(&site.namespace(host), "curl", &["-s", "-S", "-g", "-m", "20", url]);
    assert_eq!(said, "page", "{} from {url}", host.port);
}

/// Asks a server for the address of a name.
fn resolves(site: &Site, host: Host, server: &str) {
    let socket = site.within(&site.namespace(host), || UdpSocket::bind("0.0.0.0:0")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07printer\x04test\0\0\x01\0\x01";
    let mut answer = [0; 512];
    eventually("a name has an address", || {
        socket.send_to(question, (server, 53)).expect("sent");
        let (length, _) = uninterrupted(|| socket.recv_from(&mut answer)).ok()?;
        answer[..length].ends_with(&[10, 1, 0, 9]).then_some(())
    });
}

fn listens(site: &Site, namespace: &str, port: u16) -> TcpListener {
    site.within(namespace, || TcpListener::bind(("::", port))).expect("a listener")
}

fn connects(site: &Site, from: Host, to: &str, wait: Duration) -> bool {
    let to: SocketAddr = to.parse().expect("an address");
    site.within(&site.namespace(from), || TcpStream::connect_timeout(&to, wait)).is_ok()
}

/// Nobody answers, and the router has dropped the question for this reason.
fn is_kept_out(site: &Site, router: &Router<'_>, from: Host, to: &str, reason: &str) {
    let before = router.dropped(reason);
    assert!(!connects(site, from, to, Duration::from_millis(300)), "{} must not reach {to}", from.port);
    eventually(reason, || (router.dropped(reason) > before).then_some(()));
}

#[test]
fn the_example_home_serves_family_guests_and_nobody_else() {
    let Some(site) = Site::new() else { return };
    if !dhcp::is_here() || !has("curl") {
        return;
    }
    let config = [("eth0", "wan"), ("eth1", "lan"), ("eth2", "guest")]
        .iter()
        .fold(example("router.toml"), |config, (from, to)| {
            config.replace(&format!("\"{from}\""), &format!("\"{to}\""))
        });
    let mut router = site.run_alone(&config, &[]);
    let (system, outside) = (site.router(), site.namespace(OUTSIDE));
    let only = format!("--dhcp-range={PUBLIC},{PUBLIC},1h");
    let _provider = dhcp::serve(&site, &outside, &["--port=0", "--interface=eth0", &only]);
    let _address = dhcp::ask(&site, &system, "tw-wan");
    forget(&site, OFFICE, "-4");
    forget(&site, GUEST, "-4");
    forget(&site, GUEST, "-6");
    site.ip(&site.namespace(OFFICE), "-6 route flush default");
    let _servers = servers(&site);
    let _family = dhcp::ask(&site, &site.namespace(OFFICE), "eth0");
    let _guests = dhcp::ask(&site, &site.namespace(GUEST), "eth0");
    for (host, network) in [(OFFICE, "2001:db8:1:"), (GUEST, "2001:db8:2:")] {
        has_by_itself(&site, host, network);
        for to in [OUTSIDE.v4, OUTSIDE.v6] {
            eventually(&format!("{} reaches {to}", host.port), || site.pings(host, to).then_some(()));
        }
    }

    // Both reach the Internet by both families, and have names; the family also has the router.
    let internet = pages(&site, 4);
    for host in [OFFICE, GUEST] {
        fetches(&site, host, &format!("http://{}:8080/", OUTSIDE.v4));
        fetches(&site, host, &format!("http://[{}]:8080/", OUTSIDE.v6));
        resolves(&site, host, host.gateway_v4);
    }
    internet.join().expect("all pages were fetched");
    let _shell = listens(&site, &system, 2222);
    assert!(
        connects(&site, OFFICE, "10.1.0.1:2222", Duration::from_secs(10)),
        "the family reaches the router"
    );

    // The server is there for everybody outside, and nothing else is; guests stay among themselves.
    let (_server, _other) =
        (listens(&site, &site.namespace(OFFICE), 8443), listens(&site, &site.namespace(OFFICE), 8444));
    for to in [format!("{PUBLIC}:8443"), "[2001:db8:1::2]:8443".to_owned()] {
        assert!(connects(&site, OUTSIDE, &to, Duration::from_secs(10)), "{to} is a server");
    }
    is_kept_out(&site, &router, OUTSIDE, "[2001:db8:1::2]:8444", "firewall-not-asked");
    is_kept_out(&site, &router, GUEST, "10.1.0.2:8443", "firewall-not-asked");
    is_kept_out(&site, &router, GUEST, "[2001:db8:1::2]:8443", "firewall-not-asked");
    is_kept_out(&site, &router, GUEST, "10.2.0.1:2222", "firewall-denied");
    is_kept_out(&site, &router, OUTSIDE, &format!("{PUBLIC}:2222"), "firewall-denied");
    is_kept_out(&site, &router, OUTSIDE, "[2001:db8:9::1]:2222", "firewall-denied");
    router.packets_add_up();
    assert!(router.process.end(), "the router stops with success");
}
