//! The router's process: its control socket, and the source of its configuration.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use thalweg_config::ConfigSource;

use crate::control::{ControlServer, serve};
use crate::error::RunError;
use crate::identity::Identity;
use crate::stopping::Stopping;

/// The parts of a router that belong to its process.
pub(crate) struct Process {
    pub(crate) socket: ControlSocket,
    pub(crate) identity: Arc<Identity>,
    pub(crate) source: ConfigSource,
    pub(crate) stop: Arc<Stopping>,
}

/// The control socket; its file is removed when the router ends.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    pub(crate) path: PathBuf,
    /// The path in the configuration at the start.
    pub(crate) configured: PathBuf,
}

impl ControlSocket {
    pub(crate) fn open(path: &Path, configured: &Path) -> Result<Self, RunError> {
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
        Ok(Self { listener, path: path.to_owned(), configured: configured.to_owned() })
    }

    /// Answers clients, on threads of its own.
    pub(crate) fn serve(&self, server: ControlServer) -> Result<(), RunError> {
        let listener = self.listener.try_clone().map_err(RunError::system("control socket"))?;
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(&listener, &server))
            .map(drop)
            .map_err(RunError::system("cannot start the control thread"))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            let _ = writeln!(io::stderr(), "warning: cannot remove {}: {error}", self.path.display());
        }
    }
}
