//! Ports for a program that is to listen.

use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

/// Ports to try for a program that is started next, all different in this process; other processes begin elsewhere.
///
/// They are outside the range that the system assigns from: an assigned port is free again until the program binds it,
/// and any connection may take it meanwhile.
pub fn free_port_candidates() -> impl Iterator<Item = u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97);
    (0..COUNT).filter_map(move |_| {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % u32::from(COUNT);
        u16::try_from(number).ok().map(|number| FIRST + number)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn none_comes_twice_and_none_is_assigned_by_default() {
        let ports: Vec<u16> =
            free_port_candidates().take(100).chain(free_port_candidates().take(100)).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 200);
        assert!(ports.iter().all(|port| (10_000..30_000).contains(port)), "{ports:?}");
    }
}
