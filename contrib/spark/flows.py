"""Flow records in Apache Spark: a table of a dataset, or a stream of a topic. See docs/scale.md.

    spark-submit contrib/spark/flows.py top /var/lib/thalweg/flows --key src,dst_port --where "date = '2026-11-22'"
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION \\
        contrib/spark/flows.py follow --brokers localhost:9092 --topic flows --to /srv/flows

`follow` takes `kafka://BROKER/TOPIC` (JSON) and writes Parquet files by day and hour, with the columns of a dataset. What
is in a file and what was read of the topic is decided together (the checkpoint, `_spark_metadata`): Spark reads a record
there once, however often the job is killed and started again.
"""

import argparse
import functools
import re
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

FIELDS = Path(__file__).resolve().parents[2] / "crates/probe/proto/flow_record.proto"
TIMES = ["flow_end", "flow_start", "reverse_start", "reverse_end"]


def table(spark, folder):
    """The dataset, of one writer or of several (`DIR/writer-2` ...), as one table."""
    reader = spark.read.option("mergeSchema", "true")
    parts = [part for part in [Path(folder), *sorted(Path(folder).glob("writer-*"))] if any(part.glob("date=*"))]
    if len(parts) < 2:
        return reader.parquet(str(*parts or [folder]))
    # Spark wants one structure below a path, so writers are read apart.
    tables = [reader.option("basePath", str(part)).parquet(f"{part}/date=*") for part in parts]
    return functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), tables)


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


def schema(fields):
    """The fields of a message, by the file that lists them with their types; times are text in JSON."""
    found = re.findall(r"optional (\w+) (\w+) =", fields.read_text())
    kind = lambda name, of: "bigint" if of.startswith("uint") and name not in TIMES else "string"
    return ", ".join(f"{name} {kind(name, of)}" for of, name in found)


def records(messages, fields=FIELDS):
    """Messages of JSON in a column `value` as the columns of a dataset."""
    flow = F.from_json(F.col("value").cast("string"), schema(fields))
    flows = messages.select(flow.alias("flow")).select("flow.*")
    # 2026-11-22T05:00:00.123456789Z: microseconds, and the nanoseconds below.
    times = {name: F.concat(F.substring(name, 1, 26), F.lit("Z")).cast("timestamp") for name in TIMES}
    rests = {f"{name}_ns": F.substring(name, 27, 3).cast("int") for name in TIMES}
    flows = flows.withColumns(rests).withColumns(times)
    return flows.withColumns({"date": F.to_date("flow_end"), "hour": F.hour("flow_end")})


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
    follows.add_argument("--fields", type=Path, default=FIELDS, help="flow_record.proto")
    follows.add_argument("--once", action="store_true", help="what is there now, then end")
    asked = parser.parse_args()
    spark = SparkSession.builder.appName("thalweg-flows").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    if asked.command == "top":
        flows = table(spark, asked.folder)
        top(flows, asked.key.split(","), asked.where, asked.by, asked.n).show(asked.n, truncate=False)
        return
    messages = spark.readStream.format("kafka").option("kafka.bootstrap.servers", asked.brokers)
    messages = messages.option("subscribe", asked.topic).option("startingOffsets", "earliest")
    # A feed sends in transactions: what one that failed had sent is not read.
    messages = messages.option("kafka.isolation.level", "read_committed").load()
    write(records(messages, asked.fields), asked.to, asked.once).awaitTermination()


if __name__ == "__main__":
    main()
