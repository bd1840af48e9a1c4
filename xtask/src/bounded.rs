//! Runs a program that may hang: after a limit it is killed with all that it started, and what it was at is told.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How a program ended.
pub(crate) struct Ended {
    /// What it wrote to its output, then to its error output.
    pub(crate) output: String,
    /// None if it was killed.
    pub(crate) status: Option<ExitStatus>,
}

impl Ended {
    pub(crate) fn passed(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Runs it for at most `limit`. Its output goes to files: of a pipe, a process that it left behind would hold the other end.
pub(crate) fn run(command: &mut Command, limit: Duration) -> io::Result<Ended> {
    let mut files = [tempfile::tempfile()?, tempfile::tempfile()?];
    let [output, errors] = &files;
    let began = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(errors.try_clone()?).spawn()?;
    let mut hung = None;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if began.elapsed() >= limit {
            hung = Some(threads(child.id()));
            kill(&mut child)?;
            break None;
        }
        thread::sleep(LOOK_EVERY);
    };
    let [output, errors] = files.each_mut().map(text);
    let (mut output, errors) = (output?, errors?);
    if let Some(threads) = hung {
        let tests = unfinished(&output);
        let errors_of =
            format!("killed after {} s; not finished: {tests}; threads: {threads}\n", limit.as_secs());
        output.push_str(&errors_of);
    }
    Ok(Ended { output: output + &errors, status })
}

fn text(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A process and all that it started, as far as their parents are there.
fn family(first: u32) -> Vec<u32> {
    let stat = |process: &str| std::fs::read_to_string(format!("/proc/{process}/stat")).ok();
    // After the name, which may have anything in it: the state, then the parent.
    let parent = |stat: &str| stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse::<u32>().ok();
    let all: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.parse().ok()?, parent(&stat(&name)?)?))
        })
        .collect();
    let (mut family, mut at) = (vec![first], 0);
    while let Some(process) = family.get(at).copied() {
        family.extend(all.iter().filter(|(_, parent)| *parent == process).map(|(child, _)| *child));
        at += 1;
    }
    family
}

fn kill(child: &mut Child) -> io::Result<()> {
    let all = family(child.id()).iter().map(u32::to_string).collect::<Vec<_>>();
    // One of them may have ended meanwhile, and the others are killed all the same.
    let _ = Command::new("kill").arg("-KILL").args(all).stderr(Stdio::null()).status();
    child.kill()?;
    child.wait().map(drop)
}

/// The tests that a test program said were slow, and whose result it did not say.
fn unfinished(output: &str) -> String {
    let slow = output
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" has been running for over 60 seconds"));
    let ended = |name: &str| output.contains(&format!("test {name} ... "));
    let left: Vec<&str> = slow.filter(|name| !ended(name)).collect();
    if left.is_empty() { "nothing that it named".to_owned() } else { left.join(", ") }
}

/// The threads of a process, each with the kernel's name for what it waits for. Threads of tests have the names of tests.
fn threads(process: u32) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return "unknown".to_owned() };
    let of = |path: std::path::PathBuf| {
        let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        format!("{} ({})", read("comm").trim(), read("wchan").trim())
    };
    tasks.flatten().map(|task| of(task.path())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Ended {
        run(Command::new("sh").args(["-c", script]), limit).expect("there is a shell")
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_what_it_started() {
        let script = "echo test a has been running for over 60 seconds; echo test b has been running for over 60 seconds
            echo 'test b ... ok'; sleep 1000 & echo started $!; wait";
        let ended = shell(script, Duration::from_millis(500));
        assert!(!ended.passed() && ended.status.is_none());
        assert!(ended.output.contains("not finished: a; threads: sh ("), "{}", ended.output);
        let started = ended.output.lines().find_map(|line| line.strip_prefix("started ")).expect("a number");
        let is_there = || {
            std::fs::read_to_string(format!("/proc/{started}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
        };
        while is_there() {
            thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn nobody_waits_for_what_a_program_left_behind() {
        let ended = shell("sleep 5 & echo out; echo err >&2", Duration::from_secs(60));
        assert!(ended.passed());
        assert_eq!(ended.output, "out\nerr\n");
        assert!(!shell("exit 3", Duration::from_secs(60)).passed());
    }
}
