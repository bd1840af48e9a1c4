//! Update groups, their members and dumps against the definition of export: changes of real shards, readers of
//! any speed, members that join, leave, request a refresh or move, views that are replaced. The recipe and the
//! model are beside the groups' code, where tests use them too.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|recipe: &[u8]| thalweg_bgp::export::testing::fuzz_one(recipe));
