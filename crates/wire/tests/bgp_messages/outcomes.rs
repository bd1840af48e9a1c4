//! The outcomes of each file's messages. docs/bgp-design.md says why others read more in some.

/// Captures in which tcpdump continues behind damage that ends the stream for us.
pub(crate) const TCPDUMP_GOES_ON: &[&str] =
    &["bgp-bgp_capabilities_print-oobr-1.pcap", "bgp_mp_reach_nlri-oobr.pcap"];

/// By file: how many of each outcome, in order of the outcome.
pub(crate) const OUTCOMES: &[(&str, &[&str])] = &[
    ("exabgp/decoding", &["1 update", "14 update foreign"]),
    (
        "exabgp/encoding",
        &[
            "8 end-of-rib",
            "1 notification 1/0",
            "1 open",
            "18 update",
            "37 update foreign",
            "2 update refused 3/2",
        ],
    ),
    ("gobgp-bad-len", &["4 cut", "6 open refused 2/1", "16 update refused 3/10"]),
    ("300-BGP-IPv6-CISCO-extNH_enc/traffic-00", &["1 keepalive", "1 open", "45 update foreign"]),
    ("302-BGP-IPv6-multiple-sources/traffic-00", &["1 cut", "1 keepalive", "1 open", "24 update foreign"]),
    ("302-BGP-IPv6-multiple-sources/traffic-01", &["1 cut", "1 keepalive", "1 open", "26 update foreign"]),
    ("302-BGP-IPv6-multiple-sources/traffic-02", &["1 keepalive", "1 open", "8 update foreign"]),
    ("302-BGP-IPv6-multiple-sources/traffic-03", &["1 keepalive", "1 open", "8 update foreign"]),
    (
        "multiple-sessions/traffic",
        &["20 end-of-rib", "171 keepalive", "20 open", "272 packet without bgp", "80 update"],
    ),
    (
        "bgp-4byte-asn.pcap",
        &["16 keepalive", "1 notification 6/6", "8 open", "58 packet without bgp", "10 update"],
    ),
    ("bgp-addpath.pcap", &["1 update refused 3/4"]),
    ("bgp-aigp.pcap", &["2 update foreign"]),
    (
        "bgp-as-path-oobr.pcap",
        &[
            "1 cut",
            "2 stream refused: expected a marker of ones",
            "3 update foreign",
            "1 update refused 3/1",
            "1 update refused 3/2",
            "1 update refused 3/5",
        ],
    ),
    ("bgp-bgp_capabilities_print-oobr-1.pcap", &["1 stream refused: expected a marker of ones"]),
    ("bgp-evpn.pcap", &["1 open"]),
    ("bgp-infinite-loop.pcap", &["4 stream refused: length 19 is wrong for this message type"]),
    ("bgp-large-community.pcap", &["5 update"]),
    (
        "bgp-lu-multiple-labels.pcap",
        &[
            "2 end-of-rib",
            "8 keepalive",
            "1 notification 6/4",
            "4 open",
            "24 packet without bgp",
            "5 update foreign",
        ],
    ),
    ("bgp_mp_reach_nlri-oobr.pcap", &["1 stream refused: expected a marker of ones"]),
    ("rpki-rtr-oobr.pcap", &["1 packet without bgp"]),
    ("bgp-shutdown-communication.pcapng", &["1 notification 6/2", "1 notification 6/4"]),
];
