//! Stops a router, by a signal or over its control socket, and decides what happens to its routes.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thalweg_config::OnStop;

use crate::orders::{Reload, Stop};

/// Whether the router is to stop, and how.
#[derive(Default)]
pub(crate) struct Stopping {
    pub(crate) flag: Arc<AtomicBool>,
    /// What the stop command asked for; `None`: as configured.
    asked: Mutex<Option<OnStop>>,
}

impl Stopping {
    /// Requests a stop; returns whether one was requested before.
    pub(crate) fn stop(&self, asked: Option<OnStop>) -> bool {
        let mut last = self.asked.lock();
        *last = asked.or(*last);
        self.flag.swap(true, Ordering::AcqRel)
    }

    /// What happens to routes.
    pub(crate) fn on_stop(&self, configured: OnStop) -> OnStop {
        self.asked.lock().unwrap_or(configured)
    }
}

/// Handles signals: SIGHUP reloads; SIGINT and SIGTERM stop the router, the second one at once. Returns the
/// function behind `thalweg stop`.
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
                // The reload has logged what is wrong with the file.
                let _ = reload(false);
            } else if stop(None) {
                std::process::exit(1);
            }
        }
    })?;
    Ok(stopper)
}
