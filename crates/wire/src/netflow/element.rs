//! Information elements (RFC 7012 and IANA's registry "IP Flow Information Export (IPFIX) Entities"): the fields of which
//! templates are made. NetFlow 9 (RFC 3954) uses the same numbers up to 127, and by habit most of those above.
//!
//! One row gives the number, the constant, the registry's name, the abstract data type and with it the length that a
//! template names unless it is encoded shorter (RFC 7011, 6.2).
//!
//! Lists (RFC 6313) are rows of type [`DataType::Bytes`]: nothing here looks into them. Numbers that the registry keeps for
//! NetFlow 9 without defining them (65 to 69, 97, 105 to 127) and those above 502 are missing.

/// Private enterprise number under which elements of the opposite direction go (RFC 5103).
pub const REVERSE_ENTERPRISE: u32 = 29_305;

/// Abstract data types (RFC 7012, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// Unsigned integer of so many bytes; fewer may be sent.
    Unsigned(u8),
    /// Signed integer of so many bytes; fewer may be sent.
    Signed(u8),
    /// Bytes without a meaning of their own; usually of variable length.
    Bytes,
    /// UTF-8; usually of variable length.
    String,
    /// 1 is true, 2 is false.
    Boolean,
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
    /// Bytes of an unshortened value; `None` where any number will do.
    pub fn bytes(self) -> Option<u16> {
        match self {
            Self::Unsigned(bytes) | Self::Signed(bytes) => Some(u16::from(bytes)),
            Self::Bytes | Self::String => None,
            Self::Boolean => Some(1),
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
    /// Number in the registry.
    pub id: u16,
    /// Name in the registry.
    pub name: &'static str,
    /// What its values are.
    pub data_type: DataType,
}

macro_rules! elements {
    ($($id:literal $constant:ident $name:literal $data_type:expr;)*) => {
        $(#[doc = concat!("`", $name, "`")] pub const $constant: u16 = $id;)*

        /// All elements known here, by number.
        pub const ELEMENTS: &[Element] = {
            use DataType::*;
            &[$(Element { id: $id, name: $name, data_type: $data_type },)*]
        };
    };
}

elements! {
    1 OCTET_DELTA_COUNT "octetDeltaCount" Unsigned(8);
    2 PACKET_DELTA_COUNT "packetDeltaCount" Unsigned(8);
    3 DELTA_FLOW_COUNT "deltaFlowCount" Unsigned(8);
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
    19 POST_MCAST_PACKET_DELTA_COUNT "postMCastPacketDeltaCount" Unsigned(8);
    20 POST_MCAST_OCTET_DELTA_COUNT "postMCastOctetDeltaCount" Unsigned(8);
    21 FLOW_END_SYS_UP_TIME "flowEndSysUpTime" Unsigned(4);
    22 FLOW_START_SYS_UP_TIME "flowStartSysUpTime" Unsigned(4);
    23 POST_OCTET_DELTA_COUNT "postOctetDeltaCount" Unsigned(8);
    24 POST_PACKET_DELTA_COUNT "postPacketDeltaCount" Unsigned(8);
    25 MINIMUM_IP_TOTAL_LENGTH "minimumIpTotalLength" Unsigned(8);
    26 MAXIMUM_IP_TOTAL_LENGTH "maximumIpTotalLength" Unsigned(8);
    27 SOURCE_IPV6_ADDRESS "sourceIPv6Address" Ipv6Address;
    28 DESTINATION_IPV6_ADDRESS "destinationIPv6Address" Ipv6Address;
    29 SOURCE_IPV6_PREFIX_LENGTH "sourceIPv6PrefixLength" Unsigned(1);
    30 DESTINATION_IPV6_PREFIX_LENGTH "destinationIPv6PrefixLength" Unsigned(1);
    31 FLOW_LABEL_IPV6 "flowLabelIPv6" Unsigned(4);
    32 ICMP_TYPE_CODE_IPV4 "icmpTypeCodeIPv4" Unsigned(2);
    33 IGMP_TYPE "igmpType" Unsigned(1);
    34 SAMPLING_INTERVAL "samplingInterval" Unsigned(4);
    35 SAMPLING_ALGORITHM "samplingAlgorithm" Unsigned(1);
    36 FLOW_ACTIVE_TIMEOUT "flowActiveTimeout" Unsigned(2);
    37 FLOW_IDLE_TIMEOUT "flowIdleTimeout" Unsigned(2);
    38 ENGINE_TYPE "engineType" Unsigned(1);
    39 ENGINE_ID "engineId" Unsigned(1);
    40 EXPORTED_OCTET_TOTAL_COUNT "exportedOctetTotalCount" Unsigned(8);
    41 EXPORTED_MESSAGE_TOTAL_COUNT "exportedMessageTotalCount" Unsigned(8);
    42 EXPORTED_FLOW_RECORD_TOTAL_COUNT "exportedFlowRecordTotalCount" Unsigned(8);
    43 IPV4_ROUTER_SC "ipv4RouterSc" Ipv4Address;
    44 SOURCE_IPV4_PREFIX "sourceIPv4Prefix" Ipv4Address;
    45 DESTINATION_IPV4_PREFIX "destinationIPv4Prefix" Ipv4Address;
    46 MPLS_TOP_LABEL_TYPE "mplsTopLabelType" Unsigned(1);
    47 MPLS_TOP_LABEL_IPV4_ADDRESS "mplsTopLabelIPv4Address" Ipv4Address;
    48 SAMPLER_ID "samplerId" Unsigned(1);
    49 SAMPLER_MODE "samplerMode" Unsigned(1);
    50 SAMPLER_RANDOM_INTERVAL "samplerRandomInterval" Unsigned(4);
    51 CLASS_ID "classId" Unsigned(1);
    52 MINIMUM_TTL "minimumTTL" Unsigned(1);
    53 MAXIMUM_TTL "maximumTTL" Unsigned(1);
    54 FRAGMENT_IDENTIFICATION "fragmentIdentification" Unsigned(4);
    55 POST_IP_CLASS_OF_SERVICE "postIpClassOfService" Unsigned(1);
    56 SOURCE_MAC_ADDRESS "sourceMacAddress" MacAddress;
    57 POST_DESTINATION_MAC_ADDRESS "postDestinationMacAddress" MacAddress;
    58 VLAN_ID "vlanId" Unsigned(2);
    59 POST_VLAN_ID "postVlanId" Unsigned(2);
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
    76 MPLS_LABEL_STACK_SECTION7 "mplsLabelStackSection7" Bytes;
    77 MPLS_LABEL_STACK_SECTION8 "mplsLabelStackSection8" Bytes;
    78 MPLS_LABEL_STACK_SECTION9 "mplsLabelStackSection9" Bytes;
    79 MPLS_LABEL_STACK_SECTION10 "mplsLabelStackSection10" Bytes;
    80 DESTINATION_MAC_ADDRESS "destinationMacAddress" MacAddress;
    81 POST_SOURCE_MAC_ADDRESS "postSourceMacAddress" MacAddress;
    82 INTERFACE_NAME "interfaceName" String;
    83 INTERFACE_DESCRIPTION "interfaceDescription" String;
    84 SAMPLER_NAME "samplerName" String;
    85 OCTET_TOTAL_COUNT "octetTotalCount" Unsigned(8);
    86 PACKET_TOTAL_COUNT "packetTotalCount" Unsigned(8);
    87 FLAGS_AND_SAMPLER_ID "flagsAndSamplerId" Unsigned(4);
    88 FRAGMENT_OFFSET "fragmentOffset" Unsigned(2);
    89 FORWARDING_STATUS "forwardingStatus" Unsigned(4);
    90 MPLS_VPN_ROUTE_DISTINGUISHER "mplsVpnRouteDistinguisher" Bytes;
    91 MPLS_TOP_LABEL_PREFIX_LENGTH "mplsTopLabelPrefixLength" Unsigned(1);
    92 SRC_TRAFFIC_INDEX "srcTrafficIndex" Unsigned(4);
    93 DST_TRAFFIC_INDEX "dstTrafficIndex" Unsigned(4);
    94 APPLICATION_DESCRIPTION "applicationDescription" String;
    95 APPLICATION_ID "applicationId" Bytes;
    96 APPLICATION_NAME "applicationName" String;
    98 POST_IP_DIFF_SERV_CODE_POINT "postIpDiffServCodePoint" Unsigned(1);
    99 MULTICAST_REPLICATION_FACTOR "multicastReplicationFactor" Unsigned(4);
    100 CLASS_NAME "className" String;
    101 CLASSIFICATION_ENGINE_ID "classificationEngineId" Unsigned(1);
    102 LAYER2PACKET_SECTION_OFFSET "layer2packetSectionOffset" Unsigned(2);
    103 LAYER2PACKET_SECTION_SIZE "layer2packetSectionSize" Unsigned(2);
    104 LAYER2PACKET_SECTION_DATA "layer2packetSectionData" Bytes;
    128 BGP_NEXT_ADJACENT_AS_NUMBER "bgpNextAdjacentAsNumber" Unsigned(4);
    129 BGP_PREV_ADJACENT_AS_NUMBER "bgpPrevAdjacentAsNumber" Unsigned(4);
    130 EXPORTER_IPV4_ADDRESS "exporterIPv4Address" Ipv4Address;
    131 EXPORTER_IPV6_ADDRESS "exporterIPv6Address" Ipv6Address;
    132 DROPPED_OCTET_DELTA_COUNT "droppedOctetDeltaCount" Unsigned(8);
    133 DROPPED_PACKET_DELTA_COUNT "droppedPacketDeltaCount" Unsigned(8);
    134 DROPPED_OCTET_TOTAL_COUNT "droppedOctetTotalCount" Unsigned(8);
    135 DROPPED_PACKET_TOTAL_COUNT "droppedPacketTotalCount" Unsigned(8);
    136 FLOW_END_REASON "flowEndReason" Unsigned(1);
    137 COMMON_PROPERTIES_ID "commonPropertiesId" Unsigned(8);
    138 OBSERVATION_POINT_ID "observationPointId" Unsigned(8);
    139 ICMP_TYPE_CODE_IPV6 "icmpTypeCodeIPv6" Unsigned(2);
    140 MPLS_TOP_LABEL_IPV6_ADDRESS "mplsTopLabelIPv6Address" Ipv6Address;
    141 LINE_CARD_ID "lineCardId" Unsigned(4);
    142 PORT_ID "portId" Unsigned(4);
    143 METERING_PROCESS_ID "meteringProcessId" Unsigned(4);
    144 EXPORTING_PROCESS_ID "exportingProcessId" Unsigned(4);
    145 TEMPLATE_ID "templateId" Unsigned(2);
    146 WLAN_CHANNEL_ID "wlanChannelId" Unsigned(1);
    147 WLAN_SSID "wlanSSID" String;
    148 FLOW_ID "flowId" Unsigned(8);
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
    163 OBSERVED_FLOW_TOTAL_COUNT "observedFlowTotalCount" Unsigned(8);
    164 IGNORED_PACKET_TOTAL_COUNT "ignoredPacketTotalCount" Unsigned(8);
    165 IGNORED_OCTET_TOTAL_COUNT "ignoredOctetTotalCount" Unsigned(8);
    166 NOT_SENT_FLOW_TOTAL_COUNT "notSentFlowTotalCount" Unsigned(8);
    167 NOT_SENT_PACKET_TOTAL_COUNT "notSentPacketTotalCount" Unsigned(8);
    168 NOT_SENT_OCTET_TOTAL_COUNT "notSentOctetTotalCount" Unsigned(8);
    169 DESTINATION_IPV6_PREFIX "destinationIPv6Prefix" Ipv6Address;
    170 SOURCE_IPV6_PREFIX "sourceIPv6Prefix" Ipv6Address;
    171 POST_OCTET_TOTAL_COUNT "postOctetTotalCount" Unsigned(8);
    172 POST_PACKET_TOTAL_COUNT "postPacketTotalCount" Unsigned(8);
    173 FLOW_KEY_INDICATOR "flowKeyIndicator" Unsigned(8);
    174 POST_MCAST_PACKET_TOTAL_COUNT "postMCastPacketTotalCount" Unsigned(8);
    175 POST_MCAST_OCTET_TOTAL_COUNT "postMCastOctetTotalCount" Unsigned(8);
    176 ICMP_TYPE_IPV4 "icmpTypeIPv4" Unsigned(1);
    177 ICMP_CODE_IPV4 "icmpCodeIPv4" Unsigned(1);
    178 ICMP_TYPE_IPV6 "icmpTypeIPv6" Unsigned(1);
    179 ICMP_CODE_IPV6 "icmpCodeIPv6" Unsigned(1);
    180 UDP_SOURCE_PORT "udpSourcePort" Unsigned(2);
    181 UDP_DESTINATION_PORT "udpDestinationPort" Unsigned(2);
    182 TCP_SOURCE_PORT "tcpSourcePort" Unsigned(2);
    183 TCP_DESTINATION_PORT "tcpDestinationPort" Unsigned(2);
    184 TCP_SEQUENCE_NUMBER "tcpSequenceNumber" Unsigned(4);
    185 TCP_ACKNOWLEDGEMENT_NUMBER "tcpAcknowledgementNumber" Unsigned(4);
    186 TCP_WINDOW_SIZE "tcpWindowSize" Unsigned(2);
    187 TCP_URGENT_POINTER "tcpUrgentPointer" Unsigned(2);
    188 TCP_HEADER_LENGTH "tcpHeaderLength" Unsigned(1);
    189 IP_HEADER_LENGTH "ipHeaderLength" Unsigned(1);
    190 TOTAL_LENGTH_IPV4 "totalLengthIPv4" Unsigned(2);
    191 PAYLOAD_LENGTH_IPV6 "payloadLengthIPv6" Unsigned(2);
    192 IP_TTL "ipTTL" Unsigned(1);
    193 NEXT_HEADER_IPV6 "nextHeaderIPv6" Unsigned(1);
    194 MPLS_PAYLOAD_LENGTH "mplsPayloadLength" Unsigned(4);
    195 IP_DIFF_SERV_CODE_POINT "ipDiffServCodePoint" Unsigned(1);
    196 IP_PRECEDENCE "ipPrecedence" Unsigned(1);
    197 FRAGMENT_FLAGS "fragmentFlags" Unsigned(1);
    198 OCTET_DELTA_SUM_OF_SQUARES "octetDeltaSumOfSquares" Unsigned(8);
    199 OCTET_TOTAL_SUM_OF_SQUARES "octetTotalSumOfSquares" Unsigned(8);
    200 MPLS_TOP_LABEL_TTL "mplsTopLabelTTL" Unsigned(1);
    201 MPLS_LABEL_STACK_LENGTH "mplsLabelStackLength" Unsigned(4);
    202 MPLS_LABEL_STACK_DEPTH "mplsLabelStackDepth" Unsigned(4);
    203 MPLS_TOP_LABEL_EXP "mplsTopLabelExp" Unsigned(1);
    204 IP_PAYLOAD_LENGTH "ipPayloadLength" Unsigned(4);
    205 UDP_MESSAGE_LENGTH "udpMessageLength" Unsigned(2);
    206 IS_MULTICAST "isMulticast" Unsigned(1);
    207 IPV4_IHL "ipv4IHL" Unsigned(1);
    208 IPV4_OPTIONS "ipv4Options" Unsigned(4);
    209 TCP_OPTIONS "tcpOptions" Unsigned(8);
    210 PADDING_OCTETS "paddingOctets" Bytes;
    211 COLLECTOR_IPV4_ADDRESS "collectorIPv4Address" Ipv4Address;
    212 COLLECTOR_IPV6_ADDRESS "collectorIPv6Address" Ipv6Address;
    213 EXPORT_INTERFACE "exportInterface" Unsigned(4);
    214 EXPORT_PROTOCOL_VERSION "exportProtocolVersion" Unsigned(1);
    215 EXPORT_TRANSPORT_PROTOCOL "exportTransportProtocol" Unsigned(1);
    216 COLLECTOR_TRANSPORT_PORT "collectorTransportPort" Unsigned(2);
    217 EXPORTER_TRANSPORT_PORT "exporterTransportPort" Unsigned(2);
    218 TCP_SYN_TOTAL_COUNT "tcpSynTotalCount" Unsigned(8);
    219 TCP_FIN_TOTAL_COUNT "tcpFinTotalCount" Unsigned(8);
    220 TCP_RST_TOTAL_COUNT "tcpRstTotalCount" Unsigned(8);
    221 TCP_PSH_TOTAL_COUNT "tcpPshTotalCount" Unsigned(8);
    222 TCP_ACK_TOTAL_COUNT "tcpAckTotalCount" Unsigned(8);
    223 TCP_URG_TOTAL_COUNT "tcpUrgTotalCount" Unsigned(8);
    224 IP_TOTAL_LENGTH "ipTotalLength" Unsigned(8);
    225 POST_NAT_SOURCE_IPV4_ADDRESS "postNATSourceIPv4Address" Ipv4Address;
    226 POST_NAT_DESTINATION_IPV4_ADDRESS "postNATDestinationIPv4Address" Ipv4Address;
    227 POST_NAPT_SOURCE_TRANSPORT_PORT "postNAPTSourceTransportPort" Unsigned(2);
    228 POST_NAPT_DESTINATION_TRANSPORT_PORT "postNAPTDestinationTransportPort" Unsigned(2);
    229 NAT_ORIGINATING_ADDRESS_REALM "natOriginatingAddressRealm" Unsigned(1);
    230 NAT_EVENT "natEvent" Unsigned(1);
    231 INITIATOR_OCTETS "initiatorOctets" Unsigned(8);
    232 RESPONDER_OCTETS "responderOctets" Unsigned(8);
    233 FIREWALL_EVENT "firewallEvent" Unsigned(1);
    234 INGRESS_VRFID "ingressVRFID" Unsigned(4);
    235 EGRESS_VRFID "egressVRFID" Unsigned(4);
    236 VRF_NAME "VRFname" String;
    237 POST_MPLS_TOP_LABEL_EXP "postMplsTopLabelExp" Unsigned(1);
    238 TCP_WINDOW_SCALE "tcpWindowScale" Unsigned(2);
    239 BIFLOW_DIRECTION "biflowDirection" Unsigned(1);
    240 ETHERNET_HEADER_LENGTH "ethernetHeaderLength" Unsigned(1);
    241 ETHERNET_PAYLOAD_LENGTH "ethernetPayloadLength" Unsigned(2);
    242 ETHERNET_TOTAL_LENGTH "ethernetTotalLength" Unsigned(2);
    243 DOT1Q_VLAN_ID "dot1qVlanId" Unsigned(2);
    244 DOT1Q_PRIORITY "dot1qPriority" Unsigned(1);
    245 DOT1Q_CUSTOMER_VLAN_ID "dot1qCustomerVlanId" Unsigned(2);
    246 DOT1Q_CUSTOMER_PRIORITY "dot1qCustomerPriority" Unsigned(1);
    247 METRO_EVC_ID "metroEvcId" String;
    248 METRO_EVC_TYPE "metroEvcType" Unsigned(1);
    249 PSEUDO_WIRE_ID "pseudoWireId" Unsigned(4);
    250 PSEUDO_WIRE_TYPE "pseudoWireType" Unsigned(2);
    251 PSEUDO_WIRE_CONTROL_WORD "pseudoWireControlWord" Unsigned(4);
    252 INGRESS_PHYSICAL_INTERFACE "ingressPhysicalInterface" Unsigned(4);
    253 EGRESS_PHYSICAL_INTERFACE "egressPhysicalInterface" Unsigned(4);
    254 POST_DOT1Q_VLAN_ID "postDot1qVlanId" Unsigned(2);
    255 POST_DOT1Q_CUSTOMER_VLAN_ID "postDot1qCustomerVlanId" Unsigned(2);
    256 ETHERNET_TYPE "ethernetType" Unsigned(2);
    257 POST_IP_PRECEDENCE "postIpPrecedence" Unsigned(1);
    258 COLLECTION_TIME_MILLISECONDS "collectionTimeMilliseconds" Milliseconds;
    259 EXPORT_SCTP_STREAM_ID "exportSctpStreamId" Unsigned(2);
    260 MAX_EXPORT_SECONDS "maxExportSeconds" Seconds;
    261 MAX_FLOW_END_SECONDS "maxFlowEndSeconds" Seconds;
    262 MESSAGE_MD5_CHECKSUM "messageMD5Checksum" Bytes;
    263 MESSAGE_SCOPE "messageScope" Unsigned(1);
    264 MIN_EXPORT_SECONDS "minExportSeconds" Seconds;
    265 MIN_FLOW_START_SECONDS "minFlowStartSeconds" Seconds;
    266 OPAQUE_OCTETS "opaqueOctets" Bytes;
    267 SESSION_SCOPE "sessionScope" Unsigned(1);
    268 MAX_FLOW_END_MICROSECONDS "maxFlowEndMicroseconds" Microseconds;
    269 MAX_FLOW_END_MILLISECONDS "maxFlowEndMilliseconds" Milliseconds;
    270 MAX_FLOW_END_NANOSECONDS "maxFlowEndNanoseconds" Nanoseconds;
    271 MIN_FLOW_START_MICROSECONDS "minFlowStartMicroseconds" Microseconds;
    272 MIN_FLOW_START_MILLISECONDS "minFlowStartMilliseconds" Milliseconds;
    273 MIN_FLOW_START_NANOSECONDS "minFlowStartNanoseconds" Nanoseconds;
    274 COLLECTOR_CERTIFICATE "collectorCertificate" Bytes;
    275 EXPORTER_CERTIFICATE "exporterCertificate" Bytes;
    276 DATA_RECORDS_RELIABILITY "dataRecordsReliability" Boolean;
    277 OBSERVATION_POINT_TYPE "observationPointType" Unsigned(1);
    278 CONNECTION_COUNT_NEW "connectionCountNew" Unsigned(4);
    279 CONNECTION_SUM_DURATION_SECONDS "connectionSumDurationSeconds" Unsigned(8);
    280 CONNECTION_TRANSACTION_ID "connectionTransactionId" Unsigned(8);
    281 POST_NAT_SOURCE_IPV6_ADDRESS "postNATSourceIPv6Address" Ipv6Address;
    282 POST_NAT_DESTINATION_IPV6_ADDRESS "postNATDestinationIPv6Address" Ipv6Address;
    283 NAT_POOL_ID "natPoolId" Unsigned(4);
    284 NAT_POOL_NAME "natPoolName" String;
    285 ANONYMIZATION_FLAGS "anonymizationFlags" Unsigned(2);
    286 ANONYMIZATION_TECHNIQUE "anonymizationTechnique" Unsigned(2);
    287 INFORMATION_ELEMENT_INDEX "informationElementIndex" Unsigned(2);
    288 P2P_TECHNOLOGY "p2pTechnology" String;
    289 TUNNEL_TECHNOLOGY "tunnelTechnology" String;
    290 ENCRYPTED_TECHNOLOGY "encryptedTechnology" String;
    294 BGP_VALIDITY_STATE "bgpValidityState" Unsigned(1);
    295 IP_SEC_SPI "IPSecSPI" Unsigned(4);
    296 GRE_KEY "greKey" Unsigned(4);
    297 NAT_TYPE "natType" Unsigned(1);
    298 INITIATOR_PACKETS "initiatorPackets" Unsigned(8);
    299 RESPONDER_PACKETS "responderPackets" Unsigned(8);
    300 OBSERVATION_DOMAIN_NAME "observationDomainName" String;
    301 SELECTION_SEQUENCE_ID "selectionSequenceId" Unsigned(8);
    302 SELECTOR_ID "selectorId" Unsigned(8);
    303 INFORMATION_ELEMENT_ID "informationElementId" Unsigned(2);
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
    314 IP_PAYLOAD_PACKET_SECTION "ipPayloadPacketSection" Bytes;
    315 DATA_LINK_FRAME_SECTION "dataLinkFrameSection" Bytes;
    316 MPLS_LABEL_STACK_SECTION "mplsLabelStackSection" Bytes;
    317 MPLS_PAYLOAD_PACKET_SECTION "mplsPayloadPacketSection" Bytes;
    318 SELECTOR_ID_TOTAL_PKTS_OBSERVED "selectorIdTotalPktsObserved" Unsigned(8);
    319 SELECTOR_ID_TOTAL_PKTS_SELECTED "selectorIdTotalPktsSelected" Unsigned(8);
    320 ABSOLUTE_ERROR "absoluteError" Float64;
    321 RELATIVE_ERROR "relativeError" Float64;
    322 OBSERVATION_TIME_SECONDS "observationTimeSeconds" Seconds;
    323 OBSERVATION_TIME_MILLISECONDS "observationTimeMilliseconds" Milliseconds;
    324 OBSERVATION_TIME_MICROSECONDS "observationTimeMicroseconds" Microseconds;
    325 OBSERVATION_TIME_NANOSECONDS "observationTimeNanoseconds" Nanoseconds;
    326 DIGEST_HASH_VALUE "digestHashValue" Unsigned(8);
    327 HASH_IP_PAYLOAD_OFFSET "hashIPPayloadOffset" Unsigned(8);
    328 HASH_IP_PAYLOAD_SIZE "hashIPPayloadSize" Unsigned(8);
    329 HASH_OUTPUT_RANGE_MIN "hashOutputRangeMin" Unsigned(8);
    330 HASH_OUTPUT_RANGE_MAX "hashOutputRangeMax" Unsigned(8);
    331 HASH_SELECTED_RANGE_MIN "hashSelectedRangeMin" Unsigned(8);
    332 HASH_SELECTED_RANGE_MAX "hashSelectedRangeMax" Unsigned(8);
    333 HASH_DIGEST_OUTPUT "hashDigestOutput" Boolean;
    334 HASH_INITIALISER_VALUE "hashInitialiserValue" Unsigned(8);
    335 SELECTOR_NAME "selectorName" String;
    336 UPPER_CI_LIMIT "upperCILimit" Float64;
    337 LOWER_CI_LIMIT "lowerCILimit" Float64;
    338 CONFIDENCE_LEVEL "confidenceLevel" Float64;
    339 INFORMATION_ELEMENT_DATA_TYPE "informationElementDataType" Unsigned(1);
    340 INFORMATION_ELEMENT_DESCRIPTION "informationElementDescription" String;
    341 INFORMATION_ELEMENT_NAME "informationElementName" String;
    342 INFORMATION_ELEMENT_RANGE_BEGIN "informationElementRangeBegin" Unsigned(8);
    343 INFORMATION_ELEMENT_RANGE_END "informationElementRangeEnd" Unsigned(8);
    344 INFORMATION_ELEMENT_SEMANTICS "informationElementSemantics" Unsigned(1);
    345 INFORMATION_ELEMENT_UNITS "informationElementUnits" Unsigned(2);
    346 PRIVATE_ENTERPRISE_NUMBER "privateEnterpriseNumber" Unsigned(4);
    347 VIRTUAL_STATION_INTERFACE_ID "virtualStationInterfaceId" Bytes;
    348 VIRTUAL_STATION_INTERFACE_NAME "virtualStationInterfaceName" String;
    349 VIRTUAL_STATION_UUID "virtualStationUUID" Bytes;
    350 VIRTUAL_STATION_NAME "virtualStationName" String;
    351 LAYER2_SEGMENT_ID "layer2SegmentId" Unsigned(8);
    352 LAYER2_OCTET_DELTA_COUNT "layer2OctetDeltaCount" Unsigned(8);
    353 LAYER2_OCTET_TOTAL_COUNT "layer2OctetTotalCount" Unsigned(8);
    354 INGRESS_UNICAST_PACKET_TOTAL_COUNT "ingressUnicastPacketTotalCount" Unsigned(8);
    355 INGRESS_MULTICAST_PACKET_TOTAL_COUNT "ingressMulticastPacketTotalCount" Unsigned(8);
    356 INGRESS_BROADCAST_PACKET_TOTAL_COUNT "ingressBroadcastPacketTotalCount" Unsigned(8);
    357 EGRESS_UNICAST_PACKET_TOTAL_COUNT "egressUnicastPacketTotalCount" Unsigned(8);
    358 EGRESS_BROADCAST_PACKET_TOTAL_COUNT "egressBroadcastPacketTotalCount" Unsigned(8);
    359 MONITORING_INTERVAL_START_MILLI_SECONDS "monitoringIntervalStartMilliSeconds" Milliseconds;
    360 MONITORING_INTERVAL_END_MILLI_SECONDS "monitoringIntervalEndMilliSeconds" Milliseconds;
    361 PORT_RANGE_START "portRangeStart" Unsigned(2);
    362 PORT_RANGE_END "portRangeEnd" Unsigned(2);
    363 PORT_RANGE_STEP_SIZE "portRangeStepSize" Unsigned(2);
    364 PORT_RANGE_NUM_PORTS "portRangeNumPorts" Unsigned(2);
    365 STA_MAC_ADDRESS "staMacAddress" MacAddress;
    366 STA_IPV4_ADDRESS "staIPv4Address" Ipv4Address;
    367 WTP_MAC_ADDRESS "wtpMacAddress" MacAddress;
    368 INGRESS_INTERFACE_TYPE "ingressInterfaceType" Unsigned(4);
    369 EGRESS_INTERFACE_TYPE "egressInterfaceType" Unsigned(4);
    370 RTP_SEQUENCE_NUMBER "rtpSequenceNumber" Unsigned(2);
    371 USER_NAME "userName" String;
    372 APPLICATION_CATEGORY_NAME "applicationCategoryName" String;
    373 APPLICATION_SUB_CATEGORY_NAME "applicationSubCategoryName" String;
    374 APPLICATION_GROUP_NAME "applicationGroupName" String;
    375 ORIGINAL_FLOWS_PRESENT "originalFlowsPresent" Unsigned(8);
    376 ORIGINAL_FLOWS_INITIATED "originalFlowsInitiated" Unsigned(8);
    377 ORIGINAL_FLOWS_COMPLETED "originalFlowsCompleted" Unsigned(8);
    378 DISTINCT_COUNT_OF_SOURCE_IP_ADDRESS "distinctCountOfSourceIPAddress" Unsigned(8);
    379 DISTINCT_COUNT_OF_DESTINATION_IP_ADDRESS "distinctCountOfDestinationIPAddress" Unsigned(8);
    380 DISTINCT_COUNT_OF_SOURCE_IPV4_ADDRESS "distinctCountOfSourceIPv4Address" Unsigned(4);
    381 DISTINCT_COUNT_OF_DESTINATION_IPV4_ADDRESS "distinctCountOfDestinationIPv4Address" Unsigned(4);
    382 DISTINCT_COUNT_OF_SOURCE_IPV6_ADDRESS "distinctCountOfSourceIPv6Address" Unsigned(8);
    383 DISTINCT_COUNT_OF_DESTINATION_IPV6_ADDRESS "distinctCountOfDestinationIPv6Address" Unsigned(8);
    384 VALUE_DISTRIBUTION_METHOD "valueDistributionMethod" Unsigned(1);
    385 RFC3550_JITTER_MILLISECONDS "rfc3550JitterMilliseconds" Unsigned(4);
    386 RFC3550_JITTER_MICROSECONDS "rfc3550JitterMicroseconds" Unsigned(4);
    387 RFC3550_JITTER_NANOSECONDS "rfc3550JitterNanoseconds" Unsigned(4);
    388 DOT1Q_DEI "dot1qDEI" Boolean;
    389 DOT1Q_CUSTOMER_DEI "dot1qCustomerDEI" Boolean;
    390 FLOW_SELECTOR_ALGORITHM "flowSelectorAlgorithm" Unsigned(2);
    391 FLOW_SELECTED_OCTET_DELTA_COUNT "flowSelectedOctetDeltaCount" Unsigned(8);
    392 FLOW_SELECTED_PACKET_DELTA_COUNT "flowSelectedPacketDeltaCount" Unsigned(8);
    393 FLOW_SELECTED_FLOW_DELTA_COUNT "flowSelectedFlowDeltaCount" Unsigned(8);
    394 SELECTOR_ID_TOTAL_FLOWS_OBSERVED "selectorIDTotalFlowsObserved" Unsigned(8);
    395 SELECTOR_ID_TOTAL_FLOWS_SELECTED "selectorIDTotalFlowsSelected" Unsigned(8);
    396 SAMPLING_FLOW_INTERVAL "samplingFlowInterval" Unsigned(8);
    397 SAMPLING_FLOW_SPACING "samplingFlowSpacing" Unsigned(8);
    398 FLOW_SAMPLING_TIME_INTERVAL "flowSamplingTimeInterval" Unsigned(8);
    399 FLOW_SAMPLING_TIME_SPACING "flowSamplingTimeSpacing" Unsigned(8);
    400 HASH_FLOW_DOMAIN "hashFlowDomain" Unsigned(2);
    401 TRANSPORT_OCTET_DELTA_COUNT "transportOctetDeltaCount" Unsigned(8);
    402 TRANSPORT_PACKET_DELTA_COUNT "transportPacketDeltaCount" Unsigned(8);
    403 ORIGINAL_EXPORTER_IPV4_ADDRESS "originalExporterIPv4Address" Ipv4Address;
    404 ORIGINAL_EXPORTER_IPV6_ADDRESS "originalExporterIPv6Address" Ipv6Address;
    405 ORIGINAL_OBSERVATION_DOMAIN_ID "originalObservationDomainId" Unsigned(4);
    406 INTERMEDIATE_PROCESS_ID "intermediateProcessId" Unsigned(4);
    407 IGNORED_DATA_RECORD_TOTAL_COUNT "ignoredDataRecordTotalCount" Unsigned(8);
    408 DATA_LINK_FRAME_TYPE "dataLinkFrameType" Unsigned(2);
    409 SECTION_OFFSET "sectionOffset" Unsigned(2);
    410 SECTION_EXPORTED_OCTETS "sectionExportedOctets" Unsigned(2);
    411 DOT1Q_SERVICE_INSTANCE_TAG "dot1qServiceInstanceTag" Bytes;
    412 DOT1Q_SERVICE_INSTANCE_ID "dot1qServiceInstanceId" Unsigned(4);
    413 DOT1Q_SERVICE_INSTANCE_PRIORITY "dot1qServiceInstancePriority" Unsigned(1);
    414 DOT1Q_CUSTOMER_SOURCE_MAC_ADDRESS "dot1qCustomerSourceMacAddress" MacAddress;
    415 DOT1Q_CUSTOMER_DESTINATION_MAC_ADDRESS "dot1qCustomerDestinationMacAddress" MacAddress;
    417 POST_LAYER2_OCTET_DELTA_COUNT "postLayer2OctetDeltaCount" Unsigned(8);
    418 POST_MCAST_LAYER2_OCTET_DELTA_COUNT "postMCastLayer2OctetDeltaCount" Unsigned(8);
    420 POST_LAYER2_OCTET_TOTAL_COUNT "postLayer2OctetTotalCount" Unsigned(8);
    421 POST_MCAST_LAYER2_OCTET_TOTAL_COUNT "postMCastLayer2OctetTotalCount" Unsigned(8);
    422 MINIMUM_LAYER2_TOTAL_LENGTH "minimumLayer2TotalLength" Unsigned(8);
    423 MAXIMUM_LAYER2_TOTAL_LENGTH "maximumLayer2TotalLength" Unsigned(8);
    424 DROPPED_LAYER2_OCTET_DELTA_COUNT "droppedLayer2OctetDeltaCount" Unsigned(8);
    425 DROPPED_LAYER2_OCTET_TOTAL_COUNT "droppedLayer2OctetTotalCount" Unsigned(8);
    426 IGNORED_LAYER2_OCTET_TOTAL_COUNT "ignoredLayer2OctetTotalCount" Unsigned(8);
    427 NOT_SENT_LAYER2_OCTET_TOTAL_COUNT "notSentLayer2OctetTotalCount" Unsigned(8);
    428 LAYER2_OCTET_DELTA_SUM_OF_SQUARES "layer2OctetDeltaSumOfSquares" Unsigned(8);
    429 LAYER2_OCTET_TOTAL_SUM_OF_SQUARES "layer2OctetTotalSumOfSquares" Unsigned(8);
    430 LAYER2_FRAME_DELTA_COUNT "layer2FrameDeltaCount" Unsigned(8);
    431 LAYER2_FRAME_TOTAL_COUNT "layer2FrameTotalCount" Unsigned(8);
    432 PSEUDO_WIRE_DESTINATION_IPV4_ADDRESS "pseudoWireDestinationIPv4Address" Ipv4Address;
    433 IGNORED_LAYER2_FRAME_TOTAL_COUNT "ignoredLayer2FrameTotalCount" Unsigned(8);
    434 MIB_OBJECT_VALUE_INTEGER "mibObjectValueInteger" Signed(4);
    435 MIB_OBJECT_VALUE_OCTET_STRING "mibObjectValueOctetString" Bytes;
    436 MIB_OBJECT_VALUE_OID "mibObjectValueOID" Bytes;
    437 MIB_OBJECT_VALUE_BITS "mibObjectValueBits" Bytes;
    438 MIB_OBJECT_VALUE_IP_ADDRESS "mibObjectValueIPAddress" Ipv4Address;
    439 MIB_OBJECT_VALUE_COUNTER "mibObjectValueCounter" Unsigned(8);
    440 MIB_OBJECT_VALUE_GAUGE "mibObjectValueGauge" Unsigned(4);
    441 MIB_OBJECT_VALUE_TIME_TICKS "mibObjectValueTimeTicks" Unsigned(4);
    442 MIB_OBJECT_VALUE_UNSIGNED "mibObjectValueUnsigned" Unsigned(4);
    443 MIB_OBJECT_VALUE_TABLE "mibObjectValueTable" Bytes;
    444 MIB_OBJECT_VALUE_ROW "mibObjectValueRow" Bytes;
    445 MIB_OBJECT_IDENTIFIER "mibObjectIdentifier" Bytes;
    446 MIB_SUB_IDENTIFIER "mibSubIdentifier" Unsigned(4);
    447 MIB_INDEX_INDICATOR "mibIndexIndicator" Unsigned(8);
    448 MIB_CAPTURE_TIME_SEMANTICS "mibCaptureTimeSemantics" Unsigned(1);
    449 MIB_CONTEXT_ENGINE_ID "mibContextEngineID" Bytes;
    450 MIB_CONTEXT_NAME "mibContextName" String;
    451 MIB_OBJECT_NAME "mibObjectName" String;
    452 MIB_OBJECT_DESCRIPTION "mibObjectDescription" String;
    453 MIB_OBJECT_SYNTAX "mibObjectSyntax" String;
    454 MIB_MODULE_NAME "mibModuleName" String;
    455 MOBILE_IMSI "mobileIMSI" String;
    456 MOBILE_MSISDN "mobileMSISDN" String;
    457 HTTP_STATUS_CODE "httpStatusCode" Unsigned(2);
    458 SOURCE_TRANSPORT_PORTS_LIMIT "sourceTransportPortsLimit" Unsigned(2);
    459 HTTP_REQUEST_METHOD "httpRequestMethod" String;
    460 HTTP_REQUEST_HOST "httpRequestHost" String;
    461 HTTP_REQUEST_TARGET "httpRequestTarget" String;
    462 HTTP_MESSAGE_VERSION "httpMessageVersion" String;
    463 NAT_INSTANCE_ID "natInstanceID" Unsigned(4);
    464 INTERNAL_ADDRESS_REALM "internalAddressRealm" Bytes;
    465 EXTERNAL_ADDRESS_REALM "externalAddressRealm" Bytes;
    466 NAT_QUOTA_EXCEEDED_EVENT "natQuotaExceededEvent" Unsigned(4);
    467 NAT_THRESHOLD_EVENT "natThresholdEvent" Unsigned(4);
    468 HTTP_USER_AGENT "httpUserAgent" String;
    469 HTTP_CONTENT_TYPE "httpContentType" String;
    470 HTTP_REASON_PHRASE "httpReasonPhrase" String;
    471 MAX_SESSION_ENTRIES "maxSessionEntries" Unsigned(4);
    472 MAX_BIB_ENTRIES "maxBIBEntries" Unsigned(4);
    473 MAX_ENTRIES_PER_USER "maxEntriesPerUser" Unsigned(4);
    474 MAX_SUBSCRIBERS "maxSubscribers" Unsigned(4);
    475 MAX_FRAGMENTS_PENDING_REASSEMBLY "maxFragmentsPendingReassembly" Unsigned(4);
    476 ADDRESS_POOL_HIGH_THRESHOLD "addressPoolHighThreshold" Unsigned(4);
    477 ADDRESS_POOL_LOW_THRESHOLD "addressPoolLowThreshold" Unsigned(4);
    478 ADDRESS_PORT_MAPPING_HIGH_THRESHOLD "addressPortMappingHighThreshold" Unsigned(4);
    479 ADDRESS_PORT_MAPPING_LOW_THRESHOLD "addressPortMappingLowThreshold" Unsigned(4);
    480 ADDRESS_PORT_MAPPING_PER_USER_HIGH_THRESHOLD "addressPortMappingPerUserHighThreshold" Unsigned(4);
    481 GLOBAL_ADDRESS_MAPPING_HIGH_THRESHOLD "globalAddressMappingHighThreshold" Unsigned(4);
    482 VPN_IDENTIFIER "vpnIdentifier" Bytes;
    483 BGP_COMMUNITY "bgpCommunity" Unsigned(4);
    484 BGP_SOURCE_COMMUNITY_LIST "bgpSourceCommunityList" Bytes;
    485 BGP_DESTINATION_COMMUNITY_LIST "bgpDestinationCommunityList" Bytes;
    486 BGP_EXTENDED_COMMUNITY "bgpExtendedCommunity" Bytes;
    487 BGP_SOURCE_EXTENDED_COMMUNITY_LIST "bgpSourceExtendedCommunityList" Bytes;
    488 BGP_DESTINATION_EXTENDED_COMMUNITY_LIST "bgpDestinationExtendedCommunityList" Bytes;
    489 BGP_LARGE_COMMUNITY "bgpLargeCommunity" Bytes;
    490 BGP_SOURCE_LARGE_COMMUNITY_LIST "bgpSourceLargeCommunityList" Bytes;
    491 BGP_DESTINATION_LARGE_COMMUNITY_LIST "bgpDestinationLargeCommunityList" Bytes;
    492 SRH_FLAGS_IPV6 "srhFlagsIPv6" Unsigned(1);
    493 SRH_TAG_IPV6 "srhTagIPv6" Unsigned(2);
    494 SRH_SEGMENT_IPV6 "srhSegmentIPv6" Ipv6Address;
    495 SRH_ACTIVE_SEGMENT_IPV6 "srhActiveSegmentIPv6" Ipv6Address;
    496 SRH_SEGMENT_IPV6_BASIC_LIST "srhSegmentIPv6BasicList" Bytes;
    497 SRH_SEGMENT_IPV6_LIST_SECTION "srhSegmentIPv6ListSection" Bytes;
    498 SRH_SEGMENTS_IPV6_LEFT "srhSegmentsIPv6Left" Unsigned(1);
    499 SRH_IPV6_SECTION "srhIPv6Section" Bytes;
    500 SRH_IPV6_ACTIVE_SEGMENT_TYPE "srhIPv6ActiveSegmentType" Unsigned(1);
    501 SRH_SEGMENT_IPV6_LOCATOR_LENGTH "srhSegmentIPv6LocatorLength" Unsigned(1);
    502 SRH_SEGMENT_IPV6_ENDPOINT_BEHAVIOR "srhSegmentIPv6EndpointBehavior" Unsigned(2);
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
