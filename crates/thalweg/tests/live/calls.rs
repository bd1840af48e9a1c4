//! Telephone calls: SIP with its media through NAT and queues, beside a stream that fills the link.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::programs::config;
use crate::site::{OFFICE, OUTSIDE, Site, eventually, has};
use crate::wire::Wire;
use thalweg_testdata::Stop;

const CALLS: u64 = 10;
/// Two seconds of A-law, which sipp sends as a packet of 160 bytes every 20 ms.
const MEDIA_BYTES: usize = 16_000;
const MEDIA_PACKETS: u64 = MEDIA_BYTES as u64 / 160;
/// The port where the server receives media and from which it sends them back.
const MEDIA_PORT: u16 = 6000;
/// A-law, in the second byte of RTP (RFC 3551).
const PCMA: u8 = 8;

/// A call: INVITE, media for two seconds, BYE. The messages contain the caller's inside address; the server sends
/// media to where they come from, as servers that expect NAT do.
pub(crate) fn scenario(media: &str) -> String {
    let message = |first: &str, sequence: u8, to: &str, rest: &str| {
        format!(
            "<send retrans=\"500\"><![CDATA[\n{first}\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
             From: office <sip:office@[local_ip]:[local_port]>;tag=[call_number]\nTo: outside <sip:outside@[remote_ip]>{to}\n\
             Call-ID: [call_id]\nCSeq: {sequence} {}\nContact: <sip:office@[local_ip]:[local_port]>\nMax-Forwards: 70\n{rest}\n]]></send>\n",
            first.split(' ').next().unwrap_or_default()
        )
    };
    let target = "sip:outside@[remote_ip]:[remote_port] SIP/2.0";
    let media_description = "Content-Type: application/sdp\nContent-Length: [len]\n\nv=0\no=office 1 1 IN IP4 [local_ip]\ns=-\n\
                             c=IN IP4 [media_ip]\nt=0 0\nm=audio [rtpstream_audio_port] RTP/AVP 8\na=rtpmap:8 PCMA/8000";
    let empty = "Content-Length: 0\n";
    [
        "<?xml version=\"1.0\" encoding=\"ISO-8859-1\" ?>\n<scenario name=\"a call with media\">\n".to_owned(),
        message(&format!("INVITE {target}"), 1, "", media_description),
        "<recv response=\"100\" optional=\"true\"/>\n<recv response=\"180\" optional=\"true\"/>\n<recv response=\"200\"/>\n"
            .to_owned(),
        message(&format!("ACK {target}"), 1, "[peer_tag_param]", empty).replace("<send retrans=\"500\">", "<send>"),
        format!("<nop><action><exec rtp_stream=\"{media},1,{PCMA}\"/></action></nop>\n<pause milliseconds=\"4000\"/>\n"),
        message(&format!("BYE {target}"), 2, "[peer_tag_param]", empty),
        "<recv response=\"200\"/>\n</scenario>\n".to_owned(),
    ]
    .concat()
}

/// Whether a frame is RTP from or to the server's port.
fn is_media(frame: &[u8], port_at: usize) -> bool {
    frame.get(12..14) == Some(&[8, 0])
        && frame.get(23) == Some(&17)
        && frame.get(port_at..port_at + 2) == Some(&MEDIA_PORT.to_be_bytes())
        && frame.get(42).is_some_and(|first| first >> 6 == 2)
        && frame.get(43).is_some_and(|second| second & 0x7f == PCMA)
}

fn calls_with_media(driver: &str) {
    let Some(site) = Site::new() else { return };
    if !has("sipp") {
        return;
    }
    let router = site.run(&config(driver), &[]);
    let (office, outside) = (site.namespace(OFFICE), site.namespace(OUTSIDE));
    let media = site.file("media.raw");
    fs::write(&media, (0..MEDIA_BYTES).map(|i| i as u8).collect::<Vec<_>>()).expect("the folder is writable");
    let file = site.file("call.xml");
    fs::write(&file, scenario(&media.display().to_string())).expect("the folder is writable");
    let wire = |namespace: &str| Wire::beside(&site, namespace, "eth0", site.mac_of(namespace, "eth0"));
    let (mut office_wire, mut outside_wire) = (wire(&office), wire(&outside));
    let (stop, went, came_back) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let _load = has("iperf3").then(|| {
        let listening = site.start(&outside, "iperf3", &["-s", "-1", "-p", "5202"]);
        std::thread::sleep(Duration::from_millis(300));
        (listening, site.start(&office, "iperf3", &["-c", OUTSIDE.v4, "-p", "5202", "-t", "8"]))
    });
    let port = MEDIA_PORT.to_string();
    let server = ["-sn", "uas", "-i", OUTSIDE.v4, "-mi", OUTSIDE.v4, "-mp", &port, "-rtp_echo", "-nostdin"];
    let _server = site.start(&outside, "sipp", &server);
    std::thread::scope(|scope| {
        let ends = Stop(&stop);
        scope.spawn(|| {
            outside_wire.watch(&stop, |frame| {
                went.fetch_add(u64::from(is_media(frame, 36)), Ordering::Relaxed);
            });
        });
        scope.spawn(|| {
            office_wire.watch(&stop, |frame| {
                came_back.fetch_add(u64::from(is_media(frame, 34)), Ordering::Relaxed);
            });
        });
        let (file, calls) = (file.display().to_string(), CALLS.to_string());
        let caller = [
            "-sf", &file, OUTSIDE.v4, "-i", OFFICE.v4, "-mi", OFFICE.v4, "-m", &calls, "-r", "10", "-nostdin",
        ];
        let output = site.output(&office, "sipp", &[&caller[..], &["-timeout", "60s"]].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "all calls succeed: {said}");
        // The router did not lose packets that the caller's machine was too busy to send.
        let heard = |of: &AtomicU64| of.load(Ordering::Relaxed);
        assert!(heard(&went) > CALLS * MEDIA_PACKETS / 2, "{} packets of media arrived", heard(&went));
        eventually("all media come back", || (heard(&came_back) == heard(&went)).then_some(()));
        drop(ends);
    });
    let went = went.into_inner();
    assert!(went <= CALLS * MEDIA_PACKETS, "{went}");
    let queues = router.show(&["queues"]).expect("the router answers");
    let voice =
        queues.iter().find(|queue| queue["port"] == "wan" && queue["class"] == "voice").expect("a queue");
    assert_eq!(voice["sent"], went, "the media had the voice class: {voice}");
    assert_eq!((&voice["dropped_full"], &voice["dropped_managed"]), (&0.into(), &0.into()), "{voice}");
    router.counters_add_up();
}

#[test]
fn calls_by_af_packet() {
    calls_with_media("af_packet");
}

#[test]
fn calls_by_af_xdp() {
    calls_with_media("af_xdp");
}
