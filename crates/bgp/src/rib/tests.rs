//! Tests of the shard as a whole.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn agrees_with_the_model(recipe in proptest::collection::vec(any::<u8>(), 0..1500)) {
        testing::fuzz_one(&recipe);
    }
}
