//! Applies another configuration to a running router: both halves of it, or none.
//!
//! The file is read and checked as at the start. Then the BGP half accepts its part or refuses it, and changes
//! nothing yet; the packet half prepares all it needs, changes its routes, which can be undone, and its plan. Only
//! then BGP applies what it accepted, which cannot fail.
//!
//! Addresses that programs give to mirrors of ports are applied the same way, to the configuration in force. Its
//! text is kept for that, because the file may have changed since without a request to reload it.

use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use thalweg_config::{
    BgpConfig, ConfigErrors, ConfigSource, ControlConfig, Diagnostic, ErrorKind, LearnedAddress, Places,
    RouterConfig, SystemConfig, WebConfig,
};
use thalweg_node::speaker::{PreparedBgp, Speaker, release_memory};

use crate::error::ConfigurationError;
use crate::identity::Identity;
use crate::options::RunOptions;
use crate::orders::Reload;
use crate::packets::PacketSide;
use crate::process::Process;
use crate::rights::is_confined;
use crate::service;

/// The configuration in force, and the means to replace it.
pub(crate) struct Configurations {
    path: PathBuf,
    /// What the file said at the start about what only a start can change.
    control: ControlConfig,
    system: SystemConfig,
    web: Option<WebConfig>,
    identity: Arc<Identity>,
    speaker: Option<Arc<Speaker>>,
    packets: Option<Arc<PacketSide>>,
    /// Locked during a reload.
    in_force: Mutex<InForce>,
}

/// The sources of the configuration in force.
struct InForce {
    source: ConfigSource,
    learned: Vec<LearnedAddress>,
    /// All ports and VRFs so far: what returns gets its number back.
    places: Places,
}

impl Configurations {
    /// Starts with the text that the router has begun with.
    pub(crate) fn new(
        options: &RunOptions,
        process: &Process,
        speaker: Option<Arc<Speaker>>,
        packets: Option<Arc<PacketSide>>,
    ) -> Arc<Self> {
        let places = packets.as_ref().map(|packets| Places::of(&packets.config())).unwrap_or_default();
        let source = process.source.clone();
        let in_force = Mutex::new(InForce { source, learned: Vec::new(), places });
        let (path, control) = (options.config.clone(), process.socket.configured.clone());
        Arc::new(Self {
            path,
            control,
            system: process.system.clone(),
            web: process.web.clone(),
            identity: process.identity.clone(),
            speaker,
            packets,
            in_force,
        })
    }

    /// The function behind `reload`. If anything is wrong with the file, nothing changes.
    pub(crate) fn reloader(self: &Arc<Self>) -> Arc<Reload> {
        let this = self.clone();
        Arc::new(move |is_dry| {
            if is_dry {
                return this.compare();
            }
            service::notify(&service::reloading());
            let reloaded = this.reload();
            // Each reload is of another thread, and the allocator keeps for each thread what it has freed: without this
            // every reload might add the size of all tables.
            release_memory();
            service::notify(service::READY);
            reloaded
        })
    }

    /// The changes that a reload would make, or why it would be refused. Changes of BGP are not listed.
    fn compare(&self) -> Result<Vec<String>, ConfigurationError> {
        let in_force = self.in_force.lock();
        let (_, config) = self.read(&in_force).map_err(invalid)?;
        bgp_of(&config, self.speaker.as_deref())?;
        Ok(self.packets.as_ref().map_or(Ok(Vec::new()), |packets| packets.compare(&config))?)
    }

    /// Reads the file.
    fn read(&self, in_force: &InForce) -> Result<(ConfigSource, RouterConfig), ConfigErrors> {
        let source = ConfigSource::read(&self.path)?;
        let config = source.config_in_places(&in_force.learned, &in_force.places)?;
        Ok((source, config))
    }

    fn reload(&self) -> Result<Vec<String>, ConfigurationError> {
        let mut in_force = self.in_force.lock();
        let refused = |what: &str, why: ConfigurationError| {
            tracing::error!("cannot reload {}, which {what}: {why}", self.path.display());
            self.identity.reloaded(Err(&why.to_string()));
            why
        };
        let (source, config) =
            self.read(&in_force).map_err(|errors| refused("is not valid", invalid(errors)))?;
        let config = Arc::new(config);
        let has_other_workers =
            self.packets.as_ref().is_some_and(|packets| *packets.workers() != config.workers);
        let taken = apply(&config, self.speaker.as_deref(), self.packets.as_deref());
        let mut changes = taken.map_err(|why| refused("cannot be applied", why))?;
        self.identity.reloaded(Ok(&config));
        in_force.source = source;
        in_force.places.extend(&config);
        let differ = [
            (config.control != self.control, "control"),
            (config.system != self.system, "system"),
            (config.web != self.web, "web"),
            (has_other_workers, "workers"),
        ];
        let differ = differ.into_iter().filter(|(differs, _)| *differs);
        changes.extend(
            differ.map(|(_, section)| format!("[{section}] changed: it takes effect with a restart")),
        );
        for change in &changes {
            tracing::info!("reload: {change}");
        }
        Ok(changes)
    }

    /// Applies the addresses that programs have given to mirrors; `found` derives them from the configuration in
    /// force. Addresses that cannot be applied are left out. Returns the result if anything changed, or why nothing
    /// could be applied.
    pub(crate) fn learn(
        &self,
        found: impl FnOnce(&RouterConfig) -> Vec<LearnedAddress>,
    ) -> Result<Option<Learned>, ConfigurationError> {
        let Some(packets) = &self.packets else { return Ok(None) };
        let mut in_force = self.in_force.lock();
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
        packets.reload(&Arc::new(config), Vec::new)?;
        release_memory();
        let before = std::mem::replace(&mut in_force.learned, taken.clone());
        let only_in = |these: &[LearnedAddress], those: &[LearnedAddress]| {
            these.iter().filter(|each| !those.contains(each)).cloned().collect()
        };
        Ok(Some(Learned { come: only_in(&taken, &before), gone: only_in(&before, &taken), refused }))
    }
}

/// The result for addresses of mirrors.
#[derive(Default)]
pub(crate) struct Learned {
    /// Addresses that ports now have.
    pub(crate) come: Vec<LearnedAddress>,
    /// Addresses that ports have lost.
    pub(crate) gone: Vec<LearnedAddress>,
    /// Addresses that were refused, and why.
    pub(crate) refused: Vec<(LearnedAddress, String)>,
}

/// Why a file cannot be used; a file that it names may be where a sandboxed router does not read.
fn invalid(errors: ConfigErrors) -> ConfigurationError {
    let is_denied = |finding: &Diagnostic| {
        finding.kind == ErrorKind::File
            && finding.message.contains(&io::Error::from(Errno::ACCESS).to_string())
    };
    match is_confined() && errors.diagnostics.iter().any(is_denied) {
        true => ConfigurationError::Outside(errors),
        false => ConfigurationError::Invalid(errors),
    }
}

/// Applies a configuration to both halves, or to none; returns the changes in words.
fn apply(
    config: &Arc<RouterConfig>,
    speaker: Option<&Speaker>,
    packets: Option<&PacketSide>,
) -> Result<Vec<String>, ConfigurationError> {
    let has_interfaces = config.ports.iter().any(|port| port.interface.is_some());
    let bgp = bgp_of(config, speaker)?;
    let bgp = bgp.map(|(speaker, bgp)| speaker.prepare_reload(bgp)).transpose()?;
    let speak = || bgp.map_or_else(Vec::new, PreparedBgp::apply);
    match packets {
        Some(packets) => Ok(packets.reload(config, speak)?),
        None if has_interfaces => Err(ConfigurationError::Interfaces),
        None => Ok(speak()),
    }
}

/// BGP's part of a configuration. A running router cannot start or stop speaking BGP.
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
