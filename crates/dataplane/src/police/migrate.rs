//! Moves the state of policers to a new configuration, so that a reload gives no one a second burst.

use super::{Marker, Police, Policer, units};

impl Police {
    /// Takes over tokens, counters and time of earlier policers. `places[class]` is the class's former index, if it
    /// existed.
    ///
    /// A bucket keeps its tokens as far as its new depth allows; a new class starts with full buckets.
    pub fn migrate_from(&mut self, old: &Police, places: &[Option<usize>]) {
        self.clock_ns = self.clock_ns.max(old.clock_ns);
        for (policer, place) in self.by_class.iter_mut().zip(places) {
            let before = place.and_then(|place| old.by_class.get(place)?.as_ref());
            if let (Some(policer), Some(before)) = (policer, before) {
                policer.migrate_from(before, self.clock_ns);
            }
        }
    }
}

impl Policer {
    fn migrate_from(&mut self, old: &Policer, now_ns: u64) {
        self.counts = old.counts;
        if old.filled_at_ns.is_none() {
            // It has seen no packet: its buckets are full, and so are the new ones.
            return;
        }
        let mut old = old.clone();
        old.fill(now_ns);
        let (committed_bytes, other_bytes) = match self.config.marker {
            Marker::SingleRate { cbs_bytes, ebs_bytes, .. } => (cbs_bytes, ebs_bytes),
            Marker::TwoRate { cbs_bytes, pbs_bytes, .. } => (cbs_bytes, pbs_bytes),
        };
        self.committed = old.committed.min(units(committed_bytes));
        self.other = old.other.min(units(other_bytes));
        self.filled_at_ns = old.filled_at_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Color, ColorAction, Marker, Police, Policer, PolicerConfig};

    fn config(cbs_bytes: u64) -> PolicerConfig {
        PolicerConfig {
            marker: Marker::SingleRate { cir_bps: 8_000, cbs_bytes, ebs_bytes: 0 },
            color_aware: false,
            yellow: ColorAction::Pass,
            red: ColorAction::Drop,
        }
    }

    fn mark(police: &mut Police, class: usize, now_ns: u64, bytes: u32) -> Color {
        police.clock_ns = now_ns;
        police.by_class[class]
            .as_mut()
            .map(|policer: &mut Policer| policer.mark(now_ns, bytes, Color::Green))
            .unwrap()
    }

    #[test]
    fn a_burst_is_had_once() {
        let mut old = Police::new(&[None, Some(config(1000))]);
        assert_eq!(mark(&mut old, 1, 1_000_000_000, 1000), Color::Green);
        // The class is first now, and its bucket deeper.
        let mut new = Police::new(&[Some(config(5000)), Some(config(5000))]);
        new.migrate_from(&old, &[Some(1), None]);
        assert_eq!(mark(&mut new, 0, 1_000_000_000, 100), Color::Red, "it was empty");
        // A second at a thousand bytes a second.
        assert_eq!(mark(&mut new, 0, 2_000_000_000, 1000), Color::Green);
        assert_eq!(mark(&mut new, 0, 2_000_000_000, 1), Color::Red);
        assert_eq!(mark(&mut new, 1, 2_000_000_000, 5000), Color::Green, "a new class begins full");
        let counts = new.counts()[0].expect("a policer");
        assert_eq!((counts.green, counts.red), (2, 2), "one of the old and one of the new are green");
    }

    #[test]
    fn a_shallower_bucket_holds_less() {
        let mut old = Police::new(&[Some(config(4000))]);
        assert_eq!(mark(&mut old, 0, 5, 1000), Color::Green);
        let mut new = Police::new(&[Some(config(1500))]);
        new.migrate_from(&old, &[Some(0)]);
        assert_eq!(mark(&mut new, 0, 5, 1501), Color::Red);
        assert_eq!(mark(&mut new, 0, 5, 1500), Color::Green);
        // A policer without packets leaves no state.
        let mut third = Police::new(&[Some(config(9000))]);
        third.migrate_from(&Police::new(&[Some(config(10))]), &[Some(0)]);
        assert_eq!(mark(&mut third, 0, 7, 9000), Color::Green);
    }
}
