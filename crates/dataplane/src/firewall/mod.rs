//! The stateful firewall of both families: which connections may begin between zones, and which packets belong to one.
//!
//! ```text
//!  NAT -> route -> [ pair of zones tracked? ] --no--> passes
//!                          | yes
//!                  state of the two ends? --yes--> segment belongs? --yes--> passes
//!                          | no                           | no
//!                  can it begin one? --no--> invalid <----+
//!                          | yes
//!                  rules, else the policy: permit? --yes--> state, passes
//! ```
//!
//! Rules are asked when a connection begins, not for its other packets, so their number does not matter to those. A
//! state remembers the rule that admitted it and the generation of the rules: after a reload with other rules, the next
//! packet of the end that began the connection is asked about again.
//!
//! The stage stands behind the look-up of the route, because a zone is found by the port of departure. It sees the real
//! hosts before and behind NAT (flow.rs). It also judges packets that the host thread will send on once their neighbor
//! is resolved, or cut: for them its drop reason replaces theirs.
//!
//! # Shards
//! State is a shard's, as NAT's is, and the shard of a packet is the one it has already: NAT's, where NAT translates it,
//! else by the symmetric flow hash. [`state_hash`] puts fragments and ICMP errors where their connection is. A hairpin
//! has two shards; its state is in the lower one, and is visited when the chunk crosses.
//!
//! # One look-up with NAT
//! NAT's session names a state of its connections by its record ([`FirewallStage::run_groups_and_name`]). The name
//! comes along with the packet ([`Translated`](thalweg_base::Translated)) and is checked against the packet's key, so
//! a wrong one, after a reload or when the state is another's, costs a search and changes nothing else.
//!
//! # The router itself
//! It is a zone if rules name it. Packets for it end at the look-up, or at NAT if the address is NAT's too: with the
//! reasons by which they reach the host thread. The stage judges those, and drops what is denied for a reason of its
//! own. What programs of the router send passes no plan; [`FirewallStage::judge_own`] judges it, in the shard of its
//! answers.
//!
//! # Helpers
//! By choice, what FTP, SIP and PPTP announce is expected (`expected.rs`): the first packet of such a connection is
//! `related`, whatever the policy says of new ones. NAT tells what it has read; of packets that it does not translate the
//! stage reads the announcements itself, when the chunk crosses.
//!
//! # Missing
//! SCTP's and DCCP's ports: their hosts have one state.

mod config;
mod event;
mod expected;
mod flow;
mod rules;
mod shard;
mod stage;
mod state;

#[cfg(test)]
mod tests;

pub use config::{FirewallConfig, PacketState, Policy, ROUTER, StateTimeouts, Zone, ZoneRule};
pub use event::FirewallEvent;
pub use flow::{ipv4_of, state_hash};
pub use rules::FirewallRules;
pub use shard::{FirewallCounters, StateInfo};
pub use stage::FirewallStage;
pub use state::Phase;
