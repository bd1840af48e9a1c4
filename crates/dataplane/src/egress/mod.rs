//! The queues of one egress port: which packet leaves next, which waits, and which flow is told to slow down.
//!
//! ```text
//!              +--> class "voice"      [bucket] --+ level 0 --+
//!              |                                  |           |   strict share
//!   enqueue ---+--> class "signaling"  [bucket] --+ level 1 --+--------+
//!   by class   |                                                       +-- [port's bucket] --> dequeue
//!   (limits)   +--> class "work"   [bucket, CoDel] --+ weight 4 -------+
//!              |                                     |     deficit round robin
//!              +--> class "default" [bucket, CoDel] -+ weight 1
//! ```
//!
//! [`EgressQueue`] belongs to one thread, has no clock and does nothing by itself: packets are put in, and
//! [`dequeue`](EgressQueue::dequeue) returns the next one that may leave, or the time at which one may. A port
//! without a rate never delays packets; its queues fill only while the port itself accepts nothing.
//!
//! - **Priority.** Strict levels come first, then the weighted classes. Classes of one level, and weighted ones by
//!   weight, take turns in bytes: deficit round robin (Shreedhar and Varghese, 1995), exact to the byte over time
//!   whatever the weights. A turn is long enough for the largest packet seen, so each visit serves a packet.
//! - **Urgent packets.** What the router itself sends to stay in the network (routing protocols, ARP) goes before
//!   all classes, at most [`URGENT_MAX`] packets at a time; it counts in the port's bucket and the class's counters
//!   like other packets.
//! - **A bound on priority.** While weighted classes wait, strict ones get at most
//!   [`strict_share_percent`](EgressConfig::strict_share_percent) of the bytes. That bound needs no rate, so it
//!   holds on unshaped ports too, and it holds nothing back while weighted classes are empty.
//! - **Shaping.** A token bucket for the port and one for each class (`bucket`), exact in integers. A class whose
//!   bucket is short gives up its turn until it has filled; others take its place.
//! - **Active queue management.** CoDel per class (`codel`); ECN-capable packets are marked, others dropped.
//!   Packets are judged when they leave, by their actual wait.
//! - **Bounds.** Each class has a limit of packets and of bytes. A packet above it is handed back as `queue-full`:
//!   the newest is refused, and waiting packets keep their order.
//! - **Counters.** For each class at every moment: enqueued = sent + dropped + waiting ([`ClassCounters`]).
//! - **Reload.** [`set_config`](EgressQueue::set_config) keeps waiting packets. Classes are identified by name; the
//!   packets and counters of removed classes go to the default class.
//!
//! Cost: constant for each packet, whatever the number of classes or packets; a class that its own bucket holds
//! back costs the logarithm of the number of such classes. Memory: the waiting packets, 16 bytes each in addition,
//! and 30 KiB of histogram for each class. Time is an argument in nanoseconds; an earlier time than before is
//! ignored.
//!
//! Missing: queues for each flow within a class (RFC 8290), the second queue of RFC 9332 for senders that want
//! marks early, and hierarchies deeper than port, level, class.

mod bucket;
mod codel;
mod config;
mod counters;
mod mark;
mod queue;

pub use bucket::BURST_BYTES_MAX;
pub use config::{
    Aqm, CLASSES_MAX, EgressClass, EgressConfig, STRICT_LEVEL_MAX, STRICT_SHARE_PERCENT_DEFAULT,
};
pub use counters::{ClassCounters, SOJOURN_NS_MAX};
pub use mark::{mark_ce, mark_frame_ce};
pub use queue::{EgressQueue, Next, URGENT_MAX};

#[cfg(test)]
mod tests;
