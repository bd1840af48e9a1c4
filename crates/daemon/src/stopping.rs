//! How a router is stopped: by a signal or over its control socket, and what happens to its routes.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thalweg_config::OnStop;

use crate::orders::{Reload, Stop};

/// Says when to stop, and how.
#[derive(Default)]
pub(crate) struct Stopping {
    pub(crate) flag: Arc<AtomicBool>,
    /// What the stop command asked for; `None`: what the configuration says.
    asked: Mutex<Option<OnStop>>,
}

impl Stopping {
    /// Stops. Whether that was said before.
    pub(crate) fn stop(&self, asked: Option<OnStop>) -> bool {
        let mut last = self.asked.lock();
        *last = asked.or(*last);
        self.flag.swap(true, Ordering::AcqRel)
    }

    /// What becomes of routes.
    pub(crate) fn on_stop(&self, configured: OnStop) -> OnStop {
        self.asked.lock().unwrap_or(configured)
    }
}

/// SIGHUP reloads; SIGINT and SIGTERM end the router, a second one at once. Returns what `thalweg stop` calls.
pub(crate) fn handle_signals(
    stop: &Arc<Stopping>,
    reload: &Arc<Reload>,
    wake: impl Fn() + Send + Sync + 'static,
) -> io::Result<Arc<Stop>> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let stopping = stop.clone();
    let stopper: Arc<Stop> = Arc::new(move |asked| {
        let was_stopping = stopping.stop(asked);
        wake();
        was_stopping
    });
    let (stop, reload) = (stopper.clone(), reload.clone());
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                // What is wrong with the file is in the log.
                let _ = reload(false);
            } else if stop(None) {
                std::process::exit(1);
            }
        }
    })?;
    Ok(stopper)
}
