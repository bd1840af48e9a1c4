//! Orders the messages of many neighbors: the three ways of the thesis's simulation client and its five traffic
//! mixes.
//!
//! Sabina Grover's thesis ("Using Multicore to Accelerate Network Routing Protocols", 2013, chapter 4) feeds a
//! daemon with the messages of twelve neighbors in the order of a trace, in turns of N messages each, or with one
//! thread for each neighbor; and it varies how many neighbors send *at a time*, from all of them in turns of one
//! ("best" for a scheduling with a thread per neighbor) to one after the other ("worst").
//!
//! An order is a list of [`Run`]s: consecutive messages of one neighbor, sent in one write. It has every message of
//! every stream exactly once, and keeps each neighbor's order.

use super::message::Stream;
use thalweg_base::XorShift64Star;

/// Who may send when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// The order of the file; without a file, an order drawn from the seed.
    FileOrder,
    /// All neighbors in turns of this many messages.
    RoundRobin(usize),
    /// One thread per neighbor, each as fast as it can.
    ThreadPerPeer,
    /// This many neighbors at a time, in turns of one message, until they have sent everything.
    AtATime(usize),
}

thalweg_base::words! {
    /// The traffic mixes of the thesis's table 4.3.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Mix {
        /// All neighbors, one message at a time.
        Best => "best",
        /// All neighbors in a realistic order.
        Mix1 => "mix1",
        /// Four neighbors at a time.
        Mix2 => "4 peers",
        /// Two neighbors at a time.
        Mix3 => "2 peers",
        /// One neighbor at a time.
        Worst => "worst",
    }
}

impl Mix {
    /// The order that makes the mix.
    pub fn way(self) -> Way {
        match self {
            Mix::Best => Way::RoundRobin(1),
            Mix::Mix1 => Way::FileOrder,
            Mix::Mix2 => Way::AtATime(4),
            Mix::Mix3 => Way::AtATime(2),
            Mix::Worst => Way::AtATime(1),
        }
    }
}

/// Consecutive messages of one neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub peer: usize,
    pub messages: usize,
}

/// The arrival order in a file, or the seed that replaces it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The neighbor of each message of the file; empty without a file.
    pub file: &'a [u16],
    /// The seed of the order without a file.
    pub seed: u64,
}

/// Orders the streams' messages. [`Way::ThreadPerPeer`] has no order: one run per neighbor.
pub fn order(streams: &[Stream], way: Way, arrival: Arrival<'_>) -> Vec<Run> {
    let left: Vec<usize> = streams.iter().map(Stream::messages).collect();
    match way {
        Way::ThreadPerPeer => {
            let all = left.iter().enumerate().map(|(peer, messages)| Run { peer, messages: *messages });
            all.filter(|run| run.messages > 0).collect()
        }
        Way::RoundRobin(turn) => turns(left, streams.len().max(1), turn),
        Way::AtATime(peers) => turns(left, peers.max(1), 1),
        Way::FileOrder if arrival.file.is_empty() => drawn(left, arrival.seed),
        Way::FileOrder => recorded(left, arrival.file),
    }
}

/// Blocks of `at_a_time` neighbors take turns of `turn` messages until the block has nothing left.
fn turns(mut left: Vec<usize>, at_a_time: usize, turn: usize) -> Vec<Run> {
    let mut runs = Runs::default();
    for first in (0..left.len()).step_by(at_a_time) {
        let block = first..(first + at_a_time).min(left.len());
        while block.clone().any(|peer| left[peer] > 0) {
            for peer in block.clone() {
                let messages = left[peer].min(turn.max(1));
                left[peer] -= messages;
                runs.push(peer, messages);
            }
        }
    }
    runs.0
}

/// Bursts of one to 16 messages (half of them single) from neighbors drawn in proportion to what they have left.
/// Files of route collectors look like this, because one change of a neighbor takes several UPDATEs.
fn drawn(mut left: Vec<usize>, seed: u64) -> Vec<Run> {
    let mut rng = XorShift64Star::new(seed);
    let mut runs = Runs::default();
    let mut total: usize = left.iter().sum();
    while total > 0 {
        let mut draw = (rng.next_u64() % total as u64) as usize;
        let mut peer = 0;
        while draw >= left[peer] {
            draw -= left[peer];
            peer += 1;
        }
        let burst = if rng.below(2) == 0 { 1 } else { 1 + rng.below(16) as usize };
        let messages = burst.min(left[peer]);
        left[peer] -= messages;
        total -= messages;
        runs.push(peer, messages);
    }
    runs.0
}

fn recorded(mut left: Vec<usize>, file: &[u16]) -> Vec<Run> {
    let mut runs = Runs::default();
    for peer in file.iter().map(|peer| usize::from(*peer)) {
        if let Some(messages @ 1..) = left.get_mut(peer) {
            *messages -= 1;
            runs.push(peer, 1);
        }
    }
    for (peer, messages) in left.into_iter().enumerate() {
        runs.push(peer, messages);
    }
    runs.0
}

/// Merges consecutive runs of one neighbor.
#[derive(Default)]
struct Runs(Vec<Run>);

impl Runs {
    fn push(&mut self, peer: usize, messages: usize) {
        match self.0.last_mut() {
            _ if messages == 0 => {}
            Some(last) if last.peer == peer => last.messages += messages,
            _ => self.0.push(Run { peer, messages }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn streams(messages: &[usize]) -> Vec<Stream> {
        let of = |n: &usize| Stream { ends: (1..=*n).collect(), ..Stream::default() };
        messages.iter().map(of).collect()
    }

    fn runs(messages: &[usize], way: Way, file: &[u16]) -> Vec<(usize, usize)> {
        let runs = order(&streams(messages), way, Arrival { file, seed: 1 });
        runs.into_iter().map(|run| (run.peer, run.messages)).collect()
    }

    #[test]
    fn known_orders() {
        assert_eq!(runs(&[2, 1, 3], Way::RoundRobin(1), &[]), [(0, 1), (1, 1), (2, 1), (0, 1), (2, 2)]);
        assert_eq!(runs(&[5, 2], Way::RoundRobin(2), &[]), [(0, 2), (1, 2), (0, 3)]);
        assert_eq!(runs(&[2, 2, 2], Way::AtATime(2), &[]), [(0, 1), (1, 1), (0, 1), (1, 1), (2, 2)]);
        assert_eq!(runs(&[2, 3], Way::AtATime(1), &[]), [(0, 2), (1, 3)]);
        assert_eq!(runs(&[2, 2], Way::FileOrder, &[1, 0, 0, 1]), [(1, 1), (0, 2), (1, 1)]);
        assert_eq!(runs(&[2, 0, 3], Way::ThreadPerPeer, &[]), [(0, 2), (2, 3)]);
    }

    proptest! {
        #[test]
        fn every_message_is_sent_once(
            messages in prop::collection::vec(0usize..40, 1..20), turn in 0usize..9, at in 0usize..9,
            file in prop::collection::vec(0u16..25, 0..100),
        ) {
            let ways =
                [Way::FileOrder, Way::RoundRobin(turn), Way::ThreadPerPeer, Way::AtATime(at)];
            for way in ways {
                let mut sent = vec![0; messages.len()];
                for (peer, n) in runs(&messages, way, &file) {
                    sent[peer] += n;
                }
                prop_assert_eq!(&sent, &messages);
            }
        }
    }
}
