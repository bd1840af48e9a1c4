//! The router's process: its control socket, and the source of its configuration.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use thalweg_config::{ConfigSource, WebConfig};

use crate::control::{ControlServer, serve};
use crate::error::RunError;
use crate::identity::Identity;
use crate::stopping::Stopping;

/// The parts of a router that belong to its process.
pub(crate) struct Process {
    pub(crate) socket: ControlSocket,
    pub(crate) identity: Arc<Identity>,
    pub(crate) source: ConfigSource,
    /// Where this process serves the HTTP API.
    pub(crate) web: Option<WebConfig>,
    pub(crate) stop: Arc<Stopping>,
}

/// Who may open the control socket: owner and group.
const MODE: u32 = 0o660;
/// Who may open the one for reading: everybody.
const READ_MODE: u32 = 0o666;

/// The control socket, and the one for reading; their files are removed when the router ends.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    reading: Option<(UnixListener, PathBuf)>,
    pub(crate) path: PathBuf,
    /// The path in the configuration at the start.
    pub(crate) configured: PathBuf,
}

impl ControlSocket {
    pub(crate) fn open(path: &Path, configured: &Path) -> Result<Self, RunError> {
        let listener = bind(path, MODE)?;
        Ok(Self { listener, reading: None, path: path.to_owned(), configured: configured.to_owned() })
    }

    /// Opens a second socket, on which no request changes anything.
    pub(crate) fn open_for_reading(&mut self, path: &Path) -> Result<(), RunError> {
        self.reading = Some((bind(path, READ_MODE)?, path.to_owned()));
        Ok(())
    }

    /// Where the second socket is, if there is one.
    pub(crate) fn reads_at(&self) -> Option<&Path> {
        self.reading.as_ref().map(|(_, path)| path.as_path())
    }

    /// Answers clients, on threads of its own.
    pub(crate) fn serve(&self, server: ControlServer) -> Result<(), RunError> {
        if let Some((listener, _)) = &self.reading {
            serve_on(listener, ControlServer { may_change: false, ..server.clone() })?;
        }
        serve_on(&self.listener, server)
    }
}

fn bind(path: &Path, mode: u32) -> Result<UnixListener, RunError> {
    let failed = |error: io::Error| RunError::Socket { path: path.to_owned(), error };
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Err(RunError::SocketInUse(path.to_owned()));
            }
            // The file is left over from a process that could not clean up.
            fs::remove_file(path).and_then(|()| UnixListener::bind(path)).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    Ok(listener)
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
