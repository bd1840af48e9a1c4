//! Route origin validation (RFC 6811): which AS may originate which prefix, as the RPKI says.
//!
//! A [`VrpTable`] has the validated ROA payloads (VRPs). It never changes; a change makes another, so who holds one reads
//! it without a lock. [`Validator`] asks it about routes. [`RtrClient`] keeps a cache's table by RTR (RFC 8210),
//! without a socket or a clock.
//!
//! The validity of a route is not stored: it follows from its prefix, the origin of its AS_PATH and the table of now.

mod client;
mod table;

use thalweg_base::IpPrefix;

pub use client::{CacheConfig, CacheState, ClientCounters, ClientStep, RtrClient};
pub use table::{ChangeFault, Vrp, VrpList, VrpTable};

use crate::attrs::Attrs;

thalweg_base::words! {
    /// What the VRPs say about the origin of a route.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Validity {
        /// A VRP covers the prefix, admits its length and names its origin.
        Valid => "valid",
        /// No VRP covers the prefix.
        NotFound => "not-found",
        /// VRPs cover the prefix, and none of them matches.
        Invalid => "invalid",
    }
}

/// Says how valid routes are.
#[derive(Clone, Copy, Debug)]
pub struct Validator<'v> {
    vrps: &'v VrpTable,
    /// The origin of routes with an empty AS_PATH.
    own_as: u32,
}

impl<'v> Validator<'v> {
    /// `own_as` is our AS as others see it: in a confederation its identifier.
    pub fn new(vrps: &'v VrpTable, own_as: u32) -> Self {
        Self { vrps, own_as }
    }

    /// The validity of a route with these attributes.
    pub fn validity_of(self, prefix: IpPrefix, attrs: &Attrs) -> Validity {
        self.validity(prefix, attrs.origin_as, u32::from(attrs.path_length))
    }

    /// The same of a route whose AS_PATH ends with `origin_as` and has this length as decisions count it: a path of
    /// nothing but confederation segments is empty, one that ends with a set has origin 0.
    pub fn validity(self, prefix: IpPrefix, origin_as: u32, path_length: u32) -> Validity {
        let origin = match (origin_as, path_length) {
            (0, 0) => Some(self.own_as),
            // RFC 6811 section 2: the origin is "NONE", which no VRP matches.
            (0, _) => None,
            (asn, _) => Some(asn),
        };
        self.vrps.validity(prefix, origin)
    }
}
