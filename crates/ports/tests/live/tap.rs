//! TAP: the far end is an interface of the host.

use thalweg_ports::live::NotTaken;
use thalweg_ports::live::link::Links;
use thalweg_ports::live::tap::{self, TapOptions};
use thalweg_wire::MacAddr;

use super::veth::{End, assert_same, frames};
use crate::common::{in_namespace, ip};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x77]);

fn options() -> TapOptions {
    TapOptions { mac: Some(MAC), ..TapOptions::new("mirror0") }
}

fn quiet() {
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
}

#[test]
fn a_tap_and_its_interface_are_two_ends() {
    in_namespace("live::tap::a_tap_and_its_interface_are_two_ends", || {
        quiet();
        let (port, control) = tap::open(&options()).unwrap();
        let mut tap = End::new(port);
        assert_eq!((tap.facts.mac, tap.facts.mtu, tap.facts.mode.as_str()), (MAC, 1500, "tap"));
        let mut host = End::packet(control.name());
        let router = MacAddr([2, 0, 0, 0, 0, 1]);
        let to_host = frames(MAC, router, 300);
        tap.send(&to_host);
        assert_same(&host.receive(300), &to_host);
        let to_router = frames(router, MAC, 300);
        host.send(&to_router);
        assert_same(&tap.receive(300), &to_router);
        assert_eq!((tap.tx.counters().frames, tap.tx.counters().failed), (300, 0));
        assert_eq!(tap.source.counters().next().unwrap().1.frames, 300);
    });
}

#[test]
fn the_interface_follows_its_control() {
    in_namespace("live::tap::the_interface_follows_its_control", || {
        quiet();
        let links = Links::open().unwrap();
        let (_port, control) = tap::open(&options()).unwrap();
        let facts = links.read("mirror0").unwrap();
        assert!(facts.is_up && facts.has_carrier, "{facts:?}");
        control.set_mtu(9000).unwrap();
        control.set_mac(MacAddr([2, 0, 0, 0, 0, 0x78])).unwrap();
        control.set_carrier(false).unwrap();
        // The kernel's notification of a carrier takes up to a second, so this asks the kernel directly.
        let facts = links.read("mirror0").unwrap();
        assert_eq!((facts.mtu, facts.mac, facts.is_up), (9000, MacAddr([2, 0, 0, 0, 0, 0x78]), true));
        assert!(ip("link show mirror0").contains("NO-CARRIER"));
        control.set_carrier(true).unwrap();
        control.set_up(false).unwrap();
        assert!(!links.read("mirror0").unwrap().is_up);
        control.set_up(true).unwrap();
        assert!(links.read("mirror0").unwrap().is_up);
    });
}

/// The host keeps its neighbors, and what waits for them, unless the address is another one.
#[test]
fn the_same_address_again_changes_nothing() {
    in_namespace("live::tap::the_same_address_again_changes_nothing", || {
        quiet();
        let (_port, control) = tap::open(&options()).unwrap();
        ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 nud reachable dev mirror0");
        let is_known = || ip("neigh show dev mirror0").contains("10.0.0.2");
        control.set_mac(MAC).unwrap();
        assert!(is_known());
        control.set_mac(MacAddr([2, 0, 0, 0, 0, 0x78])).unwrap();
        assert!(!is_known());
    });
}

#[test]
fn a_deleted_interface_is_made_anew() {
    in_namespace("live::tap::a_deleted_interface_is_made_anew", || {
        quiet();
        let (port, control) = tap::open(&options()).unwrap();
        let mut tap = End::new(port);
        control.set_mtu(1600).unwrap();
        ip("link delete mirror0");
        let changes = std::iter::from_fn(|| {
            let _ = tap.receive_once(std::time::Duration::from_millis(20));
            Some(tap.source.poll_change())
        });
        let mut changes = changes.take(1000).flatten();
        let (gone, back) = (changes.next().unwrap(), changes.next().unwrap());
        assert!(gone.failed.is_some() && back.failed.is_none(), "{gone:?} {back:?}");
        let facts = Links::open().unwrap().read("mirror0").unwrap();
        assert_eq!((facts.mac, facts.mtu), (MAC, 1600));
        // The sending half notices as well: one frame reports that the old interface is gone.
        let mut host = End::packet("mirror0");
        let frames = frames(MAC, MacAddr([2, 0, 0, 0, 0, 1]), 10);
        assert_eq!(tap.tx.push(&frames[0]), Err(NotTaken::Down));
        tap.tx.flush().unwrap();
        tap.send(&frames);
        assert_same(&host.receive(10), &frames);
    });
}

#[test]
fn a_name_in_use_says_so() {
    in_namespace("live::tap::a_name_in_use_says_so", || {
        quiet();
        let _first = tap::open(&options()).unwrap();
        let error = tap::open(&options()).err().unwrap();
        assert!(error.to_string().contains("another program is attached"), "{error}");
    });
}

#[test]
fn a_frame_with_four_tags_is_taken_whole() {
    in_namespace("live::tap::a_frame_with_four_tags_is_taken_whole", || {
        quiet();
        let (port, control) = tap::open(&options()).unwrap();
        let mut tap = End::new(port);
        // The host sends what its own MTU allows, with tags on top of ours.
        ip("link set mirror0 mtu 1600");
        let mut host = End::packet(control.name());
        let plain = frames(MacAddr([2, 0, 0, 0, 0, 1]), MAC, 7).pop().unwrap();
        assert_eq!(plain.len(), 1514);
        let tagged = vec![[&plain[..12], &[0x81, 0, 0, 7].repeat(4), &plain[12..]].concat()];
        host.send(&tagged);
        assert_same(&tap.receive(1), &tagged);
    });
}
