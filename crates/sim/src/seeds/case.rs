//! A plan of either side, which `thalweg lab seeds` runs and a scenario file stores.

use serde::Deserialize;

use super::shrink::{Shrunk, shrink};
use super::trial::{Trial, Voice};
use super::{bgp, packets};

thalweg_base::words! {
    /// The two kinds of plans.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Side {
        /// Networks of routers that speak BGP.
        Bgp => "bgp",
        /// A router and its packets.
        Packets => "packets",
    }
}

/// A plan of either side.
#[derive(Clone, Debug, PartialEq)]
pub enum Case {
    Bgp(bgp::Plan),
    Packets(packets::Plan),
}

/// A scenario file that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It is not valid TOML, or keys are missing.
    #[error("{0}")]
    Format(#[from] toml::de::Error),
    #[error(transparent)]
    Bgp(#[from] bgp::PlanFault),
    #[error(transparent)]
    Packets(#[from] packets::PlanFault),
}

impl Case {
    /// Draws a plan of this side from a seed.
    pub fn draw(side: Side, seed: u64) -> Self {
        match side {
            Side::Bgp => Self::Bgp(bgp::Plan::draw(seed)),
            Side::Packets => Self::Packets(packets::Plan::draw(seed)),
        }
    }

    /// Reads a scenario file. A plan of packets is recognized by its key `model`.
    pub fn from_text(text: &str) -> Result<Self, PlanError> {
        #[derive(Deserialize)]
        struct Model {
            model: Option<toml::Value>,
        }
        let case = match toml::from_str::<Model>(text)?.model {
            None => Self::Bgp(toml::from_str(text)?),
            Some(_) => Self::Packets(toml::from_str(text)?),
        };
        match &case {
            Self::Bgp(plan) => plan.check()?,
            Self::Packets(plan) => plan.check()?,
        }
        Ok(case)
    }

    /// The text of a scenario file.
    pub fn to_text(&self) -> String {
        let text = match self {
            Self::Bgp(plan) => toml::to_string(plan),
            Self::Packets(plan) => toml::to_string(plan),
        };
        text.unwrap_or_else(|error| format!("# {error}\n"))
    }

    /// The side of the plan.
    pub fn side(&self) -> Side {
        match self {
            Self::Bgp(_) => Side::Bgp,
            Self::Packets(_) => Side::Packets,
        }
    }

    /// The number of routers, or of the router's ports.
    pub fn places(&self) -> usize {
        match self {
            Self::Bgp(plan) => plan.routers.len(),
            Self::Packets(plan) => plan.ports(),
        }
    }

    /// The number of faults and changes, or of packets.
    pub fn events(&self) -> usize {
        match self {
            Self::Bgp(plan) => plan.events(),
            Self::Packets(plan) => plan.packets(),
        }
    }

    /// Runs the plan. `threads` run the routers of a network; the result is the same for any number.
    pub fn run(&self, threads: usize, voice: Option<Voice<'_>>) -> Trial {
        match self {
            Self::Bgp(plan) => bgp::run(plan, threads, voice),
            Self::Packets(plan) => packets::run(plan, voice),
        }
    }

    /// The smallest plan found that fails in the same way; `None` if this one does not fail. Tries at most
    /// `tries` plans.
    pub fn shrink(&self, tries: usize) -> Option<Shrunk<Self>> {
        let of = |plan, violation, tried| Shrunk { plan, violation, tried };
        match self {
            Self::Bgp(plan) => shrink(plan, tries, &bgp::STEPS, |plan| bgp::run(plan, 1, None).verdict)
                .map(|Shrunk { plan, violation, tried }| of(Self::Bgp(plan), violation, tried)),
            Self::Packets(plan) => {
                shrink(plan, tries, &packets::STEPS, |plan| packets::run(plan, None).verdict)
                    .map(|Shrunk { plan, violation, tried }| of(Self::Packets(plan), violation, tried))
            }
        }
    }
}

impl serde::Serialize for Case {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bgp(plan) => plan.serialize(serializer),
            Self::Packets(plan) => plan.serialize(serializer),
        }
    }
}
