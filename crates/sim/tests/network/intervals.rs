//! The minimum route advertisement interval (MRAI): what it delays, and what not.

use crate::router;
use crate::world::World;

const PREFIX: &str = "10.0.0.0/24";

/// Router 0 announces the prefix to router 1, which passes it on to router 2.
struct Chain(World);

impl Chain {
    fn new(keys: &str) -> Self {
        let more = format!("mrai_ms = 30000\n{keys}");
        let configs = [
            router(0, 65_001, &[], "", &[(1, 65_002, "")]),
            router(1, 65_002, &[], &more, &[(0, 65_001, ""), (2, 65_003, "")]),
            router(2, 65_003, &[], "", &[(1, 65_002, "")]),
        ];
        let mut world = World::new(1, &configs, &[(0, 1), (1, 2)]);
        world.run_s(60);
        Self(world)
    }

    fn announces(&mut self, yes: bool) {
        let networks = if yes { vec![PREFIX.to_owned()] } else { Vec::new() };
        self.0.reload(0, &router(0, 65_001, &networks, "", &[(1, 65_002, "")]));
    }

    /// Seconds until router 2 has the prefix (`has`), or no longer has it.
    fn seconds_until(&mut self, has: bool) -> u64 {
        let begun_ms = self.0.now_ms();
        while self.0.routes(2).iter().any(|route| route.prefix == PREFIX) != has {
            assert!(self.0.now_ms() - begun_ms < 100_000, "not within 100 s");
            self.0.run_ms(100);
        }
        (self.0.now_ms() - begun_ms).div_ceil(1000)
    }
}

/// The first change after a quiet time is sent at once, and starts the interval for the next one.
#[test]
fn withdrawals_wait_unless_they_need_not() {
    for (keys, withdrawn_s) in [("", 30), ("mrai_withdrawals = true", 30), ("mrai_withdrawals = false", 1)] {
        let mut chain = Chain::new(keys);
        chain.announces(true);
        assert_eq!(chain.seconds_until(true), 1, "{keys}");
        chain.announces(false);
        let is_s = chain.seconds_until(false);
        assert!((withdrawn_s..=withdrawn_s + 1).contains(&is_s), "{keys}: {is_s} s");
    }
}

/// Announcements wait whether or not withdrawals do, and a prefix that was withdrawn early and announced again
/// arrives.
#[test]
fn announcements_wait_behind_an_early_withdrawal() {
    let mut chain = Chain::new("mrai_withdrawals = false");
    chain.announces(true);
    chain.seconds_until(true);
    chain.announces(false);
    chain.seconds_until(false);
    chain.announces(true);
    let is_s = chain.seconds_until(true);
    assert!((25..=31).contains(&is_s), "{is_s} s");
    // Withdrawn before it was sent: no neighbor receives anything.
    chain.announces(false);
    chain.seconds_until(false);
    chain.announces(true);
    chain.0.run_ms(1000);
    chain.announces(false);
    chain.0.run_s(60);
    assert!(chain.0.routes(2).is_empty());
}
