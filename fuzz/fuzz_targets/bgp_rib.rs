//! A RIB shard against a simple model: batches, ends of sessions, stale sweeps, other next hops and depths, late
//! readers, in slices of any size. The recipe and the model are beside the RIB's code, where tests use them too.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|recipe: &[u8]| thalweg_bgp::rib::testing::fuzz_one(recipe));
