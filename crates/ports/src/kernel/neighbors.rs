//! Neighbors of the kernel's neighbor tables: those that somebody set for good, and ours.
//!
//! ```text
//! RTM_NEWNEIGH, RTM_DELNEIGH ──> others': PERMANENT or NOARP, with a MAC address  ──> what the router is told
//! read ─────────────────────────> ours:   NOARP, externally learned, our protocol <── set, remove
//! ```
//!
//! What ARP and Neighbor Discovery taught the kernel is in neither: it comes and goes by itself, and says no more than
//! the router finds out.
//!
//! **What ours look like.** NOARP: the kernel uses them and never asks, because the router asks and takes them away when
//! nobody answers. Were they REACHABLE, the kernel would doubt them after half a minute and ask as well. Externally
//! learned: the kernel's garbage collection passes over them, and they do not count against its limit (`gc_thresh3`), so how
//! many there may be is for the caller. The kernel takes them away itself with the interface, its carrier or its MAC
//! address.
//!
//! **Whose is whose.** The protocol number alone does not say: somebody who replaces an entry of ours by hand leaves the
//! number in it. Such an entry is PERMANENT or no longer externally learned, and theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::error::{KernelError, Refusal};
use super::message::{AttributesOf, Message, MessageWriter, u16_at, u32_at};
use super::route;
use super::socket::Netlink;
use thalweg_wire::MacAddr;

/// A neighbor's interface and its address.
pub type NeighborKey = (u32, IpAddr);

/// Neighbors of others, and of ours, that are kept in mind; more are counted and left alone.
pub const KERNEL_NEIGHBORS_MAX: usize = 1 << 14;

/// Messages that bring news, beyond which a turn ends.
const MESSAGES_PER_TURN: usize = 1 << 16;

/// Requests per system call.
const BATCH: usize = 1024;

/// Refusals that a report keeps.
const FAILURES_KEPT: usize = 16;

/// Of an entry: told by a program that watches over it.
const NTF_EXT_LEARNED: u8 = 0x10;
/// Of an entry: it is wanted now.
const NTF_USE: u8 = 0x01;
/// Attribute: who put the entry in.
const NDA_PROTOCOL: u16 = 12;

/// What is to happen to a neighbor of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborChange {
    /// It is put in, or has another MAC address.
    Set(NeighborKey, MacAddr),
    /// It is taken out.
    Remove(NeighborKey),
}

/// What became of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeighborReport {
    /// Neighbors put in or changed.
    pub set: u64,
    /// Neighbors taken out, those included that were not there any more.
    pub removed: u64,
    /// Changes that the kernel refused.
    pub failed: u64,
    /// The first few of them, in words.
    pub failures: Vec<String>,
}

/// What was heard in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighborNews {
    /// Changes of others' neighbors.
    pub others: u64,
    /// Changes of ours that were not our doing.
    pub ours: u64,
    /// News were lost: read everything.
    pub overrun: bool,
    /// There may be more now.
    pub more: bool,
}

/// Whose a neighbor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Others,
    Ours,
}

/// A place, and whose neighbor is there with which MAC address.
type Found = (NeighborKey, Option<(Whose, MacAddr)>);

/// What is known, without a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    others: BTreeMap<NeighborKey, MacAddr>,
    ours: BTreeMap<NeighborKey, MacAddr>,
    without_room: u64,
}

impl Known {
    /// Notes what is at a place now; whose neighbors are different by that.
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

/// See the module.
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
    /// Listens from now on; nothing is known before [`Self::watch`] and [`Self::read`]. Ours carry `protocol`.
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

    /// Minds neighbors on these interfaces only, once they were read.
    pub fn watch(&mut self, interfaces: impl IntoIterator<Item = u32>) {
        self.interfaces = interfaces.into_iter().collect();
    }

    /// Reads all there are; how many of others and of ours are different from what was known.
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

    /// Hears what is new.
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

    /// Others' neighbors, by interface and address.
    pub fn others(&self) -> &BTreeMap<NeighborKey, MacAddr> {
        &self.known.others
    }

    /// Ours.
    pub fn ours(&self) -> &BTreeMap<NeighborKey, MacAddr> {
        &self.known.ours
    }

    /// Times a neighbor was not kept in mind for want of room, since everything was read.
    pub fn without_room(&self) -> u64 {
        self.known.without_room
    }

    /// Changes neighbors of ours, in order. A change that is refused does not keep the others from being made.
    ///
    /// # Errors
    ///
    /// [`KernelError::NotPermitted`] without the right to; otherwise when the socket fails. Some changes may have been
    /// made then.
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
            // Noted at once, so that the news of it are none.
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

/// Has the kernel resolve these neighbors now, as a packet for each would.
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

/// Begins a message about a place, with the entry's state and flags.
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

/// It is not there, or its interface is not.
fn is_absent(refusal: &Refusal) -> bool {
    matches!(refusal.errno, libc::ENOENT | libc::ENODEV)
}

/// What a message says of a place; no neighbor where it is of neither kind.
fn parse(message: &Message<'_>, protocol: u8) -> Option<Found> {
    if !matches!(message.kind, libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH) {
        return None;
    }
    let interface = u32_at(message.body, 4)?;
    let state = u16_at(message.body, 8)?;
    let flags = *message.body.get(10)?;
    // It answers for somebody else, and says nothing of where that is.
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
    // The kernel itself has NOARP entries for groups and for all.
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
