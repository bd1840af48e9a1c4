//! Information elements (RFC 7012 and IANA's registry "IP Flow Information Export (IPFIX) Entities"): the
//! fields of templates. NetFlow 9 (RFC 3954) uses the same numbers up to 127, and exporters use most of the
//! higher ones too.
//!
//! A row has the number, the constant, the registry's name and the abstract data type. The type gives the
//! length in a template unless the encoding is reduced (RFC 7011, 6.2).
//!
//! There are rows for all elements that are read or written, and for those of exporters that tests compare
//! with. A field of any other element is a number and bytes; it is skipped and counted.

/// The private enterprise number for elements of the reverse direction (RFC 5103).
pub const REVERSE_ENTERPRISE: u32 = 29_305;

/// The private enterprise number of ntop, and its elements that are read and written here: those of nProbe.
pub const NTOP_ENTERPRISE: u32 = 35_632;
pub const NTOP_HTTP_HOST: u16 = 187;
pub const NTOP_TLS_SERVER_NAME: u16 = 188;
pub const NTOP_DNS_QUERY: u16 = 205;
pub const NTOP_DNS_QUERY_TYPE: u16 = 207;
pub const NTOP_DNS_RET_CODE: u16 = 208;
pub const NTOP_DNS_RESPONSE: u16 = 398;
pub const NTOP_SRC_HOST_NAME: u16 = 491;
pub const NTOP_DST_HOST_NAME: u16 = 492;
pub const NTOP_JA4C_HASH: u16 = 576;

/// Abstract data types (RFC 7012, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// An unsigned integer of this many bytes; fewer may be sent.
    Unsigned(u8),
    /// Uninterpreted bytes, usually of variable length.
    Bytes,
    /// UTF-8, usually of variable length.
    String,
    /// Six bytes.
    MacAddress,
    /// Four bytes.
    Ipv4Address,
    /// Sixteen bytes.
    Ipv6Address,
    /// Seconds since the Unix epoch, four bytes.
    Seconds,
    /// Milliseconds since the Unix epoch, eight bytes.
    Milliseconds,
    /// An NTP time stamp (seconds since 1900 and fraction) of microsecond precision, eight bytes.
    Microseconds,
    /// An NTP time stamp of nanosecond precision, eight bytes.
    Nanoseconds,
    /// IEEE 754, eight bytes; four may be sent.
    Float64,
}

impl DataType {
    /// Bytes of an unreduced value; `None` if the length is variable.
    pub fn bytes(self) -> Option<u16> {
        match self {
            Self::Unsigned(bytes) => Some(u16::from(bytes)),
            Self::Bytes | Self::String => None,
            Self::MacAddress => Some(6),
            Self::Ipv4Address | Self::Seconds => Some(4),
            Self::Ipv6Address => Some(16),
            Self::Milliseconds | Self::Microseconds | Self::Nanoseconds | Self::Float64 => Some(8),
        }
    }
}

/// A row of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    pub id: u16,
    pub name: &'static str,
    pub data_type: DataType,
}

macro_rules! elements {
    ($($id:literal $constant:ident $name:literal $data_type:expr;)*) => {
        $(#[doc = concat!("`", $name, "`")] pub const $constant: u16 = $id;)*

        /// All known elements, by number.
        pub const ELEMENTS: &[Element] = {
            use DataType::*;
            &[$(Element { id: $id, name: $name, data_type: $data_type },)*]
        };
    };
}

elements! {
    1 OCTET_DELTA_COUNT "octetDeltaCount" Unsigned(8);
    2 PACKET_DELTA_COUNT "packetDeltaCount" Unsigned(8);
    4 PROTOCOL_IDENTIFIER "protocolIdentifier" Unsigned(1);
    5 IP_CLASS_OF_SERVICE "ipClassOfService" Unsigned(1);
    6 TCP_CONTROL_BITS "tcpControlBits" Unsigned(2);
    7 SOURCE_TRANSPORT_PORT "sourceTransportPort" Unsigned(2);
    8 SOURCE_IPV4_ADDRESS "sourceIPv4Address" Ipv4Address;
    9 SOURCE_IPV4_PREFIX_LENGTH "sourceIPv4PrefixLength" Unsigned(1);
    10 INGRESS_INTERFACE "ingressInterface" Unsigned(4);
    11 DESTINATION_TRANSPORT_PORT "destinationTransportPort" Unsigned(2);
    12 DESTINATION_IPV4_ADDRESS "destinationIPv4Address" Ipv4Address;
    13 DESTINATION_IPV4_PREFIX_LENGTH "destinationIPv4PrefixLength" Unsigned(1);
    14 EGRESS_INTERFACE "egressInterface" Unsigned(4);
    15 IP_NEXT_HOP_IPV4_ADDRESS "ipNextHopIPv4Address" Ipv4Address;
    16 BGP_SOURCE_AS_NUMBER "bgpSourceAsNumber" Unsigned(4);
    17 BGP_DESTINATION_AS_NUMBER "bgpDestinationAsNumber" Unsigned(4);
    18 BGP_NEXT_HOP_IPV4_ADDRESS "bgpNextHopIPv4Address" Ipv4Address;
    21 FLOW_END_SYS_UP_TIME "flowEndSysUpTime" Unsigned(4);
    22 FLOW_START_SYS_UP_TIME "flowStartSysUpTime" Unsigned(4);
    23 POST_OCTET_DELTA_COUNT "postOctetDeltaCount" Unsigned(8);
    24 POST_PACKET_DELTA_COUNT "postPacketDeltaCount" Unsigned(8);
    27 SOURCE_IPV6_ADDRESS "sourceIPv6Address" Ipv6Address;
    28 DESTINATION_IPV6_ADDRESS "destinationIPv6Address" Ipv6Address;
    29 SOURCE_IPV6_PREFIX_LENGTH "sourceIPv6PrefixLength" Unsigned(1);
    30 DESTINATION_IPV6_PREFIX_LENGTH "destinationIPv6PrefixLength" Unsigned(1);
    31 FLOW_LABEL_IPV6 "flowLabelIPv6" Unsigned(4);
    32 ICMP_TYPE_CODE_IPV4 "icmpTypeCodeIPv4" Unsigned(2);
    34 SAMPLING_INTERVAL "samplingInterval" Unsigned(4);
    35 SAMPLING_ALGORITHM "samplingAlgorithm" Unsigned(1);
    37 FLOW_IDLE_TIMEOUT "flowIdleTimeout" Unsigned(2);
    40 EXPORTED_OCTET_TOTAL_COUNT "exportedOctetTotalCount" Unsigned(8);
    41 EXPORTED_MESSAGE_TOTAL_COUNT "exportedMessageTotalCount" Unsigned(8);
    42 EXPORTED_FLOW_RECORD_TOTAL_COUNT "exportedFlowRecordTotalCount" Unsigned(8);
    46 MPLS_TOP_LABEL_TYPE "mplsTopLabelType" Unsigned(1);
    47 MPLS_TOP_LABEL_IPV4_ADDRESS "mplsTopLabelIPv4Address" Ipv4Address;
    48 SAMPLER_ID "samplerId" Unsigned(1);
    49 SAMPLER_MODE "samplerMode" Unsigned(1);
    50 SAMPLER_RANDOM_INTERVAL "samplerRandomInterval" Unsigned(4);
    52 MINIMUM_TTL "minimumTTL" Unsigned(1);
    53 MAXIMUM_TTL "maximumTTL" Unsigned(1);
    54 FRAGMENT_IDENTIFICATION "fragmentIdentification" Unsigned(4);
    56 SOURCE_MAC_ADDRESS "sourceMacAddress" MacAddress;
    58 VLAN_ID "vlanId" Unsigned(2);
    60 IP_VERSION "ipVersion" Unsigned(1);
    61 FLOW_DIRECTION "flowDirection" Unsigned(1);
    62 IP_NEXT_HOP_IPV6_ADDRESS "ipNextHopIPv6Address" Ipv6Address;
    63 BGP_NEXT_HOP_IPV6_ADDRESS "bgpNextHopIPv6Address" Ipv6Address;
    64 IPV6_EXTENSION_HEADERS "ipv6ExtensionHeaders" Unsigned(4);
    70 MPLS_TOP_LABEL_STACK_SECTION "mplsTopLabelStackSection" Bytes;
    71 MPLS_LABEL_STACK_SECTION2 "mplsLabelStackSection2" Bytes;
    72 MPLS_LABEL_STACK_SECTION3 "mplsLabelStackSection3" Bytes;
    73 MPLS_LABEL_STACK_SECTION4 "mplsLabelStackSection4" Bytes;
    74 MPLS_LABEL_STACK_SECTION5 "mplsLabelStackSection5" Bytes;
    75 MPLS_LABEL_STACK_SECTION6 "mplsLabelStackSection6" Bytes;
    80 DESTINATION_MAC_ADDRESS "destinationMacAddress" MacAddress;
    82 INTERFACE_NAME "interfaceName" String;
    83 INTERFACE_DESCRIPTION "interfaceDescription" String;
    84 SAMPLER_NAME "samplerName" String;
    85 OCTET_TOTAL_COUNT "octetTotalCount" Unsigned(8);
    86 PACKET_TOTAL_COUNT "packetTotalCount" Unsigned(8);
    89 FORWARDING_STATUS "forwardingStatus" Unsigned(4);
    90 MPLS_VPN_ROUTE_DISTINGUISHER "mplsVpnRouteDistinguisher" Bytes;
    91 MPLS_TOP_LABEL_PREFIX_LENGTH "mplsTopLabelPrefixLength" Unsigned(1);
    95 APPLICATION_ID "applicationId" Bytes;
    96 APPLICATION_NAME "applicationName" String;
    132 DROPPED_OCTET_DELTA_COUNT "droppedOctetDeltaCount" Unsigned(8);
    133 DROPPED_PACKET_DELTA_COUNT "droppedPacketDeltaCount" Unsigned(8);
    136 FLOW_END_REASON "flowEndReason" Unsigned(1);
    139 ICMP_TYPE_CODE_IPV6 "icmpTypeCodeIPv6" Unsigned(2);
    140 MPLS_TOP_LABEL_IPV6_ADDRESS "mplsTopLabelIPv6Address" Ipv6Address;
    143 METERING_PROCESS_ID "meteringProcessId" Unsigned(4);
    144 EXPORTING_PROCESS_ID "exportingProcessId" Unsigned(4);
    149 OBSERVATION_DOMAIN_ID "observationDomainId" Unsigned(4);
    150 FLOW_START_SECONDS "flowStartSeconds" Seconds;
    151 FLOW_END_SECONDS "flowEndSeconds" Seconds;
    152 FLOW_START_MILLISECONDS "flowStartMilliseconds" Milliseconds;
    153 FLOW_END_MILLISECONDS "flowEndMilliseconds" Milliseconds;
    154 FLOW_START_MICROSECONDS "flowStartMicroseconds" Microseconds;
    155 FLOW_END_MICROSECONDS "flowEndMicroseconds" Microseconds;
    156 FLOW_START_NANOSECONDS "flowStartNanoseconds" Nanoseconds;
    157 FLOW_END_NANOSECONDS "flowEndNanoseconds" Nanoseconds;
    158 FLOW_START_DELTA_MICROSECONDS "flowStartDeltaMicroseconds" Unsigned(4);
    159 FLOW_END_DELTA_MICROSECONDS "flowEndDeltaMicroseconds" Unsigned(4);
    160 SYSTEM_INIT_TIME_MILLISECONDS "systemInitTimeMilliseconds" Milliseconds;
    161 FLOW_DURATION_MILLISECONDS "flowDurationMilliseconds" Unsigned(4);
    162 FLOW_DURATION_MICROSECONDS "flowDurationMicroseconds" Unsigned(4);
    164 IGNORED_PACKET_TOTAL_COUNT "ignoredPacketTotalCount" Unsigned(8);
    165 IGNORED_OCTET_TOTAL_COUNT "ignoredOctetTotalCount" Unsigned(8);
    166 NOT_SENT_FLOW_TOTAL_COUNT "notSentFlowTotalCount" Unsigned(8);
    167 NOT_SENT_PACKET_TOTAL_COUNT "notSentPacketTotalCount" Unsigned(8);
    168 NOT_SENT_OCTET_TOTAL_COUNT "notSentOctetTotalCount" Unsigned(8);
    176 ICMP_TYPE_IPV4 "icmpTypeIPv4" Unsigned(1);
    177 ICMP_CODE_IPV4 "icmpCodeIPv4" Unsigned(1);
    178 ICMP_TYPE_IPV6 "icmpTypeIPv6" Unsigned(1);
    179 ICMP_CODE_IPV6 "icmpCodeIPv6" Unsigned(1);
    180 UDP_SOURCE_PORT "udpSourcePort" Unsigned(2);
    181 UDP_DESTINATION_PORT "udpDestinationPort" Unsigned(2);
    182 TCP_SOURCE_PORT "tcpSourcePort" Unsigned(2);
    183 TCP_DESTINATION_PORT "tcpDestinationPort" Unsigned(2);
    192 IP_TTL "ipTTL" Unsigned(1);
    195 IP_DIFF_SERV_CODE_POINT "ipDiffServCodePoint" Unsigned(1);
    198 OCTET_DELTA_SUM_OF_SQUARES "octetDeltaSumOfSquares" Unsigned(8);
    209 TCP_OPTIONS "tcpOptions" Unsigned(8);
    210 PADDING_OCTETS "paddingOctets" Bytes;
    224 IP_TOTAL_LENGTH "ipTotalLength" Unsigned(8);
    225 POST_NAT_SOURCE_IPV4_ADDRESS "postNATSourceIPv4Address" Ipv4Address;
    226 POST_NAT_DESTINATION_IPV4_ADDRESS "postNATDestinationIPv4Address" Ipv4Address;
    227 POST_NAPT_SOURCE_TRANSPORT_PORT "postNAPTSourceTransportPort" Unsigned(2);
    228 POST_NAPT_DESTINATION_TRANSPORT_PORT "postNAPTDestinationTransportPort" Unsigned(2);
    230 NAT_EVENT "natEvent" Unsigned(1);
    231 INITIATOR_OCTETS "initiatorOctets" Unsigned(8);
    232 RESPONDER_OCTETS "responderOctets" Unsigned(8);
    233 FIREWALL_EVENT "firewallEvent" Unsigned(1);
    234 INGRESS_VRFID "ingressVRFID" Unsigned(4);
    235 EGRESS_VRFID "egressVRFID" Unsigned(4);
    236 VRF_NAME "VRFname" String;
    239 BIFLOW_DIRECTION "biflowDirection" Unsigned(1);
    243 DOT1Q_VLAN_ID "dot1qVlanId" Unsigned(2);
    244 DOT1Q_PRIORITY "dot1qPriority" Unsigned(1);
    245 DOT1Q_CUSTOMER_VLAN_ID "dot1qCustomerVlanId" Unsigned(2);
    252 INGRESS_PHYSICAL_INTERFACE "ingressPhysicalInterface" Unsigned(4);
    253 EGRESS_PHYSICAL_INTERFACE "egressPhysicalInterface" Unsigned(4);
    256 ETHERNET_TYPE "ethernetType" Unsigned(2);
    281 POST_NAT_SOURCE_IPV6_ADDRESS "postNATSourceIPv6Address" Ipv6Address;
    282 POST_NAT_DESTINATION_IPV6_ADDRESS "postNATDestinationIPv6Address" Ipv6Address;
    283 NAT_POOL_ID "natPoolId" Unsigned(4);
    298 INITIATOR_PACKETS "initiatorPackets" Unsigned(8);
    299 RESPONDER_PACKETS "responderPackets" Unsigned(8);
    302 SELECTOR_ID "selectorId" Unsigned(8);
    304 SELECTOR_ALGORITHM "selectorAlgorithm" Unsigned(2);
    305 SAMPLING_PACKET_INTERVAL "samplingPacketInterval" Unsigned(4);
    306 SAMPLING_PACKET_SPACE "samplingPacketSpace" Unsigned(4);
    307 SAMPLING_TIME_INTERVAL "samplingTimeInterval" Unsigned(4);
    308 SAMPLING_TIME_SPACE "samplingTimeSpace" Unsigned(4);
    309 SAMPLING_SIZE "samplingSize" Unsigned(4);
    310 SAMPLING_POPULATION "samplingPopulation" Unsigned(4);
    311 SAMPLING_PROBABILITY "samplingProbability" Float64;
    312 DATA_LINK_FRAME_SIZE "dataLinkFrameSize" Unsigned(2);
    313 IP_HEADER_PACKET_SECTION "ipHeaderPacketSection" Bytes;
    315 DATA_LINK_FRAME_SECTION "dataLinkFrameSection" Bytes;
    322 OBSERVATION_TIME_SECONDS "observationTimeSeconds" Seconds;
    323 OBSERVATION_TIME_MILLISECONDS "observationTimeMilliseconds" Milliseconds;
    324 OBSERVATION_TIME_MICROSECONDS "observationTimeMicroseconds" Microseconds;
    325 OBSERVATION_TIME_NANOSECONDS "observationTimeNanoseconds" Nanoseconds;
    335 SELECTOR_NAME "selectorName" String;
    352 LAYER2_OCTET_DELTA_COUNT "layer2OctetDeltaCount" Unsigned(8);
    361 PORT_RANGE_START "portRangeStart" Unsigned(2);
    362 PORT_RANGE_END "portRangeEnd" Unsigned(2);
    363 PORT_RANGE_STEP_SIZE "portRangeStepSize" Unsigned(2);
    364 PORT_RANGE_NUM_PORTS "portRangeNumPorts" Unsigned(2);
    371 USER_NAME "userName" String;
    410 SECTION_EXPORTED_OCTETS "sectionExportedOctets" Unsigned(2);
    466 NAT_QUOTA_EXCEEDED_EVENT "natQuotaExceededEvent" Unsigned(4);
    471 MAX_SESSION_ENTRIES "maxSessionEntries" Unsigned(4);
    472 MAX_BIB_ENTRIES "maxBIBEntries" Unsigned(4);
    473 MAX_ENTRIES_PER_USER "maxEntriesPerUser" Unsigned(4);
    474 MAX_SUBSCRIBERS "maxSubscribers" Unsigned(4);
    475 MAX_FRAGMENTS_PENDING_REASSEMBLY "maxFragmentsPendingReassembly" Unsigned(4);
}

/// The element with this number.
pub fn element(id: u16) -> Option<&'static Element> {
    ELEMENTS.binary_search_by_key(&id, |element| element.id).ok().map(|place| &ELEMENTS[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_names_unique() {
        assert!(ELEMENTS.is_sorted_by(|a, b| a.id < b.id));
        let names: std::collections::HashSet<_> = ELEMENTS.iter().map(|element| element.name).collect();
        assert_eq!(names.len(), ELEMENTS.len());
        assert_eq!(element(OCTET_DELTA_COUNT).unwrap().name, "octetDeltaCount");
        assert_eq!(element(BIFLOW_DIRECTION).unwrap().id, 239);
        assert_eq!(element(65), None);
    }
}
