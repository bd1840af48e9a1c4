//! Measures every look-up structure on a table of real routes, for `thalweg lab lpm`.
//!
//! The workload ([`thalweg_dataplane::lpm::workload`]) is a published one, so other programs can be timed with the
//! same addresses. One thread looks all of them up in batches and adds up the answers, so that no work can be
//! skipped and the sums can be checked. It makes several passes; the figures are the median, least and greatest
//! pass, by elapsed time and by the thread's processor time. On a busy machine, compare the latter. Structures take
//! turns within each pass, so a slow moment hits all of them alike.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use thalweg_dataplane::lpm::workload::{self, Answers, Kind, Routes, Workload, look_up_all};
use thalweg_dataplane::lpm::{
    Address, Dir24Table, Fib4Table, Fib6Table, Kernel, Lpm, LpmError, NextHopId, Prefix, Table, Writer,
};

use crate::cpu_time::thread_cpu_s;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Addresses of each kind.
    pub(super) addresses: usize,
    /// Addresses per call.
    pub(super) batch: usize,
    /// Counted passes; an uncounted one comes before each.
    pub(super) passes: usize,
    /// Routes withdrawn and inserted again while a second thread looks up; 0 leaves this out.
    pub(super) updates: usize,
    /// Whether to time the kernels a table does not choose itself, and the trie.
    pub(super) all_variants: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { addresses: workload::ADDRESSES, batch: 64, passes: 7, updates: 200_000, all_variants: false }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        match (values.first(), values.last()) {
            (Some(&min), Some(&max)) => Self { median: values[values.len() / 2], min, max },
            _ => Self::default(),
        }
    }
}

/// One structure on one kind of addresses.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    pub(super) kind: Kind,
    /// Million look-ups per second of wall time.
    pub(super) wall_mlps: Spread,
    /// Million look-ups per second of the thread's processor time; zero where that is not available.
    pub(super) cpu_mlps: Spread,
    /// Sums of the answers, to compare with other programs.
    pub(super) answers: Answers,
}

/// Updates while another thread looks up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Updates {
    /// Inserts and withdrawals per second of the writer's wall time.
    pub(super) per_second: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The structure, and the kernel if it has a choice.
    pub(super) name: String,
    /// 4 or 6.
    pub(super) family: u8,
    pub(super) routes: usize,
    /// Seconds to build it from the list, including the routes trie.
    pub(super) build_s: f64,
    /// Bytes that look-ups may read.
    pub(super) table_bytes: usize,
    pub(super) timings: Vec<Timing>,
    /// `None` for structures without updates while reading, or if not requested.
    pub(super) updates: Option<Updates>,
}

/// Measures all structures of both families. Calls `progress` with what comes next.
pub(super) fn measure(
    routes: &Routes,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Report>, LpmError> {
    let mut reports = Vec::new();
    progress("IPv4: building");
    let fib4 = Built::<Fib4Table>::new(&routes.v4)?;
    let dir24 = Built::<Dir24Table>::new(&routes.v4)?;
    let (fib, dir) = (fib4.writer.table().clone(), dir24.writer.table().clone());
    let mut v4 = vec![
        Subject::new("fib4", |a, n| fib.lookup_batch(a, n)),
        Subject::new("dir24", |a, n| dir.lookup_batch(a, n)),
    ];
    if options.all_variants {
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
            let (fib, dir) = (&fib, &dir);
            v4.push(Subject::new(&format!("fib4 {kernel}"), move |a, n| fib.lookup_batch_with(kernel, a, n)));
            v4.push(Subject::new(&format!("dir24 {kernel}"), move |a, n| {
                dir.lookup_batch_with(kernel, a, n)
            }));
        }
        v4.push(Subject::new("trie", |a, n| fib4.writer.routes().lookup_batch(a, n)));
    }
    time_all(&mut v4, &routes.v4, options, progress);
    reports.extend(v4.into_iter().map(|subject| match subject.name.starts_with("dir24") {
        true => subject.report(4, &dir24),
        false => subject.report(4, &fib4),
    }));
    if options.updates > 0 {
        progress("IPv4: updates while reading");
        reports[0].updates = Some(updates_while_reading(fib4.writer, &routes.v4, options)?);
        reports[1].updates = Some(updates_while_reading(dir24.writer, &routes.v4, options)?);
    }

    progress("IPv6: building");
    let fib6 = Built::<Fib6Table>::new(&routes.v6)?;
    let fib = fib6.writer.table().clone();
    let mut v6 = vec![Subject::new("fib6", |a, n| fib.lookup_batch(a, n))];
    if options.all_variants {
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
            let fib = &fib;
            v6.push(Subject::new(&format!("fib6 {kernel}"), move |a, n| fib.lookup_batch_with(kernel, a, n)));
        }
        v6.push(Subject::new("trie6", |a, n| fib6.writer.routes().lookup_batch(a, n)));
    }
    time_all(&mut v6, &routes.v6, options, progress);
    let first_v6 = reports.len();
    reports.extend(v6.into_iter().map(|subject| subject.report(6, &fib6)));
    if options.updates > 0 {
        progress("IPv6: updates while reading");
        reports[first_v6].updates = Some(updates_while_reading(fib6.writer, &routes.v6, options)?);
    }
    Ok(reports)
}

/// A table with its build time.
struct Built<T: Table> {
    writer: Writer<T>,
    build_s: f64,
}

impl<T: Table> Built<T> {
    fn new(routes: &[(Prefix<T::Address>, NextHopId)]) -> Result<Self, LpmError> {
        let start = Instant::now();
        let writer = Writer::from_routes(routes.iter().copied())?;
        Ok(Self { writer, build_s: start.elapsed().as_secs_f64() })
    }
}

type LookUp<'a, A> = Box<dyn Fn(&[A], &mut [NextHopId]) + 'a>;

/// One structure with one kernel, and its times so far.
struct Subject<'a, A> {
    name: String,
    look_up: LookUp<'a, A>,
    timings: Vec<Timing>,
}

impl<'a, A: Address> Subject<'a, A> {
    fn new(name: &str, look_up: impl Fn(&[A], &mut [NextHopId]) + 'a) -> Self {
        Self { name: name.to_owned(), look_up: Box::new(look_up), timings: Vec::new() }
    }

    fn report<T: Table>(self, family: u8, built: &Built<T>) -> Report {
        let trie = self.name.starts_with("trie");
        let routes = built.writer.routes();
        Report {
            family,
            routes: routes.len(),
            build_s: built.build_s,
            table_bytes: if trie { routes.memory_bytes() } else { built.writer.table().memory_bytes() },
            timings: self.timings,
            updates: None,
            name: self.name,
        }
    }
}

/// Times all subjects on all kinds, taking turns.
fn time_all<A: Workload>(
    subjects: &mut [Subject<'_, A>],
    routes: &[(Prefix<A>, NextHopId)],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) {
    let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
    for kind in Kind::ALL {
        progress(&format!("IPv{}: {kind} look-ups", if A::BITS == 32 { 4 } else { 6 }));
        let addresses = A::addresses(kind, &prefixes, options.addresses);
        let mut wall = vec![Vec::new(); subjects.len()];
        let mut cpu = vec![Vec::new(); subjects.len()];
        let mut answers = vec![Answers::default(); subjects.len()];
        for _ in 0..options.passes {
            for (at, subject) in subjects.iter().enumerate() {
                // The subject before filled the caches with its own table, so the first pass does not count.
                black_box(look_up_all(&*subject.look_up, &addresses, options.batch));
                let (cpu_start, start) = (thread_cpu_s(), Instant::now());
                answers[at] = black_box(look_up_all(&*subject.look_up, &addresses, options.batch));
                let (cpu_s, wall_s) = (thread_cpu_s() - cpu_start, start.elapsed().as_secs_f64());
                wall[at].push(addresses.len() as f64 / wall_s / 1e6);
                cpu[at].push(if cpu_s > 0.0 { addresses.len() as f64 / cpu_s / 1e6 } else { 0.0 });
            }
        }
        for (((subject, wall), cpu), answers) in subjects.iter_mut().zip(wall).zip(cpu).zip(answers) {
            let (wall_mlps, cpu_mlps) = (Spread::of(wall), Spread::of(cpu));
            subject.timings.push(Timing { kind, wall_mlps, cpu_mlps, answers });
        }
    }
}

/// Withdraws and inserts routes spread over the table while a second thread looks up without pause.
fn updates_while_reading<T: Table>(
    mut writer: Writer<T>,
    routes: &[(Prefix<T::Address>, NextHopId)],
    options: &Options,
) -> Result<Updates, LpmError>
where
    T::Address: Workload,
{
    let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
    let addresses = T::Address::addresses(Kind::Inside, &prefixes, 1 << 18);
    let table = writer.table().clone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next_hops = [0; 256];
            for addresses in addresses.chunks(options.batch.clamp(1, 256)).cycle() {
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
            // A table of only the other family has nothing to update.
            let Some(&(prefix, next_hop)) = routes.get(step * 7_919 % routes.len().max(1)) else { break };
            result = writer.withdraw(prefix).and_then(|_| writer.insert(prefix, next_hop)).map(|_| ());
            count += 2;
            if result.is_err() {
                break;
            }
        }
        let elapsed_s = start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        result.map(|()| Updates { per_second: f64::from(count) / elapsed_s })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_measurement_runs() {
        let text = "10.0.0.0/8\n# x\n10.1.0.0/16\n\nnonsense\n2001:db8::/32\n2001:db8:1::/48\n";
        let routes = Routes::from_text(text);
        assert_eq!((routes.v4.len(), routes.v6.len(), routes.bad_lines), (2, 2, 1));
        let options =
            Options { addresses: 1000, passes: 2, updates: 100, all_variants: true, ..Options::default() };
        let reports = measure(&routes, &options, &mut |_| ()).unwrap();
        let names: Vec<_> = reports.iter().map(|report| report.name.as_str()).collect();
        assert_eq!(names[..2], ["fib4", "dir24"]);
        for report in &reports {
            assert_eq!(report.timings.len(), 3);
            assert_eq!(
                report.timings[1].answers.hits, 1000,
                "{}: all inside addresses have a route",
                report.name
            );
        }
        assert!(reports[0].updates.unwrap().per_second > 0.0);
    }
}
