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
@@columns
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
@@message
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
@@converted
FROM flows_from_kafka;
