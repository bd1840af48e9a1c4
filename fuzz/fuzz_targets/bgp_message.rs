//! Any bytes as a stream of BGP messages, with any codec and from any kind of neighbor. Every field of a decoded
//! message is read. OPEN, NOTIFICATION and ROUTE-REFRESH are the same after encoding and decoding again, and so
//! are the prefixes and the AS_PATH of an UPDATE.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_base::Address;
use thalweg_wire::bgp::{
    AsPath, CodeSet, Codec, EXTENDED_MESSAGE_LENGTH_MAX, Frame, MessageKind, MpNlri, Nlri, Notification,
    Open, PeerFacts, PeerSide, RouteRefresh, Update, frame, narrow_as_path, write_nlri,
};

fuzz_target!(|input: &[u8]| {
    let Some((&[choice, kind], rest)) = input.split_first_chunk::<2>() else { return };
    let bit = |index: u8| choice >> index & 1 != 0;
    let codec = Codec {
        four_octet_as: bit(0),
        extended_messages: true,
        add_path_receive: [bit(1), bit(2)],
        add_path_send: [false; 2],
        extended_next_hop: bit(3),
    };
    let peer = PeerFacts {
        side: [PeerSide::External, PeerSide::Confederation, PeerSide::Internal][usize::from(choice >> 4) % 3],
        in_confederation: bit(7),
        discard: CodeSet::EMPTY,
    };
    // The body of one message, so that the fuzzer need not find marker and length.
    if let Some(kind) = MessageKind::from_byte(kind) {
        read(Frame { kind, body: rest, length: rest.len() + 19 }, &codec, &peer);
        return;
    }
    let mut rest = rest;
    while let Ok(Some(message)) = frame(rest, EXTENDED_MESSAGE_LENGTH_MAX) {
        read(message, &codec, &peer);
        rest = &rest[message.length..];
    }
});

fn read(message: Frame<'_>, codec: &Codec, peer: &PeerFacts) {
    let mut out = Vec::new();
    match message.kind {
        MessageKind::Open => {
            let Ok(open) = Open::parse(message.body) else { return };
            let _ = open.to_string();
            open.write(&mut out);
            // An OPEN has at most 4096 bytes; framing refuses a longer one.
            if message.length <= 4096 {
                assert_eq!(Open::parse(&out[19..]), Ok(open));
            }
        }
        MessageKind::Notification => {
            let Some(notification) = Notification::parse(message.body) else { return };
            let _ = (notification.to_string(), notification.text());
            notification.write(&mut out);
            if message.length <= 4096 {
                assert_eq!(Notification::parse(&out[19..]), Some(notification));
            }
        }
        MessageKind::RouteRefresh => {
            let Ok(Some(refresh)) = RouteRefresh::parse(message.body) else { return };
            refresh.write(&mut out);
            assert_eq!(RouteRefresh::parse(&out[19..]), Ok(Some(refresh)));
        }
        MessageKind::Update => {
            let Ok(update) = Update::parse(message.body, codec, peer) else { return };
            let _ = (update.to_string(), update.end_of_rib());
            all(update.withdrawn, codec.add_path_receive[0]);
            all(update.reach_v4, codec.add_path_receive[0]);
            for nlri in [update.mp_unreach, update.mp_reach.map(|reach| reach.routes)].into_iter().flatten() {
                match nlri {
                    MpNlri::Ipv4(nlri) => all(nlri, codec.add_path_receive[0]),
                    MpNlri::Ipv6(nlri) => all(nlri, codec.add_path_receive[1]),
                }
            }
            assert!(update.attributes().count() <= 256);
            let path = update.as_path(&mut out).to_vec();
            let asns: usize = AsPath::new(&path).segments().map(|segment| segment.asns().len()).sum();
            let bytes: usize =
                AsPath::new(&path).segments().map(|segment| 2 + 4 * segment.asns().len()).sum();
            assert_eq!(bytes, path.len(), "{asns}");
            narrow_as_path(AsPath::new(&path), &mut Vec::new(), &mut Vec::new());
        }
        MessageKind::Keepalive => {}
    }
}

fn all<A: Address>(nlri: Nlri<'_, A>, with_path_ids: bool) {
    let mut out = Vec::new();
    let mut count = 0;
    for (path_id, prefix) in nlri {
        write_nlri(&mut out, with_path_ids.then_some(path_id), prefix);
        count += 1;
    }
    assert_eq!((count, out.len()), (nlri.len(), nlri.as_bytes().len()));
}
