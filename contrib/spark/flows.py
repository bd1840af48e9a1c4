"""Flow records in Apache Spark: a table of a dataset, or a stream of a topic. See docs/scale.md.

    spark-submit contrib/spark/flows.py top /var/lib/thalweg/flows --key src,dst_port --where "date = '2026-11-22'"
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION,org.apache.spark:spark-protobuf_2.13:VERSION \\
        contrib/spark/flows.py follow --brokers localhost:9092 --topic flows --to /srv/flows

`follow` takes `kafka://BROKER/TOPIC?format=protobuf` and writes Parquet files by day and hour, with the columns of a
dataset but times in one column each, in microseconds. What is in a file and what was read of the topic is decided
together (`_spark_metadata`, the checkpoint): a record is there once, whenever the job is killed and started again.
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

PROTO = Path(__file__).resolve().parents[2] / "crates/probe/proto/flow_record.proto"
TIMES = ["flow_end", "flow_start", "reverse_start", "reverse_end"]
ADDRESSES = ["src", "dst", "next_hop", "bgp_next_hop", "nat_src", "nat_dst", "exporter_address"]


def table(spark, paths):
    """The dataset, of one writer or of several (`DIR/writer-2` ...), as one table."""
    reader = spark.read.option("mergeSchema", "true")
    tables = [reader.parquet(str(path)) for path in paths]
    flows = tables[0]
    for other in tables[1:]:
        flows = flows.unionByName(other, allowMissingColumns=True)
    return flows


def writers(folder):
    """The folders of a dataset's writers."""
    root = Path(folder)
    parts = [part for part in [root, *sorted(root.glob("writer-*"))] if any(part.glob("date=*"))]
    # Of the first one only the days: further writers' folders are beside them.
    return [part / "date=*" if part == root and len(parts) > 1 else part for part in parts] or [root]


def scaled(flows):
    """Packets and bytes of both directions, times the sampling interval where that is known."""
    times = F.coalesce(F.col("sampling_interval"), F.lit(1))
    both = lambda name: F.col(name) + F.coalesce(F.col(f"reverse_{name}"), F.lit(0))
    return flows.withColumns({f"scaled_{name}": both(name) * times for name in ("packets", "bytes")})


def top(flows, keys, where=None, by="bytes", count=10):
    """The largest keys, as `thalweg flows top` has them."""
    flows = scaled(flows.where(where) if where else flows)
    sums = {"flows": F.count("*"), "packets": F.sum("scaled_packets"), "bytes": F.sum("scaled_bytes")}
    answer = flows.groupBy(*keys).agg(*[value.alias(name) for name, value in sums.items()])
    return answer.orderBy(F.desc(by), *keys).limit(count)


@F.udf("string")
def address(octets):
    """4 or 16 bytes as text."""
    import ipaddress

    return str(ipaddress.ip_address(bytes(octets))) if octets else None


def records(messages, descriptor):
    """Messages of protocol buffers in a column `value` as columns of a dataset."""
    from pyspark.sql.protobuf.functions import from_protobuf

    flows = messages.select(from_protobuf("value", "FlowRecord", descriptor).alias("flow")).select("flow.*")
    # 64 bits without a sign become bigint; nanoseconds microseconds.
    known = lambda name: F.col(name).cast("bigint")
    times = {name: F.timestamp_micros((known(name) / 1000).cast("bigint")) for name in TIMES}
    flows = flows.withColumns(times | {name: address(name) for name in ADDRESSES})
    return flows.withColumns({"date": F.to_date("flow_end"), "hour": F.hour("flow_end")})


def descriptor_of(proto, folder):
    """The schema as Spark wants it; needs protoc."""
    import subprocess

    made = Path(folder) / "flow_record.desc"
    command = ["protoc", f"--proto_path={proto.parent}", f"--descriptor_set_out={made}", proto.name]
    subprocess.run(command, check=True)
    return str(made)


def write(flows, to, once=False):
    """Starts to write a stream by day and hour."""
    writer = flows.writeStream.format("parquet").option("path", to).option("checkpointLocation", f"{to}/_checkpoint")
    writer = writer.partitionBy("date", "hour")
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 minute")
    return writer.start()


def main():
    parser = argparse.ArgumentParser(description="Flow records in Apache Spark")
    commands = parser.add_subparsers(dest="command", required=True)
    asks = commands.add_parser("top")
    asks.add_argument("folder")
    asks.add_argument("--key", default="src")
    asks.add_argument("--where")
    asks.add_argument("--by", default="bytes", choices=["flows", "packets", "bytes"])
    asks.add_argument("-n", type=int, default=10)
    follows = commands.add_parser("follow")
    follows.add_argument("--brokers", required=True)
    follows.add_argument("--topic", default="flows")
    follows.add_argument("--to", required=True)
    follows.add_argument("--proto", type=Path, default=PROTO)
    follows.add_argument("--once", action="store_true", help="what is there now, then end")
    asked = parser.parse_args()
    spark = SparkSession.builder.appName("thalweg-flows").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    if asked.command == "top":
        flows = table(spark, writers(asked.folder))
        top(flows, asked.key.split(","), asked.where, asked.by, asked.n).show(asked.n, truncate=False)
        return
    messages = spark.readStream.format("kafka").option("kafka.bootstrap.servers", asked.brokers)
    messages = messages.option("subscribe", asked.topic).option("startingOffsets", "earliest").load()
    Path(asked.to).mkdir(parents=True, exist_ok=True)
    descriptor = descriptor_of(asked.proto, asked.to)
    write(records(messages, descriptor), asked.to, asked.once).awaitTermination()


if __name__ == "__main__":
    main()
