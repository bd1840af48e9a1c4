//! pcapng files through the whole reader, as for pcap. The section header is given, so that the fuzzer
//! need not find it.
#![no_main]

mod reader;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let big = choice & 1 == 1;
    let number = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let version = if big { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
    let head =
        [&[0x0a, 0x0d, 0x0d, 0x0a][..], &number(28), &number(0x1a2b_3c4d), &version, &[0xff; 8], &number(28)];
    reader::read_both_ways(&[&head.concat(), rest].concat());
});
