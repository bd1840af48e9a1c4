//! The filter and the program behind it do together what the XDP program does alone.

use super::super::super::assembler::interpreter::Runs;
use super::*;

/// What became of a frame.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    ToSocket,
    Forwarded(Vec<u8>),
    Lost,
}

/// Has both programs handle the machine's frame; `between` is what happens in between.
fn handle(machine: &mut Machine, between: impl FnOnce(&mut Machine)) -> Fate {
    let before = machine.frame.clone();
    machine.runs = Runs::AsFilter;
    let decided = machine.run(&filter(&maps(false)));
    assert_eq!(machine.frame, before, "a filter changes nothing");
    machine.runs = Runs::AtIngress;
    machine.piece = 14;
    between(machine);
    let done = machine.run(&ingress::ingress(Some(&maps(false))));
    let again = machine.run(&ingress::ingress(Some(&maps(false))));
    assert_eq!(again, End::Dropped, "a note is for one frame");
    match (decided, done) {
        (End::Accepted, End::Dropped) => {
            assert_eq!(machine.frame, before);
            Fate::ToSocket
        }
        (End::Left, End::Redirected { interface: 5 }) => Fate::Forwarded(machine.frame.clone()),
        (End::Left, End::Dropped) => Fate::Lost,
        other => panic!("{other:?}"),
    }
}

fn count(machine: &Machine, number: u32) -> (u64, u64) {
    let bytes = &machine.maps[&COUNTS][&number.to_ne_bytes().to_vec()];
    let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
    (word(0), word(8))
}

/// A machine with this frame and its flow, forwarded as NAT would.
fn with_flow(made: &Made, translated: Option<([u8; 4], u16)>) -> Machine {
    let key = FlowKey::of_frame(&made.frame()).unwrap();
    let action = FlowAction::between(&key, &made.forwarded(translated), egress()).unwrap();
    machine(&made.frame(), Some((&key, &action)))
}

proptest! {
    #[test]
    fn does_what_nat_would(
        first in made(),
        payload in prop::collection::vec(any::<u8>(), 0..40),
        ttl in 2u8..=255,
        translated in prop::option::of((any::<[u8; 4]>(), any::<u16>())),
    ) {
        let mut machine = with_flow(&first, translated);
        let later = Made { payload, ttl, ..first };
        machine.frame = later.frame();
        machine.is_unfinished = later.checksum == Checksum::Unfinished;
        let fate = handle(&mut machine, |_| {});
        prop_assert_eq!(fate, Fate::Forwarded(later.forwarded(translated)));
        prop_assert_eq!(count(&machine, 1), (1, (later.frame().len() - later.padding) as u64));
        prop_assert_eq!(count(&machine, LOST).0, 0);
    }

    #[test]
    fn decides_as_the_xdp_program_does(frame in made(), at in 0usize..60, value: u8, cut in 0usize..80) {
        let made = frame;
        let mut frame = made.frame();
        let last = frame.len() - 1;
        frame[at.min(last)] = value;
        frame.truncate(frame.len().saturating_sub(cut.saturating_sub(60)));
        agrees_with_xdp(with_flow(&made, None), &frame)?;
    }

    #[test]
    fn decides_about_ipv6_as_the_xdp_program_does(
        made in made_v6(),
        at in 0usize..80,
        value: u8,
        cut in 0usize..100,
    ) {
        let key = FlowKey::of_frame(&made.frame()).unwrap();
        let action = FlowAction::between(&key, &made.forwarded(), egress()).unwrap();
        let machine = machine(&made.frame(), Some((&key, &action)));
        let mut frame = made.frame();
        let last = frame.len() - 1;
        frame[at.min(last)] = value;
        frame.truncate(frame.len().saturating_sub(cut.saturating_sub(70)));
        agrees_with_xdp(machine, &frame)?;
    }
}

/// Both have the same end, frame and counters.
fn agrees_with_xdp(mut ours: Machine, frame: &[u8]) -> Result<(), TestCaseError> {
    let mut xdp = Machine { frame: frame.to_vec(), maps: ours.maps.clone(), ..Machine::default() };
    ours.frame = frame.to_vec();
    let expected = match xdp.run(&slots()) {
        End::Redirected { .. } => Fate::Forwarded(xdp.frame),
        _ => Fate::ToSocket,
    };
    prop_assert_eq!(handle(&mut ours, |_| {}), expected);
    prop_assert_eq!(&ours.maps[&COUNTS], &xdp.maps[&COUNTS]);
    Ok(())
}

/// A merged frame counts, and fits, as the packets that it stands for.
#[test]
fn merged_frames_are_their_packets() {
    let nat = Some(([203, 0, 113, 7], 50_000));
    for (payload, segment) in [(4000, 1448), (2896, 1448), (1449, 1448), (60_000, 1460), (5, 1)] {
        let packet = |bytes: usize| Made { is_tcp: true, flags: 0x10, payload: vec![9; bytes], ..plain() };
        let mut machine = with_flow(&packet(1), nat);
        let whole = packet(payload);
        (machine.frame, machine.segment_bytes) = (whole.frame(), segment as u32);
        assert_eq!(handle(&mut machine, |_| {}), Fate::Forwarded(whole.forwarded(nat)), "{payload}");
        let parts = vec![9; payload];
        let lengths = parts.chunks(segment).map(|part| packet(part.len()).frame().len() as u64);
        let expected = lengths.fold((0, 0), |(packets, bytes), more| (packets + 1, bytes + more));
        assert_eq!(count(&machine, 1), expected, "{payload}");
    }
    // The next link allows 1500 bytes: 40 of headers, 1460 of payload.
    let whole = Made { is_tcp: true, flags: 0x10, payload: vec![9; 4000], ..plain() };
    for (segment_bytes, fits) in [(1460, true), (1461, false)] {
        let mut machine = Machine { segment_bytes, ..with_flow(&whole, nat) };
        assert_eq!(handle(&mut machine, |_| {}) != Fate::ToSocket, fits, "{segment_bytes}");
    }
    let datagrams = Made { payload: vec![9; 4000], ..plain() };
    for (segment_bytes, packets) in [(1000, 4), (1001, 4), (1472, 3)] {
        let mut machine = Machine { segment_bytes, ..with_flow(&datagrams, nat) };
        assert_eq!(handle(&mut machine, |_| {}), Fate::Forwarded(datagrams.forwarded(nat)));
        assert_eq!(count(&machine, 1), (packets, 4000 + 42 * packets));
    }
}

#[test]
fn what_cannot_be_done_after_all_is_counted() {
    let lost = |between: &dyn Fn(&mut Machine)| {
        let mut machine = with_flow(&plain(), None);
        let fate = handle(&mut machine, between);
        (fate, count(&machine, LOST).0, count(&machine, 1).0)
    };
    assert!(matches!(lost(&|_| {}), (Fate::Forwarded(_), 0, 1)));
    let forgets = |machine: &mut Machine| {
        machine.maps.get_mut(&FLOWS_V4).unwrap().retain(|key, _| key[0] == 0xff);
    };
    assert_eq!(lost(&forgets), (Fate::Lost, 1, 0));
    assert_eq!(lost(&|machine| machine.is_short_of_memory = true), (Fate::Lost, 1, 0));
    // A lease that ends in between is as good as one that ends a moment later.
    let ends = |machine: &mut Machine| {
        let state = State { generation: 4, epoch: 0, mac: MAC };
        machine.maps.get_mut(&STATE).unwrap().insert(vec![0; 4], state.bytes().to_vec());
    };
    assert!(matches!(lost(&ends), (Fate::Forwarded(_), 0, 1)));
}

#[test]
fn frames_with_a_tag_go_to_the_socket() {
    let mut machine = Machine { has_tag: true, ..with_flow(&plain(), None) };
    assert_eq!(handle(&mut machine, |_| {}), Fate::ToSocket);
}
