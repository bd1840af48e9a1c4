//! The sources of VRPs: a thread for each cache, and one that reads files, chooses among the sources and tells the
//! speaker.
//!
//! The first source in the configuration's order that has data counts. What another one says is kept up to date beside
//! it, so a change of source needs no download. A reload that changes the sources ends all of these threads and begins
//! new ones; until one of them has data, the VRPs in force stay, at most [`GRACE`].

mod cache;
mod file;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_bgp::rpki::VrpTable;
use thalweg_config::{RpkiPlace, RpkiSource};
use thalweg_node::control::RpkiSourceView;
use thalweg_node::speaker::Speaker;

/// How often sources are looked at. Changes within it are applied together.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long new sources may take before the VRPs of earlier ones are dropped.
const GRACE: Duration = Duration::from_secs(300);

/// What a source has, as others see it.
#[derive(Default)]
struct Seen {
    /// `None`: no data, or it has expired.
    table: Option<Arc<VrpTable>>,
    view: RpkiSourceView,
}

/// A source at work.
struct Source {
    seen: Arc<Mutex<Seen>>,
    /// `None` for a cache, which has a thread.
    file: Option<file::VrpFile>,
    thread: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Source {
    fn begin(source: &RpkiSource) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut this = Self { seen: seen.clone(), file: None, thread: None };
        match &source.place {
            RpkiPlace::File(path) => this.file = Some(file::VrpFile::new(path.clone(), source.cache)),
            RpkiPlace::Cache(address) => {
                let (address, config, stop) = (*address, source.cache, Arc::<AtomicBool>::default());
                let flag = stop.clone();
                let body = move || cache::run(address, config, &seen, &flag);
                match thread::Builder::new().name("rpki-cache".to_owned()).spawn(body) {
                    Ok(thread) => this.thread = Some((stop, thread)),
                    Err(error) => tracing::error!("rpki: no thread for cache {address}: {error}"),
                }
            }
        }
        this
    }
}

/// Works until `stop` is set.
pub(crate) fn run(speaker: &Speaker, stop: &AtomicBool) {
    let (mut configured, mut sources) = (Vec::new(), Vec::new());
    let mut used: Option<Arc<VrpTable>> = None;
    let mut begun = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let config = speaker.config();
        if configured != config.rpki {
            end(&mut sources);
            configured.clone_from(&config.rpki);
            sources = configured.iter().map(Source::begin).collect();
            begun = Instant::now();
        }
        for source in &mut sources {
            if let Some(file) = &mut source.file {
                file.look(&source.seen);
            }
        }
        let chosen = sources.iter().find_map(|source| {
            let seen = source.seen.lock();
            seen.table.clone().map(|table| (table, seen.view.source.clone()))
        });
        let has_none = used.as_ref().is_none_or(|used| used.is_empty());
        let is_patient = begun.elapsed() < GRACE && !configured.is_empty();
        match chosen {
            Some((table, _)) if used.as_ref().is_some_and(|used| Arc::ptr_eq(used, &table)) => {}
            Some((table, from)) => {
                let [ipv4, ipv6] = table.counts();
                tracing::info!(ipv4, ipv6, "rpki: VRPs of {from} are in force");
                speaker.set_vrps(table.clone());
                used = Some(table);
            }
            None if used.is_some() && (has_none || is_patient) => {}
            None => {
                if !has_none {
                    tracing::warn!("rpki: no source has VRPs any more: every route is not-found");
                }
                let none = Arc::<VrpTable>::default();
                speaker.set_vrps(none.clone());
                used = Some(none);
            }
        }
        let mut found = false;
        let views = sources.iter().map(|source| {
            let seen = source.seen.lock();
            let used = !found && seen.table.is_some();
            found |= used;
            RpkiSourceView { used, ..seen.view.clone() }
        });
        speaker.set_rpki_sources(views.collect());
        speaker.ask_for_unkept();
        thread::park_timeout(LOOK_EVERY);
    }
    end(&mut sources);
}

/// Ends the threads of sources, which look at their flag at least every half second.
fn end(sources: &mut Vec<Source>) {
    for (flag, thread) in sources.drain(..).filter_map(|source| source.thread).collect::<Vec<_>>() {
        flag.store(true, Ordering::Release);
        if thread.join().is_err() {
            tracing::error!("a thread of this program panicked; please report it");
        }
    }
}
