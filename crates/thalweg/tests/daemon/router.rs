//! A router under test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
pub(crate) use thalweg_testdata::free_port;

/// The time limit for each step, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(20);

/// Repeats a question until it has an answer.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        thread::sleep(POLL);
    }
}

/// A running router; killed when dropped.
pub(crate) struct Router {
    child: Child,
    pub(crate) config: PathBuf,
    socket: PathBuf,
    log: PathBuf,
}

impl Router {
    /// Starts a router and waits until it answers. Its files are called `name` in the directory.
    pub(crate) fn start(directory: &Path, name: &str, config: &str) -> Self {
        Self::start_with(directory, name, config, &[])
    }

    pub(crate) fn start_with(directory: &Path, name: &str, config: &str, arguments: &[&str]) -> Self {
        Self::start_by(directory, name, config, |_, command| {
            command.args(arguments);
        })
    }

    /// Same as `start_with`; `more` adds to the command, and is told the log's file.
    pub(crate) fn start_by(
        directory: &Path,
        name: &str,
        config: &str,
        more: impl FnOnce(&File, &mut Command),
    ) -> Self {
        let file = |extension| directory.join(format!("{name}.{extension}"));
        fs::write(file("toml"), config).expect("the directory is writable");
        let log = File::create(file("log")).expect("the directory is writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(["run", "--log", "debug", "--threads", "2"]);
        more(&log, &mut command);
        if !command.get_args().any(|argument| argument == "--socket") {
            command.arg("--socket").arg(file("sock"));
        }
        let socket = command.get_args().skip_while(|argument| *argument != "--socket").nth(1);
        let socket = PathBuf::from(socket.expect("it has one"));
        command.arg(file("toml")).stderr(log).stdout(Stdio::null());
        let child = command.spawn().expect("the binary runs");
        let mut router = Self { child, config: file("toml"), socket, log: file("log") };
        eventually("the router answers", || {
            if let Some(status) = router.child.try_wait().expect("the process is our child") {
                panic!("the router ended, {status}:\n{}", router.log());
            }
            router.command("show", &["bgp", "rib"]).status.success().then_some(())
        });
        router
    }

    /// Runs `thalweg COMMAND --socket ... ARGUMENTS`.
    pub(crate) fn command(&self, command: &str, arguments: &[&str]) -> Output {
        self.command_with(command, arguments, &[])
    }

    /// Same as `command`, with environment variables.
    pub(crate) fn command_with(
        &self,
        command: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Output {
        Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .envs(environment.iter().copied())
            .arg(command)
            .arg("--socket")
            .arg(&self.socket)
            .args(arguments)
            .output()
            .expect("the binary runs")
    }

    /// The output of `thalweg COMMAND`, which must succeed.
    #[track_caller]
    pub(crate) fn text(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.command(command, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command} {arguments:?}: {error}\n{}", self.log());
        String::from_utf8(output.stdout).expect("text")
    }

    /// The items of `thalweg show ... --format json`.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.text("show", &[arguments, &["--format", "json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
    }

    /// The error message of a command, which must fail.
    #[track_caller]
    pub(crate) fn error(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.command(command, arguments);
        assert!(!output.status.success(), "{command} {arguments:?} succeeded");
        String::from_utf8(output.stderr).expect("text")
    }

    /// The only item of an answer.
    #[track_caller]
    pub(crate) fn one(&self, arguments: &[&str]) -> Value {
        let items = self.json(arguments);
        assert_eq!(items.len(), 1, "{arguments:?}: {items:?}");
        items.into_iter().next().expect("one")
    }

    /// Waits for a session to be up.
    #[track_caller]
    pub(crate) fn await_established(&self, neighbor: &str) -> Value {
        eventually("the session is up", || {
            Some(self.one(&["bgp", "neighbor", neighbor])).filter(|view| view["state"] == "Established")
        })
    }

    /// Waits for a route, and returns all routes of the prefix.
    #[track_caller]
    pub(crate) fn await_route(&self, prefix: &str) -> Vec<Value> {
        eventually(&format!("{prefix} is there"), || {
            Some(self.json(&["bgp", "route", prefix, "--exact"])).filter(|routes| !routes.is_empty())
        })
    }

    /// Waits until no route of a prefix is left.
    #[track_caller]
    pub(crate) fn await_no_route(&self, prefix: &str) {
        eventually(&format!("{prefix} is gone"), || {
            self.json(&["bgp", "route", prefix, "--exact"]).is_empty().then_some(())
        });
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill runs");
        assert!(status.success());
    }

    /// Stops the router as an init system would; returns its exit status and its log.
    #[track_caller]
    pub(crate) fn stop(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        let status =
            eventually("the router ends", || self.child.try_wait().expect("the process is our child"));
        assert!(!self.socket.exists(), "its socket is gone");
        (status, self.log())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// `[bgp]` of the router at 127.0.0.`number` in AS 64500 + `number`. It is the last section, so more of its keys
/// may follow.
pub(crate) fn speaker(number: u8, port: u16) -> String {
    format!(
        "[bgp]\nas = {}\nrouter_id = \"192.0.2.{number}\"\nlisten = [\"127.0.0.{number}:{port}\"]\n",
        64500 + u32::from(number)
    )
}

/// The neighbor at 127.0.0.`other`, called `rN`. The router accepts its routes and sends it all of its own.
pub(crate) fn neighbor(number: u8, other: u8, port: u16) -> String {
    format!(
        "[[bgp.neighbor]]\nname = \"r{other}\"\naddress = \"127.0.0.{other}\"\nport = {port}\n\
         local_address = \"127.0.0.{number}\"\nas = {}\nimport = \"accept\"\nexport = \"accept\"\n",
        64500 + u32::from(other)
    )
}
