//! `[workers]`: the threads that work on packets of live ports.

use thalweg_exec::Priority;

use crate::diagnostic::ErrorKind;
use crate::key::{Differs, Key, Sub, Table};
use crate::reader::{Item, Reader};
use crate::section::Section;
use crate::types::WorkersConfig;

pub(crate) static WORKERS: Key<Sub> = Key::section("workers", &TABLE)
    .help("live: the threads that forward packets; read only when `thalweg run` starts");
static TABLE: Table = Table::new("workers", "[workers]", &[&PRIORITY, &CORES]);

static PRIORITY: Key<Priority> = Key::word("priority", &Priority::NAMES)
    .default(Priority::RealTime)
    .restart(Differs::Process)
    .help(
        "how soon they get a core that other threads want too: `\"realtime\"` (at once, within a budget), `\"nice\"` or \
         `\"normal\"`; where the system refuses it the next lower one, with a warning",
    );
static CORES: Key<Vec<usize>> = Key::by("cores", "a list of cores, each 0 to 1023", cores)
    .otherwise("not bound")
    .restart(Differs::Process)
    .help("cores to pin workers to: `[2, 3]`, worker i to the i-th, starting again after the last");

/// The capacity of the kernel's CPU sets.
const CORES_MAX: u64 = 1024;

pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>) -> WorkersConfig {
    let mut workers = WorkersConfig::default();
    let mut section = root.section_or_empty(reader, &WORKERS);
    section.set(reader, &PRIORITY, &mut workers.priority);
    workers.cores = section.get(reader, &CORES);
    section.finish(reader);
    workers
}

fn cores(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<usize>> {
    let entries = reader.filled_list(item);
    let cores = entries.iter().filter_map(|entry| reader.integer(entry, 0..=CORES_MAX - 1, ""));
    let cores: Vec<usize> = cores.collect();
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = cores.iter().find(|core| !seen.insert(**core)) {
        let message = format!("core {twice} is given twice");
        reader.error(ErrorKind::Duplicate, &item.span, message, "each core once");
    }
    (!cores.is_empty()).then_some(cores)
}
