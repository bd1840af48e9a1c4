//! NAT64 driven by a recipe: packets of both families, any bytes behind their headers, errors about what came out,
//! damaged copies. The recipe and its invariants are beside NAT's code, where tests use them too.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| thalweg_dataplane::nat::fuzz_nat64(input));
