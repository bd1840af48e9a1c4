//! Keys: everything a configuration may say, in one row each.
//!
//! A row is a `static` beside the code that reads it. It holds the key's name, the type and range of its value, what
//! holds where the key is missing, what the key is for, and whether a reload can change it. A [`Table`] lists the rows
//! of a section; a row that begins a section names its table, so all are found from the first (`registry.rs`). From the
//! rows come the findings about types, ranges, and unknown keys, the tables of `docs/configuration.md`, the output of
//! `thalweg config keys`, and the rule of what needs a restart (`reload.rs`).
//!
//! ```text
//! static METRIC: Key<u32> =
//!     Key::number("metric", 1..=U32).default(116).help("of the routes put into the kernel");
//! ...
//! section.set(reader, &METRIC, &mut sync.metric);
//! ```

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Serialize;
use thalweg_bgp::session::config::NeighborConfig;
use toml::de::DeTable;

use crate::bgp_types::BgpConfig;
use crate::reader::{Item, Reader};
use crate::types::{PortConfig, RouterConfig};

/// The largest number of 32 bits, as a limit.
pub(crate) const U32: u64 = u32::MAX as u64;

/// A key whose value is a `T`.
pub(crate) struct Key<T: 'static> {
    facts: Facts,
    read: Read<T>,
    default: Option<T>,
    show: fn(&Self, &T) -> String,
    set: Option<fn(&mut NeighborConfig, &T)>,
    table: Option<&'static Table>,
}

/// What a key that neighbors share does to a neighbor.
pub(crate) type Setting = Arc<dyn Fn(&mut NeighborConfig) + Send + Sync>;

/// What a row says whatever the type of the value.
#[derive(Clone, Copy)]
struct Facts {
    name: &'static str,
    former: Option<&'static str>,
    unit: &'static str,
    help: &'static str,
    absent: Absent,
    example: &'static str,
    reload: Reload,
}

/// What holds where the key is missing.
#[derive(Clone, Copy)]
enum Absent {
    Nothing,
    /// The row's own value.
    Value,
    /// A value that is read as if it stood in the file.
    Toml(&'static str),
    /// Something that depends on the rest of the configuration.
    Words(&'static str),
    /// The key must be there.
    Required,
}

/// How a value is read.
enum Read<T: 'static> {
    Flag(fn(bool) -> T),
    Number { least: u64, most: u64, of: fn(u64) -> T },
    Word(&'static [(&'static str, T)]),
    Text { what: &'static str, parse: fn(&str) -> Result<T, &'static str> },
    By { what: &'static str, read: fn(&mut Reader, &Item<'_>) -> Option<T> },
    Section { what: &'static str },
}

/// What stands at a key that begins a section.
#[derive(Clone, Copy)]
pub(crate) enum Sub {}

/// Whether a reload can change a key.
#[derive(Clone, Copy)]
pub(crate) enum Reload {
    /// It can.
    Live,
    /// It can, and the sessions of the neighbors concerned begin anew.
    Session,
    /// It cannot: this tells whether two configurations differ in it.
    Restart(Differs),
}

/// Whether two configurations differ in a key that only a start can change.
#[derive(Clone, Copy)]
pub(crate) enum Differs {
    /// A reload that would change it is refused.
    Router(fn(&RouterConfig, &RouterConfig) -> bool),
    /// The same, for a port that is in both configurations. A new port may have any value.
    Port(fn(&PortConfig, &PortConfig) -> bool),
    /// The rest of the configuration is taken over; this takes effect with the next start.
    Bgp(fn(&BgpConfig, &BgpConfig) -> bool),
    /// The same, where the process itself compares.
    Process,
}

/// Numbers that configurations have.
pub(crate) trait Number: Copy + 'static {
    fn of(number: u64) -> Self;
    fn shown(&self) -> String;
}

macro_rules! numbers {
    ($($type:ident),*) => {
        $(impl Number for $type {
            fn of(number: u64) -> Self {
                Self::try_from(number).unwrap_or(Self::MAX)
            }
            fn shown(&self) -> String {
                self.to_string()
            }
        })*
    };
}
numbers!(u8, u16, u32, u64, usize);

impl Number for f32 {
    fn of(number: u64) -> Self {
        number as f32
    }
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Key<bool> {
    /// True or false.
    pub(crate) const fn flag(name: &'static str) -> Self {
        Self::new(name, Read::Flag(|flag| flag), |_, flag| flag.to_string())
    }
}

impl<T: Number> Key<T> {
    /// A whole number within a range.
    pub(crate) const fn number(name: &'static str, range: RangeInclusive<u64>) -> Self {
        let read = Read::Number { least: *range.start(), most: *range.end(), of: T::of };
        Self::new(name, read, |_, number| number.shown())
    }

    /// What it is counted in, as in "from 1 to 60 seconds".
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.facts.unit = unit;
        self
    }
}

impl<T: Copy + PartialEq + 'static> Key<T> {
    /// One of a few words.
    pub(crate) const fn word(name: &'static str, words: &'static [(&'static str, T)]) -> Self {
        Self::new(name, Read::Word(words), |key, value| format!("{:?}", key.word_of(value)))
    }
}

impl<T: Copy + 'static> Key<T> {
    /// What holds where the key is missing.
    pub(crate) const fn default(mut self, value: T) -> Self {
        self.default = Some(value);
        self.facts.absent = Absent::Value;
        self
    }
}

impl Key<Sub> {
    /// A section.
    pub(crate) const fn section(name: &'static str, table: &'static Table) -> Self {
        Self::new(name, Read::Section { what: "a table" }, |_, _| String::new()).keys(table)
    }

    /// Any number of sections, in order.
    pub(crate) const fn sections(name: &'static str, table: &'static Table) -> Self {
        Self::new(name, Read::Section { what: "tables" }, |_, _| String::new()).keys(table)
    }

    /// Any number of sections, each with a name.
    pub(crate) const fn named_sections(name: &'static str, table: &'static Table) -> Self {
        Self::new(name, Read::Section { what: "tables by name" }, |_, _| String::new()).keys(table)
    }
}

impl Key<()> {
    /// Something that is read where the rest of the configuration is known; `what` it is.
    pub(crate) const fn raw(name: &'static str, what: &'static str) -> Self {
        Self::by(name, what, |_, _| None)
    }
}

impl<T: 'static> Key<T> {
    /// The keys of the section that may begin here.
    pub(crate) const fn keys(mut self, table: &'static Table) -> Self {
        self.table = Some(table);
        self
    }

    /// A string of one of the small languages of [`crate::values`]; `what` it is.
    pub(crate) const fn text(
        name: &'static str,
        what: &'static str,
        parse: fn(&str) -> Result<T, &'static str>,
    ) -> Self {
        Self::new(name, Read::Text { what, parse }, |_, _| String::new())
    }

    /// Something that a function reads; `what` it is.
    pub(crate) const fn by(
        name: &'static str,
        what: &'static str,
        read: fn(&mut Reader, &Item<'_>) -> Option<T>,
    ) -> Self {
        Self::new(name, Read::By { what, read }, |_, _| String::new())
    }

    const fn new(name: &'static str, read: Read<T>, show: fn(&Self, &T) -> String) -> Self {
        let (former, unit, help, example) = (None, "", "", "");
        let (absent, reload) = (Absent::Nothing, Reload::Live);
        let facts = Facts { name, former, unit, help, absent, example, reload };
        Self { facts, read, default: None, show, set: None, table: None }
    }

    /// What it is for, in a line of Markdown; links begin in `docs/`.
    pub(crate) const fn help(mut self, help: &'static str) -> Self {
        self.facts.help = help;
        self
    }

    /// What holds where the key is missing, as it would be written.
    pub(crate) const fn default_toml(mut self, text: &'static str) -> Self {
        self.facts.absent = Absent::Toml(text);
        self
    }

    /// What holds where the key is missing, if that depends on other keys.
    pub(crate) const fn otherwise(mut self, words: &'static str) -> Self {
        self.facts.absent = Absent::Words(words);
        self
    }

    /// The key must be there, as in this example.
    pub(crate) const fn required(mut self, example: &'static str) -> Self {
        self.facts.absent = Absent::Required;
        self.facts.example = example;
        self
    }

    /// What to write where other keys make this one required.
    pub(crate) const fn example(mut self, example: &'static str) -> Self {
        self.facts.example = example;
        self
    }

    /// Another spelling, which was the only one before and is still read.
    pub(crate) const fn former(mut self, name: &'static str) -> Self {
        self.facts.former = Some(name);
        self
    }

    /// A reload that changes the key ends sessions of neighbors.
    pub(crate) const fn session(mut self) -> Self {
        self.facts.reload = Reload::Session;
        self
    }

    /// Only a start can change the key.
    pub(crate) const fn restart(mut self, differs: Differs) -> Self {
        self.facts.reload = Reload::Restart(differs);
        self
    }

    /// What the value does to a neighbor, or to all neighbors of a group.
    pub(crate) const fn sets(mut self, set: fn(&mut NeighborConfig, &T)) -> Self {
        self.set = Some(set);
        self
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.facts.name
    }
}

impl<T: Value> Key<T> {
    /// Reads the value that stands in the file; what is wrong with it is reported.
    pub(crate) fn value(&self, reader: &mut Reader, item: &Item<'_>) -> Option<T> {
        match &self.read {
            Read::Flag(of) => reader.boolean(item).map(of),
            Read::Number { least, most, of } => reader.integer(item, *least..=*most, self.facts.unit).map(of),
            Read::Word(words) => reader.word(item, words),
            Read::Text { parse, .. } => reader.parse(item, parse).map(|at| at.value),
            Read::By { read, .. } => read(reader, item),
            Read::Section { .. } => None,
        }
    }

    /// What holds where the key is missing, if the row alone says it.
    pub(crate) fn default_value(&self, reader: &mut Reader) -> Option<T> {
        let Absent::Toml(text) = self.facts.absent else { return self.default.clone() };
        let document = format!("value = {text}");
        let table = DeTable::parse(&document).ok()?;
        let value = table.get_ref().get("value")?.get_ref();
        self.value(reader, &Item { key: self.facts.name, value, span: 0..0 })
    }
}

impl<T: PartialEq + 'static> Key<T> {
    /// The word for a value: as it is written in a configuration.
    pub(crate) fn word_of(&self, value: &T) -> &'static str {
        let Read::Word(words) = &self.read else { return "" };
        words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
    }
}

/// The keys of one kind of section.
pub(crate) struct Table {
    /// Its path: `nat.timeouts`.
    pub(crate) name: &'static str,
    /// How findings name it: `[nat.timeouts]`.
    pub(crate) title: &'static str,
    pub(crate) rows: &'static [&'static dyn Row],
    /// Keys that it shares with other sections.
    pub(crate) shared: Option<&'static Table>,
}

impl Table {
    /// A table whose keys are its own.
    pub(crate) const fn new(
        name: &'static str,
        title: &'static str,
        rows: &'static [&'static dyn Row],
    ) -> Self {
        Self { name, title, rows, shared: None }
    }

    /// Whether it has a row for this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.rows.iter().any(|row| row.name() == key) || self.shared.is_some_and(|shared| shared.has(key))
    }
}

/// What keys can have as a value.
pub(crate) trait Value: Clone + Send + Sync + 'static {}
impl<T: Clone + Send + Sync + 'static> Value for T {}

/// A key whatever the type of its value.
pub(crate) trait Row: Sync {
    fn name(&self) -> &'static str;
    /// Another spelling that is still read.
    fn former(&self) -> Option<&'static str>;
    fn is_required(&self) -> bool;
    /// A value that shows what to write.
    fn example(&self) -> &'static str;
    fn reload(&self) -> Reload;
    /// The keys of the section that may begin here.
    fn table(&self) -> Option<&'static Table>;
    /// Whether its value is all that a neighbor has to be told.
    fn is_setting(&self) -> bool;
    /// Reads such a value.
    fn setting(&self, reader: &mut Reader, item: &Item<'_>) -> Option<Setting>;
    fn info(&self) -> KeyInfo;
}

impl<T: Value> Row for Key<T> {
    fn info(&self) -> KeyInfo {
        let facts = &self.facts;
        let default = match facts.absent {
            Absent::Value => self.default.as_ref().map(|value| (self.show)(self, value)),
            Absent::Toml(text) => Some(text.to_owned()),
            Absent::Nothing | Absent::Words(_) | Absent::Required => None,
        };
        let otherwise = match facts.absent {
            Absent::Words(words) => Some(words),
            _ => None,
        };
        KeyInfo {
            key: facts.name,
            former: facts.former,
            value: self.read.info(facts.unit),
            section: self.table.map(|table| table.name),
            required: matches!(facts.absent, Absent::Required),
            default,
            otherwise,
            reload: facts.reload.name(),
            help: facts.help,
        }
    }

    fn name(&self) -> &'static str {
        self.facts.name
    }

    fn former(&self) -> Option<&'static str> {
        self.facts.former
    }

    fn is_required(&self) -> bool {
        matches!(self.facts.absent, Absent::Required)
    }

    fn example(&self) -> &'static str {
        self.facts.example
    }

    fn reload(&self) -> Reload {
        self.facts.reload
    }

    fn table(&self) -> Option<&'static Table> {
        self.table
    }

    fn is_setting(&self) -> bool {
        self.set.is_some()
    }

    fn setting(&self, reader: &mut Reader, item: &Item<'_>) -> Option<Setting> {
        let (set, value) = (self.set?, self.value(reader, item)?);
        Some(Arc::new(move |config: &mut NeighborConfig| set(config, &value)))
    }
}

impl<T> Read<T> {
    fn info(&self, unit: &'static str) -> ValueInfo {
        match self {
            Self::Flag(_) => ValueInfo::Boolean,
            Self::Number { least, most, .. } => ValueInfo::Integer { least: *least, most: *most, unit },
            Self::Word(words) => ValueInfo::Word { words: words.iter().map(|(word, _)| *word).collect() },
            Self::Text { what, .. } | Self::By { what, .. } | Self::Section { what } => {
                ValueInfo::Other { what }
            }
        }
    }
}

impl Reload {
    fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Session => "session",
            Self::Restart(Differs::Port(_)) => "new-port",
            Self::Restart(_) => "restart",
        }
    }
}

/// A row of the table of keys, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// The key's name in its section.
    pub key: &'static str,
    /// Another spelling that is still read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former: Option<&'static str>,
    /// Its type and range.
    pub value: ValueInfo,
    /// The section that may begin here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section: Option<&'static str>,
    /// Whether it must be there.
    pub required: bool,
    /// What holds where it is missing, as it would be written.
    pub default: Option<String>,
    /// The same in words, if it depends on other keys.
    pub otherwise: Option<&'static str>,
    /// `live`: a reload can change it; `session`: the same, and sessions begin anew; `restart`: it cannot; `new-port`: it can
    /// only for a port that is new.
    pub reload: &'static str,
    /// What it is for, in Markdown.
    pub help: &'static str,
}

/// The type and range of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ValueInfo {
    /// True or false.
    Boolean,
    /// A whole number.
    Integer {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
        /// What it is counted in; may be empty.
        unit: &'static str,
    },
    /// One of some words.
    Word {
        /// All of them.
        words: Vec<&'static str>,
    },
    /// Something else.
    Other {
        /// In words.
        what: &'static str,
    },
}

impl ValueInfo {
    /// As [`Display`](std::fmt::Display) has it, with values as code.
    pub(crate) fn markdown(&self) -> String {
        match self {
            Self::Boolean => "`true` or `false`".to_owned(),
            Self::Word { words } => {
                let quoted: Vec<String> = words.iter().map(|word| format!("`{word:?}`")).collect();
                quoted.join(", ")
            }
            Self::Integer { .. } | Self::Other { .. } => self.to_string(),
        }
    }
}

impl std::fmt::Display for ValueInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Boolean => f.write_str("true or false"),
            Self::Integer { least, most, unit } => {
                write!(f, "{least} to {most}{}{unit}", if unit.is_empty() { "" } else { " " })
            }
            Self::Word { words } => {
                let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                f.write_str(&quoted.join(", "))
            }
            Self::Other { what } => f.write_str(what),
        }
    }
}

/// The keys of one kind of section, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SectionInfo {
    /// Its path: `nat.timeouts`; `NAME` stands for names.
    pub section: &'static str,
    /// How findings name it: `[nat.timeouts]`.
    pub title: &'static str,
    /// Its keys, without those that it shares with other sections.
    pub keys: Vec<KeyInfo>,
}

impl KeyInfo {
    /// What holds where the key is missing, in Markdown.
    pub fn default_words(&self) -> String {
        match (&self.default, self.otherwise) {
            _ if self.required => "required".to_owned(),
            (Some(default), _) => format!("`{default}`"),
            (None, Some(words)) => words.to_owned(),
            (None, None) => String::new(),
        }
    }

    /// Whether a reload can change it, in words.
    pub fn reload_words(&self) -> &'static str {
        match self.reload {
            "session" => "yes, with new sessions",
            "restart" => "no",
            "new-port" => "of new ports",
            // Its keys say it.
            _ if self.section.is_some() => "",
            _ => "yes",
        }
    }
}

impl Table {
    /// Its rows for people and programs.
    pub(crate) fn info(&self) -> SectionInfo {
        let keys = self.rows.iter().map(|row| row.info()).collect();
        SectionInfo { section: self.name, title: self.title, keys }
    }
}
