//! Huge pages for the memory of a network.
//!
//! A thousand routers take hundreds of megabytes and touch them at random, so a good part of their time goes into finding
//! pages. The allocator of glibc asks for huge pages if a setting says so, which it reads once, when a program starts. So the
//! program starts again with the setting.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const SETTINGS: &str = "GLIBC_TUNABLES";
const HUGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// Starts the program again, under the same process number, with huge pages for what it allocates. Call it before
/// anything else is done: it returns if there are settings already, which stay, or with a warning if it fails.
pub fn restart_with_huge_pages() {
    if env::var_os(SETTINGS).is_some() || cfg!(not(target_env = "gnu")) {
        return;
    }
    let error = match env::current_exe() {
        Ok(program) => restart(&program),
        Err(error) => error,
    };
    tracing::warn!("the network does without huge pages: cannot start the program again: {error}");
}

fn restart(program: &Path) -> io::Error {
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    again.args(arguments).env(SETTINGS, HUGE_PAGES).exec()
}
