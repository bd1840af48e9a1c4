//! Measures every look-up structure on a table of real routes, for `thalweg lab lpm`.
//!
//! The workload ([`thalweg_dataplane::lpm::workload`]) is a published one, so other programs can be timed with the
//! same addresses. One thread looks all of them up in batches and adds up the answers, so that no work can be
//! skipped; structures that find different next hops are not worth comparing. It makes several passes; the figures are the median, least and greatest
//! pass, by elapsed time and by the thread's processor time. On a busy machine, compare the latter. Structures take
//! turns within each pass, so a slow moment hits all of them alike. DPDK's `rte_fib` takes part where it is installed.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use thalweg_dataplane::lpm::workload::{self, Answers, Kind, Routes, Workload, look_up_all};
use thalweg_dataplane::lpm::{
    Dir24, Dir24Table, Fib4, Fib4Table, Fib6, Fib6Table, Kernel, Lpm, LpmError, NextHopId, Prefix, Table,
    Writer,
};

use super::bench::BenchError;
use super::rte_fib::{Bytes, Pages, Pass, Program, RTE_FIB, RteFib, RteFibError};
use super::{LpmResults, LpmRow};
use crate::cpu_time::thread_cpu_s;
use crate::stats::Summary;

/// Addresses per call.
const BATCH: usize = 64;
/// Routes withdrawn and inserted again while a second thread looks up.
const UPDATES: usize = 200_000;
/// How a table looks up without a choice of kernel.
pub(super) const DEFAULT_MODE: &str = "default";

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Addresses of each kind.
    addresses: usize,
    /// Counted passes; an uncounted one comes before each.
    passes: usize,
    /// Updates while a second thread looks up.
    updates: usize,
}

impl Options {
    pub(super) fn new(passes: usize, quick: bool) -> Self {
        let scale = if quick { 10 } else { 1 };
        Self { addresses: workload::ADDRESSES / scale, passes, updates: UPDATES / scale }
    }
}

/// Measures all structures of the families that have routes, and `rival`. Calls `progress` with what comes next.
pub(super) fn measure(
    routes: &Routes,
    options: &Options,
    rival: Result<Program, RteFibError>,
    progress: &mut dyn FnMut(&str),
) -> Result<LpmResults, BenchError> {
    let mut results = LpmResults::default();
    if let Err(why) = &rival {
        results.left_out.push(format!("{RTE_FIB}: {why}"));
    }
    let rival = rival.ok();
    if !routes.v4.is_empty() {
        progress("IPv4: building");
        let fib4 = Built::<Fib4Table>::new("fib4", &routes.v4)?;
        let dir24 = Built::<Dir24Table>::new("dir24", &routes.v4)?;
        let mut subjects = fib4.subjects(Fib4::lookup_batch_with);
        subjects.extend(dir24.subjects(Dir24::lookup_batch_with));
        subjects.push(fib4.trie("trie"));
        subjects.extend(rivals(rival.as_ref(), &routes.v4, "IPv4", &mut results.left_out));
        results.rows.extend(time_all("IPv4", &mut subjects, &routes.v4, options, progress)?);
        drop(subjects);
        progress("IPv4: updates while reading");
        fib4.update_while_reading(&routes.v4, options, &mut results.rows)?;
        dir24.update_while_reading(&routes.v4, options, &mut results.rows)?;
    }
    if !routes.v6.is_empty() {
        progress("IPv6: building");
        let fib6 = Built::<Fib6Table>::new("fib6", &routes.v6)?;
        let mut subjects = fib6.subjects(Fib6::lookup_batch_with);
        subjects.push(fib6.trie("trie6"));
        subjects.extend(rivals(rival.as_ref(), &routes.v6, "IPv6", &mut results.left_out));
        results.rows.extend(time_all("IPv6", &mut subjects, &routes.v6, options, progress)?);
        drop(subjects);
        progress("IPv6: updates while reading");
        fib6.update_while_reading(&routes.v6, options, &mut results.rows)?;
    }
    Ok(results)
}

/// DPDK's tables, with each size of pages that this system has.
fn rivals<'a, A: Bytes>(
    program: Option<&Program>,
    routes: &[(Prefix<A>, NextHopId)],
    family: &str,
    left_out: &mut Vec<String>,
) -> Vec<Subject<'a, A>> {
    let tables =
        program.into_iter().flat_map(|program| Pages::ALL.map(|pages| (pages, program.table(routes, pages))));
    let of_table = |(pages, table): (Pages, Result<RteFib, RteFibError>)| match table {
        Ok(table) => Some(Subject {
            structure: RTE_FIB,
            mode: table.mode.clone(),
            memory_bytes: table.memory_bytes,
            build_s: table.build_s,
            passes: Box::new(table),
        }),
        Err(why) => {
            left_out.push(format!("{RTE_FIB}, {family}, {}: {why}", pages.name()));
            None
        }
    };
    tables.filter_map(of_table).collect()
}

/// A structure that makes passes over addresses.
trait Passes<A> {
    /// Takes the addresses of the passes that follow.
    fn load(&mut self, _addresses: &[A]) -> Result<(), RteFibError> {
        Ok(())
    }

    fn pass(&mut self, addresses: &[A]) -> Result<Pass, RteFibError>;
}

impl<A: Copy> Passes<A> for LookUp<'_, A> {
    fn pass(&mut self, addresses: &[A]) -> Result<Pass, RteFibError> {
        let (cpu_start, start) = (thread_cpu_s(), Instant::now());
        let answers = black_box(look_up_all(&**self, addresses, BATCH));
        Ok(Pass { cpu_s: thread_cpu_s() - cpu_start, wall_s: start.elapsed().as_secs_f64(), answers })
    }
}

impl<A: Bytes> Passes<A> for RteFib {
    fn load(&mut self, addresses: &[A]) -> Result<(), RteFibError> {
        self.load(addresses)
    }

    fn pass(&mut self, _: &[A]) -> Result<Pass, RteFibError> {
        self.pass()
    }
}

type LookUp<'a, A> = Box<dyn Fn(&[A], &mut [NextHopId]) + 'a>;
type WithKernel<T> = fn(&<T as Table>::Shared, Kernel, &[<T as Table>::Address], &mut [NextHopId]);

/// One structure with one kernel.
struct Subject<'a, A> {
    structure: &'static str,
    mode: String,
    passes: Box<dyn Passes<A> + 'a>,
    memory_bytes: usize,
    build_s: f64,
}

/// A table with its build time.
struct Built<T: Table> {
    name: &'static str,
    writer: Writer<T>,
    build_s: f64,
}

impl<T: Table> Built<T> {
    fn new(name: &'static str, routes: &[(Prefix<T::Address>, NextHopId)]) -> Result<Self, LpmError> {
        let start = Instant::now();
        let writer = Writer::from_routes(routes.iter().copied())?;
        Ok(Self { name, writer, build_s: start.elapsed().as_secs_f64() })
    }

    fn subject<'a>(
        &self,
        mode: impl ToString,
        look_up: impl Fn(&[T::Address], &mut [NextHopId]) + 'a,
    ) -> Subject<'a, T::Address> {
        Subject {
            structure: self.name,
            mode: mode.to_string(),
            passes: Box::new(Box::new(look_up) as LookUp<'a, T::Address>),
            memory_bytes: self.writer.table().memory_bytes(),
            build_s: self.build_s,
        }
    }

    /// The table as it looks up, and with each kernel that this machine has.
    fn subjects(&self, with: WithKernel<T>) -> Vec<Subject<'_, T::Address>> {
        let table = &**self.writer.table();
        let mut subjects = vec![self.subject(DEFAULT_MODE, move |a, n| table.lookup_batch(a, n))];
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
            subjects.push(self.subject(kernel, move |a, n| with(table, kernel, a, n)));
        }
        subjects
    }

    /// The trie of the routes from which the table is built.
    fn trie(&self, structure: &'static str) -> Subject<'_, T::Address> {
        let routes = self.writer.routes();
        let subject = self.subject(DEFAULT_MODE, move |a, n| routes.lookup_batch(a, n));
        Subject { structure, memory_bytes: routes.memory_bytes(), ..subject }
    }

    /// Adds the updates per second to the table's row of each kind.
    fn update_while_reading(
        self,
        routes: &[(Prefix<T::Address>, NextHopId)],
        options: &Options,
        rows: &mut [LpmRow],
    ) -> Result<(), LpmError>
    where
        T::Address: Workload,
    {
        let per_second = updates_while_reading(self.writer, routes, options)?;
        let own = |row: &&mut LpmRow| row.structure == self.name && row.mode == DEFAULT_MODE;
        rows.iter_mut().filter(own).for_each(|row| row.updates_per_s = Some(per_second));
        Ok(())
    }
}

/// Times all subjects on all kinds, taking turns. All must find the same.
fn time_all<A: Workload>(
    family: &str,
    subjects: &mut [Subject<'_, A>],
    routes: &[(Prefix<A>, NextHopId)],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<LpmRow>, BenchError> {
    let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
    let mut rows = vec![Vec::new(); subjects.len()];
    for kind in Kind::ALL {
        progress(&format!("{family}: {kind} look-ups"));
        let addresses = A::addresses(kind, &prefixes, options.addresses);
        let millions = addresses.len() as f64 / 1e6;
        let mut timings = vec![(Vec::new(), Vec::new(), Answers::default()); subjects.len()];
        subjects.iter_mut().try_for_each(|subject| subject.passes.load(&addresses))?;
        for _ in 0..options.passes.max(1) {
            for (subject, (wall, cpu, answers)) in subjects.iter_mut().zip(&mut timings) {
                // The subject before filled the caches with its own table, so the first pass does not count.
                subject.passes.pass(&addresses)?;
                let pass = subject.passes.pass(&addresses)?;
                wall.push(millions / pass.wall_s);
                cpu.push(if pass.cpu_s > 0.0 { millions / pass.cpu_s } else { 0.0 });
                *answers = pass.answers;
            }
        }
        let found = subjects.iter().zip(&timings).map(|(subject, (.., answers))| (subject, answers));
        if timings.iter().any(|(.., answers)| *answers != timings[0].2) {
            let name = |subject: &Subject<'_, A>| format!("{} {}", subject.structure, subject.mode);
            let answers =
                found.map(|(subject, answers)| (name(subject), answers.hits, answers.sum)).collect();
            return Err(BenchError::Disagree { family: family.to_owned(), kind: kind.to_string(), answers });
        }
        for ((subject, rows), (wall, cpu, _)) in subjects.iter().zip(&mut rows).zip(timings) {
            let (Some(mlps), Some(cpu_mlps)) = (Summary::of(&wall), Summary::of(&cpu)) else { continue };
            rows.push(LpmRow {
                structure: subject.structure.to_owned(),
                family: family.to_owned(),
                kind: kind.to_string(),
                mode: subject.mode.clone(),
                mlps,
                cpu_mlps: cpu_mlps.median,
                memory_bytes: subject.memory_bytes as u64,
                build_s: subject.build_s,
                updates_per_s: None,
            });
        }
    }
    Ok(rows.concat())
}

/// Withdraws and inserts routes spread over the table while a second thread looks up without pause.
fn updates_while_reading<T: Table>(
    mut writer: Writer<T>,
    routes: &[(Prefix<T::Address>, NextHopId)],
    options: &Options,
) -> Result<f64, LpmError>
where
    T::Address: Workload,
{
    let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
    let addresses = T::Address::addresses(Kind::Inside, &prefixes, 1 << 18);
    let table = writer.table().clone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next_hops = [0; BATCH];
            for addresses in addresses.chunks(BATCH).cycle() {
                table.lookup_batch(addresses, &mut next_hops[..addresses.len()]);
                black_box(&next_hops);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let (start, mut count) = (Instant::now(), 0_u32);
        let mut result = Ok(());
        // A stride without a common factor visits places all over the table.
        for step in 0..options.updates / 2 {
            let Some(&(prefix, next_hop)) = routes.get(step * 7_919 % routes.len().max(1)) else { break };
            result = writer.withdraw(prefix).and_then(|_| writer.insert(prefix, next_hop)).map(|_| ());
            count += 2;
            if result.is_err() {
                break;
            }
        }
        let elapsed_s = start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        result.map(|()| f64::from(count) / elapsed_s)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::prefixes;

    #[test]
    fn a_small_measurement_runs() {
        let text = "10.0.0.0/8\n# x\n10.1.0.0/16\n\nnonsense\n2001:db8::/32\n2001:db8:1::/48\n";
        let routes = Routes::from_text(text);
        assert_eq!((routes.v4.len(), routes.v6.len(), routes.bad_lines), (2, 2, 1));
        let options = Options { addresses: 1000, passes: 2, updates: 100 };
        let rows = measure(&routes, &options, Err(RteFibError::NoLibrary), &mut |_| ()).unwrap().rows;
        let of = |structure: &str| rows.iter().filter(|row| row.structure == structure).collect::<Vec<_>>();
        assert_eq!(of("trie").len(), 3, "one row for each kind");
        for structure in ["fib4", "dir24", "fib6"] {
            let updated = of(structure).into_iter().filter(|row| row.updates_per_s > Some(0.0));
            assert_eq!(updated.filter(|row| row.mode == DEFAULT_MODE).count(), 3, "{structure}");
        }
    }

    /// DPDK's answers are an oracle for ours too: another error than "left out" would say that they differ.
    #[test]
    fn dpdk_finds_the_same_next_hops() {
        let folder = tempfile::tempdir().unwrap();
        let program = match Program::compile(folder.path()) {
            Ok(program) => program,
            Err(why) => return println!("SKIPPED: {why}"),
        };
        let mut text = String::from("0.0.0.0/0\n::/0\n");
        prefixes::v4(3000, 5).iter().for_each(|net| text += &format!("{net}\n"));
        prefixes::v6(3000, 5).iter().for_each(|net| text += &format!("{net}\n"));
        let options = Options { addresses: 20_000, passes: 1, updates: 0 };
        let results = measure(&Routes::from_text(&text), &options, Ok(program), &mut |_| ()).unwrap();
        let small =
            results.rows.iter().filter(|row| row.structure == RTE_FIB && row.mode.ends_with("4 KiB pages"));
        assert_eq!(small.count(), 6, "{:?}", results.left_out);
    }

    #[test]
    fn structures_that_disagree_are_named() {
        let routes = Routes::from_text("10.0.0.0/8\n");
        let (right, wrong) = (Built::<Fib4Table>::new("right", &routes.v4).unwrap(), "wrong");
        let nothing = right.subject(DEFAULT_MODE, |_: &[u32], next_hops: &mut [NextHopId]| next_hops.fill(0));
        let mut subjects = [right.trie("right"), Subject { structure: wrong, ..nothing }];
        let options = Options { addresses: 1000, passes: 1, updates: 0 };
        let error = time_all("IPv4", &mut subjects, &routes.v4, &options, &mut |_| ()).unwrap_err();
        let BenchError::Disagree { answers, .. } = error else { panic!("{error}") };
        assert_eq!((answers.len(), answers[1].1), (2, 0));
    }
}
