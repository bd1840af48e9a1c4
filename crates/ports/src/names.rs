//! Looks up port numbers by name. A text trace has a name on every line, so names of up to eight bytes
//! (nearly all) need one multiplication and a comparison of one word.

use std::collections::HashMap;
use thalweg_base::UNKNOWN_PORT;
use thalweg_wire::application::short_key;
use thalweg_wire::trace::PortName;

/// 2^64 divided by the golden ratio: odd, with well-distributed bits.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The ports of the configuration: a name's index is its number.
#[derive(Clone, Debug)]
pub struct PortNames {
    names: Vec<String>,
    by_name: HashMap<Vec<u8>, u16>,
    /// Open addressing with at least three free slots per entry: name as a word, port.
    slots: Vec<(u64, u16)>,
    shift: u32,
    /// An interface of a capture is the port with its number there.
    numbers_captures: bool,
}

impl Default for PortNames {
    fn default() -> Self {
        Self::new(std::iter::empty::<String>())
    }
}

impl PortNames {
    /// A table without names: interfaces of captures are ports by their numbers there (pcapng).
    pub fn of_captures() -> Self {
        Self { numbers_captures: true, ..Self::default() }
    }

    /// The port of a capture's interface, by its name or by its number from 0.
    pub(crate) fn find_in_capture(&self, name: Option<&[u8]>, number: usize) -> Option<u16> {
        let by_number = || u16::try_from(number).ok().filter(|_| self.numbers_captures);
        name.and_then(|name| self.find(name)).or_else(by_number)
    }

    /// A table of these names, in order. Of equal names the first counts, and names beyond the 65,000th are
    /// not found.
    pub fn new<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let size = (names.len() * 4).next_power_of_two().max(16);
        let mut table = Self {
            by_name: HashMap::with_capacity(names.len()),
            slots: vec![(0, UNKNOWN_PORT); size],
            shift: 64 - size.trailing_zeros(),
            names: Vec::new(),
            numbers_captures: false,
        };
        for (number, name) in (0..65_000u16).zip(&names) {
            let bytes = name.as_bytes();
            if table.by_name.contains_key(bytes) {
                continue;
            }
            table.by_name.insert(bytes.to_vec(), number);
            let key = short_key(bytes);
            if key != 0 {
                let mut slot = table.slot_of(key);
                while table.slots[slot].0 != 0 {
                    slot = (slot + 1) & (size - 1);
                }
                table.slots[slot] = (key, number);
            }
        }
        table.names = names;
        table
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name of a port.
    pub fn name(&self, port: u16) -> Option<&str> {
        self.names.get(usize::from(port)).map(String::as_str)
    }

    /// The names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The port with this name.
    pub fn find(&self, name: &[u8]) -> Option<u16> {
        self.by_name.get(name).copied()
    }

    /// The port that a trace names, or [`UNKNOWN_PORT`].
    #[inline(always)]
    pub fn port_of(&self, name: PortName<'_>) -> u16 {
        let key = name.key();
        if key == 0 {
            return self.find(name.bytes()).unwrap_or(UNKNOWN_PORT);
        }
        let mut slot = self.slot_of(key);
        loop {
            match self.slots.get(slot) {
                Some(&(k, port)) if k == key => return port,
                Some(&(0, _)) | None => return UNKNOWN_PORT,
                Some(_) => slot = (slot + 1) & (self.slots.len() - 1),
            }
        }
    }

    #[inline(always)]
    fn slot_of(&self, key: u64) -> usize {
        (key.wrapping_mul(MULTIPLIER) >> self.shift) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_of_looking_agree(
            names in proptest::collection::vec("[a-z0-9]{1,10}", 0..60),
            strangers in proptest::collection::vec("[a-z0-9]{0,10}", 0..60),
        ) {
            let table = PortNames::new(names.clone());
            for name in names.iter().chain(&strangers) {
                let expected = names.iter().position(|n| n == name).map(|i| i as u16);
                prop_assert_eq!(table.find(name.as_bytes()), expected);
                prop_assert_eq!(table.port_of(PortName::new(name.as_bytes())), expected.unwrap_or(UNKNOWN_PORT));
            }
        }
    }
}
