//! NAT driven by a recipe: packets in both directions, replies and ICMP errors made from its output, damaged
//! copies, raw bytes. The recipe and its invariants are beside NAT's code, where tests use them too.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| thalweg_dataplane::nat::testing::fuzz_one(input));
