//! Which packets a capture selects: its request, with names resolved.

use thalweg_base::DropReason;
use thalweg_config::RouterConfig;
use thalweg_dataplane::rate_limit::Rate;
use thalweg_exec::{Plan, StageSpec};
use thalweg_node::capture::PacketFilter;
use thalweg_node::control::CaptureRequest;
use thalweg_node::plan::RouterPlan;
use thalweg_node::trace::SpecError;

use super::Fate;

/// Bytes of a frame that are kept if the request does not limit them.
const SNAPLEN_DEFAULT: u32 = 65_535;

/// Why a capture cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No such point.
    #[error(
        "nothing is called `{name}`: expected `arrived`, a stage of this router ({}), `to-host`, `sent` or `dropped`",
        .stages.join(", ")
    )]
    Point {
        /// The requested name.
        name: String,
        /// The names of the stages.
        stages: Vec<String>,
    },
    /// No such port.
    #[error("no port is called `{name}`: expected one of {}", .ports.join(", "))]
    Port {
        /// The requested name.
        name: String,
        /// The names of the ports.
        ports: Vec<String>,
    },
    /// No such drop reason.
    #[error("no reason is called `{0}`: expected one of {reasons}", reasons = reasons())]
    Reason(String),
    /// A drop reason for a point where nothing is dropped.
    #[error("sent packets have no drop reason: leave out --reason")]
    SentForAReason,
    /// The filter does not parse.
    #[error("{0}")]
    Filter(SpecError),
    /// Too many captures run.
    #[error("{0} captures are running already: stop one first")]
    TooMany(usize),
}

/// Where packets are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// Before the first stage.
    Arrived,
    /// Behind this stage.
    Stage(String),
    /// Where the router itself takes them.
    ToHost,
    /// When their port's driver has taken them.
    Sent,
    /// Where they are dropped.
    Dropped,
}

impl Point {
    const NAMED: [(&'static str, Self); 4] = [
        ("arrived", Self::Arrived),
        ("to-host", Self::ToHost),
        ("sent", Self::Sent),
        ("dropped", Self::Dropped),
    ];

    fn find(name: &str, stages: &[StageSpec]) -> Result<Self, CaptureError> {
        if let Some((_, point)) = Self::NAMED.iter().find(|(known, _)| *known == name) {
            return Ok(point.clone());
        }
        if stages.iter().any(|stage| stage.name == name) {
            return Ok(Self::Stage(name.to_owned()));
        }
        let stages = stages.iter().map(|stage| stage.name.clone()).collect();
        Err(CaptureError::Point { name: name.to_owned(), stages })
    }

    /// The point's name in requests.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Stage(name) => name,
            other => Self::NAMED.iter().find(|(_, point)| point == other).map_or("", |(name, _)| name),
        }
    }

    /// Whether packets that the kernel forwards would be missed at this point.
    pub(crate) fn misses_offloaded(&self) -> bool {
        matches!(self, Self::Arrived | Self::Stage(_) | Self::Sent)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) point: Point,
    /// The packets' ingress or egress port.
    pub(crate) port: Option<u16>,
    pub(crate) reason: Option<DropReason>,
    pub(crate) filter: PacketFilter,
    /// Bytes of a frame that are kept.
    pub(crate) snaplen: usize,
    pub(crate) rate: Option<Rate>,
}

impl Selection {
    /// Resolves a request's names.
    pub(crate) fn of(
        request: &CaptureRequest,
        config: &RouterConfig,
        plan: &RouterPlan,
    ) -> Result<Self, CaptureError> {
        let default = if request.reason.is_some() { "dropped" } else { "arrived" };
        let point = Point::find(request.point.as_deref().unwrap_or(default), plan.stages())?;
        let reason = request.reason.as_deref().map(reason).transpose()?;
        if reason.is_some() && point == Point::Sent {
            return Err(CaptureError::SentForAReason);
        }
        let filter = request.filter.as_deref().unwrap_or_default();
        Ok(Self {
            point,
            port: request.port.as_deref().map(|name| port(name, config)).transpose()?,
            reason,
            filter: PacketFilter::parse(filter).map_err(CaptureError::Filter)?,
            snaplen: request.snaplen.unwrap_or(SNAPLEN_DEFAULT) as usize,
            // The bucket holds a tenth of a second's packets.
            rate: request.rate.map(|rate| Rate::per_second(rate, rate / 10)),
        })
    }

    /// Whether a packet's ports and fate are selected; the filter has already matched its frame.
    pub(crate) fn wants(&self, ports: &[u16], fate: Fate) -> bool {
        let reason = match fate {
            Fate::ToHost(reason) | Fate::Dropped(reason) => Some(reason),
            Fate::Leaves { .. } | Fate::Sent => None,
        };
        self.port.is_none_or(|port| ports.contains(&port))
            && self.reason.is_none_or(|wanted| reason == Some(wanted))
    }
}

fn port(name: &str, config: &RouterConfig) -> Result<u16, CaptureError> {
    let by_name = config.ports.iter().position(|port| port.name == name && !port.is_vacant());
    let is_interface = |port: &thalweg_config::PortConfig| {
        port.interface.as_ref().is_some_and(|interface| interface.name == name)
    };
    let place = by_name.or_else(|| config.ports.iter().position(is_interface));
    place.and_then(|place| u16::try_from(place).ok()).ok_or_else(|| {
        let ports = config.ports.iter().filter(|port| !port.is_vacant());
        CaptureError::Port { name: name.to_owned(), ports: ports.map(|port| port.name.clone()).collect() }
    })
}

fn reasons() -> String {
    DropReason::ALL.iter().map(|reason| reason.name()).collect::<Vec<_>>().join(", ")
}

fn reason(name: &str) -> Result<DropReason, CaptureError> {
    DropReason::ALL
        .iter()
        .copied()
        .find(|reason| reason.name() == name)
        .ok_or_else(|| CaptureError::Reason(name.to_owned()))
}
