//! Samples for collectors of sFlow.

use std::net::UdpSocket;

use crate::common::{Traffic, folder, options, run};
use thalweg_base::{XorShift64Star, mix64};
use thalweg_flow::PacketSampling;
use thalweg_probe::{ExportTargets, ModelKind, ProbeOptions, ProbeSummary, SflowOptions, Shape};
use thalweg_testdata::{uninterrupted, with_room};
use thalweg_wire::sflow::{DATAGRAM_BYTES_MAX, Interface, Sample, read};

/// What a collector got.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) datagrams: Vec<Vec<u8>>,
    pub(crate) headers: Vec<Vec<u8>>,
    bytes: u64,
    vlans: usize,
    inputs: Vec<Interface>,
    /// Of the first sample in each datagram: how many came before, its sequence number, pool and drops.
    counted: Vec<(usize, [u32; 3])>,
}

/// Runs a probe with a collector of sFlow, which checks that every datagram is whole and none is missing.
pub(crate) fn collected(options: ProbeOptions, rate: u32) -> (ProbeSummary, Collected) {
    let socket = with_room(UdpSocket::bind("127.0.0.1:0").expect("a port is free"));
    let here = socket.local_addr().expect("it has one");
    let sampling = PacketSampling { rate, ..PacketSampling::default() };
    // There are no counters of a file.
    let counters = SflowOptions::every_s(1);
    let sflow = SflowOptions { sampling, agent: Some([192, 0, 2, 7].into()), counters };
    let addresses = vec![format!("sflow://{here}")];
    let export = ExportTargets { addresses, observation_domain: 5, sflow, ..ExportTargets::default() };
    let options = ProbeOptions { export, ..options };
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let (mut all, mut datagram, mut sequence) = (Collected::default(), [0; 65_536], 0);
            loop {
                let bytes = uninterrupted(|| socket.recv(&mut datagram)).expect("something arrives");
                if bytes == 0 {
                    return all;
                }
                assert!(bytes <= DATAGRAM_BYTES_MAX);
                // Behind the datagram's header of 28 bytes, and the sample's kind and length.
                let word = |at: usize| u32::from_be_bytes(*datagram[at..].first_chunk().unwrap());
                all.counted.push((all.headers.len(), [word(36), word(52), word(56)]));
                let (header, fault) = read(&datagram[..bytes], |_, sample| {
                    let Sample::Flow(sample) = sample else { panic!("{sample:?}") };
                    let header = sample.header.expect("a header");
                    assert_eq!((sample.rate, header.protocol), (rate, 1));
                    all.headers.push(header.start.to_vec());
                    all.bytes += u64::from(header.bytes);
                    all.vlans += usize::from(sample.vlan.is_some());
                    all.inputs.push(sample.input);
                })
                .expect("it is sFlow");
                all.datagrams.push(datagram[..bytes].to_vec());
                sequence += 1;
                assert_eq!((header.sequence, fault), (sequence, None), "a datagram is missing");
                assert_eq!((header.agent, header.sub_agent), ([192, 0, 2, 7].into(), 5));
            }
        });
        let summary = run(&options);
        let end = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        end.send_to(&[], here).expect("it can be sent");
        (summary, collector.join().expect("the datagrams are whole"))
    })
}

#[test]
fn one_in_one_is_every_packet() {
    let traffic = Traffic::mixed(5_000, 300, 1);
    let (_folder, capture, lines) = folder(&traffic);
    let (summary, all) = collected(options(&capture, &lines), 1);
    let frames = traffic.frames.iter().map(|(_, frame)| frame);
    let starts: Vec<&[u8]> = frames.clone().map(|frame| &frame[..frame.len().min(128)]).collect();
    assert!(all.headers == starts, "the same packets in the same order");
    assert_eq!(all.bytes, frames.map(|frame| frame.len() as u64).sum::<u64>());
    assert!(all.vlans > 0 && all.inputs.iter().all(|input| *input == all.inputs[0]));
    for (before, words) in all.counted {
        let number = before as u32 + 1;
        assert_eq!(words, [number, number, 0], "each packet is in the pool, and is a sample");
    }
    let outlet = summary.outlets.last().expect("the summary has the collector");
    assert_eq!((outlet.records, outlet.bytes, outlet.lost.len()), (starts.len() as u64, all.bytes, 0));
}

#[test]
fn the_sampled_packets_are_those_of_a_slow_reference() {
    let traffic = Traffic::mixed(20_000, 300, 2);
    let (_folder, capture, lines) = folder(&traffic);
    let (_, all) = collected(options(&capture, &lines), 50);
    // Each packet is asked whether its number is the next one.
    let mut rng = XorShift64Star::new(mix64(1));
    let mut skip = || {
        let chance = ((rng.next_u64() >> 32) as f64 + 1.0) / 4_294_967_296.0;
        (chance.ln() / (-1.0_f64 / 50.0).ln_1p()) as usize
    };
    let (mut next, mut expected) = (skip(), Vec::new());
    for (number, (_, frame)) in traffic.frames.iter().enumerate() {
        if number == next {
            expected.push(&frame[..frame.len().min(128)]);
            next += 1 + skip();
        }
    }
    assert!(all.headers == expected, "{} and {}", all.headers.len(), expected.len());
    // Five standard deviations.
    let (count, mean) = (expected.len() as f64, traffic.frames.len() as f64 / 50.0);
    assert!((count - mean).abs() < 5.0 * mean.sqrt(), "{count}, not about {mean}");
}

#[test]
fn workers_share_the_pool() {
    let traffic = Traffic::mixed(40_000, 300, 3);
    let (_folder, capture, lines) = folder(&traffic);
    for shape in [
        Shape { model: ModelKind::Farm, pipelines: 2, workers: 2, ..Shape::default() },
        Shape { model: ModelKind::Tokens, workers: 3, ..Shape::default() },
    ] {
        let (summary, all) = collected(ProbeOptions { shape, ..options(&capture, &lines) }, 20);
        let mean = traffic.frames.len() as f64 / 20.0;
        assert!((all.headers.len() as f64 - mean).abs() < 6.0 * mean.sqrt(), "{}", all.headers.len());
        let outlet = summary.outlets.last().expect("the summary has the collector");
        assert_eq!(outlet.records, all.headers.len() as u64);
        let (_, [_, pool, drops]) = all.counted[all.counted.len() - 1];
        let seen = traffic.frames.len() as u32;
        assert!(drops == 0 && pool <= seen && pool > seen / 4 * 3, "{pool} of {seen}");
    }
}

#[test]
fn nobody_who_listens_is_a_failure() {
    let traffic = Traffic::mixed(3_000, 100, 4);
    let (_folder, capture, lines) = folder(&traffic);
    let gone = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let (client, other) = (UdpSocket::bind("127.0.0.1:0").expect("a port is free"), gone.local_addr());
    // Connected to another one, the socket keeps its port and refuses the probe's datagrams.
    gone.connect(client.local_addr().expect("it has one")).expect("it can be connected");
    let sampling = PacketSampling { rate: 1, ..PacketSampling::default() };
    let sflow = SflowOptions { sampling, ..SflowOptions::default() };
    let addresses = vec![format!("sflow://{}", other.expect("it has one"))];
    let export = ExportTargets { addresses, sflow, ..ExportTargets::default() };
    let summary = run(&ProbeOptions { export, ..options(&capture, &lines) });
    let outlet = summary.outlets.last().expect("the summary has the collector");
    assert!(outlet.datagrams_refused > 0, "{outlet:?}");
    assert!(summary.failures().iter().any(|failure| failure.contains("refused")), "{:?}", summary.failures());
}

#[test]
fn a_wrong_address_is_the_users_error() {
    let traffic = Traffic::mixed(10, 2, 5);
    let (_folder, capture, lines) = folder(&traffic);
    let export = ExportTargets { addresses: vec!["sflow://a:0".to_owned()], ..ExportTargets::default() };
    let wrong = ProbeOptions { export, ..options(&capture, &lines) };
    let error = thalweg_probe::probe(&wrong, &Default::default(), &()).expect_err("no such port");
    assert!(error.is_usage() && error.to_string().contains("sflow://a:0"), "{error}");
}
