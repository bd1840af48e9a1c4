//! Measures every structure on a table of real routes: what `thalweg lab lpm` and the bench print.
//!
//! The workload (in [`workload`]) is a published one, so that other programs can be timed on the very
//! same addresses. One thread looks all of them up in batches, adds up the answers (so that no work can
//! be left out, and to compare them with the known sums), and does so several times; the figures are
//! the median, least and greatest pass, by the wall and by the thread's own processor time. The second
//! is the one to compare on a busy machine. Structures take turns within each pass, so a slow moment
//! hits all of them alike.
//!
//! Clocks are read here and nowhere else under `lpm`.

use super::{
    Address, Dir24Table, Fib4Table, Fib6Table, Kernel, Lpm, LpmError, NextHopId, Prefix, Table, Writer,
};
use ipnet::{Ipv4Net, Ipv6Net};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

pub mod workload;

pub use workload::{Kind, Workload};

/// The routes to measure with.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// IPv4 routes in file order.
    pub v4: Vec<(Prefix<u32>, NextHopId)>,
    /// IPv6 routes in file order.
    pub v6: Vec<(Prefix<u128>, NextHopId)>,
    /// Lines that are neither a prefix nor blank nor a comment.
    pub bad_lines: usize,
}

impl Routes {
    /// Reads one prefix a line; the i-th of each family gets next hop `1 + i mod 254`.
    pub fn from_text(text: &str) -> Self {
        let mut routes = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Ok(net) = line.parse::<Ipv4Net>() {
                let hop = next_hop_of(routes.v4.len());
                routes.v4.push((net.into(), hop));
            } else if let Ok(net) = line.parse::<Ipv6Net>() {
                let hop = next_hop_of(routes.v6.len());
                routes.v6.push((net.into(), hop));
            } else {
                routes.bad_lines += 1;
            }
        }
        routes
    }
}

fn next_hop_of(index: usize) -> NextHopId {
    1 + (index % 254) as NextHopId
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Addresses of each kind.
    pub addresses: usize,
    /// Addresses per call.
    pub batch: usize,
    /// Counted passes; an uncounted one comes before each.
    pub passes: usize,
    /// Routes withdrawn and inserted again while a second thread looks up; 0 leaves this out.
    pub updates: usize,
    /// Whether to time the kernels a table does not choose itself, and the trie.
    pub all_variants: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { addresses: workload::ADDRESSES, batch: 64, passes: 7, updates: 200_000, all_variants: false }
    }
}

/// Median, least and greatest of several passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
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

/// The sum of all answers and how many were not "no route".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Addresses with a route.
    pub hits: u64,
    /// Next hops added up.
    pub sum: u64,
}

/// One structure on one kind of addresses.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The addresses looked up.
    pub kind: Kind,
    /// Million look-ups per second of wall time.
    pub wall_mlps: Spread,
    /// Million look-ups per second of the thread's processor time; zero where that cannot be had.
    pub cpu_mlps: Spread,
    /// What the look-ups found, for comparison with other programs.
    pub answers: Answers,
}

/// Updates while a reader runs.
#[derive(Clone, Copy, Debug)]
pub struct Updates {
    /// Inserts and withdrawals done.
    pub count: u64,
    /// Inserts and withdrawals per second of the writer's wall time.
    pub per_second: f64,
    /// Million look-ups per second the reader did meanwhile.
    pub reader_mlps: f64,
}

/// Everything measured of one structure.
#[derive(Clone, Debug)]
pub struct Report {
    /// The structure, and the kernel if it has a choice.
    pub name: String,
    /// 4 or 6.
    pub family: u8,
    /// Routes in the table.
    pub routes: usize,
    /// Seconds to build it from the list, routes trie included.
    pub build_s: f64,
    /// Bytes of what look-ups read.
    pub table_bytes: usize,
    /// Bytes of table, routes and bookkeeping together.
    pub total_bytes: usize,
    /// One for each kind of addresses.
    pub timings: Vec<Timing>,
    /// Absent for structures without updates while reading, or when not asked for.
    pub updates: Option<Updates>,
}

/// Measures all structures of both families. `progress` hears what is being done.
pub fn measure(
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

/// A table with what it cost.
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
            total_bytes: if trie { routes.memory_bytes() } else { built.writer.memory_bytes() },
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
                // The one before filled the caches with its own table: the first pass is not counted.
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

/// Looks all addresses up in batches and adds the answers up.
pub fn look_up_all<A: Copy>(
    look_up: &dyn Fn(&[A], &mut [NextHopId]),
    addresses: &[A],
    batch: usize,
) -> Answers {
    let batch = batch.clamp(1, 256);
    let mut next_hops = [0; 256];
    let mut answers = Answers::default();
    for addresses in addresses.chunks(batch) {
        let next_hops = &mut next_hops[..addresses.len()];
        look_up(addresses, next_hops);
        // At most 256 answers below 2^15: the sum fits, and narrow sums are quick ones.
        let (mut sum, mut hits) = (0_u32, 0_u32);
        for &mut next_hop in next_hops {
            sum += u32::from(next_hop);
            hits += u32::from(next_hop != 0);
        }
        answers.sum += u64::from(sum);
        answers.hits += u64::from(hits);
    }
    answers
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
    let (stop, looked_up) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next_hops = [0; 256];
            for addresses in addresses.chunks(options.batch.clamp(1, 256)).cycle() {
                table.lookup_batch(addresses, &mut next_hops[..addresses.len()]);
                black_box(&next_hops);
                looked_up.fetch_add(addresses.len() as u64, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let (start, before) = (Instant::now(), looked_up.load(Ordering::Relaxed));
        let mut count = 0;
        let mut result = Ok(());
        // A stride without a common factor visits places all over the table.
        for step in 0..options.updates / 2 {
            // A table of the other family alone has nothing to update.
            let Some(&(prefix, next_hop)) = routes.get(step * 7_919 % routes.len().max(1)) else { break };
            result = writer.withdraw(prefix).and_then(|_| writer.insert(prefix, next_hop)).map(|_| ());
            count += 2;
            if result.is_err() {
                break;
            }
        }
        let (elapsed_s, after) = (start.elapsed().as_secs_f64(), looked_up.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
        result.map(|()| Updates {
            count,
            per_second: count as f64 / elapsed_s,
            reader_mlps: (after - before) as f64 / elapsed_s / 1e6,
        })
    })
}

/// Processor time of this thread in seconds; zero where it cannot be had.
#[cfg(unix)]
#[allow(unsafe_code)] // one system call
fn thread_cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that the call fills.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } != 0 {
        return 0.0;
    }
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(not(unix))]
fn thread_cpu_s() -> f64 {
    0.0
}
