//! What needs attention is a sentence in the status while it lasts: a table that is nearly full, an active alarm.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::dead_ways::back_to_office;
use crate::site::{OFFICE, OUTSIDE, Site, eventually};
use thalweg_testdata::Stop;

/// More than the firewall's table has room for.
const CONNECTIONS: usize = 100;

const CONFIG: &str = r#"
[ports.lan]
interface = "lan"
driver = "af_packet"
addresses = ["10.1.0.1/24"]

[ports.wan]
interface = "wan"
driver = "af_packet"
addresses = ["198.51.100.1/24"]

[firewall]
outside = "internet"
states_max = 40

[firewall.zones]
office = "lan"
internet = "wan"

[[alarms]]
name = "busy"
key = "dst"
filter = "udp"
measure = "packets-per-second"
above = 3
clear = "1s"
"#;

#[test]
fn a_nearly_full_table_and_an_active_alarm_are_problems() {
    let Some(site) = Site::new() else { return };
    back_to_office(&site, OUTSIDE);
    let store = format!("\n[flows]\nstore = \"{}\"\n", site.file("flows").display());
    let router = site.run(&format!("{CONFIG}{store}"), &[]);
    let problem = |begin: &str| {
        let status = router.one("status");
        let mut problems = status["problems"].as_array()?.iter().filter_map(|each| each.as_str());
        problems.find(|each| each.starts_with(begin)).map(str::to_owned)
    };
    let (table, alarm) = ("the firewall's table is nearly full: ", "alarm busy is active: ");
    assert_eq!((problem(table), problem(alarm)), (None, None));

    let office = site.namespace(OFFICE);
    let socket = || {
        let socket = site.within(&office, || UdpSocket::bind((OFFICE.v4, 0)).expect("a port"));
        socket.connect((OUTSIDE.v4, 7000)).expect("an address");
        socket
    };
    let sockets: Vec<UdpSocket> = (0..CONNECTIONS).map(|_| socket()).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // The port is closed, so the kernel reports an error for some sends.
                sockets.iter().for_each(|socket| drop(socket.send(&[0; 18])));
                thread::sleep(Duration::from_millis(50));
            }
        });
        let _stop = Stop(&stop);
        let full = eventually("the status names the table", || problem(table));
        assert!(full.ends_with(" of 40 connections ([firewall] states_max)"), "{full}");
        let active = eventually("the status names the alarm", || problem(alarm));
        assert!(active.contains(&format!("dst {} since ", OUTSIDE.v4)), "{active}");
        assert!(active.contains(" packets-per-second"), "{active}");
    });
    eventually("the alarm is over", || problem(alarm).is_none().then_some(()));
    let clear = ["clear", "firewall", "--socket", router.socket(), "--protocol", "udp"];
    site.said(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &clear);
    assert_eq!(problem(table), None);
}
