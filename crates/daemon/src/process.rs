//! The router's process: its control socket, and the source of its configuration.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use thalweg_config::{ConfigSource, ControlConfig, SystemConfig, WebConfig};

use crate::control::{ControlServer, serve};
use crate::error::RunError;
use crate::identity::Identity;
use crate::rights::group_number;
use crate::stopping::Stopping;

/// The parts of a router that belong to its process.
pub(crate) struct Process {
    pub(crate) socket: ControlSocket,
    pub(crate) identity: Arc<Identity>,
    pub(crate) source: ConfigSource,
    /// Where this process serves the HTTP API.
    pub(crate) web: Option<WebConfig>,
    pub(crate) system: SystemConfig,
    pub(crate) stop: Arc<Stopping>,
}

/// Who may open the control socket: owner and group.
const MODE: u32 = 0o660;
/// Who may open the one for reading, unless a group is given: everybody.
const READ_MODE: u32 = 0o666;

/// The control socket, and the one for reading; their files are removed when the router ends.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    reading: Option<(UnixListener, PathBuf)>,
    pub(crate) path: PathBuf,
    /// What the configuration said at the start.
    pub(crate) configured: ControlConfig,
}

impl ControlSocket {
    /// Opens it at this path, and the second one, on which no request changes anything, where it is configured.
    pub(crate) fn open(path: &Path, configured: &ControlConfig) -> Result<Self, RunError> {
        let listener = bind(path, MODE, configured.group.as_deref())?;
        let (path, configured) = (path.to_owned(), configured.clone());
        let mut socket = Self { listener, reading: None, path, configured };
        if let Some(path) = &socket.configured.read_socket {
            let group = socket.configured.read_group.as_deref();
            let mode = if group.is_some() { MODE } else { READ_MODE };
            socket.reading = Some((bind(path, mode, group)?, path.clone()));
        }
        Ok(socket)
    }

    /// Answers clients, on threads of its own.
    pub(crate) fn serve(&self, server: ControlServer) -> Result<(), RunError> {
        if let Some((listener, _)) = &self.reading {
            serve_on(listener, ControlServer { may_change: false, ..server.clone() })?;
        }
        serve_on(&self.listener, server)
    }
}

fn bind(path: &Path, mode: u32, group: Option<&str>) -> Result<UnixListener, RunError> {
    let failed = |error: io::Error| RunError::Socket { path: path.to_owned(), error };
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_stale(path)?;
            UnixListener::bind(path).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    if let Some(group) = group {
        let refused = |error| RunError::SocketGroup { path: path.to_owned(), group: group.to_owned(), error };
        chown(path, None, Some(group_number(group)?)).map_err(refused)?;
    }
    // Last, so that nobody else could open it before.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    Ok(listener)
}

/// Removes a socket that a process left which could not clean up; fails for anything else.
fn remove_stale(path: &Path) -> Result<(), RunError> {
    let (path, failed) = (path.to_owned(), |path, error| RunError::Socket { path, error });
    match fs::symlink_metadata(&path) {
        Ok(found) if !found.file_type().is_socket() => return Err(RunError::NoSocket { path }),
        Ok(_) => {}
        Err(error) => return Err(failed(path, error)),
    }
    match UnixStream::connect(&path) {
        Ok(_) => Err(RunError::SocketInUse(path)),
        // Whether a router listens there cannot be seen.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(RunError::SocketOfAnother { path }),
        Err(_) => fs::remove_file(&path).map_err(|error| failed(path, error)),
    }
}

fn serve_on(listener: &UnixListener, server: ControlServer) -> Result<(), RunError> {
    let listener = listener.try_clone().map_err(RunError::system("control socket"))?;
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || serve(&listener, &server))
        .map(drop)
        .map_err(RunError::system("cannot start the control thread"))
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let reading = self.reading.as_ref().map(|(_, path)| path);
        for path in reading.into_iter().chain([&self.path]) {
            if let Err(error) = fs::remove_file(path) {
                let _ = writeln!(io::stderr(), "warning: cannot remove {}: {error}", path.display());
            }
        }
    }
}
