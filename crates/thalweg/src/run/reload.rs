//! Another configuration for a router that runs: both halves of it, or none.
//!
//! The file is read and checked as at the start. Then packets' half prepares all it needs and changes its routes, which
//! can be put back; BGP's half takes its part over or refuses it; and only then the rest follows, which cannot fail.

use std::sync::Arc;

use thalweg_node::config::RouterConfig;
use thalweg_node::control::Reload;
use thalweg_node::speaker::Speaker;

use super::Process;
use super::live::LiveSide;
use crate::cli::RunArgs;

/// Reads the file again; whatever is wrong with it, nothing changes.
pub(super) fn reloader(
    args: &RunArgs,
    process: &Process,
    speaker: Option<Arc<Speaker>>,
    live: Option<Arc<LiveSide>>,
) -> Arc<Reload> {
    let (path, socket, identity) =
        (args.config.clone(), process.socket.configured.clone(), process.identity.clone());
    let refused = {
        let (path, identity) = (path.clone(), identity.clone());
        move |what: &str, why: String| {
            tracing::error!("{} {what} and was not taken over: {why}", path.display());
            identity.reloaded(Err(&why));
            why
        }
    };
    Arc::new(move || {
        let config =
            RouterConfig::load(&path).map_err(|errors| refused("is not valid", errors.without_severity()))?;
        let config = Arc::new(config);
        let has_other_socket = config.control_socket != socket;
        let taken = take_over(&config, speaker.as_deref(), live.as_deref());
        let mut changes = taken.map_err(|why| refused("cannot be applied", why))?;
        identity.reloaded(Ok(&config));
        if has_other_socket {
            changes.push("[control] socket changed: it takes effect with a restart".to_owned());
        }
        for change in &changes {
            tracing::info!("reload: {change}");
        }
        Ok(changes)
    })
}

fn take_over(
    config: &Arc<RouterConfig>,
    speaker: Option<&Speaker>,
    live: Option<&LiveSide>,
) -> Result<Vec<String>, String> {
    let has_interfaces = config.ports.iter().any(|port| port.interface.is_some());
    let bgp = match (speaker, &config.bgp) {
        (Some(_), None) => return Err("the configuration has no [bgp] section any more".to_owned()),
        (None, Some(_)) => {
            return Err("[bgp] is new: that needs a restart; nothing was changed".to_owned());
        }
        (Some(speaker), Some(bgp)) => Some((speaker, Arc::new(bgp.clone()))),
        (None, None) => None,
    };
    let speak = || bgp.map_or_else(|| Ok(Vec::new()), |(speaker, bgp)| speaker.reload(bgp));
    match live {
        Some(live) => live.reload(config, speak),
        None if has_interfaces => {
            Err("ports have interfaces now: that needs a restart; nothing was changed".to_owned())
        }
        None => speak(),
    }
}
