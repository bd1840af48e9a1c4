//! Two routers.
use crate::world::{World, address};
use crate::{check_counts, flaps, networks, router, with_seeds};

fn pair(networks_of_first: usize, networks_of_second: usize) -> [String; 2] {
    [
        router(0, 65_001, &networks(0, networks_of_first), "", &[(1, 65_002, "")]),
        router(1, 65_002, &networks(1, networks_of_second), "", &[(0, 65_001, "")]),
    ]
}

#[test]
fn two_routers_tell_each_other_what_they_have() {
    with_seeds(5, |seed| {
        let mut world = World::new(seed, &pair(50, 3), &[(0, 1)]);
        world.run_s(10);
        assert!(world.is_established(0, 1) && world.is_established(1, 0));
        let theirs: Vec<_> = world.routes(1).into_iter().filter(|route| route.neighbor != "local").collect();
        assert_eq!(theirs.len(), 50);
        for route in &theirs {
            assert_eq!((route.as_path.as_str(), route.best), ("65001", true));
            assert_eq!(route.next_hop, address(0).to_string());
        }
        assert_eq!(world.routes(0).len(), 53);
        world.run_s(60);
        assert_eq!(flaps(&world, 0), [0]);
        (0..2).for_each(|node| check_counts(&world, node));
    });
}
