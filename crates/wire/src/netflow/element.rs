//! Information elements (RFC 7012 and IANA's registry "IP Flow Information Export (IPFIX) Entities"): the fields of which
//! templates are made. NetFlow 9 (RFC 3954) uses the same numbers up to 127, and by habit most of those above.
//!
//! One row gives the number, the constant, the registry's name, the abstract data type and with it the length that a
//! template names unless it is encoded shorter (RFC 7011, 6.2).

/// Private enterprise number under which elements of the opposite direction go (RFC 5103).
pub const REVERSE_ENTERPRISE: u32 = 29_305;

/// Abstract data types (RFC 7012, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// Unsigned integer of so many octets; fewer may be sent.
    Unsigned(u8),
    /// Signed integer of so many octets; fewer may be sent.
    Signed(u8),
    /// Octets without a meaning of their own; usually of variable length.
    Octets,
    /// UTF-8; usually of variable length.
    String,
    /// 1 is true, 2 is false.
    Boolean,
    /// Six octets.
    MacAddress,
    /// Four octets.
    Ipv4Address,
    /// Sixteen octets.
    Ipv6Address,
    /// Seconds since the Unix epoch, four octets.
    Seconds,
    /// Milliseconds since the Unix epoch, eight octets.
    Milliseconds,
    /// An NTP time stamp (seconds since 1900 and fraction) of microsecond precision, eight octets.
    Microseconds,
    /// An NTP time stamp of nanosecond precision, eight octets.
    Nanoseconds,
    /// IEEE 754, eight octets; four may be sent.
    Float64,
}

impl DataType {
    /// Octets of an unshortened value; `None` where any number will do.
    pub fn octets(self) -> Option<u16> {
        match self {
            Self::Unsigned(octets) | Self::Signed(octets) => Some(u16::from(octets)),
            Self::Octets | Self::String => None,
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
    21 FLOW_END_SYS_UP_TIME "flowEndSysUpTime" Unsigned(4);
    22 FLOW_START_SYS_UP_TIME "flowStartSysUpTime" Unsigned(4);
    27 SOURCE_IPV6_ADDRESS "sourceIPv6Address" Ipv6Address;
    28 DESTINATION_IPV6_ADDRESS "destinationIPv6Address" Ipv6Address;
    29 SOURCE_IPV6_PREFIX_LENGTH "sourceIPv6PrefixLength" Unsigned(1);
    30 DESTINATION_IPV6_PREFIX_LENGTH "destinationIPv6PrefixLength" Unsigned(1);
    31 FLOW_LABEL_IPV6 "flowLabelIPv6" Unsigned(4);
    32 ICMP_TYPE_CODE_IPV4 "icmpTypeCodeIPv4" Unsigned(2);
    34 SAMPLING_INTERVAL "samplingInterval" Unsigned(4);
    35 SAMPLING_ALGORITHM "samplingAlgorithm" Unsigned(1);
    36 FLOW_ACTIVE_TIMEOUT "flowActiveTimeout" Unsigned(2);
    37 FLOW_IDLE_TIMEOUT "flowIdleTimeout" Unsigned(2);
    40 EXPORTED_OCTET_TOTAL_COUNT "exportedOctetTotalCount" Unsigned(8);
    41 EXPORTED_MESSAGE_TOTAL_COUNT "exportedMessageTotalCount" Unsigned(8);
    42 EXPORTED_FLOW_RECORD_TOTAL_COUNT "exportedFlowRecordTotalCount" Unsigned(8);
    48 SAMPLER_ID "samplerId" Unsigned(1);
    49 SAMPLER_MODE "samplerMode" Unsigned(1);
    50 SAMPLER_RANDOM_INTERVAL "samplerRandomInterval" Unsigned(4);
    52 MINIMUM_TTL "minimumTTL" Unsigned(1);
    53 MAXIMUM_TTL "maximumTTL" Unsigned(1);
    56 SOURCE_MAC_ADDRESS "sourceMacAddress" MacAddress;
    58 VLAN_ID "vlanId" Unsigned(2);
    60 IP_VERSION "ipVersion" Unsigned(1);
    61 FLOW_DIRECTION "flowDirection" Unsigned(1);
    62 IP_NEXT_HOP_IPV6_ADDRESS "ipNextHopIPv6Address" Ipv6Address;
    63 BGP_NEXT_HOP_IPV6_ADDRESS "bgpNextHopIPv6Address" Ipv6Address;
    70 MPLS_TOP_LABEL_STACK_SECTION "mplsTopLabelStackSection" Octets;
    80 DESTINATION_MAC_ADDRESS "destinationMacAddress" MacAddress;
    82 INTERFACE_NAME "interfaceName" String;
    83 INTERFACE_DESCRIPTION "interfaceDescription" String;
    89 FORWARDING_STATUS "forwardingStatus" Unsigned(4);
    95 APPLICATION_ID "applicationId" Octets;
    96 APPLICATION_NAME "applicationName" String;
    130 EXPORTER_IPV4_ADDRESS "exporterIPv4Address" Ipv4Address;
    131 EXPORTER_IPV6_ADDRESS "exporterIPv6Address" Ipv6Address;
    132 DROPPED_OCTET_DELTA_COUNT "droppedOctetDeltaCount" Unsigned(8);
    133 DROPPED_PACKET_DELTA_COUNT "droppedPacketDeltaCount" Unsigned(8);
    135 DROPPED_PACKET_TOTAL_COUNT "droppedPacketTotalCount" Unsigned(8);
    136 FLOW_END_REASON "flowEndReason" Unsigned(1);
    138 OBSERVATION_POINT_ID "observationPointId" Unsigned(8);
    139 ICMP_TYPE_CODE_IPV6 "icmpTypeCodeIPv6" Unsigned(2);
    141 LINE_CARD_ID "lineCardId" Unsigned(4);
    143 METERING_PROCESS_ID "meteringProcessId" Unsigned(4);
    144 EXPORTING_PROCESS_ID "exportingProcessId" Unsigned(4);
    145 TEMPLATE_ID "templateId" Unsigned(2);
    149 OBSERVATION_DOMAIN_ID "observationDomainId" Unsigned(4);
    150 FLOW_START_SECONDS "flowStartSeconds" Seconds;
    151 FLOW_END_SECONDS "flowEndSeconds" Seconds;
    152 FLOW_START_MILLISECONDS "flowStartMilliseconds" Milliseconds;
    153 FLOW_END_MILLISECONDS "flowEndMilliseconds" Milliseconds;
    154 FLOW_START_MICROSECONDS "flowStartMicroseconds" Microseconds;
    155 FLOW_END_MICROSECONDS "flowEndMicroseconds" Microseconds;
    156 FLOW_START_NANOSECONDS "flowStartNanoseconds" Nanoseconds;
    157 FLOW_END_NANOSECONDS "flowEndNanoseconds" Nanoseconds;
    160 SYSTEM_INIT_TIME_MILLISECONDS "systemInitTimeMilliseconds" Milliseconds;
    164 IGNORED_PACKET_TOTAL_COUNT "ignoredPacketTotalCount" Unsigned(8);
    165 IGNORED_OCTET_TOTAL_COUNT "ignoredOctetTotalCount" Unsigned(8);
    166 NOT_SENT_FLOW_TOTAL_COUNT "notSentFlowTotalCount" Unsigned(8);
    167 NOT_SENT_PACKET_TOTAL_COUNT "notSentPacketTotalCount" Unsigned(8);
    168 NOT_SENT_OCTET_TOTAL_COUNT "notSentOctetTotalCount" Unsigned(8);
    210 PADDING_OCTETS "paddingOctets" Octets;
    225 POST_NAT_SOURCE_IPV4_ADDRESS "postNATSourceIPv4Address" Ipv4Address;
    226 POST_NAT_DESTINATION_IPV4_ADDRESS "postNATDestinationIPv4Address" Ipv4Address;
    227 POST_NAPT_SOURCE_TRANSPORT_PORT "postNAPTSourceTransportPort" Unsigned(2);
    228 POST_NAPT_DESTINATION_TRANSPORT_PORT "postNAPTDestinationTransportPort" Unsigned(2);
    229 NAT_ORIGINATING_ADDRESS_REALM "natOriginatingAddressRealm" Unsigned(1);
    230 NAT_EVENT "natEvent" Unsigned(1);
    281 POST_NAT_SOURCE_IPV6_ADDRESS "postNATSourceIPv6Address" Ipv6Address;
    282 POST_NAT_DESTINATION_IPV6_ADDRESS "postNATDestinationIPv6Address" Ipv6Address;
    283 NAT_POOL_ID "natPoolId" Unsigned(4);
    284 NAT_POOL_NAME "natPoolName" String;
    302 SELECTOR_ID "selectorId" Unsigned(8);
    304 SELECTOR_ALGORITHM "selectorAlgorithm" Unsigned(2);
    305 SAMPLING_PACKET_INTERVAL "samplingPacketInterval" Unsigned(4);
    306 SAMPLING_PACKET_SPACE "samplingPacketSpace" Unsigned(4);
    309 SAMPLING_SIZE "samplingSize" Unsigned(4);
    310 SAMPLING_POPULATION "samplingPopulation" Unsigned(4);
    311 SAMPLING_PROBABILITY "samplingProbability" Float64;
    318 SELECTOR_ID_TOTAL_PKTS_OBSERVED "selectorIdTotalPktsObserved" Unsigned(8);
    319 SELECTOR_ID_TOTAL_PKTS_SELECTED "selectorIdTotalPktsSelected" Unsigned(8);
    323 OBSERVATION_TIME_MILLISECONDS "observationTimeMilliseconds" Milliseconds;
    352 LAYER2_OCTET_DELTA_COUNT "layer2OctetDeltaCount" Unsigned(8);
    361 PORT_RANGE_START "portRangeStart" Unsigned(2);
    362 PORT_RANGE_END "portRangeEnd" Unsigned(2);
    378 BIFLOW_DIRECTION "biflowDirection" Unsigned(1);
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
        assert_eq!(element(19), None);
    }
}
