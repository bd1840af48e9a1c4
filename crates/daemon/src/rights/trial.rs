//! Whether the sandbox holds: what it forbids is tried.

use std::fs::{self, File};
use std::process::Command;
use std::{env, io, process};

use super::kernel::try_calls;

/// Something that a sandboxed router must not be able to do, and whether it was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    pub act: String,
    pub is_refused: bool,
}

/// Tries what the sandbox of this process forbids.
pub fn trials() -> Vec<Trial> {
    let own = |act: &str, done: io::Result<()>| Trial {
        act: act.to_owned(),
        is_refused: done.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied),
    };
    let calls = try_calls().map(|(call, is_refused)| Trial { act: format!("call {call}"), is_refused });
    let mut trials = vec![
        own("list /", fs::read_dir("/").map(drop)),
        own("read /etc/passwd", fs::read("/etc/passwd").map(drop)),
        own("write in the folder of temporary files", write()),
        own("run /bin/true", Command::new("/bin/true").status().map(drop)),
    ];
    trials.extend(calls);
    trials
}

fn write() -> io::Result<()> {
    let path = env::temp_dir().join(format!("thalweg-trial-{}", process::id()));
    File::create_new(&path)?;
    fs::remove_file(path)
}
