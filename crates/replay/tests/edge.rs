//! Cases of an edge router, for this router and for nftables: segment sizes, public addresses of one host, exceptions.

use crate::suite::Suite;

const EDGE: Suite = Suite {
    folder: "edge",
    page: "edge-conformance.md",
    head: "# What an edge router does to packets, and who does it\n\n\
What becomes of [segment sizes](neighbors-and-icmp.md#segment-sizes-of-tcp), of hosts with a\n\
[public address of their own](nat.md#public-addresses-of-one-host) and of [exceptions](nat.md#exceptions) here, and with\n\
nftables?\n\n\
`cargo test -p thalweg-replay --test main edge` makes this page from `crates/replay/tests/edge/cases.txt`; do not edit\n\
it. This router replays every case under every execution model; the kernel has the same rules in `base.nft`.\n\n",
    least: 35,
};

#[test]
fn this_router_does_what_the_table_says() {
    EDGE.is_what_this_router_does();
}

#[cfg(target_os = "linux")]
#[test]
fn nftables_does_the_same() {
    EDGE.is_what_nftables_does();
}
