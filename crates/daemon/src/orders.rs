//! The commands of signals and the control socket to a router.

use thalweg_config::OnStop;

use crate::error::ConfigurationError;

/// Reads the configuration again and applies it; returns the changes in words, or why they were refused. With
/// `true` it only says what would change.
pub(crate) type Reload = dyn Fn(bool) -> Result<Vec<String>, ConfigurationError> + Send + Sync;

/// Stops the router; the argument overrides what the configuration says about routes. Returns whether a stop was
/// already requested.
pub(crate) type Stop = dyn Fn(Option<OnStop>) -> bool + Send + Sync;
