//! Chooses, for each hour of a question, the coarsest rollup that answers it as its records would, or the records.
//!
//! Where records are gone, the finest rollup that has the question's fields answers, with its resolution, and the answer
//! says so. Files of records that a rollup does not cover count beside it.
//!
//! Files and rollups of an archive count as those of the folder that they were sent from, or of a folder of their own. Files
//! of records there are opened last, and only those for which no rollup answers.
//!
//! Files and rollups have to be of one moment. Rollups are opened, then files are listed (and the writer is asked), then
//! rollups are listed again: if these are the same, nothing was covered and removed in between.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_flow::fields::Field;
use thalweg_text::calendar::{HOUR_NS, SECOND_NS};

use super::{KEPT, LOST, Level};
use crate::archive::{Archived, Kinds, Unopened, key_of, part_of};
use crate::dataset::{self, Dataset, Rolled, RollupSummary, Summary, View, Window, name_of};
use crate::error::StoreError;
use crate::file::{FlowFile, RollupFacts};
use crate::live::{Writing, live_view_of};
use crate::query::{Key, Query, readable_step_ns};

/// How often a reader starts over because rollups changed.
const TRIES_MAX: usize = 50;

/// The steps that a question wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sums of the whole time.
    None,
    /// Steps of this length, or of a readable one.
    Of(Option<u64>),
    /// Single records.
    Records,
}

/// What a question asks of a rollup.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'a> {
    pub query: &'a Query,
    pub keys: &'a [Key],
    pub step: Step,
    /// Ask the writer for what is on no disk yet.
    pub live: bool,
    /// Rollups may answer.
    pub rollups: bool,
}

/// What a writer's folder has.
#[derive(Default)]
struct Part {
    folder: PathBuf,
    view: View,
    rollups: Vec<Arc<FlowFile>>,
    /// Records that are in an archive only.
    archived: Vec<Unopened>,
    /// The archive of which this is, and whose folder is not asked; see [`Archived::place`].
    archive: Option<(String, String)>,
}

impl Dataset {
    /// The files, and by choice the records of no file, that answer a question.
    pub fn view_for(&self, needs: &Needs<'_>) -> Result<(View, Vec<Writing>), StoreError> {
        let folders = || {
            let (mut parts, mut writers) = (Vec::new(), Vec::new());
            for folder in self.parts()? {
                let (part, writing) = part(&folder, needs)?;
                parts.push(part);
                writers.extend(writing);
            }
            Ok((parts, writers))
        };
        let finish = |(parts, writers): (Vec<Part>, Vec<Writing>)| {
            let step_ns = match needs.step {
                Step::Of(Some(step_ns)) => Some(step_ns),
                Step::Of(None) => readable(&parts, needs.query.window),
                Step::None | Step::Records => None,
            };
            let mut all = View::default();
            for part in parts {
                all.join(part.choose(needs, step_ns)?);
            }
            all.step_ns = step_ns.filter(|_| all.rolled.step_s > 0);
            Ok((all, writers))
        };
        let kinds = if needs.rollups { Kinds::RecordsAndRollups } else { Kinds::Records };
        let add = |(parts, _): &mut (Vec<Part>, _), archived: &Archived<'_>| {
            add_rollups(parts, archived)?;
            add_records(parts, archived);
            Ok(())
        };
        self.with_archives((needs.query.window, kinds), folders, add, finish)
    }

    /// Adds what there is of sums, the finest first.
    pub fn add_rollups(&self, summary: &mut Summary) -> Result<(), StoreError> {
        let folders = || {
            let mut parts = Vec::new();
            for folder in self.parts()? {
                let view = opened(&folder, Window::ALL)?.1;
                let (skipped, rollups) = (view.skipped, view.files);
                let view = View { skipped, ..View::default() };
                parts.push(Part { folder, view, rollups, ..Part::default() });
            }
            Ok(parts)
        };
        let parts = self.with_archives((Window::ALL, Kinds::RecordsAndRollups), folders, add_rollups, Ok)?;
        let mut by_step: BTreeMap<u64, RollupSummary> = BTreeMap::new();
        for part in parts {
            summary.skipped.join(part.view.skipped);
            for file in &part.rollups {
                let (Some(facts), Some((from, to))) = (facts(file), file.span()) else { continue };
                let new =
                    RollupSummary { step_s: facts.step_s, span_ns: (from, to), ..RollupSummary::default() };
                let all = by_step.entry(facts.step_s).or_insert(new);
                all.files += 1;
                all.rows += file.rows();
                all.bytes += file.size;
                all.span_ns = (all.span_ns.0.min(from), all.span_ns.1.max(to));
            }
        }
        summary.rollups = by_step.into_values().collect();
        Ok(())
    }
}

/// The rollups of a window, by name and opened.
fn opened(folder: &Path, window: Window) -> Result<(Vec<PathBuf>, View), StoreError> {
    for _ in 0..TRIES_MAX {
        let names = listed(folder, window)?;
        match dataset::open_all(&names) {
            Err(error) if error.is_gone() => {}
            opened => return Ok((names, opened?)),
        }
    }
    Err(StoreError::Moving(folder.to_path_buf()))
}

/// The length of steps that the records would have.
fn readable(parts: &[Part], window: Window) -> Option<u64> {
    let files = parts.iter().flat_map(|part| part.rollups.iter().filter_map(|file| file.span()));
    let unopened = parts.iter().flat_map(|part| &part.archived);
    let files = files.chain(unopened.filter_map(|object| dataset::named_span(Path::new(&object.key))));
    let spans = parts.iter().filter_map(|part| part.view.summary().span_ns).chain(files);
    let (from, to) = spans.reduce(|all, span| (all.0.min(span.0), all.1.max(span.1)))?;
    Some(readable_step_ns(Window {
        from_ns: from.max(window.from_ns),
        to_ns: to.saturating_add(1).min(window.to_ns),
    }))
}

/// A window of whole hours.
fn whole_hours(window: Window) -> Window {
    let to_ns = window.to_ns.checked_next_multiple_of(HOUR_NS).unwrap_or(u64::MAX);
    Window { from_ns: window.from_ns / HOUR_NS * HOUR_NS, to_ns }
}

fn part(folder: &Path, needs: &Needs<'_>) -> Result<(Part, Option<Writing>), StoreError> {
    let hours = whole_hours(needs.query.window);
    for _ in 0..TRIES_MAX {
        let (names, rollups) = if needs.rollups { opened(folder, hours)? } else { Default::default() };
        // What is covered is known of whole hours only.
        let window = if needs.rollups { hours } else { needs.query.window };
        let (mut view, writing) = match needs.live {
            true => live_view_of(folder, window)?,
            false => (dataset::view_of_part(folder, window)?, None),
        };
        if needs.rollups && listed(folder, hours)? != names {
            continue;
        }
        view.skipped.join(rollups.skipped);
        let (folder, rollups) = (folder.to_path_buf(), rollups.files);
        return Ok((Part { folder, view, rollups, ..Part::default() }, writing));
    }
    Err(StoreError::Moving(folder.to_path_buf()))
}

/// Adds the rollups that an archive has and no folder.
fn add_rollups(parts: &mut Vec<Part>, archived: &Archived<'_>) -> Result<(), StoreError> {
    let new = archived.rollups_beside(parts.iter().flat_map(|part| &part.rollups))?;
    let mut own: BTreeMap<String, Part> = BTreeMap::new();
    for rollup in new.files {
        let key = key_of(&rollup.path);
        let part = match parts.iter_mut().find(|part| part.has(archived, &key)) {
            Some(part) => part,
            None => own.entry(part_of(&key).to_owned()).or_default(),
        };
        part.rollups.push(rollup);
    }
    parts.push(Part { view: View { skipped: new.skipped, ..View::default() }, ..Part::default() });
    let archive = Some(archived.place());
    let own = own.into_iter();
    parts.extend(own.map(|(writer, part)| Part { folder: writer.into(), archive: archive.clone(), ..part }));
    Ok(())
}

/// Adds the records that an archive has and no folder, each file to the folder whose rollup covers it.
fn add_records(parts: &mut Vec<Part>, archived: &Archived<'_>) {
    let new = archived.records_beside(parts.iter().flat_map(|part| part.view.files.iter()));
    let covered: Vec<HashSet<String>> = parts.iter().map(Part::covered).collect();
    let mut others = Part::default();
    for object in new {
        let name = name_of(Path::new(&object.key));
        let mut places = parts.iter_mut().zip(&covered);
        let covers = |(part, covered): &(&mut Part, &HashSet<String>)| {
            covered.contains(name) && part.has(archived, &object.key)
        };
        let part = places.find(covers).map_or(&mut others, |(part, _)| part);
        part.archived.push(object);
    }
    parts.push(others);
}

/// The rollups of a window.
fn listed(folder: &Path, window: Window) -> Result<Vec<PathBuf>, StoreError> {
    let mut names = Vec::new();
    for level in Level::ALL {
        names.extend(dataset::list(&level.folder(folder), window)?);
    }
    Ok(names)
}

fn facts(file: &Arc<FlowFile>) -> Option<&RollupFacts> {
    file.rollup.as_ref()
}

fn hour_of(file: &FlowFile) -> Option<u64> {
    file.span().map(|(from, _)| from / HOUR_NS)
}

impl Part {
    /// Whether the object with this key is of this writer.
    fn has(&self, archived: &Archived<'_>, key: &str) -> bool {
        let is_of = match &self.archive {
            Some(place) => *place == archived.place(),
            None => archived.is_of(&self.folder),
        };
        is_of && dataset::writer_of(&self.folder) == part_of(key)
    }

    /// The names of the files whose records are in rollups.
    fn covered(&self) -> HashSet<String> {
        let facts = self.rollups.iter().filter_map(facts);
        facts.flat_map(|facts| facts.covers.iter().cloned()).collect()
    }

    fn choose(self, needs: &Needs<'_>, step_ns: Option<u64>) -> Result<View, StoreError> {
        let window = needs.query.window;
        let mut names: HashMap<u64, HashSet<&str>> = HashMap::new();
        let here = self.view.files.iter().map(|file| (hour_of(file), &*file.path));
        let there = self.archived.iter().map(|object| (object.hour(), Path::new(&object.key)));
        for (hour, path) in here.chain(there) {
            if let Some(hour) = hour {
                names.entry(hour).or_default().insert(name_of(path));
            }
        }
        let mut by_hour: BTreeMap<u64, Vec<&Arc<FlowFile>>> = BTreeMap::new();
        for file in &self.rollups {
            hour_of(file).into_iter().for_each(|hour| by_hour.entry(hour).or_default().push(file));
        }
        by_hour.retain(|hour, _| window.touches(hour * HOUR_NS, hour * HOUR_NS + (HOUR_NS - 1)));
        let mut rolled = self.view.rolled;
        let mut chosen: HashMap<u64, Arc<FlowFile>> = HashMap::new();
        for (hour, rollups) in by_hour {
            let names = names.entry(hour).or_default();
            let choice = Choice { needs, step_ns, hour, rollups: &rollups, names };
            if let Some(rollup) = choice.make(&mut rolled) {
                chosen.insert(hour, Arc::clone(rollup));
            }
        }
        let is_covered = |hour: Option<u64>, path: &Path| {
            let rollup = hour.and_then(|hour| chosen.get(&hour));
            rollup.and_then(facts).is_some_and(|facts| facts.covers.contains(name_of(path)))
        };
        let Self { mut view, mut archived, .. } = self;
        archived.retain(|object| !is_covered(object.hour(), Path::new(&object.key)));
        view.join(Unopened::open_all(&archived)?);
        view.files.retain(|file| {
            let is_asked = file.span().is_some_and(|(from, to)| window.touches(from, to));
            is_asked && !is_covered(hour_of(file), &file.path)
        });
        view.rolled = rolled;
        view.files.extend(chosen.into_values());
        Ok(view)
    }
}

/// An hour of a question.
struct Choice<'a> {
    needs: &'a Needs<'a>,
    step_ns: Option<u64>,
    hour: u64,
    rollups: &'a [&'a Arc<FlowFile>],
    /// Of the files that are there, or in an archive.
    names: &'a HashSet<&'a str>,
}

impl<'a> Choice<'a> {
    /// The rollup that answers; `None` for the records.
    fn make(&self, rolled: &mut Rolled) -> Option<&'a Arc<FlowFile>> {
        let is_gone = |name: &&String| !self.names.contains(name.as_str());
        let covered = self.rollups.iter().filter_map(|file| facts(file)).flat_map(|facts| &facts.covers);
        let gone: HashSet<&String> = covered.filter(is_gone).collect();
        // Another may have been made when records were gone already.
        let is_whole = |facts: &RollupFacts| gone.iter().all(|name| facts.covers.contains(*name));
        let mut whole: Vec<&'a Arc<FlowFile>> =
            self.rollups.iter().copied().filter(|file| facts(file).is_some_and(is_whole)).collect();
        whole.sort_by_key(|file| facts(file).map(|facts| facts.step_s));
        let exact = whole.iter().rev().find(|file| facts(file).is_some_and(|facts| self.is_exact(facts)));
        let chosen = match (exact, whole.first()) {
            (Some(exact), _) => *exact,
            (None, _) if gone.is_empty() => return None,
            (None, Some(finest)) if self.has_fields(0) => {
                rolled.hours_coarse += 1;
                *finest
            }
            (None, _) => {
                rolled.hours_missing += 1;
                return None;
            }
        };
        rolled.step_s = rolled.step_s.max(facts(chosen).map_or(0, |facts| facts.step_s));
        Some(chosen)
    }

    /// Whether a rollup says what the records say.
    fn is_exact(&self, facts: &RollupFacts) -> bool {
        let level_ns = facts.step_s * SECOND_NS;
        let (window, from_ns) = (self.needs.query.window, self.hour * HOUR_NS);
        let inside = |border_ns: u64| border_ns > from_ns && border_ns < from_ns + HOUR_NS;
        let is_on_step = |border_ns: u64| !inside(border_ns) || border_ns.is_multiple_of(level_ns);
        is_on_step(window.from_ns)
            && is_on_step(window.to_ns)
            && self.step_ns.is_none_or(|step_ns| step_ns.is_multiple_of(level_ns))
            && self.has_fields(facts.folded)
    }

    /// Whether rows that were folded so far have the fields of the question.
    fn has_fields(&self, folded: u64) -> bool {
        let Needs { query, keys, step, .. } = self.needs;
        let lost = LOST.get(usize::try_from(folded).unwrap_or(usize::MAX)).copied().unwrap_or(KEPT.len());
        let kept = &KEPT[lost..];
        let has = |field: Field| kept.contains(&field);
        *step != Step::Records
            && query.dedup.is_none()
            && query.filter.is_about(&has)
            && keys.iter().all(|key| has(key.source) && key.destination.is_none_or(has))
    }
}
