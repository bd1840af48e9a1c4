//! The client of an RPKI cache that sends anything, in pieces of any length, with time passing in between.
//!
//! VRPs stay bounded, what the client sends are whole messages, and the table answers look-ups as a walk over all VRPs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_bgp::peer::Millis;
use thalweg_bgp::rpki::{CacheConfig, ClientStep, RtrClient, Validity};
use thalweg_wire::rtr::Pdu;

const VRPS_MAX: usize = 50;

fn check(client: &RtrClient) {
    assert!(client.table().len() <= VRPS_MAX);
    let vrps: Vec<_> = client.table().iter().collect();
    for vrp in &vrps {
        let covering = vrps.iter().filter(|other| other.prefix.covers(vrp.prefix)).count();
        assert_eq!(client.table().covering(vrp.prefix).len(), covering);
        if vrp.asn != 0 {
            assert_eq!(client.table().validity(vrp.prefix, Some(vrp.asn)), Validity::Valid);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let config = CacheConfig { refresh_s: None, retry_s: None, expire_s: None, vrps_max: VRPS_MAX };
    let (mut client, mut now) = (RtrClient::new(config), Millis(0));
    let mut rest = input;
    while let [length, tail @ ..] = rest {
        let (bytes, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        match length {
            0 => now = now.plus_s(3600),
            255 => client.handle_disconnected("lost", now),
            _ => client.handle_bytes(bytes, now),
        }
        if client.handle_timer(now) == Some(ClientStep::Connect) {
            client.handle_connected(now);
        }
        while client.poll_step().is_some() {}
        let mut sent = Vec::new();
        client.poll_output(&mut sent);
        let mut sent = &sent[..];
        while !sent.is_empty() {
            let message = Pdu::decode(sent).expect("good messages").expect("whole messages");
            sent = &sent[message.length..];
        }
        check(&client);
    }
});
