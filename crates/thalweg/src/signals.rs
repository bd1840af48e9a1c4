//! Stops work on signals.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failure;

/// A flag that SIGINT and SIGTERM set. The first signal ends the work cleanly, the second one at once.
pub(crate) fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let failed = |error| Failure::Run(format!("cannot catch signals: {error}"));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop)).map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    Ok(stop)
}
