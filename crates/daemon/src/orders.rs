//! What signals and the control socket order a router to do.

use thalweg_config::OnStop;

use crate::reload::ConfigurationError;

/// Reads the configuration again and applies it: what changed in words, or why it was refused. With `true` nothing changes: it
/// says what would.
pub(crate) type Reload = dyn Fn(bool) -> Result<Vec<String>, ConfigurationError> + Send + Sync;

/// Stops the router: what becomes of routes, if not what the configuration says. Whether that was said before.
pub(crate) type Stop = dyn Fn(Option<OnStop>) -> bool + Send + Sync;
