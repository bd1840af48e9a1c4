//! `[workers]`: the threads that work on packets, where ports have interfaces.
//!
//! ```toml
//! [workers]
//! priority = "realtime"   # with a budget; or "nice", "normal"
//! cores = [2, 3]          # thread i is bound to the i-th of these, beginning again after the last; unbound if not given
//! ```

use thalweg_exec::Priority;

use crate::diagnostic::ErrorKind;
use crate::reader::{Reader, Section};
use crate::types::WorkersConfig;

/// What the kernel's sets of cores hold.
const CORES_MAX: u64 = 1024;

/// Reads the section.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>) -> WorkersConfig {
    let mut workers = WorkersConfig::default();
    let Some(item) = root.take("workers") else { return workers };
    let Some(mut section) = reader.section(&item, "[workers]".to_owned()) else { return workers };
    let priorities = Priority::ALL.map(|priority| (priority.name(), priority));
    if let Some(item) = section.take("priority") {
        workers.priority = reader.word(&item, &priorities).unwrap_or(workers.priority);
    }
    if let Some(item) = section.take("cores") {
        let entries = reader.filled_list(&item);
        let cores = entries.iter().filter_map(|entry| reader.integer(entry, 0..=CORES_MAX - 1, ""));
        let cores: Vec<usize> = cores.map(|core| core as usize).collect();
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = cores.iter().find(|core| !seen.insert(**core)) {
            let message = format!("core {twice} is given twice");
            reader.error(ErrorKind::Duplicate, &item.span, message, "each core once");
        }
        workers.cores = (!cores.is_empty()).then_some(cores);
    }
    section.finish(reader);
    workers
}
