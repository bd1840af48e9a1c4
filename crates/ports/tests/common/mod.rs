//! Tests in their own network namespace, which need root.

use std::process::{Command, Output};

/// Set while the test runs inside.
const INSIDE: &str = "THALWEG_TEST_NAMESPACE";

/// Runs `body` in a new network namespace with loopback up: the test executes itself again inside. `name` is the
/// test's full name. Without the right to, it says so and does nothing.
pub(crate) fn in_namespace(name: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let namespace = Namespace(format!("thalweg-{}-{}", std::process::id(), name.replace("::", "-")));
    if let Err(why) = namespace.create() {
        return thalweg_testdata::skipped(&format!("{name}: no network namespace: {why}"));
    }
    let program = std::env::current_exe().expect("the test runs");
    let output = Command::new("ip")
        .args(["netns", "exec", &namespace.0])
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, &namespace.0)
        .output()
        .expect("ip was found before");
    // Printed only after a failure, because the inner run's result lines must not be counted.
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    for line in said.iter().flat_map(|text| text.lines()) {
        if let Some(why) = line.strip_prefix("SKIPPED: ") {
            thalweg_testdata::skipped(why);
        }
    }
    // With a wrong name the inner run executes no test and still succeeds.
    let has_run = said[0].contains("1 passed");
    assert!(
        output.status.success() && has_run,
        "{name} failed inside its namespace:\n{}\n{}",
        said[0],
        said[1]
    );
}

/// Runs `ip`, which must succeed; returns its output.
pub(crate) fn ip(arguments: &str) -> String {
    let output = run_ip(arguments.split_whitespace()).expect("ip runs");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run_ip<'a>(arguments: impl Iterator<Item = &'a str>) -> std::io::Result<Output> {
    Command::new("ip").args(arguments).output()
}

/// A namespace that is removed when dropped.
struct Namespace(String);

impl Namespace {
    fn create(&self) -> Result<(), String> {
        let run = |arguments: &[&str]| match run_ip(arguments.iter().copied()) {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(format!("ip: {error}")),
        };
        run(&["netns", "add", &self.0])?;
        run(&["-n", &self.0, "link", "set", "lo", "up"])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // If it could not be made, there is nothing to remove.
        let _ = run_ip(["netns", "delete", &self.0].into_iter());
    }
}
