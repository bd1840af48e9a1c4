//! Takes frames with offload headers into chunks: finishes checksums, restores VLAN tags, and cuts merged segments,
//! unless the chunk takes them merged.
//!
//! ```text
//! slot of a ring ──copy──> chunk                       a single frame, or one that stays merged
//! read ──in place──> chunk                             the same; the offload header lies in the frame's headroom
//! slot, read ──copy──> `large` ──cut, as there is room──> chunk, chunk ..    all others
//! ```

use std::io;

use thalweg_base::{ChunkBuilder, LinkType};
use thalweg_wire::ethernet::HEADER_BYTES as ETHERNET;
use thalweg_wire::vlan::TAG_BYTES as TAG;

use super::RxCounters;
use super::segment::{self, OFFLOAD_BYTES, Offload, Segments};

/// The longest merged segment, with Ethernet header and two tags. Longer ones ("big TCP", off by default) are
/// refused.
pub(super) const LARGE_BYTES: usize = (64 << 10) + ETHERNET + 2 * TAG;
/// The length of both addresses at a frame's start.
const ADDRESSES: usize = 12;

const _: () = assert!(OFFLOAD_BYTES <= ChunkBuilder::HEADROOM);

/// A stripped VLAN tag: identifier with priority, and protocol.
pub(super) type Vlan = Option<(u16, u16)>;

/// The result of taking a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// The frame was passed on, is held, or was counted.
    It,
    /// There is no frame.
    Nothing,
    /// The chunk has no room for it.
    NoRoom,
    /// It is longer than the MTU allows. It was not counted; if it is held, it still is.
    TooLong,
}

enum Pushed {
    Yes,
    NoRoom,
    TooLong,
    Damaged,
}

/// A frame at the start of `Intake::large` that has not been passed on completely.
struct Held {
    bytes: usize,
    vlan: Vlan,
    checksum: Option<(u16, u16)>,
    segments: Option<Segments>,
}

/// See the module.
pub(super) struct Intake {
    large: Box<[u8]>,
    held: Option<Held>,
    pub(super) counters: RxCounters,
}

impl Intake {
    pub(super) fn new() -> Self {
        let large = vec![0; OFFLOAD_BYTES + LARGE_BYTES].into_boxed_slice();
        Self { large, held: None, counters: RxCounters::default() }
    }

    /// Copies a frame to the chunk, or holds it.
    pub(super) fn take(
        &mut self,
        offload: &[u8; OFFLOAD_BYTES],
        frame: &[u8],
        vlan: Vlan,
        mtu: usize,
        to: &mut Destination<'_>,
    ) -> Took {
        let Ok(offload) = Offload::parse(offload) else { return self.refuse() };
        let Some(kind) = offload.segments else {
            let pushed = to.push(frame, vlan, offload.checksum, mtu);
            return self.done(pushed, 1, frame.len() + tag_bytes(vlan));
        };
        let Ok(segments) = Segments::new(frame, kind, offload.checksum) else { return self.refuse() };
        if to.into.takes_merged() && segments.may_stay_merged(frame) {
            if !fits(&segments, frame, mtu) {
                return Took::TooLong;
            }
            let Some(at) = to.room(frame.len() + tag_bytes(vlan)) else { return Took::NoRoom };
            to.into.buffer_mut()[at + tag_bytes(vlan)..][..frame.len()].copy_from_slice(frame);
            return self.name_merged(at, vlan, frame.len(), &segments, to);
        }
        let Some(room) = self.large.get_mut(..frame.len()) else { return self.refuse() };
        room.copy_from_slice(frame);
        let Offload { checksum, .. } = offload;
        self.held = Some(Held { bytes: frame.len(), vlan, checksum, segments: Some(segments) });
        Took::It
    }

    /// Takes a frame that `read` stores behind its offload header. `longest` is the length of the longest frame
    /// that it may store, `is_ours` says whether the port wants a frame.
    pub(super) fn read(
        &mut self,
        longest: usize,
        (vlan, mtu): (Vlan, usize),
        to: &mut Destination<'_>,
        is_ours: impl Fn(&[u8]) -> bool,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Took> {
        let (longest, tags) = (longest.min(LARGE_BYTES), tag_bytes(vlan));
        let takes_merged = to.into.takes_merged();
        let room = to.room(longest + tags);
        let bytes = match room {
            // The offload header lies in the frame's headroom.
            Some(at) => {
                read(&mut to.into.buffer_mut()[at + tags - OFFLOAD_BYTES..][..OFFLOAD_BYTES + longest])?
            }
            None if takes_merged && !to.into.is_empty() => return Ok(Took::NoRoom),
            None => read(&mut self.large[..OFFLOAD_BYTES + longest])?,
        };
        if !(OFFLOAD_BYTES + ETHERNET..=OFFLOAD_BYTES + longest).contains(&bytes) {
            return Ok(self.refuse());
        }
        let stored = match room {
            Some(at) => &to.into.buffer_mut()[at + tags - OFFLOAD_BYTES..][..bytes],
            None => &self.large[..bytes],
        };
        let (bytes, Some((offload, frame))) = (bytes - OFFLOAD_BYTES, stored.split_first_chunk()) else {
            return Ok(self.refuse());
        };
        if !is_ours(frame) {
            self.counters.foreign += 1;
            return Ok(Took::It);
        }
        let Ok(Offload { checksum, segments }) = Offload::parse(offload) else { return Ok(self.refuse()) };
        let Ok(segments) = segments.map(|kind| Segments::new(frame, kind, checksum)).transpose() else {
            return Ok(self.refuse());
        };
        let stays = match &segments {
            None => !is_too_long(frame, mtu),
            Some(segments) => takes_merged && segments.may_stay_merged(frame) && fits(segments, frame, mtu),
        };
        let Some(at) = room.filter(|_| stays) else {
            match room {
                Some(at) => self.large[..bytes].copy_from_slice(&to.into.buffer_mut()[at + tags..][..bytes]),
                None => self.large.copy_within(OFFLOAD_BYTES..OFFLOAD_BYTES + bytes, 0),
            }
            self.held = Some(Held { bytes, vlan, checksum, segments });
            return Ok(Took::It);
        };
        if let Some(segments) = &segments {
            return Ok(self.name_merged(at, vlan, bytes, segments, to));
        }
        if let Some((start, offset)) = checksum {
            let frame = &mut to.into.buffer_mut()[at + tags..][..bytes];
            if segment::finish_checksum(frame, start, offset).is_err() {
                return Ok(self.refuse());
            }
        }
        to.name(at, bytes + tags, vlan);
        Ok(self.done(Pushed::Yes, 1, bytes + tags))
    }

    /// Whether a frame is held.
    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Passes on the next piece of the held frame; `None` if none is held.
    pub(super) fn take_held(&mut self, mtu: usize, to: &mut Destination<'_>) -> Option<Took> {
        let Held { bytes, vlan, checksum, segments } = self.held.as_mut()?;
        let frame = &self.large[..*bytes];
        let vlan = *vlan;
        let (pushed, bytes) = match segments {
            None => (to.push(frame, vlan, *checksum, mtu), *bytes),
            Some(segments) => {
                let bytes = segments.next_bytes().unwrap_or(0);
                (to.push_segment(frame, vlan, segments, mtu), bytes)
            }
        };
        let is_done = match pushed {
            Pushed::Yes | Pushed::Damaged => segments.is_none_or(|segments| segments.left() == 0),
            Pushed::NoRoom | Pushed::TooLong => false,
        };
        if is_done {
            self.held = None;
        }
        Some(self.done(pushed, 1, bytes + tag_bytes(vlan)))
    }

    /// Counts a frame that is too long; if one is held, its next piece.
    pub(super) fn refuse(&mut self) -> Took {
        self.counters.refused += 1;
        if let Some(held) = &mut self.held {
            held.segments.iter_mut().for_each(Segments::skip);
            if held.segments.is_none_or(|segments| segments.left() == 0) {
                self.held = None;
            }
        }
        Took::It
    }

    /// Adds the merged frame of `bytes` bytes at `at` to the chunk.
    fn name_merged(
        &mut self,
        at: usize,
        vlan: Vlan,
        bytes: usize,
        segments: &Segments,
        to: &mut Destination<'_>,
    ) -> Took {
        let tags = tag_bytes(vlan);
        let headers = u8::try_from(segments.header_bytes() + tags);
        let (Ok(headers), Ok(payload)) = (headers, u16::try_from(segments.payload_bytes())) else {
            return self.refuse();
        };
        to.name(at, bytes + tags, vlan);
        to.into.merge_last(headers, payload);
        self.done(Pushed::Yes, segments.left(), segments.wire_bytes() + segments.left() * tags)
    }

    fn done(&mut self, pushed: Pushed, frames: usize, bytes: usize) -> Took {
        match pushed {
            Pushed::Yes => {
                self.counters.frames += frames as u64;
                self.counters.bytes += bytes as u64;
                Took::It
            }
            Pushed::NoRoom => Took::NoRoom,
            Pushed::TooLong => Took::TooLong,
            Pushed::Damaged => {
                self.counters.refused += 1;
                Took::It
            }
        }
    }
}

/// The chunk that takes the frames, and the port and time to note there.
pub(super) struct Destination<'a> {
    pub(super) port: u16,
    pub(super) now_ns: u64,
    pub(super) into: &'a mut ChunkBuilder,
}

impl Destination<'_> {
    /// Where a frame of `bytes` bytes will begin in the chunk's buffer, if it fits.
    fn room(&mut self, bytes: usize) -> Option<usize> {
        let at = self.into.next_frame_offset();
        let fits = at + bytes <= self.into.buffer_mut().len() && self.into.len() < ChunkBuilder::PACKETS_MAX;
        fits.then_some(at)
    }

    /// Copies a frame, restores its tag and finishes its checksum.
    #[inline]
    fn push(&mut self, frame: &[u8], vlan: Vlan, checksum: Option<(u16, u16)>, mtu: usize) -> Pushed {
        if is_too_long(frame, mtu) {
            return Pushed::TooLong;
        }
        if frame.len() < ETHERNET {
            return Pushed::Damaged;
        }
        let bytes = frame.len() + tag_bytes(vlan);
        let Some(at) = self.room(bytes) else { return Pushed::NoRoom };
        let slot = &mut self.into.buffer_mut()[at..at + bytes];
        let frame_at = match vlan {
            None => 0,
            Some(_) => TAG,
        };
        slot[frame_at..].copy_from_slice(frame);
        if let Some((start, offset)) = checksum
            && segment::finish_checksum(&mut slot[frame_at..], start, offset).is_err()
        {
            return Pushed::Damaged;
        }
        self.name(at, bytes, vlan);
        Pushed::Yes
    }

    fn push_segment(&mut self, frame: &[u8], vlan: Vlan, segments: &mut Segments, mtu: usize) -> Pushed {
        let Some(segment_bytes) = segments.next_bytes() else { return Pushed::Damaged };
        if !fits(segments, frame, mtu) {
            return Pushed::TooLong;
        }
        let bytes = segment_bytes + tag_bytes(vlan);
        let Some(at) = self.room(bytes) else { return Pushed::NoRoom };
        let slot = &mut self.into.buffer_mut()[at + tag_bytes(vlan)..at + bytes];
        segments.write_next(frame, slot);
        self.name(at, bytes, vlan);
        Pushed::Yes
    }

    /// Adds the bytes at `at` to the chunk as a frame. First inserts the tag between addresses and type; there is
    /// room for it.
    fn name(&mut self, at: usize, bytes: usize, vlan: Vlan) {
        if let Some((tag, protocol)) = vlan {
            let frame = &mut self.into.buffer_mut()[at..at + bytes];
            frame.copy_within(TAG..TAG + ADDRESSES, 0);
            frame[ADDRESSES..ADDRESSES + 2].copy_from_slice(&protocol.to_be_bytes());
            frame[ADDRESSES + 2..ADDRESSES + TAG].copy_from_slice(&tag.to_be_bytes());
        }
        self.into.push(at, bytes, bytes as u32, self.now_ns, LinkType::Ethernet, self.port, 0);
    }
}

fn tag_bytes(vlan: Vlan) -> usize {
    if vlan.is_some() { TAG } else { 0 }
}

/// Whether the next segment's payload is no longer than the interface's MTU. Each segment has the frame's link header.
fn fits(segments: &Segments, frame: &[u8], mtu: usize) -> bool {
    segments.next_bytes().is_none_or(|bytes| bytes <= mtu + segment::link_header_bytes(frame))
}

/// Whether the frame's payload is longer than the interface's MTU. Tags do not count.
#[inline]
fn is_too_long(frame: &[u8], mtu: usize) -> bool {
    frame.len() > mtu + ETHERNET && frame.len() > mtu + segment::link_header_bytes(frame)
}
