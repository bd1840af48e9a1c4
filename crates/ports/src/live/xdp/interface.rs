//! An interface by its number, with what `ethtool` reports: queues, driver, merging of segments.
//!
//! A running port asks again after a refused frame and with the counters, so a query must be cheap: one descriptor
//! is kept ([`Links`]), and a query is one or two system calls. The name of an interface may change; once found, it
//! is identified by its number.

use std::io;

use crate::live::LiveError;
use crate::live::link::{LinkFacts, Links};

// linux/ethtool.h
const GET_DRIVER: u32 = 0x03;
const GET_GRO: u32 = 0x2b;
const SET_GRO: u32 = 0x2c;
const GET_CHANNELS: u32 = 0x3c;

/// Drivers of interfaces on which local senders leave checksums unfinished, because no wire follows.
const WITHOUT_A_WIRE: [&str; 5] = ["veth", "tun", "virtio_net", "vif", "hv_netvsc"];
/// Drivers of interfaces that are made over others and have no XDP of their own. What these have merged arrives merged,
/// and nothing switches that off here.
const OVER_OTHERS: [&str; 5] = ["bridge", "macvlan", "team", "vxlan", "geneve"];

/// An interface in the network namespace of the thread that found it.
#[derive(Debug)]
pub(super) struct Interface {
    links: Links,
    pub(super) index: u32,
}

/// Whether frames can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// Administratively down, or without a carrier.
    Down,
    Gone,
}

impl Interface {
    /// Finds an interface by name.
    pub(super) fn find(name: &str) -> Result<Self, LiveError> {
        let links = Links::open().map_err(LiveError::call(name, "socket"))?;
        let index = links.index(name)?;
        Ok(Self { links, index })
    }

    /// Its present properties, whatever its name is now.
    pub(super) fn read(&self) -> Result<LinkFacts, LiveError> {
        self.links.read(&self.links.name(self.index)?)
    }

    /// Whether frames can be sent now.
    pub(super) fn state(&self) -> State {
        match self.read() {
            Ok(facts) if facts.has_carrier => State::Up,
            Ok(_) => State::Down,
            Err(_) => State::Gone,
        }
    }

    /// Receive and transmit queues in use; one each if the driver does not say.
    pub(super) fn queues(&self) -> (u32, u32) {
        // struct ethtool_channels: command, four maxima, then receive, transmit, other, combined.
        let mut channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        match self.ethtool(&mut channels) {
            Ok(()) => ((channels[5] + channels[8]).max(1), (channels[6] + channels[8]).max(1)),
            Err(_) => (1, 1),
        }
    }

    /// Whether frames may arrive whose transport checksum is unfinished.
    pub(super) fn has_unfinished_checksums(&self) -> bool {
        self.driver().is_none_or(|driver| WITHOUT_A_WIRE.contains(&&*driver))
    }

    /// Whether it is made over other interfaces, whose merged segments it passes on.
    pub(super) fn is_over_others(&self) -> bool {
        self.driver().is_some_and(|driver| OVER_OTHERS.contains(&&*driver))
    }

    /// The name of its driver, if that says one.
    fn driver(&self) -> Option<String> {
        // struct ethtool_drvinfo: command, driver 32, version 32 and so on: 196 bytes.
        let mut info = [0; 49];
        info[0] = GET_DRIVER;
        self.ethtool(&mut info).ok()?;
        let bytes: Vec<u8> = info[1..9].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        let name = bytes.split(|&byte| byte == 0).next().unwrap_or(&[]);
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Switches the merging of received segments. Returns whether it was on.
    pub(super) fn set_gro(&self, on: bool) -> io::Result<bool> {
        // struct ethtool_value: command, value.
        let mut value = [GET_GRO, 0];
        self.ethtool(&mut value)?;
        let before = value[1] != 0;
        if before != on {
            self.ethtool(&mut [SET_GRO, u32::from(on)])?;
        }
        Ok(before)
    }

    fn ethtool<const WORDS: usize>(&self, structure: &mut [u32; WORDS]) -> io::Result<()> {
        let name = self.links.name(self.index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
        self.links.ethtool(&name, structure)
    }
}
