//! Another configuration for a router that runs: both halves of it, or none.
//!
//! The file is read and checked as at the start. Then packets' half prepares all it needs and changes its routes, which
//! can be put back; BGP's half takes its part over or refuses it; and only then the rest follows, which cannot fail.
//!
//! Addresses that programs give mirrors of ports come the same way, into the configuration that is in force: its text is
//! kept for that, since the file may be another one by now that nobody has asked for yet.

use parking_lot::{Mutex, MutexGuard};
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_config::{BgpConfig, ConfigErrors, ConfigSource, LearnedAddress, RouterConfig};
use thalweg_live::ReloadError;
use thalweg_node::speaker::{BgpReloadError, Speaker};

use crate::identity::Identity;
use crate::options::RunOptions;
use crate::orders::Reload;
use crate::packets::PacketSide;
use crate::process::Process;

/// Why another configuration is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigurationError {
    #[error("{}", .0.without_severity())]
    Invalid(ConfigErrors),
    /// An address of a mirror makes the configuration in force invalid.
    #[error(transparent)]
    Address(ConfigErrors),
    #[error("the configuration has no [bgp] section any more")]
    BgpGone,
    #[error("[bgp] is new, which needs a restart; nothing was changed")]
    BgpNew,
    #[error("ports have interfaces now, which needs a restart; nothing was changed")]
    Interfaces,
    #[error(transparent)]
    Bgp(#[from] BgpReloadError),
    #[error(transparent)]
    Packets(#[from] ReloadError),
}

/// The configuration in force, and the ways to another.
pub(crate) struct Configurations {
    path: PathBuf,
    /// The control socket that the file named at the start.
    socket: PathBuf,
    identity: Arc<Identity>,
    speaker: Option<Arc<Speaker>>,
    packets: Option<Arc<PacketSide>>,
    /// Locked for as long as another takes its place.
    in_force: Mutex<InForce>,
}

/// What the configuration in force was made of.
struct InForce {
    source: ConfigSource,
    learned: Vec<LearnedAddress>,
    /// The names of all ports that there have been, by number: what comes back has its number again.
    places: Vec<String>,
}

impl Configurations {
    /// Of a router that has begun with this text.
    pub(crate) fn new(
        options: &RunOptions,
        process: &Process,
        speaker: Option<Arc<Speaker>>,
        packets: Option<Arc<PacketSide>>,
    ) -> Arc<Self> {
        let places = packets.iter().flat_map(|packets| packets.config().ports.clone()).map(|port| port.name);
        let (source, places) = (process.source.clone(), places.collect());
        let in_force = Mutex::new(InForce { source, learned: Vec::new(), places });
        let (path, socket) = (options.config.clone(), process.socket.configured.clone());
        Arc::new(Self { path, socket, identity: process.identity.clone(), speaker, packets, in_force })
    }

    /// Reads the file again; whatever is wrong with it, nothing changes.
    pub(crate) fn reloader(self: &Arc<Self>) -> Arc<Reload> {
        let this = self.clone();
        Arc::new(move |is_dry| if is_dry { this.compare() } else { this.reload() })
    }

    /// What a reload would change, or why it would be refused. What BGP would do is not said.
    fn compare(&self) -> Result<Vec<String>, ConfigurationError> {
        let in_force = self.lock();
        let (_, config) = self.read(&in_force).map_err(ConfigurationError::Invalid)?;
        bgp_of(&config, self.speaker.as_deref())?;
        Ok(self.packets.as_ref().map_or(Ok(Vec::new()), |packets| packets.compare(&config))?)
    }

    /// The file as it is now.
    fn read(&self, in_force: &InForce) -> Result<(ConfigSource, RouterConfig), ConfigErrors> {
        let source = ConfigSource::read(&self.path)?;
        let config = source.config_in_places(&in_force.learned, &in_force.places)?;
        Ok((source, config))
    }

    fn reload(&self) -> Result<Vec<String>, ConfigurationError> {
        let mut in_force = self.lock();
        let refused = |what: &str, why: ConfigurationError| {
            tracing::error!("cannot reload {}, which {what}: {why}", self.path.display());
            self.identity.reloaded(Err(&why.to_string()));
            why
        };
        let (source, config) = self
            .read(&in_force)
            .map_err(|errors| refused("is not valid", ConfigurationError::Invalid(errors)))?;
        let config = Arc::new(config);
        let has_other_socket = config.control_socket != self.socket;
        let has_other_workers =
            self.packets.as_ref().is_some_and(|packets| *packets.workers() != config.workers);
        let taken = migrate_state(&config, self.speaker.as_deref(), self.packets.as_deref());
        let mut changes = taken.map_err(|why| refused("cannot be applied", why))?;
        self.identity.reloaded(Ok(&config));
        in_force.source = source;
        in_force.take_places(&config);
        if has_other_socket {
            changes.push("[control] socket changed: it takes effect with a restart".to_owned());
        }
        if has_other_workers {
            changes.push("[workers] changed: it takes effect with a restart".to_owned());
        }
        for change in &changes {
            tracing::info!("reload: {change}");
        }
        Ok(changes)
    }

    /// Has the router take over which addresses programs have given its mirrors: `found` says them, given the configuration
    /// in force. What cannot be taken over is left out. The addresses that are in force then, if they are others now; or
    /// why they are not.
    pub(crate) fn learn(
        &self,
        found: impl FnOnce(&RouterConfig) -> Vec<LearnedAddress>,
    ) -> Result<Option<Learned>, ConfigurationError> {
        let Some(packets) = &self.packets else { return Ok(None) };
        let mut in_force = self.lock();
        let found = found(&packets.config());
        if found == in_force.learned {
            return Ok(None);
        }
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        for address in found {
            taken.push(address);
            if let Err(errors) = in_force.source.config_in_places(&taken, &in_force.places) {
                refused.extend(taken.pop().map(|address| (address, errors.to_string())));
            }
        }
        if taken == in_force.learned {
            return Ok(Some(Learned { refused, ..Learned::default() }));
        }
        let config = in_force
            .source
            .config_in_places(&taken, &in_force.places)
            .map_err(ConfigurationError::Address)?;
        packets.reload(&Arc::new(config), || Ok(Vec::new()))?;
        let before = std::mem::replace(&mut in_force.learned, taken.clone());
        let only_in = |these: &[LearnedAddress], those: &[LearnedAddress]| {
            these.iter().filter(|each| !those.contains(each)).cloned().collect()
        };
        Ok(Some(Learned { come: only_in(&taken, &before), gone: only_in(&before, &taken), refused }))
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        self.in_force.lock()
    }
}

impl InForce {
    /// Ports have numbers that are theirs from now on.
    fn take_places(&mut self, config: &RouterConfig) {
        self.places.extend(config.ports.iter().skip(self.places.len()).map(|port| port.name.clone()));
    }
}

/// What became of addresses of mirrors.
#[derive(Default)]
pub(crate) struct Learned {
    /// The ports have them now.
    pub(crate) come: Vec<LearnedAddress>,
    /// They have them no longer.
    pub(crate) gone: Vec<LearnedAddress>,
    /// They cannot have them, and why.
    pub(crate) refused: Vec<(LearnedAddress, String)>,
}

fn migrate_state(
    config: &Arc<RouterConfig>,
    speaker: Option<&Speaker>,
    packets: Option<&PacketSide>,
) -> Result<Vec<String>, ConfigurationError> {
    let has_interfaces = config.ports.iter().any(|port| port.interface.is_some());
    let bgp = bgp_of(config, speaker)?;
    let speak = || bgp.map_or_else(|| Ok(Vec::new()), |(speaker, bgp)| speaker.reload(bgp));
    match packets {
        Some(packets) => Ok(packets.reload(config, speak)?),
        None if has_interfaces => Err(ConfigurationError::Interfaces),
        None => Ok(speak()?),
    }
}

/// What BGP would take over; a router does not begin or end to speak it.
fn bgp_of<'s>(
    config: &RouterConfig,
    speaker: Option<&'s Speaker>,
) -> Result<Option<(&'s Speaker, Arc<BgpConfig>)>, ConfigurationError> {
    match (speaker, &config.bgp) {
        (Some(_), None) => Err(ConfigurationError::BgpGone),
        (None, Some(_)) => Err(ConfigurationError::BgpNew),
        (Some(speaker), Some(bgp)) => Ok(Some((speaker, Arc::new(bgp.clone())))),
        (None, None) => Ok(None),
    }
}
