//! Tracks the sequence numbers of one session: losses, late messages, restarts.
//!
//! Every message says how many units preceded it: flows (NetFlow 5), messages (NetFlow 9) or data records
//! (IPFIX), modulo 2^32. `next` is the number that the next message should have.
//!
//! ```text
//!                 number = next ............................... in order
//!                 number > next ............................... gap, stored
//!  message ---->  number < next, not exported later than others: in a gap: late, fills it; otherwise repeated
//!                 number < next, exported later ............... restart
//!                 next unknown ................................ unchecked
//! ```
//!
//! A message that was overtaken was also exported earlier. So an export time later than all before it
//! distinguishes a restart from reordering. A jump that is too large for a gap or for reordering is also a
//! restart.

use std::collections::VecDeque;

/// Larger jumps ahead are not gaps.
const GAP_MAX: u32 = 1 << 24;

/// The most units by which a message can be late.
const LATE_MAX: u32 = 1 << 16;

/// How far uptime and time of day may drift apart between two messages.
const CLOCK_SLACK_MS: u32 = 60_000;
/// Nobody has run for longer than since it was last heard, but clocks are set after a boot.
const BOOT_SLACK_MS: u64 = 600_000;

/// The most gaps stored per session, in case the missing messages arrive late.
const GAPS_MAX: usize = 16;

/// How a message's number relates to earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// There is nothing to compare with: this is the session's first message, or it follows sets that could
    /// not be counted.
    Unchecked,
    /// The expected number.
    InOrder,
    /// This many units before it are missing.
    Gap(u32),
    /// It was counted as missing and has now arrived.
    Late,
    /// Its number was used before.
    Repeated,
    /// The exporter restarted its count.
    Restart,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u32,
    units: u32,
}

/// The state of a session's sequence numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    next: Option<u32>,
    newest_export_ns: u64,
    newest_uptime_ms: Option<u32>,
    gaps: VecDeque<Gap>,
}

impl Sequence {
    /// Classifies a message's number before its content is decoded.
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

    /// Whether the exporter rebooted: the uptime, which NetFlow 5 and 9 send in each message, decreased, not
    /// because its 32 bits wrapped, and to what it can be after a boot. (Huawei's falls by minutes and continues.)
    pub(super) fn is_reboot(&self, export_ns: u64, uptime_ms: Option<u32>) -> bool {
        let (Some(newest_ms), Some(uptime_ms)) = (self.newest_uptime_ms, uptime_ms) else { return false };
        if uptime_ms >= newest_ms || export_ns <= self.newest_export_ns {
            return false;
        }
        let elapsed_ms = (export_ns - self.newest_export_ns) / 1_000_000;
        if u64::from(uptime_ms) > elapsed_ms + BOOT_SLACK_MS {
            return false;
        }
        // Truncated on purpose: the comparison is modulo 2^32.
        let expected_ms = newest_ms.wrapping_add(elapsed_ms as u32);
        uptime_ms.wrapping_sub(expected_ms).cast_signed().unsigned_abs() > CLOCK_SLACK_MS
    }

    fn gap_of(&self, number: u32) -> Option<usize> {
        self.gaps.iter().position(|gap| number.wrapping_sub(gap.first) < gap.units)
    }

    /// Accounts for the message once its number of units is known (`None` if it cannot be). Returns how many
    /// missing units it delivered.
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

    /// Removes units from their gap, which may split it in two.
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
        assert!(!sequence.is_reboot(103 * second, Some(700_000)), "nobody runs for that long in a second");
    }
}
