//! What the kernel counts of an interface (`rtnl_link_stats64` of linux/if_link.h), by its number.

use thalweg_wire::sflow::InterfaceCounters;

use super::error::KernelError;
use super::message::{AttributesOf, Message, u16_at, u32_at};
use super::socket::Netlink;
use crate::live::link::{LinkSpeed, Links};

/// Counters of an interface since it exists, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceCounts {
    pub name: Box<str>,
    /// Its `ifType` at IANA.
    pub kind: u32,
    /// It is administratively up.
    pub is_enabled: bool,
    /// It is enabled and has a carrier.
    pub is_up: bool,
    pub is_promiscuous: bool,
    pub speed: LinkSpeed,
    pub received: DirectionCounts,
    /// Multicast packets among those received.
    pub multicast: u64,
    pub sent: DirectionCounts,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    pub packets: u64,
    pub bytes: u64,
    pub dropped: u64,
    pub errors: u64,
}

/// Asks for counters. It works in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct LinkCounters {
    netlink: Netlink,
    links: Links,
}

impl LinkCounters {
    /// Opens sockets; needs no rights.
    ///
    /// # Errors
    ///
    /// There is no socket.
    pub fn open() -> Result<Self, KernelError> {
        let links = Links::open().map_err(|source| KernelError::Open { source })?;
        Ok(Self { netlink: Netlink::open()?, links })
    }

    /// The present counters of the interface with this number; `None` if there is no such interface.
    ///
    /// # Errors
    ///
    /// The kernel does not answer.
    pub fn read(&mut self, index: u32) -> Result<Option<InterfaceCounts>, KernelError> {
        // struct ifinfomsg: family, padding, type 2, index 4, flags 4, change 4.
        let mut header = [0; 16];
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        match self
            .netlink
            .one("an interface's counters", libc::RTM_GETLINK, &header, |message| counts(&message))
        {
            Ok(counts) => {
                let speed = |name: &str| self.links.speed(name);
                Ok(counts.map(|counts| InterfaceCounts { speed: speed(&counts.name), ..counts }))
            }
            Err(KernelError::Refused { refusal, .. }) if refusal.errno == libc::ENODEV => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn counts(message: &Message<'_>) -> Option<InterfaceCounts> {
    let (hardware, flags) = (u16_at(message.body, 2)?, u32_at(message.body, 8)?);
    let has = |wanted: i32| flags & wanted.cast_unsigned() == wanted.cast_unsigned();
    let (mut name, mut is_promiscuous, mut statistics) = (None, false, None);
    for (kind, value) in AttributesOf(message.body.get(16..)?) {
        match kind {
            libc::IFLA_IFNAME => name = Some(String::from_utf8_lossy(value).trim_end_matches('\0').into()),
            libc::IFLA_PROMISCUITY => is_promiscuous = u32_at(value, 0)? > 0,
            libc::IFLA_STATS64 => statistics = Some(value),
            _ => {}
        }
    }
    let (words, _) = statistics?.as_chunks::<8>();
    let count = |place: usize| words.get(place).map(|word| u64::from_ne_bytes(*word));
    let direction = |first: usize| {
        Some(DirectionCounts {
            packets: count(first)?,
            bytes: count(first + 2)?,
            errors: count(first + 4)?,
            dropped: count(first + 6)?,
        })
    };
    let mut received = direction(0)?;
    // What found no room in the ring stands alone; `/proc/net/dev` adds it too.
    received.dropped = received.dropped.saturating_add(count(15)?);
    Some(InterfaceCounts {
        name: name?,
        kind: kind_of(hardware),
        is_enabled: has(libc::IFF_UP),
        is_up: has(libc::IFF_UP | libc::IFF_RUNNING),
        is_promiscuous,
        speed: LinkSpeed::default(),
        received,
        multicast: count(8)?,
        sent: direction(1)?,
    })
}

fn kind_of(hardware: u16) -> u32 {
    match hardware {
        libc::ARPHRD_ETHER => InterfaceCounters::ETHERNET,
        libc::ARPHRD_LOOPBACK => InterfaceCounters::LOOPBACK,
        libc::ARPHRD_PPP => InterfaceCounters::PPP,
        libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT => {
            InterfaceCounters::TUNNEL
        }
        _ => InterfaceCounters::OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_counts_and_others_are_not_there() {
        let mut counters = LinkCounters::open().unwrap();
        let index = Links::open().unwrap().index("lo").unwrap();
        let lo = counters.read(index).unwrap().unwrap();
        assert_eq!((&*lo.name, lo.kind), ("lo", InterfaceCounters::LOOPBACK));
        assert_eq!(lo.speed, LinkSpeed::default(), "it has no link");
        assert_eq!(counters.read(u32::MAX >> 1).unwrap(), None);
        // Further questions are answered after one that failed.
        assert!(counters.read(index).unwrap().is_some());
    }
}
