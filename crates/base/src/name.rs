//! Names from outside, such as those of exporters and interfaces: a record that carries some stays plain data,
//! and equal texts are equal numbers.
//!
//! There is one table for the process, because records pass between threads that share nothing else. It never
//! forgets, so its size is limited: a name beyond the limit becomes [`Name::NONE`] and is counted.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

/// A name; none by default. Numbers are those of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name(u32);

#[derive(Default)]
struct Names {
    /// The text of number 1 comes first.
    texts: Vec<&'static str>,
    numbers: HashMap<&'static str, u32>,
    refused: u64,
}

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(RwLock::default);

impl Name {
    pub const NONE: Self = Self(0);
    /// The most different names of a process: at most 33 MB.
    const COUNT_MAX: usize = 1 << 18;
    /// The most bytes of a name; the rest is cut off.
    pub const BYTES_MAX: usize = 127;

    /// The name with this text; none if the text is empty, or if there are too many names.
    pub fn of(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(Self::BYTES_MAX)];
        if text.is_empty() {
            return Self::NONE;
        }
        if let Some(number) = NAMES.read().unwrap_or_else(PoisonError::into_inner).numbers.get(text) {
            return Self(*number);
        }
        NAMES.write().unwrap_or_else(PoisonError::into_inner).add(text, Self::COUNT_MAX)
    }

    /// The text; empty for none.
    pub fn text(self) -> &'static str {
        let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(self.0).ok().and_then(|number| number.checked_sub(1));
        place.and_then(|place| names.texts.get(place).copied()).unwrap_or("")
    }

    /// The number in columns; 0 is none.
    pub fn code(self) -> u32 {
        self.0
    }

    /// The name with this number.
    pub fn from_code(code: u32) -> Self {
        Self(code)
    }

    /// How often a name was refused because there were too many.
    pub fn refused() -> u64 {
        NAMES.read().unwrap_or_else(PoisonError::into_inner).refused
    }
}

impl Names {
    fn add(&mut self, text: &str, count_max: usize) -> Name {
        // Another thread may have been faster.
        if let Some(number) = self.numbers.get(text) {
            return Name(*number);
        }
        let number = u32::try_from(self.texts.len() + 1);
        let (Ok(number), true) = (number, self.texts.len() < count_max) else {
            self.refused += 1;
            return Name::NONE;
        };
        let text: &'static str = Box::leak(text.into());
        self.texts.push(text);
        self.numbers.insert(text, number);
        Name(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_name() {
        let (edge, core) = (Name::of("edge1"), Name::of("core1"));
        assert_eq!((edge, edge.text(), core.text()), (Name::of("edge1"), "edge1", "core1"));
        assert_ne!(edge, core);
        assert_eq!((Name::of(""), Name::NONE.text()), (Name::NONE, ""));
        assert_eq!(Name::from_code(edge.code()), edge);
        let long = "ä".repeat(100);
        assert_eq!(Name::of(&long).text(), "ä".repeat(63), "cut between characters");
    }

    #[test]
    fn names_beyond_the_limit_are_none_and_counted() {
        let mut names = Names::default();
        let given = ["a", "b", "a", "c", "d"].map(|text| names.add(text, 2).code());
        assert_eq!((given, names.refused), ([1, 2, 1, 0, 0], 2));
    }
}
