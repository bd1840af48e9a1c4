//! Prints an UPDATE and its faults on one line, for logs.

use std::fmt;

use super::{AttributeProblem, Fault, MpNlri, Update, Verdict};
use crate::bgp::attributes::{self, attribute_name};

impl fmt::Display for Update<'_> {
    /// `UPDATE withdraw 192.0.2.0/24; announce 198.51.100.0/24 via 203.0.113.1; ORIGIN igp, AS_PATH 64496 ..`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(family) = self.end_of_rib() {
            return write!(f, "UPDATE End-of-RIB {family}");
        }
        f.write_str("UPDATE")?;
        if !self.withdrawn.is_empty() {
            write!(f, " withdraw {};", self.withdrawn)?;
        }
        if let Some(routes) = self.mp_unreach {
            write!(f, " withdraw {routes};")?;
        }
        if let Some(family) = self.foreign_unreach {
            write!(f, " withdraw of family {family};")?;
        }
        let announce = match self.verdict {
            Verdict::Good => "announce",
            Verdict::TreatAsWithdraw(_) => "treat as withdrawn",
        };
        if !self.reach_v4.is_empty() {
            write!(f, " {announce} {}", self.reach_v4)?;
            if let Some(next_hop) = self.next_hop {
                write!(f, " via {next_hop}")?;
            }
            f.write_str(";")?;
        }
        if let Some(reach) = self.mp_reach {
            write!(f, " {announce} {} via {};", reach.routes, reach.next_hop)?;
        }
        if let Some(family) = self.foreign_reach {
            write!(f, " announce of family {family};")?;
        }
        match self.verdict {
            Verdict::Good => self.write_attributes(f)?,
            Verdict::TreatAsWithdraw(problem) => write!(f, " {problem};")?,
        }
        for (index, problem) in self.discards.iter().enumerate() {
            f.write_str(if index == 0 { " discarded: " } else { ", " })?;
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl Update<'_> {
    fn write_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, each) in self.attributes().enumerate() {
            f.write_str(if index == 0 { " " } else { ", " })?;
            attributes::print(self, each, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for MpNlri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(routes) => routes.fmt(f),
            Self::Ipv6(routes) => routes.fmt(f),
        }
    }
}

impl fmt::Display for AttributeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.code {
            0 => "attributes".into(),
            code => attribute_name(code),
        };
        match self.fault {
            Fault::Flags(flags) => write!(f, "{name} with flags {flags:#04x}"),
            Fault::Length(length) => write!(f, "{name} of {length} bytes"),
            Fault::Overrun => write!(f, "{name} beyond the length of all attributes"),
            Fault::Missing => write!(f, "no {name}"),
            Fault::Origin(value) => write!(f, "{name} {value}"),
            Fault::NextHop => write!(f, "{name} with a next hop that is no address of a host"),
            Fault::MpNlri => write!(f, "{name} whose next hop or prefixes cannot be read"),
            Fault::AsPath(error) => write!(f, "{name}: {error}"),
            Fault::AsZero => write!(f, "{name} with AS 0"),
            Fault::Duplicate => write!(f, "{name} more than once"),
            Fault::FromOutside => write!(f, "{name} from outside the AS"),
            Fault::FromFourOctetSpeaker => write!(f, "{name} from a neighbor with four-octet AS numbers"),
            Fault::Unwanted => write!(f, "{name}, which the configuration discards"),
        }
    }
}
