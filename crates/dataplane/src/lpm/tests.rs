//! Compares every structure with the trie, and the trie with a plain search.

use super::workload::{ADDRESSES, Answers, Kind, Routes, Workload, look_up_all};
use super::*;
use flate2::read::MultiGzDecoder;
use ipnet::{Ipv4Net, Ipv6Net};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_base::XorShift64Star;
use thalweg_testdata::Stop;

/// Every look-up path of a shared structure, so that one test covers all kernels.
trait Paths<A: Address>: Lpm<A> {
    fn with(&self, kernel: Kernel, addresses: &[A], next_hops: &mut [NextHopId]);
}

impl Paths<u32> for Fib4 {
    fn with(&self, kernel: Kernel, addresses: &[u32], next_hops: &mut [NextHopId]) {
        self.lookup_batch_with(kernel, addresses, next_hops);
    }
}

impl Paths<u32> for Dir24 {
    fn with(&self, kernel: Kernel, addresses: &[u32], next_hops: &mut [NextHopId]) {
        self.lookup_batch_with(kernel, addresses, next_hops);
    }
}

impl Paths<u128> for Fib6 {
    fn with(&self, kernel: Kernel, addresses: &[u128], next_hops: &mut [NextHopId]) {
        self.lookup_batch_with(kernel, addresses, next_hops);
    }
}

/// Compares all paths with the oracle on these addresses.
fn assert_same<A: Address>(table: &impl Paths<A>, oracle: &BinaryTrie<A>, addresses: &[A]) {
    let expected: Vec<_> = addresses.iter().map(|&address| oracle.lookup(address)).collect();
    for (&address, &expected) in addresses.iter().zip(&expected) {
        assert_eq!(table.lookup(address), expected, "one look-up of {address:x?}");
    }
    let mut found = vec![0; addresses.len()];
    table.lookup_batch(addresses, &mut found);
    assert_batch(addresses, &found, &expected, "the default kernel");
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
        for batch in [256, 64, 37, 1] {
            found.fill(0xffff);
            for (addresses, found) in addresses.chunks(batch).zip(found.chunks_mut(batch)) {
                table.with(kernel, addresses, found);
            }
            assert_batch(addresses, &found, &expected, &format!("{kernel} by {batch}"));
        }
    }
}

fn assert_batch<A: Address>(addresses: &[A], found: &[NextHopId], expected: &[NextHopId], how: &str) {
    for ((address, found), expected) in addresses.iter().zip(found).zip(expected) {
        assert_eq!(found, expected, "{address:x?} with {how}");
    }
}

/// The ends of each prefix, their neighbors outside, and addresses inside and anywhere.
fn probes<A: Workload>(prefixes: impl Iterator<Item = Prefix<A>>) -> Vec<A> {
    let mut rng = XorShift64Star::new(1);
    let mut probes = vec![A::from_u128(0), A::from_u128(u128::MAX)];
    for prefix in prefixes {
        let first = prefix.address().to_u128();
        let host = u128::MAX.checked_shr(128 - u32::from(A::BITS - prefix.length())).unwrap_or(0);
        for number in [first, first | host, first.wrapping_sub(1), (first | host).wrapping_add(1)] {
            probes.push(A::from_u128(number));
        }
        probes.push(A::within(prefix, &mut rng));
        probes.push(A::random(&mut rng));
    }
    probes
}

/// Prefixes that overlap often: a few starting points, any length, a few bits flipped.
fn prefix<A: Address>() -> impl Strategy<Value = Prefix<A>> {
    let starts = [0, u128::MAX, 0x2001_0db8 << 96 | 0xffff, 0x2001_0db8_1234_5678 << 64, 0xc0a8_0100];
    let lengths = prop_oneof![0..=A::BITS, 14..=A::BITS, Just(0), Just(A::BITS), 19..=33_u8];
    (0..starts.len(), any::<u16>(), 0..A::BITS, lengths).prop_map(move |(start, noise, at, length)| {
        let address = A::from_u128(starts[start] ^ u128::from(noise) << at);
        Prefix::new(address, length.min(A::BITS)).unwrap()
    })
}

fn hop() -> impl Strategy<Value = NextHopId> {
    prop_oneof![1..=NEXT_HOP_MAX, 1..4_u16, Just(NEXT_HOP_MAX)]
}

type Steps<A> = Vec<(Prefix<A>, Option<NextHopId>)>;

/// The initial routes, and inserts (`Some`) and withdrawals (`None`) after them.
fn histories<A: Address>() -> impl Strategy<Value = (Vec<(Prefix<A>, NextHopId)>, Steps<A>)> {
    let start = prop::collection::vec((prefix(), hop()), 0..60);
    let steps = prop::collection::vec((prefix(), hop(), any::<prop::sample::Index>(), 0..3_u8), 0..40);
    (start, steps).prop_map(|(start, drawn)| {
        let mut known: Vec<Prefix<A>> = start.iter().map(|&(prefix, _)| prefix).collect();
        let mut steps = Steps::new();
        for (prefix, hop, index, what) in drawn {
            match what {
                0 if !known.is_empty() => steps.push((*index.get(&known), None)),
                1 if !known.is_empty() => steps.push((*index.get(&known), Some(hop))),
                _ => {
                    known.push(prefix);
                    steps.push((prefix, Some(hop)));
                }
            }
        }
        // In the end all are withdrawn, in another order than they came.
        known.sort_by_key(|prefix| prefix.address().to_u128() ^ u128::from(prefix.length()) << 3);
        steps.extend(known.into_iter().map(|prefix| (prefix, None)));
        (start, steps)
    })
}

fn follow<T: Table>(start: &[(Prefix<T::Address>, NextHopId)], steps: &Steps<T::Address>)
where
    T::Shared: Paths<T::Address>,
    T::Address: Workload,
{
    let mut writer = Writer::<T>::from_routes(start.iter().copied()).unwrap();
    let mut known: BTreeMap<_, _> = start.iter().copied().collect();
    let all = start.iter().map(|&(prefix, _)| prefix).chain(steps.iter().map(|&(prefix, _)| prefix));
    let probes = probes(all);
    let table = writer.table().clone();
    assert_same(&*table, writer.routes(), &probes);
    for (at, &(prefix, step)) in steps.iter().enumerate() {
        match step {
            Some(hop) => assert_eq!(writer.insert(prefix, hop).unwrap(), known.insert(prefix, hop)),
            None => assert_eq!(writer.withdraw(prefix).unwrap(), known.remove(&prefix)),
        }
        assert_eq!(writer.routes().len(), known.len());
        // Every path after every step would take minutes.
        if at % 5 == 0 {
            assert_same(&*table, writer.routes(), &probes);
        }
    }
    assert!(writer.routes().is_empty());
    assert_eq!(writer.routes().nodes(), 1, "an empty trie is its root");
    assert!(probes.iter().all(|&address| table.lookup(address) == NO_ROUTE));
}

/// Several changes at once have the result of one after the other.
fn follow_in_batches<T: Table>(start: &[(Prefix<T::Address>, NextHopId)], steps: &Steps<T::Address>)
where
    T::Shared: Paths<T::Address>,
    T::Address: Workload,
{
    let probes =
        probes(start.iter().map(|&(prefix, _)| prefix).chain(steps.iter().map(|&(prefix, _)| prefix)));
    let mut writer = Writer::<T>::from_routes(start.iter().copied()).unwrap();
    let mut known: BTreeMap<_, _> = start.iter().copied().collect();
    let table = writer.table().clone();
    for mut batch in steps.chunks(16).map(<[_]>::to_vec) {
        for (prefix, step) in &batch {
            match step {
                Some(hop) => known.insert(*prefix, *hop),
                None => known.remove(prefix),
            };
        }
        // Of two changes of a prefix the later still counts.
        batch.sort_by_key(|(prefix, _)| (prefix.address().to_u128(), prefix.length()));
        assert_eq!(writer.apply(&batch), 0);
        assert_eq!(writer.routes().len(), known.len());
        assert!(known.iter().all(|(prefix, hop)| writer.routes().get(*prefix) == Some(*hop)));
        assert_same(&*table, writer.routes(), &probes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn fib4_follows_the_routes((start, steps) in histories::<u32>()) {
        follow::<Fib4Table>(&start, &steps);
    }

    #[test]
    fn dir24_follows_the_routes((start, steps) in histories::<u32>()) {
        follow::<Dir24Table>(&start, &steps);
    }

    #[test]
    fn fib6_follows_the_routes((start, steps) in histories::<u128>()) {
        follow::<Fib6Table>(&start, &steps);
    }

    #[test]
    fn fib4_takes_several_changes_at_once((start, steps) in histories::<u32>()) {
        follow_in_batches::<Fib4Table>(&start, &steps);
    }

    #[test]
    fn fib6_takes_several_changes_at_once((start, steps) in histories::<u128>()) {
        follow_in_batches::<Fib6Table>(&start, &steps);
    }

    #[test]
    fn the_trie_finds_what_a_search_finds((start, _) in histories::<u128>()) {
        let known: BTreeMap<_, _> = start.iter().copied().collect();
        let trie = BinaryTrie::from_routes(start.iter().copied()).unwrap();
        for address in probes(known.keys().copied()) {
            let covering = known.iter().filter(|(prefix, _)| prefix.contains(address));
            let longest = covering.max_by_key(|(prefix, _)| prefix.length());
            prop_assert_eq!(trie.lookup(address), longest.map_or(NO_ROUTE, |(_, &hop)| hop));
        }
    }
}

/// Many runs below one /32, and one /48: trees of every height, wide ones too.
#[test]
fn trees_of_all_heights() {
    let mut rng = XorShift64Star::new(7);
    for (count, deep_every) in [(5, 0), (40, 0), (40, 3), (900, 0), (900, 50), (30_000, 0), (30_000, 999)] {
        let mut routes = Vec::new();
        for index in 0..count {
            let block = 0x2001_0db8_u128 << 96 | u128::from(rng.next_u64() >> 48) << 80;
            routes.push((Prefix::new(block, 48).unwrap(), 1 + (index % 1000) as NextHopId));
            if deep_every > 0 && index % deep_every == 0 {
                for _ in 0..20 {
                    let host = Prefix::new(block | u128::from(rng.next_u64()) << 9, 128).unwrap();
                    routes.push((host, 2000 + (index % 1000) as NextHopId));
                }
            }
        }
        let mut writer = Fib6Writer::from_routes(routes.iter().copied()).unwrap();
        let table = writer.table().clone();
        let probes = probes(routes.iter().map(|&(prefix, _)| prefix).take(5000));
        assert_same(&*table, writer.routes(), &probes);
        for &(prefix, _) in routes.iter().rev().step_by(routes.len() / 20 + 1) {
            writer.withdraw(prefix).unwrap();
        }
        assert_same(&*table, writer.routes(), &probes);
    }
}

#[test]
fn refuses_what_it_cannot_keep() {
    let mut writer = Fib4Writer::new().unwrap();
    let net: Ipv4Net = "192.0.2.0/24".parse().unwrap();
    assert_eq!(writer.insert(net, 0), Err(LpmError::NextHopOutOfRange { next_hop: 0 }));
    assert_eq!(writer.insert(net, 0x8000), Err(LpmError::NextHopOutOfRange { next_hop: 0x8000 }));
    assert_eq!(writer.insert(net, NEXT_HOP_MAX), Ok(None));
    assert_eq!(writer.table().lookup(0xc000_02ff), NEXT_HOP_MAX);
    assert_eq!(Prefix::new(0_u32, 33), Err(thalweg_base::LengthOutOfRange { length: 33, max: 32 }));
    let net: Ipv6Net = "2001:db8::1/64".parse().unwrap();
    assert_eq!(Prefix::from(net), Prefix::new(0x2001_0db8_u128 << 96, 64).unwrap());
}

/// A piece is painted once for all its changes: a next hop that cannot be costs the others nothing.
#[test]
fn of_several_changes_only_the_impossible_ones_are_refused() {
    let mut writer = Fib4Writer::new().unwrap();
    let of = |last: u32| Prefix::new(0xc000_0200 + last, 32).unwrap();
    let changes =
        [(of(1), Some(7)), (of(2), Some(0)), (of(3), Some(0x8000)), (of(4), Some(9)), (of(5), None)];
    assert_eq!(writer.apply(&changes), 2);
    let found = [1, 2, 3, 4, 5].map(|last| writer.table().lookup(0xc000_0200 + last));
    assert_eq!(found, [7, NO_ROUTE, NO_ROUTE, 9, NO_ROUTE]);
}

#[test]
fn a_full_table_stays_as_it_was() {
    let mut writer = Dir24Writer::new().unwrap();
    for slot in 0..32_768_u32 {
        writer.insert(Prefix::new(slot << 8, 25).unwrap(), 7).unwrap();
    }
    let more = Prefix::new(0x0100_0000_u32 << 1, 25).unwrap();
    let full = LpmError::Full { part: "/24s with longer prefixes", capacity: 32_768 };
    assert_eq!(writer.insert(more, 8), Err(full));
    assert_eq!(writer.routes().get(more), None);
    assert_eq!(writer.table().lookup(more.address()), NO_ROUTE);
    assert_eq!(writer.table().lookup(32_767 << 8), 7);
    // A withdrawal makes room.
    writer.withdraw(Prefix::new(0_u32, 25).unwrap()).unwrap();
    assert_eq!(writer.insert(more, 8), Ok(None));
    assert_eq!(writer.table().lookup(more.address()), 8);
}

/// Readers look up without pause while routes come and go. Each prefix has a next hop of its own, and
/// some prefixes stay; so an answer must be of a prefix that covers the address and is no shorter than
/// the longest that stays. A torn or reused piece would answer with another's next hop.
fn readers_see_before_or_after<T: Table>(routes: Vec<(Prefix<T::Address>, NextHopId)>, rounds: usize)
where
    T::Address: Workload,
{
    let stays = |index: usize| index.is_multiple_of(3);
    let kept = routes.iter().enumerate().filter(|&(index, _)| stays(index)).map(|(_, &route)| route);
    let mut writer = Writer::<T>::from_routes(kept).unwrap();
    let mut addresses = probes(routes.iter().map(|&(prefix, _)| prefix));
    addresses.truncate(8192);
    let allowed: Vec<Vec<NextHopId>> = addresses
        .iter()
        .map(|&address| {
            let covering = || routes.iter().enumerate().filter(move |(_, (p, _))| p.contains(address));
            let kept = covering().filter(|&(index, _)| stays(index)).max_by_key(|(_, (p, _))| p.length());
            let floor = kept.map_or(0, |(_, (p, _))| p.length());
            let longer = covering().filter(|(_, (p, _))| p.length() > floor).map(|(_, &(_, hop))| hop);
            longer.chain([kept.map_or(NO_ROUTE, |(_, &(_, hop))| hop)]).collect()
        })
        .collect();
    let (done, table) = (AtomicBool::new(false), writer.table().clone());
    std::thread::scope(|scope| {
        for batch in [64, 200] {
            let (addresses, allowed, table, done) = (&addresses, &allowed, &table, &done);
            scope.spawn(move || {
                let _stop = Stop(done);
                let mut found = [0; 256];
                while !done.load(Ordering::Relaxed) {
                    for (addresses, allowed) in addresses.chunks(batch).zip(allowed.chunks(batch)) {
                        table.lookup_batch(addresses, &mut found);
                        for ((address, allowed), found) in addresses.iter().zip(allowed).zip(&found) {
                            assert!(allowed.contains(found), "{address:x?} gave {found}, may be {allowed:?}");
                        }
                    }
                }
            });
        }
        let _stop = Stop(&done);
        let mut rng = XorShift64Star::new(3);
        for _ in 0..rounds {
            let index = rng.below(routes.len() as u32) as usize;
            if stays(index) || done.load(Ordering::Relaxed) {
                continue;
            }
            let (prefix, hop) = routes[index];
            if writer.routes().get(prefix).is_some() {
                writer.withdraw(prefix).unwrap();
            } else {
                writer.insert(prefix, hop).unwrap();
            }
        }
    });
    for &address in &addresses {
        assert_eq!(table.lookup(address), writer.routes().lookup(address));
    }
}

/// Distinct prefixes in a small part of the space, each with its own next hop.
fn crowded<A: Address>(base: u128, lengths: std::ops::RangeInclusive<u32>) -> Vec<(Prefix<A>, NextHopId)> {
    let mut rng = XorShift64Star::new(11);
    let span = *lengths.end() - *lengths.start() + 1;
    let mut known = BTreeMap::new();
    while known.len() < 3000 {
        let length = lengths.start() + rng.below(span);
        let noise = u128::from(rng.next_u64() >> 50) << (u32::from(A::BITS) - lengths.end());
        let prefix = Prefix::new(A::from_u128(base ^ noise), length as u8).unwrap();
        let hop = 1 + known.len() as NextHopId;
        known.entry(prefix).or_insert(hop);
    }
    known.into_iter().collect()
}

#[test]
fn fib4_readers_see_before_or_after() {
    readers_see_before_or_after::<Fib4Table>(crowded(0x0a00_0000, 14..=26), 60_000);
}

#[test]
fn dir24_readers_see_before_or_after() {
    readers_see_before_or_after::<Dir24Table>(crowded(0x0a00_0000, 16..=29), 60_000);
}

#[test]
fn fib6_readers_see_before_or_after() {
    readers_see_before_or_after::<Fib6Table>(crowded(0x2001_0db8 << 96, 34..=46), 15_000);
    readers_see_before_or_after::<Fib6Table>(crowded(0x2001_0db8 << 96, 40..=52), 10_000);
}

/// The full table, if this machine has it.
fn full_table() -> Option<Routes> {
    let path = thalweg_testdata::shared("prefixes/full-table-prefixes.txt.gz")?;
    let file = std::fs::File::open(&path).unwrap();
    let mut text = String::new();
    MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    let routes = Routes::from_text(&text);
    assert_eq!((routes.v4.len(), routes.v6.len(), routes.bad_lines), (901_899, 160_147, 0));
    Some(routes)
}

/// Hits and sums that other programs found for the same addresses, by kind.
const ANSWERS_V4: [(u64, u64); 3] =
    [(2_990_317, 392_270_661), (4_194_304, 534_826_313), (4_194_304, 513_653_646)];
const ANSWERS_V6: [(u64, u64); 3] = [(1_720, 188_271), (4_194_304, 534_722_191), (4_194_304, 493_757_951)];

fn full_table_agrees<T: Table>(routes: &[(Prefix<T::Address>, NextHopId)], known: [(u64, u64); 3])
where
    T::Shared: Paths<T::Address>,
    T::Address: Workload,
{
    let mut writer = Writer::<T>::from_routes(routes.iter().copied()).unwrap();
    let table = writer.table().clone();
    let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
    for (kind, (hits, sum)) in Kind::ALL.into_iter().zip(known) {
        let addresses = T::Address::addresses(kind, &prefixes, ADDRESSES);
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
            let answers = look_up_all(&|a, n: &mut [NextHopId]| table.with(kernel, a, n), &addresses, 64);
            assert_eq!(answers, Answers { hits, sum }, "{kind} with {kernel}");
        }
        assert_same(&*table, writer.routes(), &addresses[..100_000]);
    }
    // The ends of every prefix, and again after some thousands were withdrawn and inserted again.
    let ends = probes(prefixes.iter().copied().step_by(5));
    assert_same(&*table, writer.routes(), &ends);
    for &(prefix, hop) in routes.iter().step_by(97) {
        assert_eq!(writer.withdraw(prefix).unwrap(), Some(hop));
    }
    assert_same(&*table, writer.routes(), &ends);
    for &(prefix, hop) in routes.iter().step_by(97) {
        assert_eq!(writer.insert(prefix, hop).unwrap(), None);
    }
    assert_same(&*table, writer.routes(), &ends);
}

#[test]
fn fib4_agrees_on_the_full_table() {
    if let Some(routes) = full_table() {
        full_table_agrees::<Fib4Table>(&routes.v4, ANSWERS_V4);
    }
}

#[test]
fn dir24_agrees_on_the_full_table() {
    if let Some(routes) = full_table() {
        full_table_agrees::<Dir24Table>(&routes.v4, ANSWERS_V4);
    }
}

#[test]
fn fib6_agrees_on_the_full_table() {
    if let Some(routes) = full_table() {
        full_table_agrees::<Fib6Table>(&routes.v6, ANSWERS_V6);
    }
}

/// Slices of any size, taken one after another, are the routes in order.
#[test]
fn a_trie_is_listed_in_slices() {
    let mut rng = XorShift64Star::new(7);
    let mut routes = BTreeMap::from([((0u128, 0u8), 9)]);
    for _ in 0..500 {
        let length = (rng.below(33)) as u8;
        let prefix = Prefix::new((rng.next_u64() as u32).truncate(length), length).expect("a prefix");
        routes.insert((prefix.address().to_u128(), length), 1 + rng.below(100) as NextHopId);
    }
    let prefix =
        |(address, length): (u128, u8)| Prefix::new(u32::from_u128(address), length).expect("a valid prefix");
    let all: Vec<_> = routes.iter().map(|(key, next_hop)| (prefix(*key), *next_hop)).collect();
    let trie = BinaryTrie::from_routes(all.iter().copied()).expect("it fits");
    for most in [1, 7, 100, 1000] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let slice = trie.after(after, most);
            let Some((last, _)) = slice.last() else { break };
            assert!(slice.len() <= most);
            after = Some(*last);
            found.extend(slice);
        }
        assert_eq!(found, all, "{most} at a time");
    }
}
