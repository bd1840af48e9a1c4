//! An UPDATE in words, on one line, for logs.

use std::fmt;

use super::{MpNlri, Update, Verdict};
use crate::bgp::attribute as a;
use crate::bgp::rules::attribute_name;
use crate::bgp::view::AsPath;

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
            f.write_str(&attribute_name(each.code))?;
            let numbers = |f: &mut fmt::Formatter<'_>| {
                let mut fours = each.value.as_chunks::<4>().0.iter();
                fours.try_for_each(|&[a, b, c, d]| {
                    write!(f, " {}:{}", u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
                })
            };
            match each.code {
                a::ORIGIN => write!(f, " {}", self.origin)?,
                a::AS_PATH => {
                    let mut scratch = Vec::new();
                    write!(f, " {}", AsPath::new(self.as_path(&mut scratch)))?;
                }
                a::NEXT_HOP => self.next_hop.map_or(Ok(()), |next_hop| write!(f, " {next_hop}"))?,
                a::MED => self.med.map_or(Ok(()), |med| write!(f, " {med}"))?,
                a::LOCAL_PREF => self.local_pref.map_or(Ok(()), |value| write!(f, " {value}"))?,
                a::AGGREGATOR => {
                    self.aggregator.map_or(Ok(()), |who| write!(f, " {} {}", who.asn, who.address))?;
                }
                a::COMMUNITIES => numbers(f)?,
                a::LARGE_COMMUNITIES => {
                    for twelve in each.value.as_chunks::<12>().0 {
                        let part = |at: usize| {
                            twelve[at..].first_chunk::<4>().map_or(0, |four| u32::from_be_bytes(*four))
                        };
                        write!(f, " {}:{}:{}", part(0), part(4), part(8))?;
                    }
                }
                a::ATOMIC_AGGREGATE => {}
                _ => {
                    f.write_str(" 0x")?;
                    each.value.iter().take(BYTES_SHOWN).try_for_each(|byte| write!(f, "{byte:02x}"))?;
                    f.write_str(if each.value.len() > BYTES_SHOWN { ".." } else { "" })?;
                }
            }
        }
        Ok(())
    }
}

/// Bytes of a value nobody understands that a log line shows.
const BYTES_SHOWN: usize = 32;

impl fmt::Display for MpNlri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(routes) => routes.fmt(f),
            Self::Ipv6(routes) => routes.fmt(f),
        }
    }
}
