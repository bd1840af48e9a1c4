//! NAT64 against TAYGA, a stateless translator of its own making: what it made of packets whose host has one public
//! address is what NAT64 makes of them. Recorded with TAYGA 0.9.2 in network namespaces.

use super::nat64::{Edge, config};

/// The way of a packet, the packet, and what it became. Not among them: parameter problems and UDP without a checksum,
/// which TAYGA drops, and long packets that it makes fragments of 1280 bytes.
const RECORDED: &str = include_str!("tayga.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Clears what each translator chooses, and what the routers around TAYGA changed, here and in the quote of an error.
fn clear_choices(l3: &mut [u8]) {
    let error = if l3[0] >> 4 == 4 {
        if l3[6] & 0x3f == 0 && l3[7] == 0 {
            l3[4..6].fill(0);
        }
        l3[6] &= !0x40;
        l3[8] = 0;
        l3[10..12].fill(0);
        (l3[9] == 1 && ![0, 8].contains(&l3[20])).then_some(20)
    } else {
        l3[7] = 0;
        (l3[6] == 58 && l3[40] < 128).then_some(40)
    };
    if let Some(error) = error {
        l3[error + 2..error + 4].fill(0);
        clear_choices(&mut l3[error + 8..]);
    }
}

#[test]
fn packets_become_those_of_tayga() {
    let edge = Edge::new(&config(1));
    let mut differ = Vec::new();
    for (number, line) in RECORDED.lines().enumerate() {
        let [way, packet, expected] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let packet = bytes(packet);
        let outcome = if way == "out" { edge.leave(&packet) } else { edge.arrive(&packet) };
        let mut became = outcome.unwrap_or_default();
        let mut expected = bytes(expected);
        for packet in [&mut became, &mut expected] {
            if !packet.is_empty() {
                clear_choices(packet);
            }
        }
        if became != expected {
            differ.push(format!("{number} {way}\n{packet:02x?}\n{became:02x?}\n{expected:02x?}"));
        }
    }
    assert!(
        differ.is_empty(),
        "packets, what they became, and what TAYGA made of them:\n{}",
        differ.join("\n")
    );
}
