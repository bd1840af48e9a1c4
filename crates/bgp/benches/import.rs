//! The cost of importing an UPDATE into a batch: six attributes and five prefixes, as in a public table.
//!
//!     cargo bench -p thalweg-bgp --bench import --profile quick
//!
//! `parse` is the codec alone; import is the difference to it. `repeated` sends the same attributes again and
//! again, as with one prefix per UPDATE; `known` cycles through more attribute sets than the importer remembers,
//! all of them interned. `session` starts with bytes from the socket.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use thalweg_base::Prefix;
use thalweg_bgp::attrs::Interner;
use thalweg_bgp::peer::{Millis, PeerId};
use thalweg_bgp::policy::Policy;
use thalweg_bgp::route::RouteBatchBuilder;
use thalweg_bgp::session::{Connection, Importer, NeighborConfig, Session, State};
use thalweg_wire::bgp::{
    Capabilities, Open, PeerFacts, Update, begin_attributes, begin_update, finish_attributes, finish_message,
    frame, write_attribute, write_keepalive, write_nlri,
};

const UPDATES: usize = 1024;
const PREFIXES: u32 = 5;
const NOW: Millis = Millis(1000);

fn main() {
    divan::main();
}

/// UPDATEs with `sets` different attribute sets.
fn updates(sets: u32) -> Vec<Vec<u8>> {
    let update = |n: u32| {
        let set = n % sets;
        let mut out = Vec::new();
        let message = begin_update(&mut out);
        let attributes = begin_attributes(&mut out, message);
        let path: Vec<u8> =
            [64_601, 3356, 1299, 6939, 10_000 + set].iter().flat_map(|a: &u32| a.to_be_bytes()).collect();
        write_attribute(&mut out, 0x40, 1, &[0]);
        write_attribute(&mut out, 0x40, 2, &[&[2, 5][..], &path].concat());
        write_attribute(&mut out, 0x40, 3, &[192, 0, 2, 1]);
        write_attribute(&mut out, 0x80, 4, &[0, 0, 0, 10]);
        let communities: Vec<u8> = (0..4u32).flat_map(|n| (64_601 << 16 | n).to_be_bytes()).collect();
        write_attribute(&mut out, 0xc0, 8, &communities);
        let large: Vec<u8> = [64_601, 1, set].iter().flat_map(|a: &u32| a.to_be_bytes()).collect();
        write_attribute(&mut out, 0xc0, 32, &large);
        finish_attributes(&mut out, attributes);
        for each in 0..PREFIXES {
            let prefix = Prefix::new((n * PREFIXES + each + 0x10_0000) << 8, 24).expect("made here");
            write_nlri(&mut out, None, prefix);
        }
        finish_message(&mut out, message).expect("made here");
        out
    };
    (0..UPDATES as u32).map(update).collect()
}

struct Up {
    session: Session,
    import: Importer,
    out: RouteBatchBuilder,
}

/// An established session and its importer.
fn up() -> Up {
    let remote = IpAddr::from([198, 18, 0, 2]);
    let config = NeighborConfig::new(remote, 64_601, 64_600, Ipv4Addr::new(198, 18, 0, 1));
    let mut session = Session::new(Arc::new(config), PeerId(1), 1);
    let mut import = Importer::new(Arc::new(Interner::new(1)));
    import.set_policy(Some(Arc::new(Policy::accept_all())));
    let mut out = RouteBatchBuilder::default();
    session.handle_start(NOW);
    session.handle_connected(Connection::Incoming, IpAddr::from([198, 18, 0, 1]), remote, NOW);
    let mut bytes = Vec::new();
    Open::new(64_601, 90, Ipv4Addr::new(198, 18, 0, 2), Capabilities::default()).write(&mut bytes);
    write_keepalive(&mut bytes);
    bytes.extend(&updates(1)[0]);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        while session.poll_action().is_some() {}
        let used = session.handle_bytes(Connection::Incoming, rest, NOW, &mut import, &mut out);
        rest = &rest[used..];
    }
    assert_eq!(session.state(), State::Established);
    assert_eq!(import.counters().accepted, u64::from(PREFIXES));
    out.finish(PeerId(1), 0);
    Up { session, import, out }
}

fn body(message: &[u8]) -> &[u8] {
    frame(message, 4096).expect("made here").expect("made here").body
}

#[divan::bench]
fn parse(bencher: Bencher<'_, '_>) {
    let (updates, up) = (updates(UPDATES as u32), up());
    let codec = up.session.negotiated().expect("made here").codec;
    bencher.counter(ItemsCount::new(UPDATES)).bench_local(|| {
        for update in &updates {
            let facts: &PeerFacts = up.import.facts();
            black_box(Update::parse(black_box(body(update)), &codec, facts).expect("made here"));
        }
    });
}

#[divan::bench(args = [1, UPDATES as u32])]
fn parse_and_import(bencher: Bencher<'_, '_>, sets: u32) {
    let (updates, mut up) = (updates(sets), up());
    let codec = up.session.negotiated().expect("made here").codec;
    let mut keep = Vec::new();
    bencher.counter(ItemsCount::new(UPDATES)).bench_local(|| {
        for update in &updates {
            let body = body(update);
            let update = Update::parse(black_box(body), &codec, up.import.facts()).expect("made here");
            up.import.import(&update, body, &mut up.out);
        }
        // Keep the sets alive, as a RIB does. Splitting by shard is not part of import.
        if keep.is_empty() {
            keep.push(up.out.finish(PeerId(1), 0));
        } else {
            up.out.clear();
        }
    });
}

#[divan::bench(args = [1, UPDATES as u32])]
fn session(bencher: Bencher<'_, '_>, sets: u32) {
    let (bytes, mut up) = (updates(sets).concat(), up());
    let mut keep = Vec::new();
    bencher.counter(ItemsCount::new(UPDATES)).bench_local(|| {
        let mut rest = black_box(&bytes[..]);
        while !rest.is_empty() {
            let used = up.session.handle_bytes(Connection::Incoming, rest, NOW, &mut up.import, &mut up.out);
            rest = &rest[used..];
            if keep.len() < 4 {
                keep.push(up.out.finish(PeerId(1), 0));
            } else {
                up.out.clear();
            }
        }
    });
}
