//! The cores of this machine, and running something on a part of them.
//!
//! To measure a speed-up by cores, what runs is limited to that many cores. They are taken in an order that
//! separates hardware threads of one core: first one of every core, then the second ones.

use std::io;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cores that this process may use, in the order in which they are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    numbers: Vec<usize>,
    /// How many of them share a core with none before.
    physical: usize,
}

impl Cores {
    /// The cores of this machine.
    pub fn here() -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let numbers: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        Ok(Self::ordered(&numbers, |core| first_sibling(Path::new("/sys/devices/system/cpu"), core)))
    }

    /// `sibling` gives the first hardware thread of a hardware thread's core.
    fn ordered(numbers: &[usize], sibling: impl Fn(usize) -> usize) -> Self {
        let mut met = Vec::new();
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for &number in numbers {
            let core = sibling(number);
            let is_new = !met.contains(&core);
            if is_new {
                met.push(core);
            }
            if is_new { first.push(number) } else { others.push(number) }
        }
        let physical = first.len();
        first.extend(others);
        Self { numbers: first, physical }
    }

    /// The number of cores.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The number of physical cores among them.
    pub fn physical(&self) -> usize {
        self.physical
    }

    /// 1, 2, 4 and so on, and the number of all.
    pub fn steps(&self) -> Vec<usize> {
        let mut steps: Vec<usize> = std::iter::successors(Some(1), |n: &usize| n.checked_mul(2))
            .take_while(|n| *n < self.count())
            .collect();
        steps.push(self.count());
        steps
    }

    /// The first `count` of them; at least one.
    pub fn first(&self, count: usize) -> Self {
        let count = count.clamp(1, self.numbers.len().max(1));
        let numbers = self.numbers.iter().take(count).copied().collect();
        Self { numbers, physical: self.physical.min(count) }
    }

    /// The one at this place, counted around if there are fewer.
    pub fn only(&self, place: usize) -> Self {
        let number = self.numbers.iter().cycle().nth(place % self.numbers.len().max(1));
        Self { numbers: number.copied().into_iter().collect(), physical: 1 }
    }

    /// Runs `work` on a thread that may use only these cores, as do the threads and processes that it starts.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let mut set = CpuSet::new();
        self.numbers.iter().for_each(|core| set.set(*core));
        std::thread::scope(|scope| {
            let limited = scope.spawn(|| {
                sched_setaffinity(None, &set)?;
                Ok(work())
            });
            limited.join().unwrap_or_else(|_| Err(io::Error::other("the work on few cores panicked")))
        })
    }
}

/// The first hardware thread of the core that `number` belongs to, by sysfs; `number` itself if sysfs has
/// nothing.
fn first_sibling(cpus: &Path, number: usize) -> usize {
    let list = cpus.join(format!("cpu{number}/topology/thread_siblings_list"));
    let text = std::fs::read_to_string(list).unwrap_or_default();
    text.split([',', '-']).next().and_then(|first| first.trim().parse().ok()).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_threads_of_a_core_stand_apart() {
        let cores = Cores::ordered(&[0, 1, 2, 3, 5], |core| core / 2);
        assert_eq!((cores.numbers, cores.physical), (vec![0, 2, 5, 1, 3], 3));
        let steps = |count| Cores { numbers: (0..count).collect(), physical: count }.steps();
        let two = Cores { numbers: vec![4, 6], physical: 2 };
        assert_eq!([0, 1, 2].map(|place| two.only(place).numbers), [[4], [6], [4]]);
        assert_eq!((steps(1), steps(2), steps(12)), (vec![1], vec![1, 2], vec![1, 2, 4, 8, 12]));
    }

    #[test]
    fn siblings_are_read_from_sysfs() {
        let folder = tempfile::tempdir().unwrap();
        for (core, text) in [(0, "0,16\n"), (1, "1-2\n"), (2, "1-2\n")] {
            let topology = folder.path().join(format!("cpu{core}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join("thread_siblings_list"), text).unwrap();
        }
        assert_eq!([0, 1, 2, 3].map(|core| first_sibling(folder.path(), core)), [0, 1, 1, 3]);
    }

    #[test]
    fn what_is_limited_runs_there_only_with_all_it_starts() {
        let cores = Cores::here().unwrap();
        let allowed = || {
            let set = sched_getaffinity(None).unwrap();
            (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect::<Vec<_>>()
        };
        let before = allowed();
        let one = cores.first(1);
        let inside = one.run(|| std::thread::spawn(allowed).join().unwrap()).unwrap();
        assert_eq!(inside, cores.numbers[..1], "a thread that was started inside");
        let status = || {
            let of = ["Cpus_allowed_list:", "/proc/self/status"];
            String::from_utf8(std::process::Command::new("grep").args(of).output().unwrap().stdout).unwrap()
        };
        let said = one.run(status).unwrap();
        assert_eq!(said.split_whitespace().last(), Some(cores.numbers[0].to_string().as_str()), "a process");
        assert_eq!(allowed(), before, "this thread is not limited");
    }
}
