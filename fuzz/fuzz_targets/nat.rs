//! NAT fed by recipe: packets both ways, answers and ICMP errors made from what came out, damaged copies,
//! raw bytes. The recipe and its invariants live beside NAT, where tests use them too.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| thalweg_dataplane::nat::testing::fuzz_one(input));
