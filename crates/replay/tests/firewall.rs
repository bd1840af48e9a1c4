//! Cases of the firewall, for this router and for nftables.

use crate::suite::Suite;

const FIREWALL: Suite = Suite {
    folder: "firewall",
    page: "firewall-conformance.md",
    head: "# What a stateful firewall must do, and who does it\n\n\
Which packets of which connections does this router's [firewall](firewall.md) pass, and which does nftables?\n\n\
`cargo test -p thalweg-replay --test main firewall` makes this page from `crates/replay/tests/firewall/cases.txt`; do not\n\
edit it. This router replays every case under every execution model; the kernel has the same rules in `base.nft`, with\n\
`nf_conntrack_tcp_be_liberal`, because the segments of the cases all have the same numbers.\n\n",
    least: 40,
};

#[test]
fn this_router_does_what_the_table_says() {
    FIREWALL.is_what_this_router_does();
}

#[cfg(target_os = "linux")]
#[test]
fn nftables_decides_the_same() {
    FIREWALL.is_what_nftables_does();
}
