//! Which capabilities a configuration needs, and for what.

use std::net::SocketAddr;

use rustix::thread::{CapabilitySet, capabilities};
use thalweg_config::{Driver, Install, RouterConfig};
use thalweg_exec::Priority;

thalweg_base::words! {
    /// A right of capabilities(7).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Capability {
        NetAdmin => "CAP_NET_ADMIN",
        NetRaw => "CAP_NET_RAW",
        Bpf => "CAP_BPF",
        IpcLock => "CAP_IPC_LOCK",
        NetBindService => "CAP_NET_BIND_SERVICE",
        SysNice => "CAP_SYS_NICE",
    }
}

impl Capability {
    fn set(self) -> CapabilitySet {
        match self {
            Self::NetAdmin => CapabilitySet::NET_ADMIN,
            Self::NetRaw => CapabilitySet::NET_RAW,
            Self::Bpf => CapabilitySet::BPF,
            Self::IpcLock => CapabilitySet::IPC_LOCK,
            Self::NetBindService => CapabilitySet::NET_BIND_SERVICE,
            Self::SysNice => CapabilitySet::SYS_NICE,
        }
    }

    /// Whether this process has it.
    pub fn is_held(self) -> bool {
        capabilities(None).is_ok_and(|sets| sets.effective.contains(self.set()))
    }
}

/// A capability, and what a configuration needs it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub capability: Capability,
    pub what: &'static str,
}

/// Ports below this one are reserved.
const FIRST_FREE_PORT: u16 = 1024;

/// What the configuration needs, each capability at most once.
pub fn needs(config: &RouterConfig) -> Vec<Need> {
    let drivers = config.ports.iter().filter_map(|port| Some(port.interface.as_ref()?.driver));
    let drivers: Vec<Driver> = drivers.collect();
    let is_live = !drivers.is_empty();
    let has = |wanted: &[Driver]| drivers.iter().any(|driver| wanted.contains(driver));
    let reserved = |addresses: &[SocketAddr]| {
        addresses.iter().any(|address| (1..FIRST_FREE_PORT).contains(&address.port()))
    };
    let kernel = config.bgp.as_ref().is_some_and(|bgp| bgp.install == Install::Kernel);
    let bgp = config.bgp.as_ref().is_some_and(|bgp| reserved(&bgp.listen));
    let web = config.web.as_ref().is_some_and(|web| reserved(&web.listen) || reserved(&web.looking_glass));
    let hurries = is_live && config.workers.priority != Priority::Normal;
    use Capability::{Bpf, IpcLock, NetAdmin, NetBindService, NetRaw, SysNice};
    let rows = [
        (NetAdmin, is_live, "interfaces of ports, mirrors"),
        (NetAdmin, kernel, "routes in the kernel"),
        (NetRaw, has(&[Driver::Auto, Driver::AfXdp, Driver::AfPacket, Driver::Dpdk]), "packets of ports"),
        (Bpf, has(&[Driver::AfXdp]), "AF_XDP"),
        (Bpf, has(&[Driver::Auto]), "AF_XDP; without it AF_PACKET"),
        (Bpf, has(&[Driver::AfPacket]), "keeping packets of ports from the host's own stack"),
        (IpcLock, has(&[Driver::AfXdp, Driver::Dpdk]), "memory of ports"),
        (IpcLock, has(&[Driver::Auto]), "memory of AF_XDP; without it AF_PACKET"),
        (NetBindService, bgp, "BGP's port; not with [bgp] listen above 1023"),
        (NetBindService, web, "the HTTP API's port; not with [web] listen above 1023"),
        (SysNice, hurries, "priority of forwarding threads; without it the next lower one"),
    ];
    let mut needs: Vec<Need> = Vec::new();
    for (capability, _, what) in rows.into_iter().filter(|(_, applies, _)| *applies) {
        if needs.iter().all(|need| need.capability != capability) {
            needs.push(Need { capability, what });
        }
    }
    needs
}

/// What a router keeps that was root: what it needs now, and what ports need that a reload adds.
pub(super) fn kept(config: &RouterConfig) -> Vec<Capability> {
    use Capability::{Bpf, IpcLock, NetAdmin, NetRaw};
    let mut kept: Vec<Capability> = needs(config).into_iter().map(|need| need.capability).collect();
    if config.ports.iter().any(|port| port.interface.is_some()) {
        kept.extend([NetAdmin, NetRaw, Bpf, IpcLock]);
    }
    kept.sort();
    kept.dedup();
    kept
}

pub(super) fn set(capabilities: &[Capability]) -> CapabilitySet {
    capabilities.iter().map(|each| each.set()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn names(text: &str, of: impl Fn(&RouterConfig) -> Vec<Capability>) -> String {
        let config = RouterConfig::from_text("test.toml", text, Path::new("/")).expect("it is valid");
        of(&config)
            .into_iter()
            .map(|each| each.name().trim_start_matches("CAP_"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn needed(text: &str) -> String {
        names(text, |config| needs(config).into_iter().map(|need| need.capability).collect())
    }

    #[test]
    fn each_part_of_a_configuration_needs_its_own() {
        let bgp = |rest: &str| {
            format!(
                "[bgp]\nas = 64500\nrouter_id = \"192.0.2.1\"\nimport = \"reject\"\nexport = \"reject\"\n{rest}"
            )
        };
        let port = |driver: &str, rest: &str| {
            format!(
                "[ports.a]\ninterface = \"eth0\"\naddresses = [\"192.0.2.1/24\"]\ndriver = \"{driver}\"\n{rest}"
            )
        };
        let normal = "[workers]\npriority = \"normal\"\n";
        assert_eq!(needed(&bgp("")), "NET_BIND_SERVICE");
        assert_eq!(needed(&bgp("listen = [\"127.0.0.1:1179\"]\n")), "");
        assert_eq!(needed(&bgp("listen = []\ninstall = \"kernel\"\n")), "NET_ADMIN");
        assert_eq!(needed(&port("auto", "")), "NET_ADMIN NET_RAW BPF IPC_LOCK SYS_NICE");
        assert_eq!(needed(&port("af_packet", normal)), "NET_ADMIN NET_RAW BPF");
        assert_eq!(needed(&port("tap", normal)), "NET_ADMIN");
        let web = "[web]\nlisten = [\"127.0.0.1:80\"]\n";
        assert_eq!(needed(&port("tap", &format!("{normal}{web}"))), "NET_ADMIN NET_BIND_SERVICE");
        // A reload may add a port with another driver.
        assert_eq!(names(&port("tap", normal), kept), "NET_ADMIN NET_RAW BPF IPC_LOCK");
        assert_eq!(names(&bgp(""), kept), "NET_BIND_SERVICE");
    }
}
