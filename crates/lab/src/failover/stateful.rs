//! Pairs of routers that translate and filter, and copy their state to each other: ours, and the kernel with keepalived
//! and conntrackd. What each half is configured with.

use super::site::{
    PORTS, SHARED_ADDRESS, SHARED_OUTSIDE, SYNC_PORT, TABLE_ALL, neighbor_address, sync_address,
};

/// Between advertisements of a pair's routers.
pub(super) const ADVERTISE_MS: u32 = 100;
/// The file of our routers' secret, beside their configurations.
pub(super) const KEY_FILE: &str = "standby.key";

/// One of our two routers, behind its ports' sections.
pub(super) fn thalweg(which: usize, priority: u32) -> String {
    let [inside, outside, _] = PORTS;
    let shared = |id: u8, port: &str, address: &str| {
        format!(
            "\n[[vrrp]]\nport = \"{port}\"\nid = {id}\naddresses = \"{address}\"\npriority = {priority}\n\
             interval_ms = {ADVERTISE_MS}\n"
        )
    };
    format!(
        "\n[[routes]]\nprefix = \"{TABLE_ALL}\"\nvia = \"{}\"\n{}{}\n[nat]\noutside = \"{outside}\"\ninside = \"{inside}\"\n\
         addresses = \"{SHARED_OUTSIDE}\"\nport_selection = \"hash\"\n\n[firewall]\noutside = \"outside\"\n\
         tcp_pickup = false\n\n[firewall.zones]\ninside = \"{inside}\"\noutside = \"{outside}\"\n\n[standby]\n\
         listen = \"{}:29190\"\npeer = \"{}:29190\"\nkey = \"{KEY_FILE}\"\n",
        neighbor_address(1),
        shared(1, inside, SHARED_ADDRESS),
        shared(2, outside, SHARED_OUTSIDE),
        sync_address(which),
        sync_address(1 - which),
    )
}

/// The kernel's rules.
pub(super) fn nftables() -> String {
    let [inside, outside, _] = PORTS;
    format!(
        "table ip thalweg_lab {{\n  chain out {{\n    type nat hook postrouting priority srcnat;\n    oifname {outside} \
         snat to {SHARED_OUTSIDE}\n  }}\n  chain pass {{\n    type filter hook forward priority filter; policy drop;\n    \
         ct state established,related accept\n    iifname {inside} oifname {outside} ct state new accept\n  }}\n}}\n"
    )
}

/// keepalived's configuration: both addresses move together, and `script` is told where to.
pub(super) fn keepalived(priority: u32, script: &str) -> String {
    let [inside, outside, _] = PORTS;
    let seconds = f64::from(ADVERTISE_MS) / 1e3;
    let instance = |name: &str, id: u8, port: &str, address: &str| {
        format!(
            "vrrp_instance {name} {{\n  state BACKUP\n  interface {port}\n  virtual_router_id {id}\n  priority {priority}\n  \
             advert_int {seconds}\n  version 3\n  virtual_ipaddress {{\n    {address}/24\n  }}\n}}\n"
        )
    };
    format!(
        "global_defs {{\n  vrrp_version 3\n  script_user root\n}}\nvrrp_sync_group both {{\n  group {{\n    inside\n    outside\n  \
         }}\n  notify_master \"{script} primary\"\n  notify_backup \"{script} backup\"\n}}\n{}{}",
        instance("inside", 1, inside, SHARED_ADDRESS),
        instance("outside", 2, outside, SHARED_OUTSIDE)
    )
}

/// What keepalived runs when a router becomes the one in charge, or the backup: as conntrackd's own example has it.
pub(super) fn script(config: &str) -> String {
    format!(
        "#!/bin/sh\nct() {{ conntrackd -C {config} \"$1\"; }}\ncase \"$1\" in\n  primary) ct -c; ct -f; ct -R; ct -B ;;\n  \
         backup) ct -t; ct -n ;;\nesac\n"
    )
}

/// conntrackd's configuration; its files begin with `path`.
pub(super) fn conntrackd(which: usize, path: &str) -> String {
    let ignored: String = [sync_address(0), sync_address(1), "127.0.0.1".to_owned()]
        .map(|address| format!("      IPv4_address {address}\n"))
        .concat();
    format!(
        "Sync {{\n  Mode FTFW {{\n  }}\n  UDP {{\n    IPv4_address {}\n    IPv4_Destination_Address {}\n    Port 3780\n    \
         Interface {SYNC_PORT}\n    SndSocketBuffer 1249280\n    RcvSocketBuffer 1249280\n    Checksum on\n  }}\n}}\n\
         General {{\n  HashSize 32768\n  HashLimit 131072\n  Syslog off\n  LogFile {path}.log\n  LockFile {path}.lock\n  \
         UNIX {{\n    Path {path}.ctl\n  }}\n  NetlinkBufferSize 2097152\n  NetlinkBufferSizeMaxGrowth 8388608\n  \
         Filter From Userspace {{\n    Protocol Accept {{\n      TCP\n      UDP\n    }}\n    Address Ignore {{\n{ignored}    \
         }}\n  }}\n}}\n",
        sync_address(which),
        sync_address(1 - which)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_differ_in_what_is_theirs_alone() {
        let [first, second] = [(0, 200), (1, 199)].map(|(which, priority)| thalweg(which, priority));
        assert!(first.contains("listen = \"10.0.9.1") && first.contains("peer = \"10.0.9.2"), "{first}");
        assert!(second.contains("listen = \"10.0.9.2") && second.contains("priority = 199"), "{second}");
        for text in [nftables(), keepalived(1, "s"), conntrackd(0, "p"), script("c")] {
            let count = |brace| text.matches(brace).count();
            assert_eq!(count('{'), count('}'), "{text}");
        }
        assert_eq!(keepalived(1, "s").matches("vrrp_instance").count(), 2);
    }
}
