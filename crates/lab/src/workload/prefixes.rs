//! A generated table of routes, used if there is no real one.
//!
//! The share of each prefix length is that of the Internet's table. IPv4 prefixes are spread evenly over the
//! unicast space, IPv6 prefixes over 640 blocks in it, which stand for registries' customers. A real table is
//! less even: its prefixes nest and cluster. So look-up structures have other sizes than with the same number of
//! real prefixes, and reports say which table was used.

use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use thalweg_base::XorShift64Star;

/// Prefix lengths and their share in thousandths, rounded from public tables of 2024.
const LENGTHS_V4: [(u8, u32); 12] = [
    (24, 600),
    (23, 96),
    (22, 112),
    (21, 52),
    (20, 44),
    (19, 30),
    (18, 18),
    (17, 12),
    (16, 18),
    (15, 6),
    (14, 6),
    (12, 6),
];
const LENGTHS_V6: [(u8, u32); 9] =
    [(48, 480), (32, 120), (44, 100), (40, 90), (36, 60), (46, 50), (47, 40), (42, 30), (29, 30)];

/// Blocks of length /20 that contain the IPv6 prefixes; a full table of 2024 has about as many.
const BLOCKS_V6: u32 = 640;

/// First bytes of addresses that are private or not forwarded (this network, loopback, link-local).
const BYTES_UNUSED: [u8; 4] = [0, 10, 127, 169];
/// The first byte of multicast addresses; no unicast address follows.
const BYTES_END: u32 = 224;

/// `count` different IPv4 prefixes.
pub fn v4(count: usize, seed: u64) -> Vec<Ipv4Net> {
    let mut rng = XorShift64Star::new(seed);
    let mut found = Vec::with_capacity(count);
    let mut known = HashSet::with_capacity(count);
    while found.len() < count {
        let length = draw_length(&LENGTHS_V4, &mut rng);
        let byte = rng.below(BYTES_END) as u8;
        let address = u32::from(byte) << 24 | rng.next_u64() as u32 >> 8;
        let net = Ipv4Net::new(Ipv4Addr::from(address), length).map(|net| net.trunc());
        if let (Ok(net), false) = (net, BYTES_UNUSED.contains(&byte))
            && known.insert(net)
        {
            found.push(net);
        }
    }
    found
}

/// `count` different IPv6 prefixes in `2000::/3`; at most a few million, because blocks fill up.
pub fn v6(count: usize, seed: u64) -> Vec<Ipv6Net> {
    let mut rng = XorShift64Star::new(seed);
    let mut found = Vec::with_capacity(count);
    let mut known = HashSet::with_capacity(count);
    let blocks: Vec<u64> = (0..BLOCKS_V6).map(|_| rng.next_u64() >> 44 & 0x1_ffff | 0x2_0000).collect();
    while found.len() < count {
        let length = draw_length(&LENGTHS_V6, &mut rng);
        let block = blocks[rng.below(BLOCKS_V6) as usize];
        let high = block << 44 | rng.next_u64() >> 20;
        let net = Ipv6Net::new(Ipv6Addr::from(u128::from(high) << 64), length).map(|net| net.trunc());
        if let Ok(net) = net
            && known.insert(net)
        {
            found.push(net);
        }
    }
    found
}

fn draw_length(lengths: &[(u8, u32)], rng: &mut XorShift64Star) -> u8 {
    let mut draw = rng.below(lengths.iter().map(|(_, share)| share).sum());
    for &(length, share) in lengths {
        if draw < share {
            return length;
        }
        draw -= share;
    }
    lengths[0].0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_different_unicast_and_the_same_each_time() {
        let made = v4(5_000, 1);
        assert_eq!(made, v4(5_000, 1));
        assert_ne!(made, v4(5_000, 2));
        assert_eq!(made.iter().collect::<HashSet<_>>().len(), 5_000);
        for net in &made {
            let byte = net.network().octets()[0];
            assert!(byte < 224 && !BYTES_UNUSED.contains(&byte), "{net}");
            assert_eq!(*net, net.trunc());
        }
        let longest = made.iter().filter(|net| net.prefix_len() == 24).count();
        assert!((2_800..3_200).contains(&longest), "{longest} of 5,000 should be about three in five");
        let made = v6(2_000, 1);
        assert_eq!(made.iter().collect::<HashSet<_>>().len(), 2_000);
        let global: Ipv6Net = "2000::/3".parse().unwrap();
        assert!(made.iter().all(|net| global.contains(net)));
    }
}
