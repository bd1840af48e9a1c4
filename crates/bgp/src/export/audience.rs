//! The members that a segment of the log is for.
//!
//! Nearly every announcement is for all members except the one that sent the route. So an audience is a number with
//! room for one exception. Route servers need sets, which are stored once each, as long as the queue that uses
//! them. Arithmetic on the simple forms touches no set.

use std::sync::Arc;

use hashbrown::{HashMap, HashTable};
use thalweg_base::mix64;

use crate::peer::PeerId;

/// A set of neighbors. Equal sets have equal words: no zero words at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeerSet {
    words: Vec<u64>,
}

impl PeerSet {
    /// Whether the neighbor is in the set.
    #[inline]
    pub fn contains(&self, peer: PeerId) -> bool {
        self.words.get(peer.index() / 64).is_some_and(|word| word >> (peer.index() % 64) & 1 != 0)
    }

    /// Adds a neighbor to the set.
    pub fn insert(&mut self, peer: PeerId) {
        let word = peer.index() / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (peer.index() % 64);
    }

    /// Removes a neighbor from the set.
    pub fn remove(&mut self, peer: PeerId) {
        if let Some(word) = self.words.get_mut(peer.index() / 64) {
            *word &= !(1 << (peer.index() % 64));
        }
        self.trim();
    }

    /// The number of neighbors in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set has no neighbors.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The neighbors in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            (0..64u32)
                .filter(move |bit| word >> bit & 1 != 0)
                .map(move |bit| PeerId((at as u32 * 64 + bit) as u16))
        })
    }

    /// The intersection with the other set.
    pub fn and(&self, other: &Self) -> Self {
        self.combined(other, |a, b| a & b)
    }

    /// The neighbors of this set that are not in the other.
    pub fn minus(&self, other: &Self) -> Self {
        self.combined(other, |a, b| a & !b)
    }

    /// The union with the other set.
    pub fn or(&self, other: &Self) -> Self {
        self.combined(other, |a, b| a | b)
    }

    fn combined(&self, other: &Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let length = self.words.len().max(other.words.len());
        let word = |set: &Self, at: usize| set.words.get(at).copied().unwrap_or(0);
        let mut result =
            Self { words: (0..length).map(|at| with(word(self, at), word(other, at))).collect() };
        result.trim();
        result
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl FromIterator<PeerId> for PeerSet {
    fn from_iter<I: IntoIterator<Item = PeerId>>(peers: I) -> Self {
        let mut set = Self::default();
        peers.into_iter().for_each(|peer| set.insert(peer));
        set
    }
}

/// The members that a segment of the log is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    All,
    AllExcept(PeerId),
    Only(PeerId),
    Set(Arc<PeerSet>),
}

impl Audience {
    /// Whether the segment is for this member.
    #[inline]
    pub fn includes(&self, peer: PeerId) -> bool {
        match self {
            Self::All => true,
            Self::AllExcept(other) => peer != *other,
            Self::Only(one) => peer == *one,
            Self::Set(set) => set.contains(peer),
        }
    }
}

/// An audience in its compact form. The bits above the neighbor's sixteen select the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AudienceCode(pub(super) u32);

const EXCEPT: u32 = 1 << 16;
const ONLY: u32 = 2 << 16;
const SET: u32 = 1 << 31;

#[derive(Clone, Copy)]
enum Form {
    Nobody,
    All,
    Except(PeerId),
    Only(PeerId),
    Set(usize),
}

impl AudienceCode {
    pub(super) const NOBODY: Self = Self(0);
    pub(super) const ALL: Self = Self(1);

    #[inline]
    pub(super) const fn all_except(peer: PeerId) -> Self {
        Self(EXCEPT | peer.0 as u32)
    }

    #[inline]
    pub(super) const fn only(peer: PeerId) -> Self {
        Self(ONLY | peer.0 as u32)
    }

    #[inline]
    const fn form(self) -> Form {
        let peer = PeerId(self.0 as u16);
        match self.0 {
            0 => Form::Nobody,
            1 => Form::All,
            code if code & SET != 0 => Form::Set((code & !SET) as usize),
            code if code & ONLY != 0 => Form::Only(peer),
            _ => Form::Except(peer),
        }
    }
}

/// How many routes members are sent.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Those that go to all, or to all but one.
    all: i64,
    /// What a member is sent beyond these, or not.
    differs: HashMap<PeerId, i64>,
}

impl Tally {
    /// The number of one member.
    pub fn of(&self, member: PeerId) -> u64 {
        u64::try_from(self.all + self.differs.get(&member).copied().unwrap_or(0)).unwrap_or(0)
    }

    fn add(&mut self, member: PeerId, number: i64) {
        *self.differs.entry(member).or_default() += number;
    }
}

/// The members of a group and the sets of them in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Audiences {
    pub(super) members: PeerSet,
    sets: Vec<Arc<PeerSet>>,
    table: HashTable<u32>,
}

impl Audiences {
    /// Drops the sets once no queue holds a code.
    pub(super) fn clear_sets(&mut self) {
        self.sets.clear();
        self.table.clear();
    }

    /// The audience for the log; `None` if it has no member.
    pub(super) fn resolve(&self, code: AudienceCode) -> Option<Audience> {
        Some(match self.tidy(code).form() {
            Form::Nobody => return None,
            Form::All => Audience::All,
            Form::Except(peer) => Audience::AllExcept(peer),
            Form::Only(peer) => Audience::Only(peer),
            Form::Set(at) => Audience::Set(self.sets.get(at)?.clone()),
        })
    }

    /// The simplest form of an audience, without exceptions for neighbors that are not members.
    pub(super) fn tidy(&self, code: AudienceCode) -> AudienceCode {
        match code.form() {
            Form::All if self.members.is_empty() => AudienceCode::NOBODY,
            Form::Except(peer) if !self.members.contains(peer) => self.tidy(AudienceCode::ALL),
            Form::Except(_) if self.members.len() == 1 => AudienceCode::NOBODY,
            Form::Only(peer) if !self.members.contains(peer) => AudienceCode::NOBODY,
            _ => code,
        }
    }

    /// Counts a route for this audience.
    pub(super) fn count(&self, code: AudienceCode, tally: &mut Tally) {
        match code.form() {
            Form::Nobody => {}
            Form::All => tally.all += 1,
            Form::Except(other) => {
                tally.all += 1;
                tally.add(other, -1);
            }
            Form::Only(one) => tally.add(one, 1),
            Form::Set(at) => {
                let members = self.sets.get(at).into_iter().flat_map(|set| set.iter());
                members.for_each(|member| tally.add(member, 1));
            }
        }
    }

    #[inline]
    pub(super) fn includes(&self, code: AudienceCode, peer: PeerId) -> bool {
        match code.form() {
            Form::Nobody => false,
            Form::All => true,
            Form::Except(other) => peer != other,
            Form::Only(one) => peer == one,
            Form::Set(at) => self.sets.get(at).is_some_and(|set| set.contains(peer)),
        }
    }

    /// The members in `a` and not in `b`.
    #[inline]
    pub(super) fn minus(&mut self, a: AudienceCode, b: AudienceCode) -> AudienceCode {
        if a == b {
            return AudienceCode::NOBODY;
        }
        match (a.form(), b.form()) {
            (_, Form::Nobody) => a,
            (Form::Nobody, _) | (_, Form::All) => AudienceCode::NOBODY,
            (Form::Only(peer), _) if self.includes(b, peer) => AudienceCode::NOBODY,
            (Form::Only(_), _) => a,
            (Form::All, Form::Only(peer)) => AudienceCode::all_except(peer),
            (Form::Except(_), Form::Only(_)) if !self.includes(a, PeerId(b.0 as u16)) => a,
            (Form::All | Form::Except(_), Form::Except(peer)) => AudienceCode::only(peer),
            _ => {
                let set = self.to_set(a).minus(&self.to_set(b));
                self.code(set)
            }
        }
    }

    /// The members in both.
    #[inline]
    pub(super) fn and(&mut self, a: AudienceCode, b: AudienceCode) -> AudienceCode {
        if a == b {
            return a;
        }
        match (a.form(), b.form()) {
            (Form::Nobody, _) | (_, Form::Nobody) => AudienceCode::NOBODY,
            (Form::All, _) => b,
            (_, Form::All) => a,
            (Form::Only(peer), _) if self.includes(b, peer) => a,
            (_, Form::Only(peer)) if self.includes(a, peer) => b,
            (Form::Only(_), _) | (_, Form::Only(_)) => AudienceCode::NOBODY,
            _ => {
                let set = self.to_set(a).and(&self.to_set(b));
                self.code(set)
            }
        }
    }

    /// The members in either.
    #[inline]
    pub(super) fn or(&mut self, a: AudienceCode, b: AudienceCode) -> AudienceCode {
        if a == b {
            return a;
        }
        match (a.form(), b.form()) {
            (Form::Nobody, _) => b,
            (_, Form::Nobody) => a,
            (Form::All, _) | (_, Form::All) | (Form::Except(_), Form::Except(_)) => AudienceCode::ALL,
            (Form::Except(peer), _) if !self.includes(b, peer) => a,
            (_, Form::Except(peer)) if !self.includes(a, peer) => b,
            (Form::Except(_), _) | (_, Form::Except(_)) => AudienceCode::ALL,
            _ => {
                let set = self.to_set(a).or(&self.to_set(b));
                self.code(set)
            }
        }
    }

    /// The members of an audience.
    pub(super) fn to_set(&self, code: AudienceCode) -> PeerSet {
        match code.form() {
            Form::Nobody => PeerSet::default(),
            Form::All => self.members.clone(),
            Form::Except(peer) => {
                let mut set = self.members.clone();
                set.remove(peer);
                set
            }
            Form::Only(peer) => PeerSet::from_iter([peer]),
            Form::Set(at) => self.sets.get(at).map(|set| (**set).clone()).unwrap_or_default(),
        }
    }

    /// The simplest code for these members.
    pub(super) fn code(&mut self, set: PeerSet) -> AudienceCode {
        let (count, members) = (set.len(), self.members.len());
        if count == 0 {
            return AudienceCode::NOBODY;
        }
        if set == self.members {
            return AudienceCode::ALL;
        }
        if count == 1 {
            return set.iter().next().map_or(AudienceCode::NOBODY, AudienceCode::only);
        }
        if count + 1 == members {
            let missing = self.members.minus(&set);
            if let (1, Some(peer)) = (missing.len(), missing.iter().next()) {
                return AudienceCode::all_except(peer);
            }
        }
        let hash =
            |set: &PeerSet| set.words.iter().fold(0u64, |hash, &word| mix64(hash ^ word).rotate_left(9));
        let sets = &mut self.sets;
        let entry =
            self.table.entry(hash(&set), |&at| *sets[at as usize] == set, |&at| hash(&sets[at as usize]));
        let at = *entry
            .or_insert_with(|| {
                sets.push(Arc::new(set.clone()));
                sets.len() as u32 - 1
            })
            .get();
        AudienceCode(SET | at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEMBERS: u16 = 5;

    fn code(audiences: &mut Audiences, (form, peer, bits): (u8, u16, u8)) -> AudienceCode {
        match form {
            0 => AudienceCode::NOBODY,
            1 => AudienceCode::ALL,
            2 => AudienceCode::all_except(PeerId(peer)),
            3 => AudienceCode::only(PeerId(peer % MEMBERS)),
            _ => audiences.code((0..MEMBERS).filter(|at| bits >> at & 1 != 0).map(PeerId).collect()),
        }
    }

    proptest! {
        // What codes compute is what sets compute, member by member. Peers above the members are no members.
        #[test]
        fn arithmetic_is_that_of_sets(a in (0u8..5, 0u16..8, 0u8..32), b in (0u8..5, 0u16..8, 0u8..32)) {
            let mut audiences = Audiences { members: (0..MEMBERS).map(PeerId).collect(), ..Audiences::default() };
            let (a, b) = (code(&mut audiences, a), code(&mut audiences, b));
            let (minus, and, or) = (audiences.minus(a, b), audiences.and(a, b), audiences.or(a, b));
            for peer in (0..MEMBERS).map(PeerId) {
                let (in_a, in_b) = (audiences.includes(a, peer), audiences.includes(b, peer));
                prop_assert_eq!(audiences.includes(minus, peer), in_a && !in_b);
                prop_assert_eq!(audiences.includes(and, peer), in_a && in_b);
                prop_assert_eq!(audiences.includes(or, peer), in_a || in_b);
                for each in [a, minus, and, or] {
                    let resolved = audiences.resolve(each);
                    prop_assert_eq!(resolved.is_some_and(|it| it.includes(peer)), audiences.includes(each, peer));
                }
            }
        }
    }

    #[test]
    fn equal_sets_have_one_code() {
        let mut audiences = Audiences { members: (0..9).map(PeerId).collect(), ..Audiences::default() };
        let some: PeerSet = [PeerId(1), PeerId(4), PeerId(7)].into_iter().collect();
        assert_eq!(audiences.code(some.clone()), audiences.code(some));
        let nearly: PeerSet = (0..8).map(PeerId).collect();
        assert_eq!(audiences.code(nearly), AudienceCode::all_except(PeerId(8)));
    }
}
