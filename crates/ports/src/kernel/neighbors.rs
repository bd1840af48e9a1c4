//! The kernel's neighbor tables: permanent neighbors of other programs, and ours.
//!
//! ```text
//! RTM_NEWNEIGH, RTM_DELNEIGH ──> others': PERMANENT or NOARP, with a MAC address  ──> told to the router
//! read ─────────────────────────> ours:   NOARP, externally learned, our protocol <── set, remove
//! ```
//!
//! Neighbors that the kernel learned by ARP and Neighbor Discovery are in neither set: they come and go, and
//! the router learns the same by itself.
//!
//! **The form of ours.** NOARP: the kernel uses them without probing, because the router probes and removes
//! silent neighbors. If they were REACHABLE, the kernel would probe them too after half a minute. Externally
//! learned: the kernel's garbage collection skips them, and they do not count against its limit
//! (`gc_thresh3`), so the caller limits their number. The kernel removes them itself when the interface, its
//! carrier or its MAC address goes.
//!
//! **Ownership.** The protocol number alone does not decide: an administrator who replaces our entry by hand
//! leaves the number in it. Such an entry is PERMANENT or no longer externally learned, and belongs to
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::error::{KernelError, Refusal};
use super::message::{AttributesOf, Message, MessageWriter, u16_at, u32_at};
use super::route;
use super::socket::Netlink;
use thalweg_wire::MacAddr;

/// A neighbor's interface index and address.
pub type NeighborKey = (u32, IpAddr);

/// The most neighbors of others, and of ours, that are tracked; more are counted and left alone.
pub const KERNEL_NEIGHBORS_MAX: usize = 1 << 14;

/// A call of [`KernelNeighbors::hear`] stops after this many messages.
const MESSAGES_PER_TURN: usize = 1 << 16;

const BATCH: usize = 1024;

/// The most refusals that a report keeps.
const FAILURES_KEPT: usize = 16;

/// Entry flag: a program manages the entry.
const NTF_EXT_LEARNED: u8 = 0x10;
/// Entry flag: the neighbor is needed now.
const NTF_USE: u8 = 0x01;
/// Attribute: the program that added the entry.
const NDA_PROTOCOL: u16 = 12;

/// A change of one of our neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborChange {
    /// Adds the neighbor or replaces its MAC address.
    Set(NeighborKey, MacAddr),
    Remove(NeighborKey),
}

/// The result of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeighborReport {
    pub set: u64,
    /// Neighbors removed, including those that were already gone.
    pub removed: u64,
    pub failed: u64,
    /// The first refusals, in words.
    pub failures: Vec<String>,
}

/// What one call of [`KernelNeighbors::hear`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighborNews {
    /// Changes of others' neighbors.
    pub others: u64,
    /// Changes of our neighbors that others made.
    pub ours: u64,
    /// Notifications were lost: read everything.
    pub overrun: bool,
    /// More notifications may be waiting.
    pub more: bool,
}

/// Owner of a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Others,
    Ours,
}

/// A key, and the owner and MAC address of its neighbor, if any.
type Found = (NeighborKey, Option<(Whose, MacAddr)>);

/// The known neighbors, without a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    others: BTreeMap<NeighborKey, MacAddr>,
    ours: BTreeMap<NeighborKey, MacAddr>,
    without_room: u64,
}

impl Known {
    /// Records the neighbor at a key; returns which of the two sets changed.
    fn note(&mut self, place: NeighborKey, now: Option<(Whose, MacAddr)>) -> [bool; 2] {
        let mut lacks_room = false;
        let mut set = |neighbors: &mut BTreeMap<_, _>, mac: Option<MacAddr>| match mac {
            Some(_) if neighbors.len() >= KERNEL_NEIGHBORS_MAX && !neighbors.contains_key(&place) => {
                lacks_room = true;
                false
            }
            Some(mac) => neighbors.insert(place, mac) != Some(mac),
            None => neighbors.remove(&place).is_some(),
        };
        let mac = |whose| now.filter(|(is, _)| *is == whose).map(|(_, mac)| mac);
        let changed = [set(&mut self.others, mac(Whose::Others)), set(&mut self.ours, mac(Whose::Ours))];
        self.without_room += u64::from(lacks_room);
        changed
    }
}

/// Follows the kernel's neighbor tables; see the module documentation.
#[derive(Debug)]
pub struct KernelNeighbors {
    news: Netlink,
    requests: Netlink,
    writer: MessageWriter,
    protocol: u8,
    interfaces: BTreeSet<u32>,
    known: Known,
}

impl KernelNeighbors {
    /// Subscribes to notifications; nothing is known before [`Self::watch`] and [`Self::read`]. Our entries
    /// carry `protocol`.
    pub fn open(protocol: u8) -> Result<Self, KernelError> {
        let news = Netlink::open()?;
        news.set_nonblocking()?;
        news.join(libc::RTNLGRP_NEIGH)?;
        Ok(Self {
            news,
            requests: Netlink::open()?,
            writer: MessageWriter::default(),
            protocol,
            interfaces: BTreeSet::new(),
            known: Known::default(),
        })
    }

    /// Limits tracking to these interfaces; takes effect at the next read.
    pub fn watch(&mut self, interfaces: impl IntoIterator<Item = u32>) {
        self.interfaces = interfaces.into_iter().collect();
    }

    /// Reads all neighbors; returns how many of others' and of ours differ from what was known.
    pub fn read(&mut self) -> Result<[u64; 2], KernelError> {
        let mut now = Known::default();
        let (interfaces, protocol) = (&self.interfaces, self.protocol);
        self.requests.list("its neighbors", libc::RTM_GETNEIGH, &[0; FAMILY_HEADER], |message| {
            if let Some((place, is)) = parse(&message, protocol).filter(|(at, _)| interfaces.contains(&at.0))
            {
                now.note(place, is);
            }
        })?;
        let before = std::mem::replace(&mut self.known, now);
        let counts =
            [differences(&before.others, &self.known.others), differences(&before.ours, &self.known.ours)];
        Ok(counts)
    }

    /// Processes waiting notifications.
    pub fn hear(&mut self) -> Result<NeighborNews, KernelError> {
        let mut heard = NeighborNews::default();
        let mut messages = 0;
        while messages < MESSAGES_PER_TURN {
            match self.news.events() {
                Ok(Some(events)) => {
                    for message in events {
                        messages += 1;
                        let found = parse(&message, self.protocol);
                        let Some((place, is)) = found.filter(|(at, _)| self.interfaces.contains(&at.0))
                        else {
                            continue;
                        };
                        let [others, ours] = self.known.note(place, is);
                        heard.others += u64::from(others);
                        heard.ours += u64::from(ours);
                    }
                }
                Ok(None) => return Ok(heard),
                Err(KernelError::Overrun) => heard.overrun = true,
                Err(error) => return Err(error),
            }
        }
        heard.more = true;
        Ok(heard)
    }

    /// Others' neighbors.
    pub fn others(&self) -> &BTreeMap<NeighborKey, MacAddr> {
        &self.known.others
    }

    /// Our neighbors.
    pub fn ours(&self) -> &BTreeMap<NeighborKey, MacAddr> {
        &self.known.ours
    }

    /// How many neighbors were not tracked for lack of room since the last full read.
    pub fn without_room(&self) -> u64 {
        self.known.without_room
    }

    /// Applies changes to our neighbors, in order. A refused change does not stop the others.
    ///
    /// # Errors
    ///
    /// [`KernelError::NotPermitted`] without the privilege; other errors when the socket fails. Some changes
    /// may have been applied then.
    pub fn apply(&mut self, changes: &[NeighborChange]) -> Result<NeighborReport, KernelError> {
        let mut report = NeighborReport::default();
        for batch in changes.chunks(BATCH) {
            self.apply_batch(batch, &mut report)?;
        }
        Ok(report)
    }

    fn apply_batch(
        &mut self,
        batch: &[NeighborChange],
        report: &mut NeighborReport,
    ) -> Result<(), KernelError> {
        let first = self.requests.sequences(batch.len() as u32);
        self.writer.clear();
        for (change, sequence) in batch.iter().zip(first..) {
            write(&mut self.writer, sequence, change, self.protocol);
        }
        self.writer.add_flags_to_last(libc::NLM_F_ACK as u16);
        let mut refused: BTreeMap<u32, Refusal> = BTreeMap::new();
        let last = first + (batch.len() as u32 - 1);
        self.requests.execute(&self.writer, last, |sequence, refusal| {
            refused.insert(sequence, refusal);
        })?;
        if refused.values().any(|refusal| refusal.errno == libc::EPERM) {
            return Err(KernelError::NotPermitted);
        }
        for (change, sequence) in batch.iter().zip(first..) {
            // Record it at once, so that its notification is no news.
            match (change, refused.get(&sequence)) {
                (NeighborChange::Set(place, mac), None) => {
                    report.set += 1;
                    self.known.note(*place, Some((Whose::Ours, *mac)));
                }
                (NeighborChange::Remove(place), None) => {
                    report.removed += 1;
                    self.known.note(*place, None);
                }
                (NeighborChange::Remove(place), Some(refusal)) if is_absent(refusal) => {
                    report.removed += 1;
                    self.known.note(*place, None);
                }
                (
                    NeighborChange::Set((_, address), _) | NeighborChange::Remove((_, address)),
                    Some(refusal),
                ) => {
                    report.failed += 1;
                    if report.failures.len() < FAILURES_KEPT {
                        report.failures.push(format!("neighbor {address}: {refusal}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Bytes of `struct ndmsg`: family, padding 3, interface 4, state 2, flags, type.
const FAMILY_HEADER: usize = 12;

/// Makes the kernel resolve these neighbors now, as a packet for each would.
pub fn ask_for(places: &[NeighborKey]) -> Result<(), KernelError> {
    let (mut requests, mut writer) = (Netlink::open()?, MessageWriter::default());
    let mut is_refused = false;
    for batch in places.chunks(BATCH) {
        let first = requests.sequences(batch.len() as u32);
        writer.clear();
        for (place, sequence) in batch.iter().zip(first..) {
            let flags = libc::NLM_F_REQUEST | libc::NLM_F_CREATE;
            begin(&mut writer, libc::RTM_NEWNEIGH, flags, sequence, *place, (libc::NUD_NONE, NTF_USE));
            writer.end();
        }
        writer.add_flags_to_last(libc::NLM_F_ACK as u16);
        requests.execute(&writer, first + (batch.len() as u32 - 1), |_, refusal| {
            is_refused |= refusal.errno == libc::EPERM;
        })?;
    }
    if is_refused { Err(KernelError::NotPermitted) } else { Ok(()) }
}

/// Begins a message about a neighbor, with the entry's state and flags.
fn begin(
    writer: &mut MessageWriter,
    kind: u16,
    flags: i32,
    sequence: u32,
    (interface, address): NeighborKey,
    (state, of_entry): (u16, u8),
) {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut header = [0u8; FAMILY_HEADER];
    header[0] = family as u8;
    header[4..8].copy_from_slice(&interface.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    header[10] = of_entry;
    writer.begin(kind, flags as u16, sequence, &header);
    match address {
        IpAddr::V4(address) => writer.attribute(libc::NDA_DST, &address.octets()),
        IpAddr::V6(address) => writer.attribute(libc::NDA_DST, &address.octets()),
    }
}

fn write(writer: &mut MessageWriter, sequence: u32, change: &NeighborChange, protocol: u8) {
    match change {
        NeighborChange::Set(place, _) => {
            let flags = libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
            let entry = (libc::NUD_NOARP, NTF_EXT_LEARNED);
            begin(writer, libc::RTM_NEWNEIGH, flags, sequence, *place, entry);
        }
        NeighborChange::Remove(place) => {
            begin(writer, libc::RTM_DELNEIGH, libc::NLM_F_REQUEST, sequence, *place, (0, 0));
        }
    }
    if let NeighborChange::Set(_, mac) = change {
        writer.attribute(libc::NDA_LLADDR, &mac.0);
        writer.attribute(NDA_PROTOCOL, &[protocol]);
    }
    writer.end();
}

/// The entry or its interface does not exist.
fn is_absent(refusal: &Refusal) -> bool {
    matches!(refusal.errno, libc::ENOENT | libc::ENODEV)
}

/// The neighbor that a message describes; `None` if it is of neither kind.
fn parse(message: &Message<'_>, protocol: u8) -> Option<Found> {
    if !matches!(message.kind, libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH) {
        return None;
    }
    let interface = u32_at(message.body, 4)?;
    let state = u16_at(message.body, 8)?;
    let flags = *message.body.get(10)?;
    // A proxy entry answers for another host and has no MAC address of it.
    if flags & libc::NTF_PROXY != 0 {
        return None;
    }
    let (mut address, mut mac, mut of) = (None, None, 0);
    for (kind, value) in AttributesOf(message.body.get(FAMILY_HEADER..)?) {
        match kind {
            libc::NDA_DST => address = route::address(value),
            libc::NDA_LLADDR => mac = value.try_into().ok(),
            NDA_PROTOCOL => of = value.first().copied().unwrap_or(0),
            _ => {}
        }
    }
    let is_ours = state & libc::NUD_NOARP != 0 && flags & NTF_EXT_LEARNED != 0 && of == protocol;
    let whose = match message.kind {
        libc::RTM_NEWNEIGH if is_ours => Some(Whose::Ours),
        libc::RTM_NEWNEIGH if state & (libc::NUD_PERMANENT | libc::NUD_NOARP) != 0 => Some(Whose::Others),
        _ => None,
    };
    // The kernel has NOARP entries of its own for multicast and broadcast.
    let is = whose.zip(mac).filter(|(_, mac): &(_, MacAddr)| *mac != MacAddr::ZERO && !mac.is_broadcast());
    let address = address.filter(|address| !address.is_multicast() && !address.is_unspecified())?;
    Some(((interface, address), is))
}

fn differences(before: &BTreeMap<NeighborKey, MacAddr>, now: &BTreeMap<NeighborKey, MacAddr>) -> u64 {
    let different = now.iter().filter(|(place, mac)| before.get(place) != Some(mac)).count();
    let gone = before.keys().filter(|place| !now.contains_key(place)).count();
    (different + gone) as u64
}

#[cfg(test)]
mod tests {
    use super::super::message::Messages;
    use super::*;
    use proptest::prelude::*;

    const PROTOCOL: u8 = 116;

    #[test]
    fn what_is_written_is_ours_and_others_are_theirs() {
        let place = (7, "2001:db8::5".parse().unwrap());
        let mut writer = MessageWriter::default();
        write(&mut writer, 1, &NeighborChange::Set(place, MacAddr([2, 0, 0, 0, 0, 5])), PROTOCOL);
        write(&mut writer, 2, &NeighborChange::Remove(place), PROTOCOL);
        let messages: Vec<_> = Messages(writer.bytes()).collect();
        assert_eq!(
            parse(&messages[0], PROTOCOL),
            Some((place, Some((Whose::Ours, MacAddr([2, 0, 0, 0, 0, 5])))))
        );
        assert_eq!(parse(&messages[0], 9), Some((place, Some((Whose::Others, MacAddr([2, 0, 0, 0, 0, 5]))))));
        assert_eq!(parse(&messages[1], PROTOCOL), Some((place, None)));
        // The same replaced by hand, which leaves the protocol in it.
        let mut body = messages[0].body.to_vec();
        for (state, flags, is) in [
            (libc::NUD_PERMANENT, 0, Some(Whose::Others)),
            (libc::NUD_NOARP, 0, Some(Whose::Others)),
            (libc::NUD_NOARP, NTF_EXT_LEARNED | libc::NTF_ROUTER, Some(Whose::Ours)),
            (libc::NUD_STALE, NTF_EXT_LEARNED, None),
            (libc::NUD_FAILED, 0, None),
        ] {
            body[8..10].copy_from_slice(&state.to_ne_bytes());
            body[10] = flags;
            let message = Message { body: &body, ..messages[0] };
            let found = parse(&message, PROTOCOL).unwrap().1.map(|(whose, _)| whose);
            assert_eq!(found, is, "{state:#x} {flags:#x}");
        }
        body[10] = libc::NTF_PROXY;
        assert_eq!(parse(&Message { body: &body, ..messages[0] }, PROTOCOL), None);
    }

    #[test]
    fn beyond_the_limit_neighbors_are_counted() {
        let mut known = Known::default();
        let place = |number: usize| (1, IpAddr::from((number as u32 + 0x0a00_0000).to_be_bytes()));
        for number in 0..KERNEL_NEIGHBORS_MAX + 3 {
            known.note(place(number), Some((Whose::Others, MacAddr([2, 0, 0, 0, 0, 1]))));
        }
        assert_eq!((known.others.len(), known.without_room), (KERNEL_NEIGHBORS_MAX, 3));
        // Those that are known may still change hands.
        assert_eq!(known.note(place(0), Some((Whose::Others, MacAddr([2, 0, 0, 0, 0, 2])))), [true, false]);
        assert_eq!(known.note(place(0), None), [true, false]);
        assert_eq!(known.note(place(0), Some((Whose::Ours, MacAddr([2, 0, 0, 0, 0, 2])))), [false, true]);
    }

    proptest! {
        #[test]
        fn nonsense_is_no_neighbor(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let message = Message { kind: libc::RTM_NEWNEIGH, flags: 0, sequence: 0, body: &body };
            if let Some(((interface, _), _)) = parse(&message, PROTOCOL) {
                prop_assert_eq!(&interface.to_ne_bytes()[..], &body[4..8]);
            }
        }
    }
}
