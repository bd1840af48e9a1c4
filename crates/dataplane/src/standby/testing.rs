//! Copies tables in tests of those who own them.

use super::*;

const TURN_NS: u64 = 20_000_000;

/// Has one table stand by for another until it has everything; returns the time then.
pub(crate) fn stand_by(table: Table, shards: [&dyn Shards; 2], mut now_ns: u64) -> u64 {
    let mut routers = [1, 2].map(|number| Standby::new(StandbyRun { number, secret: 3 }, now_ns));
    routers[0].set_active(true, now_ns);
    let until_ns = now_ns + 3 * sender::WALK_EVERY_NS;
    while now_ns < until_ns {
        for place in 0..2 {
            let tables = |place: usize| {
                let of = |one: Table| (one == table).then_some(shards[place]);
                Tables { sessions: of(Table::Sessions), states: of(Table::States), now_ns }
            };
            routers[place].handle_timer(&tables(place));
            for turn in 0..4 {
                let to = (place + 1 + turn) % 2;
                while let Some(datagram) = routers[1 - to].poll_output() {
                    routers[to].handle(&datagram, &tables(to));
                }
            }
        }
        now_ns += TURN_NS;
    }
    let tables = Tables { sessions: None, states: None, now_ns };
    assert_eq!(
        routers.map(|router| router.view(&tables).state),
        [StandbyState::Covered, StandbyState::Ready]
    );
    shards.iter().for_each(|shards| shards.follow(false));
    now_ns
}
