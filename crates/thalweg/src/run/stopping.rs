//! How a router is stopped: by a signal or over its control socket, and what becomes of its routes then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_config::OnStop;

/// Says when to stop, and how.
#[derive(Default)]
pub(super) struct Stopping {
    pub(super) flag: Arc<AtomicBool>,
    /// What whoever stops it wants; `None`: what the configuration says.
    asked: Mutex<Option<OnStop>>,
}

impl Stopping {
    /// Stops. Whether that was said before.
    pub(super) fn stop(&self, asked: Option<OnStop>) -> bool {
        let mut last = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        *last = asked.or(*last);
        self.flag.swap(true, Ordering::AcqRel)
    }

    /// What becomes of routes.
    pub(super) fn on_stop(&self, configured: OnStop) -> OnStop {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(configured)
    }
}
