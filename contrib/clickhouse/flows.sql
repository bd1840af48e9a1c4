-- Flow records in ClickHouse: the table, its rollups, and a topic of Kafka as a source. See docs/scale.md.
--
--   clickhouse-client --multiquery < contrib/clickhouse/flows.sql
--
-- Columns are made from the table of fields (crates/flow/src/fields/table.rs); docs/flow-record.md explains them.
-- A statement needs nothing of those after it: without Kafka, leave out the last three.

-- A record is in the partition of the day of its end. Blocks that are inserted again, since their acknowledgment was
-- lost, are dropped: the table remembers the last 1000 (a replicated one does so anyway).
CREATE TABLE IF NOT EXISTS flows
(
    flow_end DateTime64(9, 'UTC') COMMENT 'arrival of the last packet',
    flow_start DateTime64(9, 'UTC') COMMENT 'arrival of the first packet',
    src IPv6 COMMENT 'source address',
    dst IPv6 COMMENT 'destination address',
    src_port UInt16 COMMENT 'source port of TCP, UDP, SCTP, DCCP, UDP-Lite; else 0',
    dst_port UInt16 COMMENT 'destination port of those; of ICMP the type times 256 plus the code; else 0',
    protocol UInt8 COMMENT 'number of the transport protocol, the last of an IPv6 header chain',
    packets UInt64 COMMENT 'packets, as counted',
    bytes UInt64 COMMENT 'bytes of IP packets, or of frames if the meter counts frames; as counted',
    tcp_flags Nullable(UInt8) COMMENT 'union of all TCP flags (CWR ECE URG ACK PSH RST SYN FIN), of TCP only',
    traffic_class UInt8 COMMENT 'type of service or traffic class, all eight bits',
    ttl_min Nullable(UInt8) COMMENT 'smallest TTL or hop limit',
    ttl_max Nullable(UInt8) COMMENT 'largest TTL or hop limit',
    end_reason LowCardinality(Nullable(String)) COMMENT 'idle-timeout, active-timeout, end-detected, forced-end, lack-of-resources',
    application LowCardinality(Nullable(String)) COMMENT 'name of the application',
    ingress Nullable(UInt32) COMMENT 'number of the interface it came in by',
    egress Nullable(UInt32) COMMENT 'number of the interface it left by',
    vlan Nullable(UInt16) COMMENT 'identifier of the outermost VLAN tag',
    mpls_label Nullable(UInt32) COMMENT 'label at the top of the MPLS stack',
    src_as Nullable(UInt32) COMMENT 'origin AS of the source address',
    dst_as Nullable(UInt32) COMMENT 'origin AS of the destination address',
    next_hop Nullable(IPv6) COMMENT 'next hop of the route it took',
    bgp_next_hop Nullable(IPv6) COMMENT 'BGP''s next hop of that route',
    nat_src Nullable(IPv6) COMMENT 'source address behind NAT',
    nat_dst Nullable(IPv6) COMMENT 'destination address behind NAT',
    nat_src_port Nullable(UInt16) COMMENT 'source port behind NAT',
    nat_dst_port Nullable(UInt16) COMMENT 'destination port behind NAT',
    reverse_packets Nullable(UInt64) COMMENT 'packets of the opposite direction, if biflows are metered (RFC 5103)',
    reverse_bytes Nullable(UInt64) COMMENT 'bytes of the opposite direction',
    reverse_start Nullable(DateTime64(9, 'UTC')) COMMENT 'arrival of the first packet of the opposite direction',
    reverse_end Nullable(DateTime64(9, 'UTC')) COMMENT 'arrival of the last packet of the opposite direction',
    reverse_tcp_flags Nullable(UInt8) COMMENT 'union of all TCP flags of the opposite direction',
    reverse_ttl_min Nullable(UInt8) COMMENT 'smallest TTL of the opposite direction',
    reverse_ttl_max Nullable(UInt8) COMMENT 'largest TTL of the opposite direction',
    dropped_bytes UInt64 COMMENT 'bytes of the packets that the router dropped',
    dropped_packets UInt64 COMMENT 'packets among the counted ones that the router dropped',
    drop_reason_1 LowCardinality(Nullable(String)) COMMENT 'first reason of dropping',
    drop_packets_1 Nullable(UInt32) COMMENT 'packets dropped for it',
    drop_reason_2 LowCardinality(Nullable(String)) COMMENT 'second reason',
    drop_packets_2 Nullable(UInt32) COMMENT 'packets dropped for it',
    drop_reason_3 LowCardinality(Nullable(String)) COMMENT 'third reason',
    drop_packets_3 Nullable(UInt32) COMMENT 'packets dropped for it; what is left of dropped_packets has other reasons',
    sampling_interval Nullable(UInt32) COMMENT 'sampling interval: one packet in N was metered; 1 is all',
    icmp_type Nullable(UInt8) COMMENT 'type of ICMP or ICMPv6',
    icmp_code Nullable(UInt8) COMMENT 'code of ICMP or ICMPv6',
    exporter LowCardinality(Nullable(String)) COMMENT 'who metered it: the exporter''s name by configuration, else its address',
    exporter_address Nullable(IPv6) COMMENT 'address that the exporter sent from; a meter of this program has none',
    exporter_domain Nullable(UInt32) COMMENT 'its observation domain (IPFIX), source identifier (NetFlow 9) or engine (NetFlow 5)',
    ingress_name LowCardinality(Nullable(String)) COMMENT 'name of the ingress interface when the record was made',
    egress_name LowCardinality(Nullable(String)) COMMENT 'name of the egress interface',
    ingress_description LowCardinality(Nullable(String)) COMMENT 'description of the ingress interface, for people',
    egress_description LowCardinality(Nullable(String)) COMMENT 'description of the egress interface',
    src_prefix_length Nullable(UInt8) COMMENT 'bits of the route''s prefix that covers the source',
    dst_prefix_length Nullable(UInt8) COMMENT 'bits of the route''s prefix that covers the destination',
    ingress_vrf Nullable(UInt32) COMMENT 'number of the VRF it came in by',
    egress_vrf Nullable(UInt32) COMMENT 'number of the VRF it left by',
    direction LowCardinality(Nullable(String)) COMMENT 'ingress, egress: where it was metered',
    src_mac Nullable(String) COMMENT 'source MAC address',
    dst_mac Nullable(String) COMMENT 'destination MAC address',
    event LowCardinality(Nullable(String)) COMMENT 'what a record without packets tells, of NAT or a firewall',
    nat_block_end Nullable(UInt16) COMMENT 'last port of a block that NAT gave a host; nat_src_port is its first',
    server_name Nullable(String) COMMENT 'name of the server that the client asked for, in TLS, QUIC or HTTP',
    alpn Nullable(String) COMMENT 'application protocols that the client offered in TLS or QUIC, best first, with commas between',
    dns_question Nullable(String) COMMENT 'name that was asked for in DNS',
    dns_type Nullable(UInt16) COMMENT 'type of that question: 1 A, 28 AAAA, 65 HTTPS',
    dns_code Nullable(UInt8) COMMENT 'code of the response: 0 no error, 3 no such name',
    dns_answers Nullable(String) COMMENT 'addresses and aliases in the response, in order, with commas between, as many as fit into 127 bytes',
    resolved_name Nullable(String) COMMENT 'name that an earlier DNS response gave for one of the addresses, to the client if it was seen',
    ja4 Nullable(String) COMMENT 'JA4 fingerprint of the client''s hello in TLS or QUIC',
    next_as Nullable(UInt32) COMMENT 'AS that packets go to next, on BGP''s path to the destination',
    src_country LowCardinality(Nullable(String)) COMMENT 'country of the source, as a database of the user''s says',
    dst_country LowCardinality(Nullable(String)) COMMENT 'country of the destination',
    src_net LowCardinality(Nullable(String)) COMMENT 'name of the network that the source is in, from a list of the user''s',
    dst_net LowCardinality(Nullable(String)) COMMENT 'name of the network that the destination is in',
    scaled_packets UInt64 COMMENT 'packets of both directions, times the sampling interval where that is known',
    scaled_bytes UInt64 COMMENT 'bytes likewise',
    community_id Nullable(String) COMMENT 'community ID, version 1, seed 0: what other programs call the flow; only if asked for'
)
ENGINE = MergeTree
PARTITION BY toDate(flow_end)
ORDER BY (toStartOfHour(flow_end), exporter, dst, src, flow_end)
TTL toDateTime(flow_end) + INTERVAL 30 DAY
SETTINGS allow_nullable_key = 1, non_replicated_deduplication_window = 1000;

-- Rollups: sums of packets and bytes of both directions, times the sampling interval; for a minute by AS and application,
-- for an hour by hosts. Sum them again when asking: rows of a key are joined later.
CREATE TABLE IF NOT EXISTS flows_by_minute
(
    minute DateTime('UTC'),
    exporter LowCardinality(String),
    application LowCardinality(String),
    protocol UInt8,
    src_as UInt32,
    dst_as UInt32,
    flows UInt64,
    packets UInt64,
    bytes UInt64
)
ENGINE = SummingMergeTree((flows, packets, bytes))
PARTITION BY toYYYYMM(minute)
ORDER BY (minute, exporter, application, protocol, src_as, dst_as)
TTL minute + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS flows_to_minutes TO flows_by_minute AS
SELECT
    toStartOfMinute(flow_end) AS minute,
    ifNull(flows.exporter, '') AS exporter,
    ifNull(flows.application, '') AS application,
    protocol,
    ifNull(flows.src_as, 0) AS src_as,
    ifNull(flows.dst_as, 0) AS dst_as,
    count() AS flows,
    sum(scaled_packets) AS packets,
    sum(scaled_bytes) AS bytes
FROM flows
WHERE event IS NULL
GROUP BY minute, exporter, application, protocol, src_as, dst_as;

CREATE TABLE IF NOT EXISTS flows_by_hour
(
    hour DateTime('UTC'),
    exporter LowCardinality(String),
    src IPv6,
    dst IPv6,
    flows UInt64,
    packets UInt64,
    bytes UInt64
)
ENGINE = SummingMergeTree((flows, packets, bytes))
PARTITION BY toYYYYMM(hour)
ORDER BY (hour, exporter, dst, src)
TTL hour + INTERVAL 1 YEAR
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS flows_to_hours TO flows_by_hour AS
SELECT
    toStartOfHour(flow_end) AS hour,
    ifNull(flows.exporter, '') AS exporter,
    src,
    dst,
    count() AS flows,
    sum(scaled_packets) AS packets,
    sum(scaled_bytes) AS bytes
FROM flows
WHERE event IS NULL
GROUP BY hour, exporter, src, dst;

-- From Kafka, for `kafka://BROKER/flows?format=protobuf`. Put crates/probe/proto/flow_record.proto into the server's
-- format_schema_path, and name your brokers here. A server that dies may insert what it read last again. With a Keeper it
-- does not: before these statements say `SET allow_kafka_offsets_storage_in_keeper = 1` (of 26.9; before, the name was
-- `allow_experimental_kafka_offsets_storage_in_keeper`), and add two settings below:
--     kafka_keeper_path = '/clickhouse/flows_from_kafka', kafka_replica_name = 'one'
-- Then the server reads the same block again, and the tables above drop what they have.
CREATE FUNCTION IF NOT EXISTS thalweg_address AS (bytes) -> CAST(
    toFixedString(if(length(bytes) = 4, concat(unhex('00000000000000000000FFFF'), bytes), bytes), 16),
    if(isNullable(bytes), 'Nullable(IPv6)', 'IPv6'));

CREATE TABLE IF NOT EXISTS flows_from_kafka
(
    flow_end UInt64,
    flow_start UInt64,
    src String,
    dst String,
    src_port UInt16,
    dst_port UInt16,
    protocol UInt8,
    packets UInt64,
    bytes UInt64,
    tcp_flags Nullable(UInt8),
    traffic_class UInt8,
    ttl_min Nullable(UInt8),
    ttl_max Nullable(UInt8),
    end_reason Nullable(String),
    application Nullable(String),
    ingress Nullable(UInt32),
    egress Nullable(UInt32),
    vlan Nullable(UInt16),
    mpls_label Nullable(UInt32),
    src_as Nullable(UInt32),
    dst_as Nullable(UInt32),
    next_hop Nullable(String),
    bgp_next_hop Nullable(String),
    nat_src Nullable(String),
    nat_dst Nullable(String),
    nat_src_port Nullable(UInt16),
    nat_dst_port Nullable(UInt16),
    reverse_packets Nullable(UInt64),
    reverse_bytes Nullable(UInt64),
    reverse_start Nullable(UInt64),
    reverse_end Nullable(UInt64),
    reverse_tcp_flags Nullable(UInt8),
    reverse_ttl_min Nullable(UInt8),
    reverse_ttl_max Nullable(UInt8),
    dropped_bytes UInt64,
    dropped_packets UInt64,
    drop_reason_1 Nullable(String),
    drop_packets_1 Nullable(UInt32),
    drop_reason_2 Nullable(String),
    drop_packets_2 Nullable(UInt32),
    drop_reason_3 Nullable(String),
    drop_packets_3 Nullable(UInt32),
    sampling_interval Nullable(UInt32),
    icmp_type Nullable(UInt8),
    icmp_code Nullable(UInt8),
    exporter Nullable(String),
    exporter_address Nullable(String),
    exporter_domain Nullable(UInt32),
    ingress_name Nullable(String),
    egress_name Nullable(String),
    ingress_description Nullable(String),
    egress_description Nullable(String),
    src_prefix_length Nullable(UInt8),
    dst_prefix_length Nullable(UInt8),
    ingress_vrf Nullable(UInt32),
    egress_vrf Nullable(UInt32),
    direction Nullable(String),
    src_mac Nullable(String),
    dst_mac Nullable(String),
    event Nullable(String),
    nat_block_end Nullable(UInt16),
    server_name Nullable(String),
    alpn Nullable(String),
    dns_question Nullable(String),
    dns_type Nullable(UInt16),
    dns_code Nullable(UInt8),
    dns_answers Nullable(String),
    resolved_name Nullable(String),
    ja4 Nullable(String),
    next_as Nullable(UInt32),
    src_country Nullable(String),
    dst_country Nullable(String),
    src_net Nullable(String),
    dst_net Nullable(String),
    scaled_packets UInt64,
    scaled_bytes UInt64,
    community_id Nullable(String)
)
ENGINE = Kafka
SETTINGS
    kafka_broker_list = 'localhost:9092',
    kafka_topic_list = 'flows',
    kafka_group_name = 'clickhouse',
    kafka_format = 'ProtobufSingle',
    kafka_schema = 'flow_record:FlowRecord',
    kafka_num_consumers = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS flows_of_kafka TO flows AS
SELECT
    fromUnixTimestamp64Nano(toInt64(flow_end), 'UTC') AS flow_end,
    fromUnixTimestamp64Nano(toInt64(flow_start), 'UTC') AS flow_start,
    thalweg_address(src) AS src,
    thalweg_address(dst) AS dst,
    src_port,
    dst_port,
    protocol,
    packets,
    bytes,
    tcp_flags,
    traffic_class,
    ttl_min,
    ttl_max,
    end_reason,
    application,
    ingress,
    egress,
    vlan,
    mpls_label,
    src_as,
    dst_as,
    thalweg_address(next_hop) AS next_hop,
    thalweg_address(bgp_next_hop) AS bgp_next_hop,
    thalweg_address(nat_src) AS nat_src,
    thalweg_address(nat_dst) AS nat_dst,
    nat_src_port,
    nat_dst_port,
    reverse_packets,
    reverse_bytes,
    fromUnixTimestamp64Nano(toInt64(reverse_start), 'UTC') AS reverse_start,
    fromUnixTimestamp64Nano(toInt64(reverse_end), 'UTC') AS reverse_end,
    reverse_tcp_flags,
    reverse_ttl_min,
    reverse_ttl_max,
    dropped_bytes,
    dropped_packets,
    drop_reason_1,
    drop_packets_1,
    drop_reason_2,
    drop_packets_2,
    drop_reason_3,
    drop_packets_3,
    sampling_interval,
    icmp_type,
    icmp_code,
    exporter,
    thalweg_address(exporter_address) AS exporter_address,
    exporter_domain,
    ingress_name,
    egress_name,
    ingress_description,
    egress_description,
    src_prefix_length,
    dst_prefix_length,
    ingress_vrf,
    egress_vrf,
    direction,
    src_mac,
    dst_mac,
    event,
    nat_block_end,
    server_name,
    alpn,
    dns_question,
    dns_type,
    dns_code,
    dns_answers,
    resolved_name,
    ja4,
    next_as,
    src_country,
    dst_country,
    src_net,
    dst_net,
    scaled_packets,
    scaled_bytes,
    community_id
FROM flows_from_kafka;
