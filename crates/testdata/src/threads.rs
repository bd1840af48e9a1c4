//! The threads of another process, and how to stop a single one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Stops one thread of another process, as SIGSTOP stops all: says so, and holds it until its standard input ends.
const HOLD: &str = "
import ctypes, os, sys
thread = int(sys.argv[1])
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
for request in 0x4206, 0x4207: # PTRACE_SEIZE, PTRACE_INTERRUPT
    if ptrace(request, thread, 0, 0):
        sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(thread, 0x40000000) # __WALL
print('held', flush=True)
sys.stdin.read()
";

/// The threads of a process, the oldest first: number and name.
pub fn threads(pid: u32) -> Vec<(u32, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let thread = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, name.trim_end().to_owned()))
    };
    let mut threads: Vec<(u32, String)> = tasks.filter_map(|task| thread(task.ok()?)).collect();
    threads.sort_unstable();
    threads
}

/// A thread that does not run until this is dropped.
pub struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Holds a thread; `None` if that is not allowed here, or there is no python3.
pub fn hold(thread: u32) -> Option<Held> {
    let mut command = Command::new("python3");
    command.args(["-c", HOLD, &thread.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut held = Held(command.spawn().ok()?);
    let mut said = String::new();
    let holds = BufReader::new(held.0.stdout.take()?).read_line(&mut said).is_ok_and(|_| said == "held\n");
    holds.then_some(held)
}
