//! Capabilities of a session's ends (RFC 5492), an optional parameter of OPEN.
//!
//! Capabilities that this router understands are fields; the others are kept as received, for display.
//! Repeated capabilities are merged if they are lists; of single values the last one counts (RFC 5492 4
//! leaves it open), except a role: two different ones are an error (RFC 9234 4.2).

use std::fmt;

use super::notification::{Notification, error, open_error};
use super::{AfiSafi, Family};

/// Capability codes.
pub mod capability {
    /// Multiprotocol extensions (RFC 4760).
    pub const MULTIPROTOCOL: u8 = 1;
    /// Route refresh (RFC 2918).
    pub const ROUTE_REFRESH: u8 = 2;
    /// IPv6 next hops of IPv4 routes (RFC 8950).
    pub const EXTENDED_NEXT_HOP: u8 = 5;
    /// Messages of more than 4096 bytes (RFC 8654).
    pub const EXTENDED_MESSAGE: u8 = 6;
    /// Roles (RFC 9234).
    pub const ROLE: u8 = 9;
    /// Graceful restart (RFC 4724, 8538).
    pub const GRACEFUL_RESTART: u8 = 64;
    /// AS numbers of four bytes (RFC 6793).
    pub const FOUR_OCTET_AS: u8 = 65;
    /// Several paths of a prefix (RFC 7911).
    pub const ADD_PATH: u8 = 69;
    /// Enhanced route refresh (RFC 7313).
    pub const ENHANCED_REFRESH: u8 = 70;
    /// Long-lived graceful restart (RFC 9494).
    pub const LONG_LIVED_GRACEFUL_RESTART: u8 = 71;
    /// Name of the host (draft-walton-bgp-hostname-capability).
    pub const FQDN: u8 = 73;
    /// Name and version of the program (draft-ietf-idr-version-capability).
    pub const SOFTWARE_VERSION: u8 = 75;
}

/// The directions in which several paths of a prefix may be sent (RFC 7911), from the sender's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddPath {
    pub family: AfiSafi,
    /// The sender of the capability can receive several paths.
    pub receive: bool,
    /// The sender of the capability wants to send several paths.
    pub send: bool,
}

/// A next-hop family that routes of another family may use (RFC 8950).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtendedNextHop {
    /// The family of the routes. Its SAFI takes two bytes here.
    pub afi: u16,
    pub safi: u16,
    pub next_hop_afi: u16,
}

/// A family whose routes the neighbors should keep during a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RestartFamily {
    pub family: AfiSafi,
    /// The router kept its forwarding state for the family over the restart.
    pub forwarding: bool,
}

/// Graceful restart (RFC 4724 3, RFC 8538 2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GracefulRestart {
    /// The router has just restarted.
    pub restarting: bool,
    /// Routes are kept over NOTIFICATIONs too (RFC 8538).
    pub notification: bool,
    /// The longest time that the restart takes; 12 bits.
    pub time_s: u16,
    /// The families that the router can preserve; if empty, it only helps others.
    pub families: Vec<RestartFamily>,
}

/// A family whose stale routes may be kept for long (RFC 9494). Only displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LongLivedFamily {
    pub family: AfiSafi,
    /// The router kept its forwarding state for the family over the restart.
    pub forwarding: bool,
    /// How long stale routes may be kept; 24 bits.
    pub time_s: u32,
}

/// The host name. Only displayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostName {
    pub host: Vec<u8>,
    pub domain: Vec<u8>,
}

/// A capability that this router does not understand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnknownCapability {
    pub code: u8,
    /// At most 255 bytes.
    pub value: Vec<u8>,
}

/// The capabilities of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// Families whose routes it accepts. An empty list means IPv4 unicast (RFC 4760 8; see
    /// [`Self::supports`]).
    pub families: Vec<AfiSafi>,
    pub route_refresh: bool,
    /// It marks the beginning and end of a refresh.
    pub enhanced_refresh: bool,
    /// It accepts messages of up to 65,535 bytes.
    pub extended_message: bool,
    /// Its AS number, if it supports four-octet ones.
    pub four_octet_as: Option<u32>,
    pub add_path: Vec<AddPath>,
    /// Next hops of another family than the routes.
    pub extended_next_hop: Vec<ExtendedNextHop>,
    pub graceful_restart: Option<GracefulRestart>,
    /// The role as on the wire (RFC 9234 4.1: 0 provider, 1 route server, 2 its client, 3 customer, 4 peer).
    pub role: Option<u8>,
    pub long_lived: Vec<LongLivedFamily>,
    pub host_name: Option<HostName>,
    /// Name and version of the program.
    pub software_version: Option<Vec<u8>>,
    /// All other capabilities, in order.
    pub unknown: Vec<UnknownCapability>,
}

impl Capabilities {
    /// Whether routes of the family are accepted.
    pub fn supports(&self, family: Family) -> bool {
        self.families.contains(&family.into()) || (self.families.is_empty() && family == Family::Ipv4)
    }

    /// The ADD-PATH entry of a family, if any.
    pub fn add_path(&self, family: Family) -> Option<AddPath> {
        self.add_path.iter().copied().find(|each| each.family == family.into())
    }

    /// Whether IPv4 unicast routes may have IPv6 next hops.
    pub fn ipv4_with_ipv6_next_hop(&self) -> bool {
        self.extended_next_hop.contains(&ExtendedNextHop { afi: 1, safi: 1, next_hop_afi: 2 })
    }

    /// Adds the capabilities of one optional parameter.
    pub(super) fn parse(&mut self, mut rest: &[u8]) -> Result<(), Notification> {
        while !rest.is_empty() {
            let Some((&[code, length], after)) = rest.split_first_chunk::<2>() else {
                return Err(malformed());
            };
            let Some((value, after)) = after.split_at_checked(usize::from(length)) else {
                return Err(malformed());
            };
            rest = after;
            self.add(code, value)?;
        }
        Ok(())
    }

    fn add(&mut self, code: u8, value: &[u8]) -> Result<(), Notification> {
        match code {
            capability::MULTIPROTOCOL => {
                let &[high, low, _, safi] = sized::<4>(value)?;
                add_once(&mut self.families, AfiSafi { afi: u16::from_be_bytes([high, low]), safi });
            }
            capability::ROUTE_REFRESH => {
                sized::<0>(value)?;
                self.route_refresh = true;
            }
            capability::ENHANCED_REFRESH => {
                sized::<0>(value)?;
                self.enhanced_refresh = true;
            }
            capability::EXTENDED_MESSAGE => {
                sized::<0>(value)?;
                self.extended_message = true;
            }
            capability::FOUR_OCTET_AS => self.four_octet_as = Some(u32::from_be_bytes(*sized(value)?)),
            capability::EXTENDED_NEXT_HOP => {
                for &[a, b, c, d, e, f] in records::<6>(value)? {
                    let next = ExtendedNextHop {
                        afi: u16::from_be_bytes([a, b]),
                        safi: u16::from_be_bytes([c, d]),
                        next_hop_afi: u16::from_be_bytes([e, f]),
                    };
                    add_once(&mut self.extended_next_hop, next);
                }
            }
            capability::ADD_PATH => self.add_paths(value)?,
            capability::GRACEFUL_RESTART => self.graceful_restart = Some(graceful_restart(value)?),
            capability::ROLE => {
                let &[role] = sized::<1>(value)?;
                if self.role.is_some_and(|before| before != role) {
                    return Err(Notification::new(error::OPEN, open_error::ROLE_MISMATCH));
                }
                self.role = Some(role);
            }
            capability::LONG_LIVED_GRACEFUL_RESTART if value.len().is_multiple_of(7) => {
                self.long_lived.extend(value.as_chunks::<7>().0.iter().map(long_lived_family));
            }
            capability::FQDN if self.host_name.is_none() && host_name(value).is_some() => {
                self.host_name = host_name(value);
            }
            capability::SOFTWARE_VERSION if self.software_version.is_none() && counted(value).is_some() => {
                self.software_version = counted(value).map(|(text, _)| text.to_vec());
            }
            _ => self.unknown.push(UnknownCapability { code, value: value.to_vec() }),
        }
        Ok(())
    }

    /// The last entry of a family counts; an undefined direction is ignored (RFC 7911 4).
    fn add_paths(&mut self, value: &[u8]) -> Result<(), Notification> {
        for &[high, low, safi, ways] in records::<4>(value)? {
            let family = AfiSafi { afi: u16::from_be_bytes([high, low]), safi };
            if !(1..=3).contains(&ways) {
                continue;
            }
            self.add_path.retain(|each| each.family != family);
            self.add_path.push(AddPath { family, receive: ways & 1 != 0, send: ways & 2 != 0 });
        }
        Ok(())
    }

    /// Appends all capabilities. A value beyond 255 bytes is cut at a whole record, since the format allows
    /// no more.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for family in &self.families {
            let [high, low] = family.afi.to_be_bytes();
            write_one(out, capability::MULTIPROTOCOL, &[high, low, 0, family.safi]);
        }
        for (said, code) in [
            (self.route_refresh, capability::ROUTE_REFRESH),
            (self.enhanced_refresh, capability::ENHANCED_REFRESH),
            (self.extended_message, capability::EXTENDED_MESSAGE),
        ] {
            if said {
                write_one(out, code, &[]);
            }
        }
        let next_hops = self.extended_next_hop.iter().map(|each| {
            let ([a, b], [c, d]) = (each.afi.to_be_bytes(), each.safi.to_be_bytes());
            let [e, f] = each.next_hop_afi.to_be_bytes();
            [a, b, c, d, e, f]
        });
        write_records(out, capability::EXTENDED_NEXT_HOP, next_hops);
        if let Some(asn) = self.four_octet_as {
            write_one(out, capability::FOUR_OCTET_AS, &asn.to_be_bytes());
        }
        if let Some(role) = self.role {
            write_one(out, capability::ROLE, &[role]);
        }
        if let Some(restart) = &self.graceful_restart {
            write_one(out, capability::GRACEFUL_RESTART, &restart_value(restart));
        }
        let add_path = self.add_path.iter().map(|each| {
            let [high, low] = each.family.afi.to_be_bytes();
            [high, low, each.family.safi, u8::from(each.receive) | u8::from(each.send) << 1]
        });
        write_records(out, capability::ADD_PATH, add_path);
        let long_lived = self.long_lived.iter().map(|each| {
            let ([high, low], [_, a, b, c]) = (each.family.afi.to_be_bytes(), each.time_s.to_be_bytes());
            [high, low, each.family.safi, u8::from(each.forwarding) << 7, a, b, c]
        });
        write_records(out, capability::LONG_LIVED_GRACEFUL_RESTART, long_lived);
        if let Some(HostName { host, domain }) = &self.host_name {
            let mut value = Vec::new();
            push_counted(&mut value, host, VALUE_BYTES_MAX - 2);
            let room = VALUE_BYTES_MAX - 1 - value.len();
            push_counted(&mut value, domain, room);
            write_one(out, capability::FQDN, &value);
        }
        if let Some(version) = &self.software_version {
            let mut value = Vec::new();
            push_counted(&mut value, version, VALUE_BYTES_MAX - 1);
            write_one(out, capability::SOFTWARE_VERSION, &value);
        }
        for each in &self.unknown {
            write_one(out, each.code, &each.value);
        }
    }
}

const VALUE_BYTES_MAX: usize = 255;

fn write_one(out: &mut Vec<u8>, code: u8, value: &[u8]) {
    let value = value.get(..VALUE_BYTES_MAX).unwrap_or(value);
    out.extend_from_slice(&[code, value.len() as u8]);
    out.extend_from_slice(value);
}

/// As many capabilities with this code as the records need; none for no records.
fn write_records<const N: usize>(out: &mut Vec<u8>, code: u8, records: impl Iterator<Item = [u8; N]>) {
    let records: Vec<[u8; N]> = records.collect();
    for some in records.chunks(VALUE_BYTES_MAX / N) {
        write_one(out, code, some.as_flattened());
    }
}

fn restart_value(restart: &GracefulRestart) -> Vec<u8> {
    let bits = u16::from(restart.restarting) << 15 | u16::from(restart.notification) << 14;
    let mut value = (bits | restart.time_s & 0x0fff).to_be_bytes().to_vec();
    // At most 63 families fit.
    for each in restart.families.iter().take((VALUE_BYTES_MAX - 2) / 4) {
        value.extend_from_slice(&each.family.afi.to_be_bytes());
        value.extend_from_slice(&[each.family.safi, u8::from(each.forwarding) << 7]);
    }
    value
}

fn graceful_restart(value: &[u8]) -> Result<GracefulRestart, Notification> {
    let Some((first, families)) = value.split_first_chunk::<2>() else { return Err(malformed()) };
    let first = u16::from_be_bytes(*first);
    let families = records::<4>(families)?.iter().map(|&[high, low, safi, flags]| RestartFamily {
        family: AfiSafi { afi: u16::from_be_bytes([high, low]), safi },
        forwarding: flags & 0x80 != 0,
    });
    Ok(GracefulRestart {
        restarting: first & 0x8000 != 0,
        notification: first & 0x4000 != 0,
        time_s: first & 0x0fff,
        families: families.collect(),
    })
}

fn long_lived_family(&[high, low, safi, flags, a, b, c]: &[u8; 7]) -> LongLivedFamily {
    LongLivedFamily {
        family: AfiSafi { afi: u16::from_be_bytes([high, low]), safi },
        forwarding: flags & 0x80 != 0,
        time_s: u32::from_be_bytes([0, a, b, c]),
    }
}

fn host_name(value: &[u8]) -> Option<HostName> {
    let (host, rest) = counted(value)?;
    let (domain, _) = counted(rest)?;
    Some(HostName { host: host.to_vec(), domain: domain.to_vec() })
}

/// A text preceded by its length, and the bytes behind it.
fn counted(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = value.split_first()?;
    rest.split_at_checked(usize::from(length))
}

/// Appends a text preceded by its length, cut to the available room.
fn push_counted(value: &mut Vec<u8>, text: &[u8], room: usize) {
    let text = text.get(..room).unwrap_or(text);
    value.push(text.len() as u8);
    value.extend_from_slice(text);
}

fn sized<const N: usize>(value: &[u8]) -> Result<&[u8; N], Notification> {
    value.try_into().map_err(|_| malformed())
}

fn records<const N: usize>(value: &[u8]) -> Result<&[[u8; N]], Notification> {
    match value.as_chunks::<N>() {
        (records, []) => Ok(records),
        _ => Err(malformed()),
    }
}

fn add_once<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// RFC 5492 names no error for this.
fn malformed() -> Notification {
    Notification::new(error::OPEN, open_error::UNSPECIFIC)
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self.families.iter().map(|each| each.to_string()).collect();
        for (said, word) in [
            (self.route_refresh, "route-refresh"),
            (self.enhanced_refresh, "enhanced-refresh"),
            (self.extended_message, "extended-message"),
            (self.ipv4_with_ipv6_next_hop(), "extended-next-hop"),
        ] {
            words.extend(said.then(|| word.to_owned()));
        }
        words.extend(self.four_octet_as.map(|asn| format!("as4 {asn}")));
        words.extend(self.role.map(|role| format!("role {role}")));
        for each in &self.add_path {
            let ways = match (each.receive, each.send) {
                (true, true) => "both",
                (true, false) => "receive",
                _ => "send",
            };
            words.push(format!("add-path {} {ways}", each.family));
        }
        if let Some(restart) = &self.graceful_restart {
            words.push(format!("graceful-restart {} s", restart.time_s));
        }
        words.extend((!self.long_lived.is_empty()).then(|| "long-lived-graceful-restart".to_owned()));
        if let Some(HostName { host, .. }) = &self.host_name {
            words.push(format!("host {}", String::from_utf8_lossy(host)));
        }
        if let Some(version) = &self.software_version {
            words.push(format!("version {}", String::from_utf8_lossy(version)));
        }
        words.extend(self.unknown.iter().map(|each| format!("unknown {}", each.code)));
        f.write_str(&words.join(", "))
    }
}
