//! From payloads to names: a stream with names has the same ones however it is cut into two segments, and datagrams of
//! any form are read to their end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;
use thalweg_base::{ChunkBuilder, LinkType};
use thalweg_flow::parse::{ParseOptions, parse};
use thalweg_flow::{EndReason, FlowNames, Meter, MeterOptions, NameOptions};
use thalweg_wire::dns::DnsView;
use thalweg_wire::quic::{InitialView, crypto_frames};
use thalweg_wire::testing::{ip, tcp_segment, udp};

/// The names of the flow that these packets are.
fn names(packets: &[Vec<u8>]) -> FlowNames {
    let options = MeterOptions {
        flows_max: 16,
        shards: 1,
        huge_pages: false,
        names: NameOptions { tls: true, quic: true, http: true, dns: true, ja4: true },
        ..MeterOptions::default()
    };
    let meter: Meter = Meter::new(&options).expect("a meter");
    let mut builder = ChunkBuilder::with_capacity(packets.iter().map(|packet| packet.len() + 256).sum());
    for packet in packets {
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..at + packet.len()].copy_from_slice(packet);
        builder.push(at, packet.len(), packet.len() as u32, 0, LinkType::RawIp, 0, 0);
    }
    let mut chunk = builder.finish(0, 1, 0);
    for (packet, frame) in chunk.batch(0).frames() {
        parse(packet, frame, &ParseOptions::default());
        meter.label(packet, frame);
    }
    meter.learn_names(&mut chunk);
    let mut records = Vec::new();
    meter.observe(&mut chunk, 0..1, 1, &mut |record| records.push(*record));
    meter.flush(0, EndReason::ForcedEnd, &mut |record| records.push(*record));
    assert!(meter.totals().holds());
    assert!(records.len() <= 1, "one flow");
    records.first().map(|record| record.names).unwrap_or_default()
}

fuzz_target!(|input: &[u8]| {
    if let Some(view) = DnsView::new(input) {
        let _ = (view.question(), view.answers().count());
    }
    if let Some(initial) = InitialView::new(input) {
        assert!(initial.number_at <= initial.packet.len());
    }
    assert!(crypto_frames(input).all(|(_, content)| content.len() <= input.len()));
    let Some((&[cut], stream)) = input.split_first_chunk() else { return };
    let (from, to) = (SocketAddr::from(([192, 0, 2, 1], 50_000)), SocketAddr::from(([192, 0, 2, 2], 443)));
    let segment = |place: usize, bytes: &[u8]| {
        ip(from.ip(), to.ip(), 6, &tcp_segment(from, to, 24, [place as u32, 0], bytes))
    };
    let (one, other) = stream.split_at(usize::from(cut).min(stream.len()));
    let whole = names(&[segment(0, stream)]);
    let cut = names(&[segment(0, one), segment(one.len(), other)]);
    // Where the beginning says nothing, the second segment is looked at for itself.
    assert!(cut == whole || whole == FlowNames::default(), "{cut:?} {whole:?}");
    let [question, packet] = [53, 443].map(|port| udp(from, SocketAddr::new(to.ip(), port), stream));
    let _ = (names(&[question]), names(&[packet]));
});
