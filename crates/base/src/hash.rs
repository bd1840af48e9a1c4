//! Hashes that assign flows to shards. They depend only on the packet, never on the number of cores, and both
//! directions of an untranslated flow get the same value.

/// Scrambles 64 bits so that every input bit reaches every output bit (the finalizer of MurmurHash3,
/// A. Appleby, public domain constants).
#[inline(always)]
pub fn mix64(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// A hash of two endpoints that ignores their order. The caller folds each endpoint (address and port) to 64
/// bits; `protocol` keeps TCP and UDP apart.
#[inline(always)]
pub fn symmetric_flow_hash(endpoint_a: u64, endpoint_b: u64, protocol: u8) -> u32 {
    // Both the sum and the XOR are symmetric; together they lose less information than either alone.
    let sum = endpoint_a.wrapping_add(endpoint_b);
    let xor = endpoint_a ^ endpoint_b;
    (mix64(sum.wrapping_add(xor.rotate_left(23)).wrapping_add(u64::from(protocol))) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn direction_does_not_matter(a: u64, b: u64, protocol: u8) {
            prop_assert_eq!(symmetric_flow_hash(a, b, protocol), symmetric_flow_hash(b, a, protocol));
        }
    }

    #[test]
    fn neighboring_flows_spread_over_shards() {
        // 64 shards, 64k flows from one host: no shard may be off by more than a quarter.
        let mut load = [0u32; 64];
        for port in 0..65_536u64 {
            let a = (0x0a00_0001 << 16) | port;
            let b = (0x5db8_d822 << 16) | 443;
            load[symmetric_flow_hash(a, b, 6) as usize % 64] += 1;
        }
        assert!(load.iter().all(|&n| (768..1280).contains(&n)), "{load:?}");
    }
}
