//! Messages of FTP, SIP and PPTP, and what they announce.

use super::*;

/// The packets of all shapes, and messages that announce other connections, those connections, and calls of PPTP.
pub(super) fn talk(rng: &mut XorShift64Star) -> Vec<u8> {
    if rng.below(3) != 0 {
        return packet(rng);
    }
    let (host, server) = ([10, 0, 0, 10 + rng.below(6) as u8], [198, 51, 100, 20 + rng.below(3) as u8]);
    let public = SocketAddr::from(([203, 0, 113, 2], 2000 + rng.below(8) as u16));
    let mut inside = SocketAddr::from((host, 2000 + rng.below(8) as u16));
    let outside = |port| SocketAddr::from((server, port));
    let sequence = 1000 * rng.below(3);
    let tcp = |from: SocketAddr, to: SocketAddr, flags, text: &[u8]| {
        let segment = testing::tcp_segment(from, to, flags, [sequence, 500], text);
        testing::ip(from.ip(), to.ip(), 6, &segment)
    };
    let call = rng.below(4) as u8;
    match rng.below(8) {
        0 => tcp(inside, outside(21), 2, b""),
        1 => {
            let port = 2000 + rng.below(20);
            let [a, b, c, d] = host;
            let text = format!("NOOP\r\nPORT {a},{b},{c},{d},{},{}\r\nLIST\r\n", port >> 8, port & 255);
            tcp(inside, outside(21), 0x18, text.as_bytes())
        }
        2 => tcp(outside(21), public, 0x18, b"227 (198,51,100,20,8,2)\r\n"),
        3 => tcp(outside(20), public, 0x10, b""),
        4 => {
            inside.set_port(5060);
            let host = inside.ip();
            let body = format!("v=0\r\nc=IN IP4 {host}\r\nm=audio {} RTP/AVP 0\r\n", 2000 + 2 * rng.below(9));
            let text = format!(
                "INVITE sip:x SIP/2.0\r\nVia: SIP/2.0/UDP {host}:5060\r\nl: {}\r\n\r\n{body}",
                body.len()
            );
            testing::udp(inside, outside(5060), text.as_bytes())
        }
        5 => {
            let mut request = vec![0, 32, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, 7, 0, 0, 0, call];
            request.resize(32, 0);
            tcp(inside, outside(1723), 0x18, &request)
        }
        from => {
            let bytes = [0x30, 0x81, 0x88, 0x0b, 0, 0, 0, call];
            let (from, to) = if from == 6 { (inside, outside(0)) } else { (outside(0), public) };
            testing::ip(from.ip(), to.ip(), 47, &bytes)
        }
    }
}

/// What a message announces is known from the next chunk on, in whatever shard it is.
#[test]
fn helpers_give_the_serial_answer_under_every_model() {
    for seed in 1..=3 {
        let serial = run_shape(Shape::Helpers, seed, &ModelOptions::new(ModelKind::Serial, 1));
        let counters = serial.nat_counters.expect("it translates");
        assert!(counters.helped > 50 && counters.bare_translated > 50, "{counters:?}");
        assert!(
            !serial.nat.contains("related: 0,") && !serial.nat.contains("announced: 0,"),
            "{}",
            serial.nat
        );
        for workers in 1..=5 {
            for kind in ModelKind::ALL {
                let mut options = ModelOptions::new(kind, workers);
                options.ordered = workers % 2 == 0;
                options.readers = 1 + workers % 3;
                options.tokens = 1 + workers * 3;
                check(Shape::Helpers, seed, &options, &serial);
            }
        }
    }
}
