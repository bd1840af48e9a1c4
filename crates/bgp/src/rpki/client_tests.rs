use std::collections::BTreeSet;

use proptest::prelude::*;
use thalweg_base::Prefix;

use super::*;

const NOW: Millis = Millis(1_000_000);

fn config() -> CacheConfig {
    CacheConfig { refresh_s: None, retry_s: None, expire_s: None, vrps_max: 1000 }
}

fn connected(config: CacheConfig) -> RtrClient {
    let mut client = RtrClient::new(config);
    assert_eq!(client.handle_timer(NOW), Some(ClientStep::Connect));
    client.handle_connected(NOW);
    client
}

fn vrp(asn: u32) -> Vrp {
    Vrp { prefix: Prefix::new(0xc000_0200_u32, 24).unwrap().into(), max_length: 24, asn }
}

fn send(client: &mut RtrClient, version: u8, now: Millis, pdus: &[Pdu<'_>]) {
    let mut bytes = Vec::new();
    pdus.iter().for_each(|pdu| pdu.write(version, &mut bytes));
    client.handle_bytes(&bytes, now);
}

fn item(announced: bool, vrp: Vrp) -> Pdu<'static> {
    Pdu::Prefix { announced, prefix: vrp.prefix, max_length: vrp.max_length, asn: vrp.asn }
}

fn end(serial: u32) -> Pdu<'static> {
    let timers = Some(Timers { refresh_s: 100, retry_s: 10, expire_s: 1000 });
    Pdu::EndOfData { session: 7, serial, timers }
}

/// What the client has sent, without its bytes about others.
fn sent(client: &mut RtrClient) -> Vec<String> {
    let mut bytes = Vec::new();
    client.poll_output(&mut bytes);
    let (mut rest, mut said) = (&bytes[..], Vec::new());
    while let Some(Decoded { pdu, length, .. }) = Pdu::decode(rest).unwrap() {
        said.push(match pdu {
            Pdu::SerialQuery { session, serial } => format!("{session} since {serial}"),
            Pdu::ErrorReport { code, .. } => error::name(code).to_owned(),
            other => other.to_string(),
        });
        rest = &rest[length..];
    }
    said
}

fn origins(client: &RtrClient) -> Vec<u32> {
    client.table().iter().map(|vrp| vrp.asn).collect()
}

fn synced() -> RtrClient {
    let mut client = connected(config());
    send(&mut client, 1, NOW, &[Pdu::CacheResponse { session: 7 }, item(true, vrp(1)), end(3)]);
    assert_eq!((client.state(), sent(&mut client)), (CacheState::Synced, vec!["Reset Query".to_owned()]));
    assert_eq!(client.poll_step(), Some(ClientStep::Changed));
    client
}

#[test]
fn a_difference_follows_the_whole_at_the_refresh_time_or_when_told() {
    let mut client = synced();
    assert_eq!((origins(&client), client.session()), (vec![1], Some((7, 3))));
    let later = NOW.plus_s(100);
    assert_eq!(client.next_deadline(), later);
    client.handle_timer(later);
    assert_eq!(sent(&mut client), ["7 since 3"]);
    let (gone, new) = (item(false, vrp(1)), item(true, vrp(2)));
    // Nothing changes before the end.
    send(&mut client, 1, later, &[Pdu::CacheResponse { session: 7 }, gone, new]);
    assert_eq!((origins(&client), client.poll_step()), (vec![1], None));
    // A notice meanwhile is answered behind it.
    send(&mut client, 1, later, &[Pdu::SerialNotify { session: 7, serial: 5 }, end(4)]);
    assert_eq!((origins(&client), client.poll_step()), (vec![2], Some(ClientStep::Changed)));
    assert_eq!(sent(&mut client), ["7 since 4"]);
    // An empty answer is no change, but it is news: the data does not expire.
    let last = later.plus_s(900);
    send(&mut client, 1, last, &[Pdu::CacheResponse { session: 7 }, end(5)]);
    assert_eq!((client.poll_step(), client.updated()), (None, Some(last)));
    send(&mut client, 1, last, &[Pdu::SerialNotify { session: 7, serial: 5 }]);
    assert_eq!(sent(&mut client), Vec::<String>::new());
}

#[test]
fn a_cache_without_the_difference_sends_everything() {
    let mut client = synced();
    client.handle_timer(NOW.plus_s(100));
    send(&mut client, 1, NOW, &[Pdu::CacheReset]);
    assert_eq!(sent(&mut client), ["7 since 3", "Reset Query"]);
    let other = Pdu::EndOfData { session: 8, serial: 1, timers: Some(Timers::DEFAULT) };
    send(&mut client, 1, NOW, &[Pdu::CacheResponse { session: 8 }, item(true, vrp(9)), other]);
    assert_eq!((origins(&client), client.session()), (vec![9], Some((8, 1))));
}

#[test]
fn data_outlives_the_connection_until_it_expires() {
    let mut client = synced();
    client.handle_disconnected("closed", NOW);
    assert_eq!((client.state(), origins(&client)), (CacheState::Down, vec![1]));
    assert_eq!(client.handle_timer(NOW.plus_s(9)), None);
    assert_eq!(client.handle_timer(NOW.plus_s(10)), Some(ClientStep::Connect));
    client.handle_connected(NOW.plus_s(10));
    assert_eq!(sent(&mut client), ["7 since 3"]);
    // Without an answer nobody knows whether the cache knows the session.
    client.handle_disconnected("closed again", NOW.plus_s(11));
    client.handle_timer(NOW.plus_s(21));
    client.handle_connected(NOW.plus_s(21));
    assert_eq!(sent(&mut client), ["Reset Query"]);
    client.handle_disconnected("closed again", NOW.plus_s(995));
    assert_eq!((client.next_deadline(), client.poll_step()), (NOW.plus_s(1000), None));
    client.handle_timer(NOW.plus_s(1000));
    assert_eq!((client.poll_step(), client.table().len()), (Some(ClientStep::Changed), 0));
    assert_eq!((client.updated(), client.counters().expired), (None, 1));
}

/// StayRTR answers a session that it does not know with an error and closes the connection.
#[test]
fn a_cache_that_reports_an_error_is_asked_for_everything() {
    for (code, next) in [(error::CORRUPT_DATA, "Reset Query"), (error::NO_DATA, "7 since 3")] {
        let mut client = synced();
        let report = Pdu::ErrorReport { code, about: &[], text: "Session ID mismatch\n".into() };
        send(&mut client, 1, NOW, &[report]);
        assert_eq!(client.poll_step(), Some(ClientStep::Close));
        assert!(client.last_error().is_some_and(|error| error.ends_with(" ")), "no control characters");
        assert_eq!(client.handle_timer(NOW.plus_s(10)), Some(ClientStep::Connect));
        client.handle_connected(NOW.plus_s(10));
        assert_eq!((sent(&mut client), origins(&client)), (vec![next.to_owned()], vec![1]));
    }
}

#[test]
fn a_difference_to_expired_data_is_not_applied() {
    for begun in [false, true] {
        let mut client = synced();
        client.handle_timer(NOW.plus_s(999));
        let answer = [Pdu::CacheResponse { session: 7 }, item(true, vrp(2)), end(4)];
        send(&mut client, 1, NOW.plus_s(999), &answer[..if begun { 2 } else { 0 }]);
        assert_eq!(client.handle_timer(NOW.plus_s(1000)), None, "first this connection is closed");
        assert_eq!(client.poll_step(), Some(ClientStep::Close));
        send(&mut client, 1, NOW.plus_s(1000), &answer);
        assert_eq!(client.handle_timer(NOW.plus_s(1000)), Some(ClientStep::Connect));
        assert_eq!((client.table().len(), client.session()), (0, None));
        client.handle_connected(NOW.plus_s(1001));
        assert_eq!(sent(&mut client), ["Reset Query"]);
    }
}

#[test]
fn an_old_cache_is_spoken_to_in_its_version() {
    // It says what it does not speak.
    let mut client = connected(config());
    let report = Pdu::ErrorReport { code: error::UNSUPPORTED_VERSION, about: &[], text: "no".into() };
    send(&mut client, 0, NOW, &[report]);
    assert_eq!((client.poll_step(), client.version()), (Some(ClientStep::Close), 0));
    assert_eq!(client.handle_timer(NOW), Some(ClientStep::Connect));
    client.handle_connected(NOW);
    // It answers in its own.
    let mut other = connected(config());
    for client in [&mut client, &mut other] {
        send(client, 0, NOW, &[Pdu::CacheResponse { session: 7 }, item(true, vrp(1)), end(3)]);
        assert_eq!((client.state(), client.version()), (CacheState::Synced, 0));
        assert_eq!(client.timers(), Timers::DEFAULT);
    }
}

#[test]
fn what_is_out_of_place_ends_the_connection_with_its_reason() {
    let start = Pdu::CacheResponse { session: 7 };
    let cases: [(&[Pdu<'_>], &str, &str); 7] = [
        (&[end(1)], "corrupt data", "End of Data while asking"),
        (&[start.clone(), start.clone()], "corrupt data", "Cache Response while receiving"),
        (&[start.clone(), Pdu::ResetQuery], "corrupt data", "Reset Query while receiving"),
        (&[start.clone(), item(false, vrp(1)), end(1)], "withdrawal of unknown record", "1 VRPs withdrawn"),
        (
            &[start.clone(), item(true, vrp(1)), item(true, vrp(1)), end(1)],
            "duplicate announcement",
            "1 VRPs announced twice",
        ),
        (
            &[start.clone(), Pdu::EndOfData { session: 8, serial: 1, timers: Some(Timers::DEFAULT) }],
            "corrupt data",
            "session 8, not 7",
        ),
        (
            &[Pdu::CacheResponse { session: 7 }, item(true, vrp(1)), Pdu::CacheReset],
            "corrupt data",
            "Cache Reset",
        ),
    ];
    for (pdus, code, text) in cases {
        let mut client = connected(config());
        send(&mut client, 1, NOW, pdus);
        assert_eq!(sent(&mut client), ["Reset Query", code]);
        assert!(client.last_error().unwrap().contains(text), "{:?}", client.last_error());
        assert_eq!((client.poll_step(), client.counters().refused), (Some(ClientStep::Close), 1));
        assert_eq!((client.state(), client.table().len()), (CacheState::Down, 0));
    }
    let mut client = synced();
    send(&mut client, 0, NOW, &[Pdu::SerialNotify { session: 7, serial: 9 }]);
    assert_eq!(sent(&mut client), ["unexpected protocol version"]);
    // The next connection begins with everything.
    assert_eq!((client.session(), origins(&client)), (None, vec![1]));
}

#[test]
fn a_cache_is_bounded_in_vrps_and_in_time() {
    let mut client = connected(CacheConfig { vrps_max: 2, ..config() });
    let many =
        [Pdu::CacheResponse { session: 7 }, item(true, vrp(1)), item(true, vrp(2)), item(true, vrp(3))];
    send(&mut client, 1, NOW, &many);
    assert_eq!(client.last_error(), Some("more than 2 VRPs (`vrps_max`)"));
    let mut client = connected(config());
    send(&mut client, 1, NOW, &[Pdu::CacheResponse { session: 7 }]);
    client.handle_timer(NOW.plus_s(ANSWER_MAX_S));
    assert_eq!((client.state(), client.poll_step()), (CacheState::Down, Some(ClientStep::Close)));
    // A withdrawal counts too.
    let mut client = connected(CacheConfig { vrps_max: 2, ..config() });
    let many =
        [Pdu::CacheResponse { session: 7 }, item(false, vrp(1)), item(false, vrp(2)), item(false, vrp(3))];
    send(&mut client, 1, NOW, &many);
    assert_eq!(client.state(), CacheState::Down);
}

/// Everything that a test's cache does.
#[derive(Clone, Debug)]
enum Event {
    /// The cache's set becomes this one, and it may say so.
    Becomes(BTreeSet<u32>, bool),
    /// The cache forgets what it was before.
    Forgets,
    Lost,
    Later,
    /// Bytes that mean nothing.
    Noise(Vec<u8>),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (proptest::collection::btree_set(1u32..9, 0..6), any::<bool>()).prop_map(|(set, told)| Event::Becomes(set, told)),
        1 => Just(Event::Forgets),
        1 => Just(Event::Lost),
        3 => Just(Event::Later),
        1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Event::Noise),
    ]
}

/// A cache that remembers every serial number's set.
struct Cache {
    session: u16,
    history: Vec<BTreeSet<u32>>,
}

impl Cache {
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut rest, mut out) = (bytes, Vec::new());
        let last = self.history.len() - 1;
        let now = &self.history[last];
        let serial = u32::try_from(last).unwrap();
        while let Ok(Some(Decoded { pdu, length, .. })) = Pdu::decode(rest) {
            rest = &rest[length..];
            let before = match pdu {
                Pdu::ResetQuery => BTreeSet::new(),
                Pdu::SerialQuery { session, serial } if session == self.session => {
                    self.history[usize::try_from(serial).unwrap()].clone()
                }
                Pdu::SerialQuery { .. } => {
                    Pdu::CacheReset.write(1, &mut out);
                    continue;
                }
                _ => continue,
            };
            Pdu::CacheResponse { session: self.session }.write(1, &mut out);
            before.difference(now).for_each(|asn| item(false, vrp(*asn)).write(1, &mut out));
            now.difference(&before).for_each(|asn| item(true, vrp(*asn)).write(1, &mut out));
            Pdu::EndOfData { session: self.session, serial, timers: Some(Timers::DEFAULT) }
                .write(1, &mut out);
        }
        out
    }
}

proptest! {
    /// Whatever happened before, a client that is synced has what the cache had when it answered, and memory stays
    /// bounded.
    #[test]
    fn a_synced_client_has_what_the_cache_has(
        events in proptest::collection::vec(any_event(), 1..40), cut in 1usize..50,
    ) {
        let mut cache = Cache { session: 1, history: vec![BTreeSet::new()] };
        let (mut client, mut now, mut is_up) = (RtrClient::new(config()), NOW, false);
        for event in events {
            let mut news = Vec::new();
            match event {
                Event::Becomes(set, told) => {
                    cache.history.push(set);
                    let serial = u32::try_from(cache.history.len() - 1).unwrap();
                    if told {
                        Pdu::SerialNotify { session: cache.session, serial }.write(1, &mut news);
                    }
                }
                Event::Forgets => {
                    let last = cache.history.pop().unwrap();
                    cache = Cache { session: cache.session + 1, history: vec![last] };
                }
                Event::Lost => {
                    client.handle_disconnected("lost", now);
                    is_up = false;
                }
                Event::Later => now = now.plus_s(3600),
                Event::Noise(bytes) => news = bytes,
            }
            for _ in 0..4 {
                if client.handle_timer(now) == Some(ClientStep::Connect) {
                    client.handle_connected(now);
                    is_up = true;
                }
                if is_up {
                    for part in news.chunks(cut) {
                        client.handle_bytes(part, now);
                    }
                }
                while let Some(step) = client.poll_step() {
                    is_up &= step != ClientStep::Close;
                }
                let mut asked = Vec::new();
                client.poll_output(&mut asked);
                news = cache.answer(&asked);
            }
            prop_assert!(client.input.len() <= PDU_BYTES_MAX + cut);
            if let (CacheState::Synced, Some((session, serial))) = (client.state(), client.session())
                && session == cache.session
                && let Some(set) = cache.history.get(usize::try_from(serial).unwrap())
            {
                prop_assert_eq!(origins(&client), set.iter().copied().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_hostile_cache_harms_nobody(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 1usize..50) {
        let mut client = synced();
        for part in bytes.chunks(cut) {
            client.handle_bytes(part, NOW);
        }
        prop_assert!(client.input.len() <= PDU_BYTES_MAX + cut);
        prop_assert!(client.table().len() <= 1000);
    }
}
