//! The inbox at its bound.

use super::*;

fn changes(shard: usize, count: usize) -> SharedChanges {
    let change = |n| Change {
        prefix: Prefix::new((n as u32) << 8, 24).expect("24 is a valid prefix length"),
        old: None,
        new: None,
        further: None,
    };
    Arc::new(Changes { shard, v4: (0..count).map(change).collect(), ..Changes::default() })
}

fn shard_of_task(task: Task) -> Option<(usize, bool)> {
    match task {
        Task::Changes(changes) => Some((changes.first()?.shard, false)),
        Task::Rescan(shard) => Some((shard, true)),
        Task::Idle | Task::Closed | Task::Ground => None,
    }
}

#[test]
fn a_full_inbox_drops_marks_and_asks_for_a_rescan_after_what_was_queued() {
    let inbox = Inbox::new(10);
    inbox.push(&changes(3, 6));
    inbox.push(&changes(5, 4));
    // Full: both shards lose changes. Shard 7 has nothing queued.
    inbox.push(&changes(3, 1));
    inbox.push(&changes(7, 2));
    let counters = inbox.counters();
    assert_eq!((counters.waiting, counters.dropped), (10, 3));
    let next = || shard_of_task(inbox.next(Duration::ZERO));
    assert_eq!(next(), Some((7, true)));
    // Those of shard 5 come with it.
    assert_eq!(next(), Some((3, false)));
    // The mark stays until the rescan is handed out; changes before that are part of it.
    assert_eq!(next(), Some((3, true)));
    inbox.push(&changes(3, 1));
    assert_eq!(next(), Some((3, false)));
    assert_eq!(next(), None);
    let counters = inbox.counters();
    assert_eq!((counters.waiting, counters.dropped, counters.rescans), (0, 3, 2));
}

#[test]
fn while_a_shard_is_marked_its_changes_are_dropped() {
    let inbox = Inbox::new(4);
    inbox.push(&changes(1, 4));
    inbox.push(&changes(1, 1));
    assert_eq!(shard_of_task(inbox.next(Duration::ZERO)), Some((1, false)));
    // There is room again, but the order would be wrong.
    inbox.push(&changes(1, 1));
    assert_eq!(inbox.counters().dropped, 2);
    assert_eq!(shard_of_task(inbox.next(Duration::ZERO)), Some((1, true)));
    assert_eq!(shard_of_task(inbox.next(Duration::ZERO)), None);
}

#[test]
fn what_waits_comes_together_up_to_a_bound() {
    let inbox = Inbox::default();
    let counts = [1, 2, BATCH_CHANGES_MAX - 3, 1, BATCH_CHANGES_MAX + 1, 4];
    for (shard, count) in counts.into_iter().enumerate() {
        inbox.push(&changes(shard, count));
    }
    let mut batches = Vec::new();
    while let Task::Changes(batch) = inbox.next(Duration::ZERO) {
        batches.push(batch.iter().map(|each| each.shard).collect::<Vec<_>>());
    }
    assert_eq!(batches, [vec![0, 1, 2], vec![3], vec![4], vec![5]]);
    assert_eq!(inbox.counters().waiting, 0);
}

#[test]
fn a_closed_inbox_ends_its_thread() {
    let inbox = Arc::new(Inbox::default());
    let waiting = inbox.clone();
    let thread = std::thread::spawn(move || matches!(waiting.next(Duration::from_secs(60)), Task::Closed));
    inbox.close();
    assert!(thread.join().expect("the thread does not panic"));
}
