//! Properties of every session: sizes, sequence numbers, templates first, every record once.

use super::reader::Reader;
use super::*;
use thalweg_flow::export::{Train, Transport, Version};

fn any_options() -> impl Strategy<Value = ExportOptions> {
    let protocol = prop_oneof![
        Just((Version::NetFlow5, Transport::Datagram)),
        Just((Version::NetFlow9, Transport::Datagram)),
        Just((Version::Ipfix, Transport::Datagram)),
        Just((Version::Ipfix, Transport::Stream)),
    ];
    (protocol, 1200..4000usize, 1..20u32, any::<u32>(), any::<[bool; 3]>()).prop_map(
        |((version, transport), bytes, messages, domain, [names, variable, in_domain])| ExportOptions {
            message_bytes_max: bytes,
            template_messages: messages,
            observation_domain: domain,
            application_names: names,
            variable_names: variable,
            options_in_domain: in_domain,
            ..ExportOptions::new(version, transport)
        },
    )
}

/// A step of the driver.
#[derive(Clone, Debug)]
enum Step {
    Records(Vec<FlowRecord>),
    Wait(u64),
    Flush,
    Poll,
    /// At most this many bytes and messages together.
    PollTrains(usize, usize),
    Reconnect,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => proptest::collection::vec(any_record(), 0..40).prop_map(Step::Records),
        2 => (0..100_000_000_000u64).prop_map(Step::Wait),
        1 => Just(Step::Flush),
        1 => Just(Step::Poll),
        2 => (0..70_000usize, 1..65usize).prop_map(|(bytes, messages)| Step::PollTrains(bytes, messages)),
        1 => Just(Step::Reconnect),
    ]
}

/// Same as [`poll_all`], several messages at a time.
fn poll_trains(exporter: &mut Exporter, bytes_max: usize, messages_max: usize) -> Vec<(Vec<u8>, Amount)> {
    let (mut messages, mut train) = (Vec::new(), Train::default());
    while exporter.poll_train(&mut train, bytes_max, messages_max) {
        let cars: Vec<(Vec<u8>, Amount)> =
            train.messages().map(|(message, amount)| (message.to_vec(), amount)).collect();
        assert!(train.bytes().len() <= bytes_max || cars.len() == 1);
        assert!((1..=messages_max).contains(&cars.len()));
        assert!(cars.iter().rev().skip(1).all(|(message, _)| message.len() == train.message_bytes()));
        assert_eq!(sum(cars.iter().map(|(_, amount)| *amount)), train.amount());
        messages.extend(cars);
    }
    messages
}

fn sum(amounts: impl IntoIterator<Item = Amount>) -> Amount {
    amounts.into_iter().fold(Amount::default(), |mut sum, amount| {
        sum += amount;
        sum
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_the_driver_does(
        options in any_options(),
        steps in proptest::collection::vec(any_step(), 1..20),
    ) {
        let mut exporter = Exporter::new(&options).unwrap();
        let mut now_ns = NOW_NS;
        exporter.handle_connected(now_ns);
        let (mut handled, mut taken, mut withdrawn) = (Vec::new(), Vec::new(), Amount::default());
        let mut sessions: Vec<Vec<(Vec<u8>, Amount)>> = vec![Vec::new()];
        for step in steps.into_iter().chain([Step::Flush, Step::Poll]) {
            match step {
                Step::Records(records) => {
                    exporter.handle_records(&records, now_ns);
                    handled.extend(records.iter().map(Amount::of));
                }
                Step::Wait(ns) => {
                    now_ns += ns;
                    exporter.handle_time(now_ns);
                    prop_assert!(exporter.poll_timeout().is_none_or(|due| due > now_ns));
                }
                Step::Flush => exporter.flush(now_ns),
                Step::Poll => sessions.last_mut().unwrap().extend(poll_all(&mut exporter)),
                Step::PollTrains(bytes, messages) => {
                    sessions.last_mut().unwrap().extend(poll_trains(&mut exporter, bytes, messages));
                }
                Step::Reconnect => {
                    withdrawn += exporter.handle_connected(now_ns);
                    sessions.push(Vec::new());
                }
            }
        }
        for messages in &sessions {
            let mut reader = Reader::default();
            for (message, amount) in messages {
                prop_assert!(message.len() <= options.message_bytes_max);
                let before = reader.flows.len();
                reader.read(message);
                prop_assert_eq!((reader.flows.len() - before) as u64, amount.records);
                taken.push(*amount);
            }
        }
        let totals = *exporter.totals();
        let unexportable = sum(totals.unexportable);
        prop_assert_eq!(totals.handled, sum(handled));
        prop_assert_eq!(totals.exported, sum(taken));
        prop_assert_eq!(totals.withdrawn, withdrawn);
        let mut out = sum([totals.exported, totals.withdrawn, unexportable]);
        out.records -= totals.split;
        prop_assert_eq!(totals.handled, out);
        prop_assert_eq!(totals.messages >= sessions.iter().map(|messages| messages.len() as u64).sum(), true);
    }

    /// A collector that starts late or loses messages can read everything after one interval of templates.
    #[test]
    fn a_collector_that_comes_late_reads_after_an_interval(
        records in proptest::collection::vec(any_record(), 200..400),
        version in prop_oneof![Just(Version::NetFlow9), Just(Version::Ipfix)],
    ) {
        let options = ExportOptions {
            template_messages: 1_000_000,
            statistics_interval_ns: 1000 * SECOND_NS,
            ..ExportOptions::new(version, Transport::Datagram)
        };
        let mut exporter = Exporter::new(&options).unwrap();
        exporter.handle_connected(NOW_NS);
        exporter.handle_records(&records, NOW_NS);
        exporter.flush(NOW_NS);
        poll_all(&mut exporter);
        // The collector starts here. Within one interval all templates are repeated.
        let mut now_ns = NOW_NS;
        while now_ns < NOW_NS + options.template_interval_ns {
            now_ns = exporter.poll_timeout().unwrap();
            exporter.handle_time(now_ns);
        }
        let mut reader = Reader::default();
        exporter.flush(now_ns);
        let messages = poll_all(&mut exporter);
        reader.lose_messages();
        messages.iter().for_each(|(message, _)| reader.read(message));
        exporter.handle_records(&records, now_ns);
        exporter.flush(now_ns);
        poll_all(&mut exporter).iter().for_each(|(message, _)| reader.read(message));
        let ways = |record: &FlowRecord| if version == Version::NetFlow9 && record.reverse.is_some() { 2 } else { 1 };
        prop_assert_eq!(reader.flows.len(), records.iter().map(ways).sum::<usize>());
    }
}

#[test]
fn streams_are_told_templates_once() {
    let records: Vec<_> = (0..50_000).map(|n| if n % 3 == 0 { simple6(n) } else { simple(n) }).collect();
    let options = ExportOptions::new(Version::Ipfix, Transport::Stream);
    let mut exporter = Exporter::new(&options).unwrap();
    exporter.handle_connected(NOW_NS);
    let mut messages = Vec::new();
    for (n, batch) in records.chunks(1000).enumerate() {
        let now_ns = NOW_NS + n as u64 * 100 * SECOND_NS;
        exporter.handle_records(batch, now_ns);
        exporter.handle_time(now_ns);
        messages.extend(poll_all(&mut exporter));
    }
    exporter.flush(NOW_NS + 6000 * SECOND_NS);
    messages.extend(poll_all(&mut exporter));
    let reader = Reader::of(messages.iter().map(|(message, _)| message));
    assert_eq!(reader.flows.len(), records.len());
    assert!(reader.announced.values().all(|&times| times == 1), "{:?}", reader.announced);
}

#[test]
fn datagrams_repeat_templates_by_time_and_by_count() {
    let options =
        ExportOptions { template_messages: 10, ..ExportOptions::new(Version::Ipfix, Transport::Datagram) };
    let mut exporter = Exporter::new(&options).unwrap();
    exporter.handle_connected(NOW_NS);
    let records: Vec<_> = (0..5000).map(simple).collect();
    exporter.handle_records(&records, NOW_NS);
    exporter.flush(NOW_NS);
    let messages: Vec<_> = poll_all(&mut exporter).into_iter().map(|(message, _)| message).collect();
    let reader = Reader::of(&messages);
    let template = *reader.announced.keys().max().unwrap();
    let by_count = messages.len() as u32 / 10;
    assert!(reader.announced[&template] >= by_count, "{:?} in {} messages", reader.announced, messages.len());
    // Without records: after 1, 2, 4, ... seconds, then every minute.
    let mut exporter = Exporter::new(&options).unwrap();
    exporter.handle_connected(NOW_NS);
    exporter.handle_records(&records[..1], NOW_NS);
    let mut told_s = Vec::new();
    for second in 0..200 {
        exporter.handle_time(NOW_NS + second * SECOND_NS);
        exporter.flush(NOW_NS + second * SECOND_NS);
        for (message, _) in poll_all(&mut exporter) {
            if second > 0 && message[16..18] == [0, 2] {
                told_s.push(second);
            }
        }
    }
    assert_eq!(told_s, [1, 2, 4, 8, 16, 32, 64, 124, 184]);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let base = ExportOptions::new(Version::Ipfix, Transport::Datagram);
    let error = |options: ExportOptions| Exporter::new(&options).err().expect("refused").to_string();
    assert_eq!(
        error(ExportOptions { message_bytes_max: 100, ..base.clone() }),
        "messages of 100 bytes: expected 1200 to 65487"
    );
    assert_eq!(
        error(ExportOptions {
            transport: Transport::Stream,
            ..ExportOptions::new(Version::NetFlow9, Transport::Datagram)
        }),
        "v9 over a stream: expected UDP, only IPFIX goes over TCP and TLS"
    );
    assert!(error(ExportOptions { template_messages: 0, ..base.clone() }).contains("expected at least 1"));
    assert!(error(ExportOptions { template_interval_ns: 1, ..base }).contains("at least a second"));
}
