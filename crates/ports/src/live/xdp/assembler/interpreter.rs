//! Runs programs as the kernel would. Panics where the kernel's verifier would refuse: accesses outside frame,
//! stack and values, programs without an end, unknown codes.

use std::collections::HashMap;

use super::*;

#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum End {
    /// The kernel's stack takes the frame.
    Pass,
    /// The socket of this queue in this map takes it.
    ToSocket { map: u64, queue: u64 },
    /// It leaves by this interface.
    Redirected { interface: u64 },
    /// A filter's socket gets it.
    Accepted,
    /// A filter's socket does not get it.
    Left,
    /// The ingress drops it.
    Dropped,
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Runs {
    #[default]
    InXdp,
    AsFilter,
    AtIngress,
}

/// A map's values, by key.
pub(in super::super) type Values = HashMap<Vec<u8>, Vec<u8>>;

/// The memory that a program works on.
#[derive(Default)]
pub(in super::super) struct Machine {
    pub(in super::super) frame: Vec<u8>,
    pub(in super::super) queue: u32,
    pub(in super::super) runs: Runs,
    /// The frame has a tag beside it.
    pub(in super::super) has_tag: bool,
    /// The payload of each packet of a merged frame.
    pub(in super::super) segment_bytes: u32,
    /// The kernel knows that the checksum holds the pseudo header's sum alone.
    pub(in super::super) is_unfinished: bool,
    /// At the ingress: the bytes of the frame that lie in one piece.
    pub(in super::super) piece: usize,
    /// The kernel has no memory.
    pub(in super::super) is_short_of_memory: bool,
    pub(in super::super) maps: HashMap<i32, Values>,
    pub(in super::super) stack: Vec<u8>,
    /// Values whose addresses the program has.
    pub(in super::super) handed_out: Vec<(i32, Vec<u8>)>,
}

// The addresses of memory areas; each may extend up to the next.
const FRAME: u64 = 0x1000_0000;
const CONTEXT: u64 = 0x2000_0000;
const STACK: u64 = 0x3000_0000;
const STACK_BYTES: u64 = 512;
const VALUES: u64 = 0x4000_0000;
const VALUE_STEP: u64 = 0x1_0000;

/// No program here has loops, so none takes more steps than it has slots.
impl Machine {
    pub(in super::super) fn run(&mut self, slots: &[Slot]) -> End {
        self.stack = vec![0xee; STACK_BYTES as usize];
        let mut r = [0u64; 16];
        (r[1], r[10]) = (CONTEXT, STACK + STACK_BYTES);
        let mut at = 0usize;
        for _ in 0..slots.len() + 1 {
            let slot = slots[at];
            let (low, high) = (usize::from(slot.registers & 15), usize::from(slot.registers >> 4));
            let (d, s) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
            let immediate = slot.immediate as i64 as u64;
            let (offset, same) = (slot.offset as i64 as u64, r[d] as u32 == slot.immediate as u32);
            at += 1;
            let mut jump = false;
            match slot.code {
                code::LOAD_IMMEDIATE_64 => {
                    r[d] = match s as u8 {
                        code::IS_MAP => immediate,
                        code::IS_MAP_VALUE => self.hand_out(slot.immediate, &[0; 4]).expect("the only value"),
                        other => panic!("unknown source {other}"),
                    };
                    at += 1;
                }
                code::MOVE => r[d] = immediate,
                code::MOVE_REGISTER => r[d] = r[s],
                code::MOVE_REGISTER_32 => r[d] = r[s] & 0xffff_ffff,
                code::ADD => r[d] = r[d].wrapping_add(immediate),
                code::ADD_REGISTER => r[d] = r[d].wrapping_add(r[s]),
                code::SUBTRACT_REGISTER => r[d] = r[d].wrapping_sub(r[s]),
                code::MULTIPLY_REGISTER => r[d] = r[d].wrapping_mul(r[s]),
                code::DIVIDE_REGISTER => r[d] = r[d].checked_div(r[s]).unwrap_or(0),
                code::AND => r[d] &= immediate,
                code::XOR => r[d] ^= immediate,
                code::SHIFT_RIGHT => r[d] >>= immediate,
                code::TO_NETWORK_ORDER => {
                    assert_eq!(immediate, 16);
                    r[d] = u64::from((r[d] as u16).to_be());
                }
                code::JUMP => jump = true,
                code::JUMP_IF_EQUAL => jump = r[d] == immediate,
                code::JUMP_IF_EQUAL_32 => jump = same,
                code::JUMP_UNLESS_EQUAL_32 => jump = !same,
                code::JUMP_IF_LESS_32 => jump = (r[d] as u32) < slot.immediate as u32,
                code::JUMP_IF_EQUAL_REGISTER => jump = r[d] == r[s],
                code::JUMP_UNLESS_EQUAL_REGISTER => jump = r[d] != r[s],
                code::JUMP_IF_GREATER_REGISTER => jump = r[d] > r[s],
                code::CALL => match slot.immediate {
                    helper::MAP_LOOK_UP => {
                        r[0] = self.look_up(r[1], r[2]);
                        // A call leaves undefined values in its argument registers.
                        r[1..6].fill(0xdead_dead_dead_dead);
                    }
                    helper::REDIRECT => {
                        assert_eq!((r[2], slots[at].code), (0, code::EXIT));
                        return End::Redirected { interface: r[1] };
                    }
                    helper::REDIRECT_MAP => {
                        assert_eq!((r[3], slots[at].code), (XDP_PASS as u64, code::EXIT));
                        return End::ToSocket { map: r[1], queue: r[2] };
                    }
                    _ => {
                        r[0] = self.call(slot.immediate, [r[1], r[2], r[3], r[4], r[5]]);
                        r[1..6].fill(0xdead_dead_dead_dead);
                    }
                },
                code::EXIT => return self.end(r[0].cast_signed()),
                code if code & !0x18 == code::LOAD => r[d] = self.load(r[s].wrapping_add(offset), code),
                code if code & !0x18 == code::STORE => {
                    let value = r[s].to_ne_bytes();
                    let bytes = bytes_of(code);
                    let part =
                        if cfg!(target_endian = "little") { &value[..bytes] } else { &value[8 - bytes..] };
                    self.store(r[d].wrapping_add(offset), part);
                }
                code => panic!("unknown code {code:#x}"),
            }
            if jump {
                at = (at as isize + isize::from(slot.offset)) as usize;
            }
        }
        panic!("the program does not end");
    }

    fn end(&self, result: i64) -> End {
        match self.runs {
            Runs::InXdp if result == i64::from(XDP_PASS) => End::Pass,
            Runs::AsFilter if result == i64::from(FILTER_ACCEPT) => End::Accepted,
            Runs::AsFilter if result == 0 => End::Left,
            Runs::AtIngress if result == i64::from(INGRESS_DROP) => End::Dropped,
            runs => panic!("unknown result {result} {runs:?}"),
        }
    }

    /// Calls a helper that works on the frame.
    fn call(&mut self, helper: i32, [context, a, b, c, flags]: [u64; 5]) -> u64 {
        const FAILED: u64 = (-12_i64).cast_unsigned();
        assert_eq!(context, CONTEXT);
        let place = |value: u64| usize::try_from(value).expect("a place in a frame");
        match (helper, self.runs) {
            (helper::LOAD_BYTES, Runs::AsFilter) => {
                let Some(bytes) = self.frame.get(place(a)..place(a + c)).map(<[u8]>::to_vec) else {
                    return FAILED;
                };
                self.memory(b, bytes.len()).copy_from_slice(&bytes);
            }
            (helper::PULL, Runs::AtIngress) => {
                if self.is_short_of_memory || place(a) > self.frame.len() {
                    return FAILED;
                }
                self.piece = self.piece.max(place(a));
            }
            (helper::REPLACE_CHECKSUM, Runs::AtIngress) => {
                assert_eq!(b, 0);
                self.replace_checksum(place(a), c, i32::try_from(flags).expect("flags"));
            }
            other => panic!("no such helper: {other:?}"),
        }
        0
    }

    /// As the kernel does (`inet_proto_csum_replace_by_diff`).
    fn replace_checksum(&mut self, at: usize, difference: u64, flags: i32) {
        let now = u16::from_ne_bytes([self.frame[at], self.frame[at + 1]]);
        let is_none = flags & helper::ZERO_IS_NONE != 0;
        let is_pseudo = flags & helper::PSEUDO_HEADER != 0;
        let folded = |sum: u64| {
            let once = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
            let twice = (once & 0xffff) + (once >> 16);
            u16::try_from((twice & 0xffff) + (twice >> 16)).expect("it is folded")
        };
        let next = match self.is_unfinished {
            _ if is_none && now == 0 => now,
            true if !is_pseudo => now,
            true => folded(difference + u64::from(now)),
            false => !folded(difference + u64::from(!now)),
        };
        let next = if is_none && next == 0 && now != 0 { 0xffff } else { next };
        self.frame[at..at + 2].copy_from_slice(&next.to_ne_bytes());
    }

    /// The memory at an address.
    fn memory(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        let (memory, from) = match address {
            VALUES.. => {
                let (value, at) = ((address - VALUES) / VALUE_STEP, (address - VALUES) % VALUE_STEP);
                let (map, key) = &self.handed_out[value as usize];
                let value = self.maps.get_mut(map).and_then(|values| values.get_mut(key));
                (value.expect("handed out"), at)
            }
            STACK.. => {
                assert!(
                    address.is_multiple_of(bytes as u64) || !bytes.is_power_of_two() || bytes > 8,
                    "misaligned"
                );
                (&mut self.stack, address - STACK)
            }
            CONTEXT.. => panic!("the context is only read"),
            _ => (&mut self.frame, address - FRAME),
        };
        &mut memory[from as usize..from as usize + bytes]
    }

    fn load(&mut self, address: u64, code: u8) -> u64 {
        if (CONTEXT..STACK).contains(&address) {
            let field = (address - CONTEXT) as i16;
            if self.runs != Runs::InXdp {
                return self.load_of_buffer(field);
            }
            return match field {
                context::DATA => FRAME,
                context::DATA_END => FRAME + self.frame.len() as u64,
                context::QUEUE => u64::from(self.queue),
                other => panic!("no such field {other}"),
            };
        }
        let bytes = bytes_of(code);
        let mut word = [0; 8];
        let at = if cfg!(target_endian = "little") { 0 } else { 8 - bytes };
        word[at..at + bytes].copy_from_slice(self.memory(address, bytes));
        u64::from_ne_bytes(word)
    }

    fn load_of_buffer(&self, field: i16) -> u64 {
        match (field, self.runs) {
            (buffer::LENGTH, _) => self.frame.len() as u64,
            (buffer::HAS_TAG, Runs::AsFilter) => self.has_tag.into(),
            (buffer::SEGMENT_BYTES, _) => self.segment_bytes.into(),
            (buffer::DATA, Runs::AtIngress) => FRAME,
            (buffer::DATA_END, Runs::AtIngress) => FRAME + self.piece as u64,
            other => panic!("no such field {other:?}"),
        }
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        self.memory(address, bytes.len()).copy_from_slice(bytes);
    }

    fn look_up(&mut self, map: u64, key: u64) -> u64 {
        let map = map as i32;
        let bytes = self.maps[&map].keys().next().map_or(0, Vec::len);
        let key = if bytes == 0 { Vec::new() } else { self.memory(key, bytes).to_vec() };
        self.hand_out(map, &key).unwrap_or(0)
    }

    fn hand_out(&mut self, map: i32, key: &[u8]) -> Option<u64> {
        self.maps.get(&map)?.get(key)?;
        self.handed_out.push((map, key.to_vec()));
        Some(VALUES + (self.handed_out.len() as u64 - 1) * VALUE_STEP)
    }
}

fn bytes_of(code: u8) -> usize {
    match code & 0x18 {
        0x10 => 1,
        0x08 => 2,
        0x00 => 4,
        _ => 8,
    }
}
