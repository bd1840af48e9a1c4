//! `[workers]`: the threads that work on packets of live ports.

use std::time::Duration;

use thalweg_base::BATCH_PACKETS as BATCH_PACKETS_MAX;
use thalweg_exec::{Priority, THREADS_MAX};

use crate::diagnostic::ErrorKind;
use crate::key::{Differs, Key, Sub, table};
use crate::ports::Ports;
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::types::WorkersConfig;

pub(crate) static WORKERS: Key<Sub> = Key::section("workers", &TABLE)
    .help("live: the threads that forward packets; read only when `thalweg run` starts");
table! {
    static TABLE: "workers", "[workers]";

    static COUNT: Key<usize> = Key::number("count", 1..=THREADS_MAX as u64)
        .otherwise("as many as `queue_workers` of ports name, else 1")
        .restart(Differs::Process)
        .help("how many there are; `--workers` of `thalweg run` has precedence");
    static PRIORITY: Key<Priority> = Key::word("priority", &Priority::NAMES)
        .default_of(|| WorkersConfig::default().priority)
        .restart(Differs::Process)
        .help(
            "how soon they get a core that other threads want too: `\"realtime\"` (at once, within a budget), `\"nice\"` or \
             `\"normal\"`; where the system refuses it the next lower one, with a warning",
        );
    static CORES: Key<Vec<usize>> = Key::by("cores", "a list of cores, each 0 to 1023", cores)
        .otherwise("not bound")
        .restart(Differs::Process)
        .help("cores to pin workers to: `[2, 3]`, worker i to the i-th, starting again after the last");
    static BATCH_PACKETS: Key<usize> = Key::number("batch_packets", 1..=BATCH_PACKETS_MAX as u64)
        .unit("packets")
        .default_of(|| WorkersConfig::default().batch_packets)
        .restart(Differs::Process)
        .help("how many a worker receives at most before it processes and sends them");
    static BUSY_POLL_US: Key<u32> = Key::number("busy_poll_us", 0..=1000)
        .unit("microseconds")
        .default(0)
        .restart(Differs::Process)
        .help(
            "for how long at most a worker [asks its ports again](live.md#busy-polling) before it sleeps, while packets come \
             that often; 0 sleeps at once",
        );
}

/// The capacity of the kernel's CPU sets.
const CORES_MAX: u64 = 1024;

/// Reads the section; `ports` may name workers.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &Ports) -> WorkersConfig {
    let mut workers = WorkersConfig::default();
    let mut section = root.section_or_empty(reader, &WORKERS);
    let count = section.read(reader, &COUNT);
    section.set(reader, &PRIORITY, &mut workers.priority);
    workers.cores = section.get(reader, &CORES);
    section.set(reader, &BATCH_PACKETS, &mut workers.batch_packets);
    let busy_poll_us = section.get(reader, &BUSY_POLL_US);
    workers.busy_poll = Duration::from_micros(busy_poll_us.unwrap_or(0).into());
    section.finish(reader);
    let last = ports.configs.iter().filter_map(|port| Some((port, port.last_worker()?)));
    let named = last.max_by_key(|(_, worker)| *worker);
    workers.count = named.map_or(1, |(_, worker)| worker + 1);
    if let Some(At { value, span }) = count {
        if let Some((port, worker)) = named.filter(|(_, worker)| *worker >= value) {
            let message =
                format!("port {} gives a queue to worker {worker}, and the last is {}", port.name, value - 1);
            reader.error(
                ErrorKind::Conflict,
                &span,
                message,
                format!("{} or more, or no key `count`", worker + 1),
            );
        }
        workers.count = value;
    }
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
