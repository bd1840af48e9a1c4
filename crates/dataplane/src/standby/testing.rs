//! Copies tables in tests of those who own them.

use super::*;

const TURN_NS: u64 = 20_000_000;

/// Has the second router's tables stand by for those of the first until they have everything, from the time of the first;
/// returns the time then.
///
/// # Panics
/// Panics if they do not have it in time.
pub fn stand_by(tables: [Tables<'_>; 2]) -> u64 {
    let mut now_ns = tables[0].now_ns;
    let mut routers = [1, 2].map(|number| Standby::new(StandbyRun { number, secret: 3 }, now_ns));
    routers[0].set_active(true, now_ns);
    let until_ns = now_ns + 3 * sender::WALK_EVERY_NS;
    while now_ns < until_ns {
        let tables = tables.map(|tables| Tables { now_ns, ..tables });
        for place in 0..2 {
            routers[place].handle_timer(&tables[place]);
            for turn in 0..4 {
                let to = (place + 1 + turn) % 2;
                while let Some(datagram) = routers[1 - to].poll_output() {
                    routers[to].handle(&datagram, &tables[to]);
                }
            }
        }
        now_ns += TURN_NS;
    }
    let tables = tables.map(|tables| Tables { now_ns, ..tables });
    let views = [0, 1].map(|place| routers[place].view(&tables[place]));
    assert_eq!(views.each_ref().map(|view| view.state), [StandbyState::Covered, StandbyState::Ready]);
    assert_eq!(views.map(|view| view.counters.refused), [0; 2]);
    tables.iter().flat_map(Tables::each).for_each(|shards| shards.follow(false));
    now_ns
}
