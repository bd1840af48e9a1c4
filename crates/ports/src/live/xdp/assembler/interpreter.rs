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
}

/// A map's values, by key.
pub(in super::super) type Values = HashMap<Vec<u8>, Vec<u8>>;

/// The memory that a program works on.
#[derive(Default)]
pub(in super::super) struct Machine {
    pub(in super::super) frame: Vec<u8>,
    pub(in super::super) queue: u32,
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
                    other => panic!("unknown helper {other}"),
                },
                code::EXIT => {
                    assert_eq!(r[0], XDP_PASS as u64);
                    return End::Pass;
                }
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

    /// The memory at an address.
    fn memory(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        let (memory, from) = match address {
            VALUES.. => {
                let (value, at) = ((address - VALUES) / VALUE_STEP, (address - VALUES) % VALUE_STEP);
                let (map, key) = &self.handed_out[value as usize];
                let value = self.maps.get_mut(map).and_then(|values| values.get_mut(key));
                (value.expect("handed out"), at)
            }
            STACK.. => (&mut self.stack, address - STACK),
            CONTEXT.. => panic!("the context is only read"),
            _ => (&mut self.frame, address - FRAME),
        };
        &mut memory[from as usize..from as usize + bytes]
    }

    fn load(&mut self, address: u64, code: u8) -> u64 {
        if (CONTEXT..STACK).contains(&address) {
            return match (address - CONTEXT) as i16 {
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
