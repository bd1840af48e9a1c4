//! Network namespaces that are removed when their value is dropped.
//!
//! Made and removed with `ip netns`, so that a person can look into them while an experiment runs. Names contain
//! the process ID; [`sweep`] removes the namespaces of killed processes.
//!
//! The machine's own network does not change: threads enter a namespace, do their work and end
//! ([`Namespace::inside`]), the process itself never does.

use super::ForwardingError;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The start of namespace names; the process ID follows.
const PREFIX: &str = "thalweg-lab-";
/// The folder of `ip netns`.
const FOLDER: &str = "/run/netns";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A new namespace with loopback up. IPv6 is off, because its own packets would count with the tester's. `role`
    /// distinguishes the namespaces of this process.
    pub fn new(role: &str) -> Result<Self, ForwardingError> {
        let name = format!("{PREFIX}{}-{role}", std::process::id());
        run("ip", &["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        for scope in ["all", "default"] {
            // A kernel without IPv6 has no such file.
            let _ = namespace.set(&format!("ipv6/conf/{scope}/disable_ipv6"), "1");
        }
        Ok(namespace)
    }

    /// The name by which `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }

    /// Runs `work` on a thread inside the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> Result<T, ForwardingError> {
        let failed = |source| ForwardingError::System { what: format!("in namespace {}", self.name), source };
        let namespace = File::open(self.path()).map_err(failed)?;
        let done = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            });
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread ended early")))
        });
        done.map_err(failed)
    }

    /// Runs `ip` inside; `arguments` are separated by blanks.
    pub fn ip(&self, arguments: &str) -> Result<(), ForwardingError> {
        let mut words = vec!["-n", &self.name];
        words.extend(arguments.split_whitespace());
        run("ip", &words).map(drop)
    }

    /// Runs another program inside.
    pub fn exec(&self, words: &[&str]) -> Result<String, ForwardingError> {
        let mut all = vec!["netns", "exec", &self.name];
        all.extend(words);
        run("ip", &all)
    }

    /// Starts a program inside, whose output goes to `log`.
    pub fn spawn(&self, words: &[&str], log: &File) -> io::Result<Child> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).args(words).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log.try_clone()?).spawn()
    }

    /// Writes a setting of the namespace: a path below `/proc/sys/net`.
    pub fn set(&self, setting: &str, value: &str) -> Result<(), ForwardingError> {
        self.inside(|| fs::write(Path::new("/proc/sys/net").join(setting), value))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Removing it removes its interfaces. If it could not be made, this fails and nothing is left.
        let _ = run("ip", &["netns", "delete", &self.name]);
    }
}

/// Removes the namespaces of processes that no longer exist.
pub fn sweep() {
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if let Some(process) = process.filter(|text| text.parse::<u32>().is_ok())
            && !Path::new("/proc").join(process).exists()
        {
            let _ = run("ip", &["netns", "delete", &name]);
        }
    }
}

/// Runs a program to its end; returns its output, or why it failed.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<String, ForwardingError> {
    let command = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ForwardingError::System { what: command(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ForwardingError::Command { command: command(), said })
}

/// An interface's counter of received packets, kept open for cheap reads.
#[derive(Debug)]
pub struct Counter {
    file: File,
    interface: String,
}

impl Counter {
    /// Opens the counter of an interface in a namespace.
    pub fn open(namespace: &Namespace, interface: &str) -> Result<Self, ForwardingError> {
        // The file keeps showing the namespace of the thread that opened it.
        let file = namespace.inside(|| File::open("/proc/thread-self/net/dev"))?;
        let mut counter = Self { file, interface: interface.to_owned() };
        counter.received()?;
        Ok(counter)
    }

    /// Packets received since the interface was created.
    pub fn received(&mut self) -> Result<u64, ForwardingError> {
        let failed =
            |source| ForwardingError::System { what: format!("counters of {}", self.interface), source };
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        self.file.read_to_string(&mut text).map_err(failed)?;
        received_of(&text, &self.interface)
            .ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, "no such interface")))
    }
}

/// The second number of an interface's line: packets received.
fn received_of(text: &str, interface: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() == interface).then(|| numbers.split_whitespace().nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_received_are_the_second_number() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n    \
                    lo:       0       1    0    0    0     0          0         0        0       7\n    \
                    b0: 6000 100 0 0 0 0 0 0 0 0 0\n   b01:5 6 0\n";
        assert_eq!(received_of(text, "b0"), Some(100));
        assert_eq!(received_of(text, "lo"), Some(1));
        assert_eq!(received_of(text, "b01"), Some(6));
        assert_eq!(received_of(text, "b"), None);
        assert_eq!(received_of("b0: many", "b0"), None);
    }

    #[test]
    fn a_program_that_fails_is_named_with_what_it_said() {
        let error = run("sh", &["-c", "echo no such thing >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("no such thing") && error.contains("sh -c"), "{error}");
        let error = run("no-such-program", &["x"]).unwrap_err().to_string();
        assert!(error.contains("no-such-program x"), "{error}");
    }
}
