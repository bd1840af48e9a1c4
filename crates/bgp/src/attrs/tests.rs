//! Attribute sets: built in any order they have equal bytes, and one copy of each is kept.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::prelude::*;
use thalweg_wire::bgp::{Origin, attribute, community};

use super::*;

const BOTH: u8 = attribute::FLAG_OPTIONAL | attribute::FLAG_TRANSITIVE;

/// A change to a set under construction.
#[derive(Clone, Debug)]
enum Edit {
    Set { flags: u8, code: u8, value: Vec<u8> },
    Remove { code: u8 },
}

fn edit() -> impl Strategy<Value = Edit> {
    let code = prop_oneof![Just(2u8), 6u8..12, Just(16), Just(32), 200u8..=255];
    let value = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20),
        proptest::collection::vec(any::<u8>(), 250..300),
    ];
    prop_oneof![
        4 => (any::<u8>(), code.clone(), value).prop_map(|(flags, code, value)| Edit::Set { flags, code, value }),
        1 => code.prop_map(|code| Edit::Remove { code }),
    ]
}

proptest! {
    /// For edits in any order, the result has the remaining attributes, ascending, in canonical form.
    #[test]
    fn sets_are_canonical(edits in proptest::collection::vec(edit(), 0..30)) {
        let mut builder = AttrsBuilder::default();
        let mut model: BTreeMap<u8, (u8, Vec<u8>)> = BTreeMap::new();
        for edit in edits {
            match edit {
                Edit::Set { flags, code, value } => {
                    builder.set(flags, code, &value).unwrap();
                    model.insert(code, (flags & !attribute::FLAG_EXTENDED, value));
                }
                Edit::Remove { code } => {
                    builder.remove(code);
                    model.remove(&code);
                }
            }
        }
        let interner = Interner::new(1);
        let attrs = interner.intern(&mut builder);
        let list: Vec<_> = attrs.attributes().map(|each| {
            let extended = each.flags & attribute::FLAG_EXTENDED != 0;
            assert_eq!(extended, each.value.len() > 255);
            (each.code, (each.flags & !attribute::FLAG_EXTENDED, each.value.to_vec()))
        }).collect();
        prop_assert_eq!(&list, &model.clone().into_iter().collect::<Vec<_>>());
        // The reverse order gives the same set.
        let mut other = AttrsBuilder::default();
        for (code, (flags, value)) in model.iter().rev() {
            other.set(*flags, *code, value).unwrap();
        }
        prop_assert_eq!(interner.intern(&mut other).id(), attrs.id());
        // So does a builder loaded with the set itself.
        other.load(&attrs);
        prop_assert_eq!(interner.intern(&mut other).id(), attrs.id());
        prop_assert_eq!(interner.counters().sets, 1);
    }

    #[test]
    fn paths_grow_at_the_front(asns in proptest::collection::vec((any::<u32>(), 1usize..300, any::<bool>()), 0..6)) {
        let mut builder = AttrsBuilder::default();
        let mut model = Vec::new();
        for (asn, count, confederation) in asns {
            let kind = if confederation { SegmentKind::ConfederationSequence } else { SegmentKind::Sequence };
            builder.prepend(asn, count, kind).unwrap();
            model.splice(0..0, std::iter::repeat_n((asn, kind), count));
        }
        let attrs = Interner::new(1).intern(&mut builder);
        let path: Vec<_> =
            attrs.as_path().segments().flat_map(|part| part.asns().map(move |asn| (asn, part.kind))).collect();
        prop_assert_eq!(&path, &model);
        let is_inside = |(_, kind): &(u32, SegmentKind)| kind.is_confederation();
        prop_assert_eq!(attrs.has(flag::CONFEDERATION), model.iter().any(is_inside));
        let outside: Vec<_> = model.iter().filter(|(_, kind)| *kind == SegmentKind::Sequence).collect();
        prop_assert_eq!(usize::from(attrs.path_length), outside.len());
        prop_assert_eq!(attrs.neighbor_as, outside.first().map_or(0, |(asn, _)| *asn));
        prop_assert_eq!(attrs.origin_as, outside.last().map_or(0, |(asn, _)| *asn));
    }
}

#[test]
fn fields_say_what_the_bytes_say() {
    let mut builder = AttrsBuilder::default();
    builder.origin = Origin::Egp;
    builder.next_hop = NextHop::V6 {
        global: Ipv6Addr::from(0x2001_0db8 << 96 | 1),
        link_local: Some(Ipv6Addr::from(0xfe80 << 112 | 1)),
    };
    builder.med = Some(0);
    builder.weight = 3;
    // 64496 {64497 64498}: the set counts one and names no origin.
    let path = [2, 1, 0, 0, 251, 240, 1, 2, 0, 0, 251, 241, 0, 0, 251, 242];
    builder.set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &path).unwrap();
    builder.set_communities(&[1, community::NO_EXPORT, community::BLACKHOLE]).unwrap();
    builder.set_large_communities(&[[1, 2, 3]]).unwrap();
    builder.set_extended_communities(&[0x0002_fde8_0000_0001]).unwrap();
    builder.set(attribute::FLAG_OPTIONAL, attribute::ORIGINATOR_ID, &[10, 0, 0, 1]).unwrap();
    builder.set(attribute::FLAG_OPTIONAL, attribute::CLUSTER_LIST, &[10, 0, 0, 2, 10, 0, 0, 3]).unwrap();
    builder.set(BOTH, attribute::ONLY_TO_CUSTOMER, &[0, 0, 251, 240]).unwrap();
    let attrs = Interner::new(1).intern(&mut builder);
    assert_eq!((attrs.med(), attrs.local_pref()), (Some(0), None));
    assert_eq!((attrs.head.local_pref, attrs.weight, attrs.origin), (LOCAL_PREF_DEFAULT, 3, Origin::Egp));
    assert_eq!((attrs.path_length, attrs.neighbor_as, attrs.origin_as), (2, 64496, 0));
    assert!(
        attrs.has(flag::NO_EXPORT | flag::BLACKHOLE | flag::AS_SET | flag::REFLECTED | flag::NON_TRANSITIVE)
    );
    assert!(
        !attrs.has(flag::NO_ADVERTISE) && !attrs.has(flag::CONFEDERATION) && !attrs.has(flag::LOCAL_PREF)
    );
    assert_eq!(attrs.next_hop(), builder.next_hop);
    assert_eq!(attrs.next_hop().address(), "2001:db8::1".parse::<IpAddr>().unwrap());
    assert_eq!(attrs.communities().collect::<Vec<_>>(), [1, community::NO_EXPORT, community::BLACKHOLE]);
    assert_eq!(attrs.large_communities().collect::<Vec<_>>(), [[1, 2, 3]]);
    assert_eq!(attrs.extended_communities().collect::<Vec<_>>(), [0x0002_fde8_0000_0001]);
    assert_eq!(attrs.originator_id(), Some(Ipv4Addr::new(10, 0, 0, 1)));
    assert_eq!(attrs.cluster_list().count(), 2);
    assert_eq!(attrs.only_to_customer(), Some(64496));
    assert_eq!(attrs.as_path().to_string(), "64496 {64497,64498}");
    assert!(attrs.path_contains(64498) && !attrs.path_contains(64499));
}

#[test]
fn every_field_tells_sets_apart() {
    let interner = Interner::new(1);
    let edits: [fn(&mut AttrsBuilder); 8] = [
        |_| {},
        |builder| builder.origin = Origin::Incomplete,
        |builder| builder.med = Some(0),
        |builder| builder.med = Some(1),
        |builder| builder.local_pref = Some(LOCAL_PREF_DEFAULT),
        |builder| builder.weight = 1,
        |builder| builder.next_hop = NextHop::V4(Ipv4Addr::LOCALHOST),
        |builder| builder.set_communities(&[7]).unwrap(),
    ];
    let mut builder = AttrsBuilder::default();
    let mut build = |edit: fn(&mut AttrsBuilder)| {
        builder.clear();
        edit(&mut builder);
        interner.intern(&mut builder)
    };
    let sets: Vec<_> = edits.iter().map(|edit| build(*edit)).collect();
    let again: Vec<_> = edits.iter().map(|edit| build(*edit)).collect();
    assert_eq!(sets, again);
    let ids: std::collections::BTreeSet<_> = sets.iter().map(AttrRef::id).collect();
    assert_eq!((ids.len(), interner.counters().sets), (8, 8));
}

#[test]
fn too_long_is_refused() {
    let mut builder = AttrsBuilder::default();
    let refused = builder.set(BOTH, 99, &vec![0; 65_536]);
    assert_eq!(refused, Err(AttrsError::TooLong { code: 99, length: 65_536 }));
    builder.set(BOTH, 99, &vec![0; 65_535]).unwrap();
    assert_eq!(builder.get(99).map(<[u8]>::len), Some(65_535));
}

fn numbered(builder: &mut AttrsBuilder, interner: &Interner, number: u32) -> AttrRef {
    builder.clear();
    builder.med = Some(number);
    interner.intern(builder)
}

#[test]
fn garbage_goes() {
    let interner = Interner::new(1);
    let mut builder = AttrsBuilder::default();
    let held: Vec<_> = (0..1000).map(|number| numbered(&mut builder, &interner, number)).collect();
    // A hundred thousand sets without owners: memory never exceeds twice the sets in use, plus the minimum.
    for number in 1000..100_000 {
        numbered(&mut builder, &interner, number);
        assert!(interner.counters().sets < 2 * 1000 + 64 * 66 || number % 1000 != 0);
    }
    let before = interner.counters();
    interner.sweep();
    let after = interner.counters();
    assert_eq!(after.sets, 1000);
    assert!(after.bytes < before.bytes);
    assert_eq!(numbered(&mut builder, &interner, 5), held[5]);
    drop(held);
    interner.sweep();
    assert_eq!(interner.counters().sets, 0);
}

#[test]
fn one_copy_from_four_threads() {
    let interner = Arc::new(Interner::new(1));
    let work = |start: u32| {
        let interner = Arc::clone(&interner);
        std::thread::spawn(move || {
            let mut builder = AttrsBuilder::default();
            let order = (0..5000).map(|step| (start + step * 7) % 5000);
            let mut sets: Vec<_> =
                order.map(|number| (number, numbered(&mut builder, &interner, number))).collect();
            sets.sort_by_key(|(number, _)| *number);
            sets
        })
    };
    let threads: Vec<_> = [0, 1234, 2500, 4999].map(work).into();
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(results.iter().all(|sets| *sets == results[0]));
    assert_eq!(interner.counters().sets, 5000);
}
