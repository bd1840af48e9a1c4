//! DPDK's `rte_fib` in the rounds of `thalweg lab lpm`, so that a ratio is of one run.
//!
//! Where libdpdk and a C compiler are installed, a small program (`rte_fib.c` beside this file) is compiled and runs as
//! a child. It gets the same routes and addresses, and makes a pass when it is its turn. Its clocks are those of this
//! program; its answers are compared like those of the other structures.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use thalweg_dataplane::lpm::workload::{Answers, Workload};
use thalweg_dataplane::lpm::{NextHopId, Prefix};

/// The structure's name in rows.
pub(super) const RTE_FIB: &str = "rte_fib";

/// Why a table of DPDK's takes no part.
#[derive(Debug, thiserror::Error)]
pub enum RteFibError {
    #[error("libdpdk is not installed")]
    NoLibrary,
    #[error("{program}: {source}")]
    Program { program: String, source: io::Error },
    #[error("the compiler said: {0}")]
    Compiler(String),
    #[error("the system has no huge pages in reserve (vm.nr_hugepages)")]
    NoHugePages,
    #[error("it refused {0} routes")]
    Refused(u64),
    /// What its program said instead of an answer.
    #[error("{0:?}")]
    Said(String),
}

/// What a pass took and found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) wall_s: f64,
    pub(super) cpu_s: f64,
    pub(super) answers: Answers,
}

/// Pages of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    Small,
    Huge,
}

impl Pages {
    pub(super) const ALL: [Self; 2] = [Self::Small, Self::Huge];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Small => "4 KiB pages",
            Self::Huge => "2 MiB pages",
        }
    }
}

/// An address as the program reads it.
pub(super) trait Bytes: Workload {
    const FAMILY: &'static str;

    fn append_to(self, bytes: &mut Vec<u8>);
}

impl Bytes for u32 {
    const FAMILY: &'static str = "4";

    fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_ne_bytes());
    }
}

impl Bytes for u128 {
    const FAMILY: &'static str = "6";

    fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_be_bytes());
    }
}

/// The compiled program.
pub(super) struct Program {
    folder: PathBuf,
    path: PathBuf,
}

impl Program {
    /// Compiles it in a folder.
    pub(super) fn compile(folder: &Path) -> Result<Self, RteFibError> {
        let found = output_of(Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]))?;
        if !found.status.success() {
            return Err(RteFibError::NoLibrary);
        }
        let flags = String::from_utf8_lossy(&found.stdout);
        let (source, path) = (folder.join("rte_fib.c"), folder.join(RTE_FIB));
        write(&source, include_bytes!("rte_fib.c"))?;
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O3", "-o"])
            .arg(&path)
            .arg(&source)
            .args(flags.split_whitespace())
            .arg("-march=native");
        let compiled = output_of(&mut compiler)?;
        if !compiled.status.success() {
            let said = String::from_utf8_lossy(&compiled.stderr);
            return Err(RteFibError::Compiler(said.lines().next().unwrap_or_default().to_owned()));
        }
        Ok(Self { folder: folder.to_owned(), path })
    }

    /// Starts it with a table.
    pub(super) fn table<A: Bytes>(
        &self,
        routes: &[(Prefix<A>, NextHopId)],
        pages: Pages,
    ) -> Result<RteFib, RteFibError> {
        if pages == Pages::Huge && !has_huge_pages() {
            return Err(RteFibError::NoHugePages);
        }
        let mut bytes = Vec::new();
        for (prefix, next_hop) in routes {
            prefix.address().append_to(&mut bytes);
            bytes.extend([u16::from(prefix.length()), *next_hop].map(u16::to_ne_bytes).concat());
        }
        let routes = self.folder.join(format!("routes{}.bin", A::FAMILY));
        write(&routes, &bytes)?;
        let size = if pages == Pages::Huge { "2m" } else { "4k" };
        let mut child = Command::new(&self.path)
            .args([A::FAMILY, size])
            .arg(&routes)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| failed(&self.path.display(), source))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let Some((input, output)) = pipes else { return Err(RteFibError::Said("no pipes".to_owned())) };
        let addresses = self.folder.join(format!("addresses{}.bin", A::FAMILY));
        let mut fib = RteFib {
            child,
            input: Some(input),
            output: BufReader::new(output),
            addresses,
            mode: String::new(),
            memory_bytes: 0,
            build_s: 0.0,
        };
        let ready = fib.answer()?;
        let _ = fs::remove_file(&routes); // read
        let words: Vec<&str> = ready.split_whitespace().collect();
        let ["ready", build_s, memory_bytes, refused, look_up] = words[..] else {
            return Err(RteFibError::Said(ready));
        };
        let numbers = (build_s.parse(), memory_bytes.parse(), refused.parse());
        let (Ok(build_s), Ok(memory_bytes), Ok(refused)) = numbers else {
            return Err(RteFibError::Said(ready));
        };
        if refused > 0 {
            return Err(RteFibError::Refused(refused));
        }
        (fib.build_s, fib.memory_bytes) = (build_s, memory_bytes);
        fib.mode = format!("{look_up}, {}", pages.name());
        Ok(fib)
    }
}

/// A running program with its table; it ends with its input.
pub(super) struct RteFib {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    addresses: PathBuf,
    pub(super) mode: String,
    pub(super) memory_bytes: usize,
    pub(super) build_s: f64,
}

impl RteFib {
    /// Gives it the addresses of the passes that follow.
    pub(super) fn load<A: Bytes>(&mut self, addresses: &[A]) -> Result<(), RteFibError> {
        let mut bytes = Vec::with_capacity(size_of_val(addresses));
        addresses.iter().for_each(|address| address.append_to(&mut bytes));
        write(&self.addresses, &bytes)?;
        let taken = self.ask(&format!("load {}", self.addresses.display()))?;
        if taken == addresses.len().to_string() { Ok(()) } else { Err(RteFibError::Said(taken)) }
    }

    /// One pass over the addresses.
    pub(super) fn pass(&mut self) -> Result<Pass, RteFibError> {
        let said = self.ask("pass")?;
        let words: Vec<&str> = said.split_whitespace().collect();
        let [wall_s, cpu_s, hits, sum] = words[..] else { return Err(RteFibError::Said(said)) };
        match (wall_s.parse(), cpu_s.parse(), hits.parse(), sum.parse()) {
            (Ok(wall_s), Ok(cpu_s), Ok(hits), Ok(sum)) => {
                Ok(Pass { wall_s, cpu_s, answers: Answers { hits, sum } })
            }
            _ => Err(RteFibError::Said(said)),
        }
    }

    fn ask(&mut self, command: &str) -> Result<String, RteFibError> {
        let sent = self.input.as_mut().map_or(Ok(()), |input| writeln!(input, "{command}"));
        sent.map_err(|source| failed(&RTE_FIB, source))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, RteFibError> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|source| failed(&RTE_FIB, source))?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for RteFib {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait(); // it was ours and has ended
        let _ = fs::remove_file(&self.addresses);
    }
}

/// Whether the system keeps huge pages for programs that ask for them.
fn has_huge_pages() -> bool {
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    free.ok().and_then(|free| free.trim().parse::<u64>().ok()).is_some_and(|free| free > 0)
}

fn output_of(command: &mut Command) -> Result<std::process::Output, RteFibError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|source| RteFibError::Program { program, source })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), RteFibError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|source| failed(&path.display(), source))
}

fn failed(program: &dyn std::fmt::Display, source: io::Error) -> RteFibError {
    RteFibError::Program { program: program.to_string(), source }
}
