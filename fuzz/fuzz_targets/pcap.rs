//! pcap files through the whole reader: no panic, every packet lies within its slab, and chunks are the same
//! whether the bytes come at once or in small pieces.
#![no_main]

mod reader;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let magic: [u8; 4] = match choice & 3 {
        0 => 0xa1b2_c3d4u32.to_le_bytes(),
        1 => 0xa1b2_3c4du32.to_be_bytes(),
        2 => 0xa1b2_cd34u32.to_le_bytes(),
        _ => 0xa1b2_c3d4u32.to_be_bytes(),
    };
    reader::read_both_ways(&[&magic, rest].concat());
});
