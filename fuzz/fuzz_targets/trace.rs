//! Text trace: both halves of the parser agree on every line. A parsed line, printed, parses to the same again,
//! and its packet prints as that line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_wire::trace::{FieldOrder, PACKET_SLOT, Step, TraceLine, each_line, parse_line};

fuzz_target!(|input: &[u8]| {
    let order = match input.first() {
        Some(b'\t') => FieldOrder::SourceFirst,
        _ => FieldOrder::DestinationFirst,
    };
    let mut lines = input.split(|byte| *byte == b'\n');
    each_line(input, 0..input.len(), order, |step| {
        let careful = parse_line(lines.next().unwrap_or_default(), order);
        match (step, careful) {
            (Step::Packet(a), Ok(Some(b))) => {
                assert_eq!(a, b);
                check(&a, order);
            }
            (Step::Nothing, Ok(None)) => {}
            (Step::Bad(a), Err(b)) => assert_eq!(a, b),
            (a, b) => panic!("{a:?} against {b:?}"),
        }
        true
    });
});

fn check(line: &TraceLine<'_>, order: FieldOrder) {
    let mut text = Vec::new();
    line.print(order, &mut text);
    text.pop();
    assert_eq!(parse_line(&text, order), Ok(Some(*line)));
    let mut slot = [0; PACKET_SLOT];
    let len = line.write_packet(&mut slot);
    let back = TraceLine::of_packet(line.port, &slot[..len], line.application);
    assert_eq!(back.map(|b| (b.addresses, b.protocol)), Some((line.addresses, line.protocol)));
}
