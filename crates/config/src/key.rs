//! Configuration keys, one row each.
//!
//! A row is a `static` beside the code that reads it. It has the key's name, the type and range of its value,
//! its default, a help text, and whether a reload can change it. A [`table`] holds the rows of a section; a row
//! that begins a section names its table, so all are reachable from the root (`registry.rs`). Findings
//! about types, ranges and unknown keys, the tables of `docs/configuration.md`, the output of `thalweg config
//! keys`, and the rule of what needs a restart (`reload.rs`) all come from the rows.
//!
//! ```text
//! table! {
//!     static TABLE: "kernel", "[kernel]";
//!
//!     static METRIC: Key<u32> =
//!         Key::number("metric", 1..=U32).default(116).help("of the routes put into the kernel");
//! }
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

/// The limit of 32 bits.
pub(crate) const U32: u64 = u32::MAX as u64;

/// A key whose value is a `T`.
pub(crate) struct Key<T: 'static> {
    facts: Facts,
    read: Read<T>,
    default: Option<Fallback<T>>,
    show: fn(&Self, &T) -> String,
    place: Place<T>,
    table: Option<&'static Table>,
}

/// Applies a shared key to a neighbor.
pub(crate) type Setting = Arc<dyn Fn(&mut NeighborConfig) + Send + Sync>;

/// The part of a row that does not depend on the type of the value.
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

/// What a missing key means.
#[derive(Clone, Copy)]
enum Absent {
    Nothing,
    /// The row's own default.
    Value,
    /// A default in TOML, read as if it were in the file.
    Toml(&'static str),
    /// A default that depends on the rest of the configuration, in words.
    Words(&'static str),
    Required,
}

/// Where the value of a shared key goes in a neighbor's configuration.
enum Place<T: 'static> {
    Nowhere,
    By(fn(&mut NeighborConfig, &T)),
    /// The field's default is the row's too.
    Field(fn(&mut NeighborConfig) -> &mut T),
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

/// The default of a key.
enum Fallback<T> {
    Is(T),
    /// That of the structure which the key is for.
    Of(fn() -> T),
}

/// The value type of a key that begins a section.
#[derive(Clone, Copy)]
pub(crate) enum Sub {}

/// Whether a reload can change a key.
#[derive(Clone, Copy)]
pub(crate) enum Reload {
    Live,
    /// A reload can change it, but restarts the sessions of the affected neighbors.
    Session,
    /// Only a restart can change it; tells whether two configurations differ in it.
    Restart(Differs),
}

/// Whether two configurations differ in a key that needs a restart.
#[derive(Clone, Copy)]
pub(crate) enum Differs {
    /// A reload that would change it is refused.
    Router(fn(&RouterConfig, &RouterConfig) -> bool),
    /// As `Router`, for a port in both configurations. A new port may have any value.
    Port(fn(&PortConfig, &PortConfig) -> bool),
    /// The rest of the configuration is applied; this key takes effect at the next start.
    Bgp(fn(&BgpConfig, &BgpConfig) -> bool),
    /// As `Bgp`, but the process itself compares.
    Process,
}

/// Types of numbers in configurations.
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
    pub(crate) const fn flag(name: &'static str) -> Self {
        Self::new(name, Read::Flag(|flag| flag), |_, flag| flag.to_string())
    }
}

impl<T: Number> Key<T> {
    /// A whole number in a range.
    pub(crate) const fn number(name: &'static str, range: RangeInclusive<u64>) -> Self {
        let read = Read::Number { least: *range.start(), most: *range.end(), of: T::of };
        Self::new(name, read, |_, number| number.shown())
    }

    /// The unit, as in "from 1 to 60 seconds".
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.facts.unit = unit;
        self
    }
}

impl<T: Copy + PartialEq + 'static> Key<T> {
    /// One of several words.
    pub(crate) const fn word(name: &'static str, words: &'static [(&'static str, T)]) -> Self {
        Self::new(name, Read::Word(words), |key, value| format!("{:?}", key.word_of(value)))
    }
}

impl<T: Copy + 'static> Key<T> {
    /// The value of a missing key.
    pub(crate) const fn default(mut self, value: T) -> Self {
        self.default = Some(Fallback::Is(value));
        self.facts.absent = Absent::Value;
        self
    }

    /// The default is what the structure has that the key is for.
    pub(crate) const fn default_of(mut self, value: fn() -> T) -> Self {
        self.default = Some(Fallback::Of(value));
        self.facts.absent = Absent::Value;
        self
    }
}

impl Key<Sub> {
    pub(crate) const fn section(name: &'static str, table: &'static Table) -> Self {
        Self::new(name, Read::Section { what: "a table" }, |_, _| String::new()).keys(table)
    }

    /// Any number of sections, in order.
    pub(crate) const fn sections(name: &'static str, table: &'static Table) -> Self {
        Self::new(name, Read::Section { what: "tables" }, |_, _| String::new()).keys(table)
    }

    /// Any number of named sections.
    pub(crate) const fn named_sections(name: &'static str, table: &'static Table) -> Self {
        Self::new(name, Read::Section { what: "tables by name" }, |_, _| String::new()).keys(table)
    }
}

impl Key<()> {
    /// A value that is read when the rest of the configuration is known; `what` describes it.
    pub(crate) const fn raw(name: &'static str, what: &'static str) -> Self {
        Self::by(name, what, |_, _| None)
    }
}

impl<T: 'static> Key<T> {
    /// The keys of the section that begins here.
    pub(crate) const fn keys(mut self, table: &'static Table) -> Self {
        self.table = Some(table);
        self
    }

    /// A string in one of the notations of [`crate::values`]; `what` describes it.
    pub(crate) const fn text(
        name: &'static str,
        what: &'static str,
        parse: fn(&str) -> Result<T, &'static str>,
    ) -> Self {
        Self::new(name, Read::Text { what, parse }, |_, _| String::new())
    }

    /// A value that a function reads; `what` describes it.
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
        Self { facts, read, default: None, show, place: Place::Nowhere, table: None }
    }

    /// The meaning in a line of Markdown; links are relative to `docs/`.
    pub(crate) const fn help(mut self, help: &'static str) -> Self {
        self.facts.help = help;
        self
    }

    /// The default, as in a configuration.
    pub(crate) const fn default_toml(mut self, text: &'static str) -> Self {
        self.facts.absent = Absent::Toml(text);
        self
    }

    /// The default in words, if it depends on other keys.
    pub(crate) const fn otherwise(mut self, words: &'static str) -> Self {
        self.facts.absent = Absent::Words(words);
        self
    }

    /// The key is required; with an example.
    pub(crate) const fn required(mut self, example: &'static str) -> Self {
        self.facts.absent = Absent::Required;
        self.facts.example = example;
        self
    }

    /// The value to suggest where other keys make this one required.
    pub(crate) const fn example(mut self, example: &'static str) -> Self {
        self.facts.example = example;
        self
    }

    /// A former spelling, which is still accepted.
    pub(crate) const fn former(mut self, name: &'static str) -> Self {
        self.facts.former = Some(name);
        self
    }

    /// A reload that changes the key ends sessions of neighbors.
    pub(crate) const fn session(mut self) -> Self {
        self.facts.reload = Reload::Session;
        self
    }

    /// Only a restart can change the key.
    pub(crate) const fn restart(mut self, differs: Differs) -> Self {
        self.facts.reload = Reload::Restart(differs);
        self
    }

    /// Applies the value to a neighbor or to all neighbors of a group.
    pub(crate) const fn sets(mut self, set: fn(&mut NeighborConfig, &T)) -> Self {
        self.place = Place::By(set);
        self
    }

    /// The value becomes this field of a neighbor, or of all neighbors of a group; a missing key means the field's
    /// default.
    pub(crate) const fn field(mut self, field: fn(&mut NeighborConfig) -> &mut T) -> Self {
        self.place = Place::Field(field);
        self.facts.absent = Absent::Value;
        self
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.facts.name
    }
}

impl<T: Value> Key<T> {
    /// Reads the value in the file; reports errors.
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

    /// The default, if the row alone defines it.
    pub(crate) fn default_value(&self, reader: &mut Reader) -> Option<T> {
        let Absent::Toml(text) = self.facts.absent else { return self.own_default() };
        let document = format!("value = {text}");
        let table = DeTable::parse(&document).ok()?;
        let value = table.get_ref().get("value")?.get_ref();
        self.value(reader, &Item { key: self.facts.name, value, span: 0..0 })
    }

    fn own_default(&self) -> Option<T> {
        let Place::Field(field) = self.place else {
            return match self.default.as_ref()? {
                Fallback::Is(value) => Some(value.clone()),
                Fallback::Of(value) => Some(value()),
            };
        };
        let mut neighbor = NeighborConfig::new([0; 4].into(), 0, 0, [0; 4].into());
        Some(field(&mut neighbor).clone())
    }
}

impl<T: PartialEq + 'static> Key<T> {
    /// The word for a value in configurations.
    pub(crate) fn word_of(&self, value: &T) -> &'static str {
        let Read::Word(words) = &self.read else { return "" };
        words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
    }
}

/// The keys of one kind of section.
pub(crate) struct Table {
    /// The path: `nat.timeouts`.
    pub(crate) name: &'static str,
    /// The name in findings: `[nat.timeouts]`.
    pub(crate) title: &'static str,
    pub(crate) rows: &'static [&'static dyn Row],
    /// Keys shared with other sections.
    pub(crate) shared: Option<&'static Table>,
}

impl Table {
    pub(crate) fn has(&self, key: &str) -> bool {
        self.rows.iter().any(|row| row.name() == key) || self.shared.is_some_and(|shared| shared.has(key))
    }
}

/// Declares the table of a section with its keys in the order of the documentation. `row` adds a key that is
/// declared elsewhere.
macro_rules! table {
    (@rows $head:tt [$($rows:path),*] row $row:path; $($rest:tt)*) => {
        $crate::key::table!(@rows $head [$($rows,)* $row] $($rest)*);
    };
    (@rows $head:tt [$($rows:path),*]
        $(#[$about:meta])* $visible:vis static $row:ident: $type:ty = $key:expr; $($rest:tt)*) => {
        $(#[$about])*
        $visible static $row: $type = $key;
        $crate::key::table!(@rows $head [$($rows,)* $row] $($rest)*);
    };
    (@rows [[$($about:tt)*] $visible:vis $table:ident $name:literal $title:literal $shared:expr] [$($rows:path),*]) => {
        $($about)*
        $visible static $table: $crate::key::Table = $crate::key::Table {
            name: $name,
            title: $title,
            rows: &[$(&$rows),*],
            shared: $shared,
        };
    };
    ($(#[$about:meta])* $visible:vis static $table:ident: $name:literal, $title:literal; $($rows:tt)*) => {
        $crate::key::table!(@rows [[$(#[$about])*] $visible $table $name $title None] [] $($rows)*);
    };
    ($(#[$about:meta])* $visible:vis static $table:ident: $name:literal, $title:literal, shared $shared:path; $($rows:tt)*) => {
        $crate::key::table!(@rows [[$(#[$about])*] $visible $table $name $title Some(&$shared)] [] $($rows)*);
    };
}
pub(crate) use table;

/// The types that keys can have as a value.
pub(crate) trait Value: Clone + Send + Sync + 'static {}
impl<T: Clone + Send + Sync + 'static> Value for T {}

/// A key of any type.
pub(crate) trait Row: Sync {
    fn name(&self) -> &'static str;
    /// A former spelling that is still accepted.
    fn former(&self) -> Option<&'static str>;
    fn is_required(&self) -> bool;
    /// A value that shows what to write.
    fn example(&self) -> &'static str;
    fn reload(&self) -> Reload;
    /// The keys of the section that begins here.
    fn table(&self) -> Option<&'static Table>;
    /// Whether its value applies to a neighbor by itself.
    fn is_setting(&self) -> bool;
    /// Reads such a value.
    fn setting(&self, reader: &mut Reader, item: &Item<'_>) -> Option<Setting>;
    fn info(&self) -> KeyInfo;
}

impl<T: Value> Row for Key<T> {
    fn info(&self) -> KeyInfo {
        let facts = &self.facts;
        let default = match facts.absent {
            Absent::Value => self.own_default().map(|value| (self.show)(self, &value)),
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
        !matches!(self.place, Place::Nowhere)
    }

    fn setting(&self, reader: &mut Reader, item: &Item<'_>) -> Option<Setting> {
        let value = self.value(reader, item)?;
        match self.place {
            Place::Nowhere => None,
            Place::By(set) => Some(Arc::new(move |config: &mut NeighborConfig| set(config, &value))),
            Place::Field(field) => {
                Some(Arc::new(move |config: &mut NeighborConfig| *field(config) = value.clone()))
            }
        }
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

/// A row of the table of keys, for documents and JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// The name in its section.
    pub key: &'static str,
    /// A former spelling that is still accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former: Option<&'static str>,
    pub value: ValueInfo,
    /// The section that begins here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section: Option<&'static str>,
    pub required: bool,
    /// The default, as in a configuration.
    pub default: Option<String>,
    /// The default in words, if it depends on other keys.
    pub otherwise: Option<&'static str>,
    /// `live`: a reload can change it; `session`: a reload can change it and restarts sessions; `restart`:
    /// only a restart can; `new-port`: a reload can set it only for a new port.
    pub reload: &'static str,
    /// Markdown.
    pub help: &'static str,
}

/// The type and range of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ValueInfo {
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer {
        least: u64,
        most: u64,
        /// May be empty.
        unit: &'static str,
    },
    /// One of several words.
    Word {
        /// All of them.
        words: Vec<&'static str>,
    },
    /// Another type.
    Other {
        /// A description.
        what: &'static str,
    },
}

impl ValueInfo {
    /// [`Display`](std::fmt::Display) with values as code.
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

/// The keys of one kind of section, for documents and JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SectionInfo {
    /// The path: `nat.timeouts`; `NAME` stands for names.
    pub section: &'static str,
    /// The name in findings: `[nat.timeouts]`.
    pub title: &'static str,
    /// Without the keys shared with other sections.
    pub keys: Vec<KeyInfo>,
}

impl KeyInfo {
    /// What a missing key means, in Markdown.
    pub fn default_words(&self) -> String {
        match (&self.default, self.otherwise) {
            _ if self.required => "required".to_owned(),
            (Some(default), _) => format!("`{default}`"),
            (None, Some(words)) => words.to_owned(),
            (None, None) => String::new(),
        }
    }

    /// Whether a reload can change the key, in words.
    pub fn reload_words(&self) -> &'static str {
        match self.reload {
            "session" => "yes, with new sessions",
            "restart" => "no",
            "new-port" => "of new ports",
            // The section's own keys have it.
            _ if self.section.is_some() => "",
            _ => "yes",
        }
    }
}

impl Table {
    /// The rows for documents and JSON.
    pub(crate) fn info(&self) -> SectionInfo {
        let keys = self.rows.iter().map(|row| row.info()).collect();
        SectionInfo { section: self.name, title: self.title, keys }
    }
}
