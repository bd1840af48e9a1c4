//! Names from outside, such as those of exporters, interfaces and servers: a record that carries some stays plain
//! data, and equal texts are equal numbers.
//!
//! There is one table for the process, because records pass between threads that share nothing else. It has two
//! parts, both limited. Names that are few are kept ([`Name::of`]): one beyond the limit becomes [`Name::NONE`] and is
//! counted. Names that never end, such as those of servers, come and go ([`Name::passing`]): each new one beyond the
//! limit takes the place of one that nobody asked for lately (CLOCK). A number carries the generation of its place, so
//! one whose name has gone finds no text, never another's.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A name; none by default. Numbers are those of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name(u32);

#[derive(Default)]
struct Names {
    /// The text of number 1 comes first.
    texts: Vec<&'static str>,
    numbers: HashMap<&'static str, u32>,
    refused: u64,
    passing: Passing,
}

/// The names that come and go. The number of one: a bit, the generation of its place, its place.
#[derive(Default)]
struct Passing {
    places: Vec<Place>,
    by_text: HashMap<Arc<str>, u32>,
    /// The place that is considered next.
    hand: usize,
    forgotten: u64,
}

struct Place {
    text: Arc<str>,
    number: u32,
    /// Somebody asked for it since it was last considered.
    used: AtomicBool,
}

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(RwLock::default);

fn read() -> RwLockReadGuard<'static, Names> {
    NAMES.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Names> {
    NAMES.write().unwrap_or_else(PoisonError::into_inner)
}

impl Name {
    pub const NONE: Self = Self(0);
    /// The most different names of a process that are kept: at most 33 MB.
    const COUNT_MAX: usize = 1 << 18;
    /// The most that come and go, at the same time: some 100 MB with usual names, at most 220 MB.
    pub const PASSING_MAX: usize = 1 << 20;
    /// The most bytes of a name; the rest is cut off.
    pub const BYTES_MAX: usize = 127;
    const IS_PASSING: u32 = 1 << 31;
    const GENERATION: u32 = 1 << 20;

    /// The name with this text, for good; none if the text is empty, or if there are too many names.
    pub fn of(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(Self::BYTES_MAX)];
        if text.is_empty() {
            return Self::NONE;
        }
        if let Some(number) = read().numbers.get(text) {
            return Self(*number);
        }
        write().add(text, Self::COUNT_MAX)
    }

    /// The name with this text, until many others have come and nobody has asked for it; none if the text is empty.
    /// Of a long text the end is kept: that of a host's name says most.
    pub fn passing(text: &str) -> Self {
        let text = &text[text.ceil_char_boundary(text.len().saturating_sub(Self::BYTES_MAX))..];
        if text.is_empty() {
            return Self::NONE;
        }
        let known = read().passing.find(text);
        known.unwrap_or_else(|| write().passing.add(text, Self::PASSING_MAX))
    }

    /// The text; empty for none, and for a name that has gone.
    pub fn text(self) -> Cow<'static, str> {
        let names = read();
        if self.0 & Self::IS_PASSING != 0 {
            return names.passing.text(self.0).map_or(Cow::Borrowed(""), |text| Cow::Owned(text.to_owned()));
        }
        let place = usize::try_from(self.0).ok().and_then(|number| number.checked_sub(1));
        Cow::Borrowed(place.and_then(|place| names.texts.get(place).copied()).unwrap_or(""))
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
        read().refused
    }

    /// How many names had to go for others.
    pub fn forgotten() -> u64 {
        read().passing.forgotten
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

impl Passing {
    fn find(&self, text: &str) -> Option<Name> {
        let number = *self.by_text.get(text)?;
        self.place(number)?.used.store(true, Ordering::Relaxed);
        Some(Name(number))
    }

    fn text(&self, number: u32) -> Option<&str> {
        let place = self.place(number).filter(|place| place.number == number)?;
        place.used.store(true, Ordering::Relaxed);
        Some(&place.text)
    }

    fn place(&self, number: u32) -> Option<&Place> {
        self.places.get(usize::try_from(number & (Name::GENERATION - 1)).ok()?)
    }

    fn add(&mut self, text: &str, count_max: usize) -> Name {
        // Another thread may have been faster.
        if let Some(known) = self.find(text) {
            return known;
        }
        let text: Arc<str> = text.into();
        let number = match u32::try_from(self.places.len()) {
            Ok(count) if self.places.len() < count_max => {
                let number = Name::IS_PASSING | count;
                self.places.push(Place { text: Arc::clone(&text), number, used: AtomicBool::new(true) });
                number
            }
            _ => self.replace(Arc::clone(&text)),
        };
        self.by_text.insert(text, number);
        Name(number)
    }

    /// Puts a text in the place of one that was not asked for.
    fn replace(&mut self, text: Arc<str>) -> u32 {
        loop {
            self.hand = (self.hand + 1) % self.places.len();
            let place = &mut self.places[self.hand];
            if !std::mem::take(place.used.get_mut()) {
                let gone = std::mem::replace(&mut place.text, text);
                place.number = place.number.wrapping_add(Name::GENERATION) | Name::IS_PASSING;
                *place.used.get_mut() = true;
                self.by_text.remove(&gone);
                self.forgotten += 1;
                return place.number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_name() {
        let (edge, core) = (Name::of("edge1"), Name::of("core1"));
        assert_eq!((edge, &*edge.text(), &*core.text()), (Name::of("edge1"), "edge1", "core1"));
        assert_ne!(edge, core);
        assert_eq!((Name::of(""), &*Name::NONE.text()), (Name::NONE, ""));
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

    #[test]
    fn names_that_pass_are_equal_and_keep_their_end() {
        let (one, other) = (Name::passing("www.example.org"), Name::passing("example.net"));
        assert_eq!((one, &*other.text()), (Name::passing("www.example.org"), "example.net"));
        assert!(one != other && one != Name::of("www.example.org"));
        assert_eq!(Name::from_code(one.code()).text(), "www.example.org");
        assert_eq!(Name::passing(&"ä".repeat(100)).text(), "ä".repeat(63), "cut between characters");
        assert_eq!(Name::passing(&("x".repeat(200) + ".org")).text(), "x".repeat(123) + ".org");
        assert_eq!(Name::passing(""), Name::NONE);
    }

    /// Against what a number was given for: it finds that text or none.
    #[test]
    fn a_number_never_finds_the_name_of_another() {
        let mut names = Passing::default();
        let mut given: Vec<(Name, String)> = Vec::new();
        let mut chance = crate::XorShift64Star::new(5);
        for round in 0..5_000 {
            let number = if round % 3 == 0 { chance.below(8) } else { round };
            let text = format!("{number}.example");
            let name = names.add(&text, 32);
            assert_eq!(names.text(name.0), Some(text.as_str()));
            given.push((name, text));
            if round % 64 == 0 {
                let found = given.iter().filter_map(|(name, text)| Some((names.text(name.0)?, text)));
                assert!(found.into_iter().all(|(found, text)| found == text));
            }
        }
        assert_eq!(names.by_text.len(), 32);
        assert!(names.forgotten > 3_000, "{}", names.forgotten);
    }
}
