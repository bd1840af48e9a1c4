//! What the process may do, and how it gives up the rest before its first thread.
//!
//! ```text
//! root, with [system] user     make the sockets' folders ── become the user, keep some capabilities ─┐
//! any other user               keep what it was given ──────────────────────────────────────────────┤
//!                                                    no_new_privs ── Landlock ── seccomp ── threads <─┘
//! ```
//!
//! All of it is inherited by threads and cannot be undone, so [`take`] comes first. Capabilities remain for ports
//! that a reload may add (`capability::kept`). The files that may be opened follow from the configuration at the start, so a
//! reload that names a file in another folder needs a restart.
//!
//! Landlock and seccomp degrade: a kernel that lacks them costs a warning. DPDK opens devices, memory and drivers
//! of its own choice, so a router with such a port has no sandbox.

mod account;
mod capability;
mod kernel;
mod trial;

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use rustix::thread::{SecureComputingMode, secure_computing_mode, set_no_new_privs};
use thalweg_config::{Driver, Files, RouterConfig};
use thalweg_ports::s3::S3Address;

use self::account::Account;
use self::kernel::{Access, landlock_version, refusable_calls, restrict_calls, restrict_files};
use crate::options::RunOptions;

pub(crate) use account::group_number;
pub use capability::{Capability, Need, needs};
pub use trial::{Trial, trials};

/// Why the process cannot have the rights that the configuration wants.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    #[error("[system] user: this host has no user {0} (/etc/passwd)")]
    NoUser(String),
    #[error("[control]: this host has no group {0} (/etc/group)")]
    NoGroup(String),
    #[error("[system] user: only root can become {0}: start the router as root or as {0}")]
    NotRoot(String),
    #[error("cannot read {path}: {error}")]
    Accounts { path: &'static str, error: io::Error },
    #[error("cannot become user {user}: {error}")]
    Become { user: String, error: io::Error },
    #[error("the kernel refuses {what}: {error}; [system] sandbox = false does without")]
    Sandbox { what: &'static str, error: io::Error },
}

/// What a router denies itself on this kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Landlock's version, if it restricts files.
    pub landlock: Option<u32>,
    /// How many system calls are refused.
    pub refused_calls: Option<usize>,
    /// Why one of them is missing.
    pub missing: Vec<String>,
}

impl Sandbox {
    /// What a router with this configuration will deny itself.
    pub fn of(config: &RouterConfig) -> Self {
        let interfaces = config.ports.iter().filter_map(|port| port.interface.as_ref());
        let why_none = if !config.system.sandbox {
            Some("[system] sandbox = false")
        } else if interfaces.map(|interface| interface.driver).any(|driver| driver == Driver::Dpdk) {
            Some("DPDK opens files of its own choice")
        } else {
            None
        };
        if let Some(why) = why_none {
            return Self { missing: vec![why.to_owned()], ..Self::default() };
        }
        Self::offered()
    }

    /// What this kernel offers.
    fn offered() -> Self {
        let (files, calls) = (landlock_version(), refusable_calls());
        let files_missing =
            files.as_ref().err().map(|error| format!("this kernel has no Landlock ({error})"));
        let calls_missing =
            calls.as_ref().err().map(|error| format!("this kernel has no seccomp filters ({error})"));
        let missing = files_missing.into_iter().chain(calls_missing).collect();
        Self { landlock: files.ok(), refused_calls: calls.ok(), missing }
    }
}

/// Gives up what this router does not need; see the module. The process must not have started a thread yet.
pub fn take(config: &RouterConfig, options: &RunOptions) -> Result<(), RightsError> {
    let socket = options.socket.as_ref().unwrap_or(&config.control.socket);
    let user = config.system.user.as_deref().map(account::user).transpose()?;
    let is_root = rustix::process::geteuid().is_root();
    let account = user.filter(|account| !account.is_ours());
    if let Some(Account { name, .. }) = account.as_ref().filter(|_| !is_root) {
        return Err(RightsError::NotRoot(name.clone()));
    }
    let written = config.files.written.iter().map(|folder| named(folder));
    let written: BTreeSet<PathBuf> = written.chain([parent(socket)]).collect();
    for folder in &written {
        make_folder(folder, account.as_ref());
    }
    if let Some(account) = account {
        let groups = [&config.control.group, &config.control.read_group];
        let groups = groups.into_iter().flatten().map(|group| group_number(group));
        let account =
            Account { groups: [account.groups, groups.collect::<Result<_, _>>()?].concat(), ..account };
        let keep = capability::kept(config);
        let refused = |error| RightsError::Become { user: account.name.clone(), error };
        account.become_with(capability::set(&keep)).map_err(refused)?;
        let names: Vec<&str> = keep.iter().map(|each| each.name()).collect();
        tracing::info!(user = account.name, capabilities = names.join(" "), "gave up root");
    }
    // Another right can replace CAP_SYS_NICE: `priority` warns of it.
    let lacks = |need: &Need| need.capability != Capability::SysNice && !need.capability.is_held();
    for Need { capability, what } in needs(config).into_iter().filter(lacks) {
        tracing::warn!("this process lacks {capability} ({what}): see `thalweg check`");
    }
    confine(Sandbox::of(config), &readable(&files_read(config), &options.config), &written, &[TUN])
}

/// The same for a process that serves the HTTP API and nothing else: it reads what its sections of the file name and the
/// records of flows, and makes its socket.
pub fn take_to_serve(files: &Files, file: &Path, records: Option<&Path>) -> Result<(), RightsError> {
    let mut written: BTreeSet<PathBuf> = files.written.iter().map(|folder| named(folder)).collect();
    let mut read = readable(&files.read, file);
    if let Some(records) = records {
        written.remove(records);
        read.insert(records.to_owned());
    }
    confine(Sandbox::offered(), &read, &written, &[])
}

/// Whether this process runs in a sandbox.
pub(crate) fn is_confined() -> bool {
    matches!(secure_computing_mode(), Ok(SecureComputingMode::Filter))
}

/// Applies the sandbox, and logs it.
fn confine(
    sandbox: Sandbox,
    read: &BTreeSet<PathBuf>,
    written: &BTreeSet<PathBuf>,
    devices: &[&str],
) -> Result<(), RightsError> {
    let refused = |what| move |error| RightsError::Sandbox { what, error };
    set_no_new_privs(true).map_err(io::Error::from).map_err(refused("no_new_privs"))?;
    if sandbox.landlock.is_some() {
        let rules = read.iter().map(|path| (path.as_path(), Access::Read));
        let rules = rules.chain(written.iter().map(|path| (path.as_path(), Access::Write)));
        let rules = rules.chain(devices.iter().map(|path| (Path::new(path), Access::Device)));
        restrict_files(&rules.collect::<Vec<_>>()).map_err(refused("Landlock"))?;
    }
    if sandbox.refused_calls.is_some() {
        restrict_calls().map_err(refused("seccomp"))?;
    }
    for why in &sandbox.missing {
        tracing::warn!("the sandbox is not complete: {why}");
    }
    let Sandbox { landlock, refused_calls, .. } = sandbox;
    tracing::info!(landlock, denied_calls = refused_calls, "sandbox");
    Ok(())
}

/// Makes TAP interfaces.
const TUN: &str = "/dev/net/tun";

/// What the libraries of every program read: names of hosts, time zones, certificates, the kernel's view of itself.
const OF_THE_SYSTEM: [&str; 20] = [
    "/proc",
    "/sys",
    "/dev/null",
    "/dev/urandom",
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    // For the groups of sockets.
    "/etc/group",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/ld.so.cache",
    "/usr/share/zoneinfo",
    "/usr/share/ca-certificates",
    "/usr/lib",
    "/lib",
    "/lib64",
];

/// The files that a router with this configuration reads: those that the configuration names, and the credentials of S3
/// that the environment names.
pub fn files_read(config: &RouterConfig) -> BTreeSet<PathBuf> {
    let archive = config.flows.as_ref().and_then(|flows| flows.archive.as_ref());
    // What is wrong with the address is said when it is used.
    let address = archive.and_then(|archive| archive.parse::<S3Address>().ok());
    let credentials = address.and_then(|address| address.credentials_file_of_environment());
    config.files.read.iter().cloned().chain(credentials).collect()
}

/// What may be read: the folders of the configuration's files, because editors and certbot replace files there, and
/// the system's.
fn readable(files: &BTreeSet<PathBuf>, file: &Path) -> BTreeSet<PathBuf> {
    let mut all: BTreeSet<PathBuf> = OF_THE_SYSTEM.map(PathBuf::from).into();
    // A panic names its functions by it.
    all.extend(env::current_exe().ok());
    for file in files.iter().map(PathBuf::as_path).chain([file]) {
        all.insert(parent(file));
        // Where a symbolic link leads.
        all.extend(fs::canonicalize(file).ok().map(|file| parent(&file)));
    }
    all
}

fn parent(path: &Path) -> PathBuf {
    named(path.parent().unwrap_or(path))
}

/// The folder with a name that can be opened: that of a relative path may be empty.
fn named(folder: &Path) -> PathBuf {
    if folder == Path::new("") { PathBuf::from(".") } else { folder.to_owned() }
}

/// Makes a folder, and those above it, if it is missing. What fails here fails again, with its reason, when a file is
/// made in it.
fn make_folder(folder: &Path, owner: Option<&Account>) {
    if folder.exists() {
        return;
    }
    let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
    let owned = made.and_then(|()| match owner {
        Some(Account { uid, gid, .. }) => chown(folder, Some(*uid), Some(*gid)),
        None => Ok(()),
    });
    if let Err(error) = owned {
        tracing::debug!("cannot make the folder {}: {error}", folder.display());
    }
}
