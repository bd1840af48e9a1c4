//! Sequence numbers of one session: what got lost, what came late, where the exporter began anew.
//!
//! Every message says how many units went before it: flows (NetFlow 5), messages (NetFlow 9) or data records (IPFIX), modulo
//! 2^32. `next` is what the next message has to say.
//!
//! ```text
//!                 says next ............................ in order
//!                 says more ............................ gap, remembered
//!  message ---->  says less, made no later than others:  in a gap: late, which fills it; else repeated
//!                 says less, made later ................ restart
//!                 next unknown ......................... unchecked
//! ```
//!
//! A message that was overtaken was also made earlier, so an export time later than all before it tells a restart from
//! reordering; a jump beyond what can be a gap or reordering is a restart too.

use std::collections::VecDeque;

/// Jumps ahead of more units are no gap any more.
const GAP_MAX: u32 = 1 << 24;

/// Units by which a message can be late.
const LATE_MAX: u32 = 1 << 16;

/// How far uptime and time of day may drift apart between two messages.
const CLOCK_SLACK_MS: u32 = 60_000;

/// Gaps remembered of a session, in case what is missing comes late.
const GAPS_MAX: usize = 16;

/// How a message's number goes with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing is known to compare it with: the session's first message, or one behind sets that could not be counted.
    Unchecked,
    /// What was expected.
    InOrder,
    /// So many units before it did not come.
    Gap(u32),
    /// It was counted as missing, and here it is.
    Late,
    /// Its number had been taken.
    Repeated,
    /// The exporter counts anew.
    Restart,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u32,
    units: u32,
}

/// What is known of a session's numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    next: Option<u32>,
    newest_export_ns: u64,
    newest_uptime_ms: Option<u32>,
    gaps: VecDeque<Gap>,
}

impl Sequence {
    /// Looks at a message's number before its content is read.
    pub(super) fn observe(&self, number: u32, export_ns: u64) -> Order {
        let Some(next) = self.next else { return Order::Unchecked };
        let ahead = number.wrapping_sub(next);
        if ahead == 0 {
            return Order::InOrder;
        }
        if ahead <= GAP_MAX {
            return Order::Gap(ahead);
        }
        if export_ns > self.newest_export_ns || next.wrapping_sub(number) > LATE_MAX {
            return Order::Restart;
        }
        if self.gap_of(number).is_some() { Order::Late } else { Order::Repeated }
    }

    /// Whether the exporter's own clock began anew, which NetFlow 5 and 9 say in each message: it fell, and not because its 32
    /// bits wrapped.
    pub(super) fn is_reboot(&self, export_ns: u64, uptime_ms: Option<u32>) -> bool {
        let (Some(newest_ms), Some(uptime_ms)) = (self.newest_uptime_ms, uptime_ms) else { return false };
        if uptime_ms >= newest_ms || export_ns <= self.newest_export_ns {
            return false;
        }
        let elapsed_ms = (export_ns - self.newest_export_ns) / 1_000_000;
        // Truncated on purpose: it is compared modulo 2^32.
        let expected_ms = newest_ms.wrapping_add(elapsed_ms as u32);
        uptime_ms.wrapping_sub(expected_ms).cast_signed().unsigned_abs() > CLOCK_SLACK_MS
    }

    fn gap_of(&self, number: u32) -> Option<usize> {
        self.gaps.iter().position(|gap| number.wrapping_sub(gap.first) < gap.units)
    }

    /// Takes the message in, once it is known how many units it has (`None`: not to be known). Returns how many missing units
    /// it brought.
    pub(super) fn advance(
        &mut self,
        order: Order,
        number: u32,
        units: Option<u32>,
        export_ns: u64,
        uptime_ms: Option<u32>,
    ) -> u32 {
        match order {
            Order::Late => return self.fill(number, units.unwrap_or(0)),
            Order::Repeated => return 0,
            Order::Gap(missing) => {
                if self.gaps.len() == GAPS_MAX {
                    self.gaps.pop_front();
                }
                self.gaps.push_back(Gap { first: number.wrapping_sub(missing), units: missing });
            }
            Order::Restart => self.gaps.clear(),
            Order::Unchecked | Order::InOrder => {}
        }
        self.next = units.map(|units| number.wrapping_add(units));
        if order == Order::Restart || export_ns >= self.newest_export_ns {
            self.newest_export_ns = export_ns;
            self.newest_uptime_ms = uptime_ms;
        }
        0
    }

    /// Takes units out of the gap they were missing from, which may leave two.
    fn fill(&mut self, number: u32, units: u32) -> u32 {
        let Some(gap) = self.gap_of(number).and_then(|place| self.gaps.remove(place)) else { return 0 };
        let before = number.wrapping_sub(gap.first);
        let filled = units.min(gap.units - before);
        let after = gap.units - before - filled;
        for rest in [
            Gap { first: gap.first, units: before },
            Gap { first: number.wrapping_add(filled), units: after },
        ] {
            if rest.units != 0 && self.gaps.len() < GAPS_MAX {
                self.gaps.push_back(rest);
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds messages of (number, units, second) and says what became of each, and how much is missing in the end.
    fn fed(messages: &[(u32, u32, u64)]) -> (Vec<Order>, i64) {
        let mut sequence = Sequence::default();
        let mut missing = 0;
        let mut orders = Vec::new();
        for &(number, units, second) in messages {
            let order = sequence.observe(number, second);
            if let Order::Gap(units) = order {
                missing += i64::from(units);
            }
            missing -= i64::from(sequence.advance(order, number, Some(units), second, None));
            orders.push(order);
        }
        (orders, missing)
    }

    #[test]
    fn in_order_across_the_wrap() {
        let (orders, missing) = fed(&[(u32::MAX - 4, 5, 1), (0, 3, 1), (3, 1, 2)]);
        assert_eq!(orders, [Order::Unchecked, Order::InOrder, Order::InOrder]);
        assert_eq!(missing, 0);
    }

    #[test]
    fn a_gap_that_is_filled_late_piece_by_piece() {
        let (orders, missing) =
            fed(&[(0, 10, 1), (40, 10, 1), (20, 10, 1), (10, 10, 1), (10, 10, 1), (50, 1, 2)]);
        use Order::*;
        assert_eq!(orders, [Unchecked, Gap(30), Late, Late, Repeated, InOrder]);
        assert_eq!(missing, 10);
    }

    #[test]
    fn a_gap_across_the_wrap_is_filled() {
        let (orders, missing) = fed(&[(u32::MAX - 1, 1, 1), (9, 1, 1), (u32::MAX, 10, 1), (10, 1, 1)]);
        use Order::*;
        assert_eq!(orders, [Unchecked, Gap(10), Late, InOrder]);
        assert_eq!(missing, 0);
    }

    #[test]
    fn restarts_are_made_later_or_far_off() {
        let (orders, missing) =
            fed(&[(1000, 5, 10), (0, 5, 12), (5, 5, 12), (100_000_000, 1, 12), (100_000_001, 1, 12)]);
        use Order::*;
        assert_eq!(orders, [Unchecked, Restart, InOrder, Restart, InOrder]);
        assert_eq!(missing, 0);
    }

    #[test]
    fn no_more_gaps_than_are_remembered() {
        let mut messages: Vec<(u32, u32, u64)> = (0..40).map(|number| (number * 10, 1, 1)).collect();
        messages.push((1, 1, 1)); // of a gap forgotten long ago
        messages.push((385, 1, 1));
        let (orders, missing) = fed(&messages);
        assert_eq!(&orders[40..], [Order::Repeated, Order::Late]);
        assert_eq!(missing, 39 * 9 - 1);
    }

    #[test]
    fn an_uptime_that_falls_is_a_reboot() {
        let second = 1_000_000_000;
        let mut sequence = Sequence::default();
        sequence.advance(Order::Unchecked, 7, Some(1), 100 * second, Some(500_000));
        assert!(sequence.is_reboot(101 * second, Some(30)));
        assert!(!sequence.is_reboot(99 * second, Some(30)), "overtaken, not begun anew");
        assert!(!sequence.is_reboot(101 * second, Some(501_000)));
        assert!(!sequence.is_reboot(101 * second, None));
        sequence.advance(Order::InOrder, 8, Some(1), 102 * second, Some(u32::MAX - 500));
        assert!(!sequence.is_reboot(103 * second, Some(500)), "49.7 days are over");
        assert!(sequence.is_reboot(103 * second, Some(100_000)));
    }
}
