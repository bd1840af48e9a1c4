"""Asks an engine about a dataset, as its users would: ENGINE FOLDER. One line for each question, values with | between.

`pyiceberg` and `duckdb_iceberg` read the dataset's Iceberg table.

Times are compared in microseconds since the epoch, which every engine has; the rest of a time is a column of its own.
"""

import sys

TELNET = "src = '10.0.0.7' and application = 'telnet'"
DROPPED = "drop_reason_1 = 'no-route' and end_reason = 'idle-timeout'"
SECOND_HOUR = "flow_end >= timestamp '2026-11-22 06:00:00' and flow_end < timestamp '2026-11-22 07:00:00'"
PARTITION = "date = '2026-11-22' and hour between 6 and 6"

QUESTIONS = [
    "select count(*), sum(packets), sum(bytes), sum(reverse_bytes), sum(dropped_packets), "
    "count(dst_as), max(dst_as), count(next_hop), count(nat_src) from flows",
    f"select count(*), sum(bytes) from flows where {TELNET}",
    f"select count(*) from flows where {DROPPED}",
    f"select count(*) from flows where {SECOND_HOUR}",
    f"select count(*) from flows where {PARTITION}",
    "select {micros}(min(flow_end)), {micros}(max(flow_start)), sum(flow_end_ns), sum(flow_start_ns) from flows",
]


def tell(row):
    # A sum of nothing is NULL to some.
    print("|".join(str(0 if value is None else value) for value in row))


def duckdb(folder):
    import duckdb as engine

    engine.sql("set TimeZone = 'UTC'")
    engine.sql(f"create view flows as from read_parquet('{folder}/**/*.parquet', hive_partitioning = true)")
    for question in QUESTIONS:
        tell(engine.sql(question.format(micros="epoch_us")).fetchall()[0])


def duckdb_iceberg(folder):
    import glob

    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    engine = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for extension in duckdb_extension_avro, duckdb_extension_iceberg:
        file = glob.glob(f"{list(extension.__path__)[0]}/**/*.duckdb_extension", recursive=True)[0]
        engine.sql(f"load '{file}'")
    engine.sql("set TimeZone = 'UTC'")
    engine.sql(f"create view flows as from iceberg_scan('{folder}/.iceberg')")
    for question in QUESTIONS:
        # Folders are no columns of this table.
        question = question.format(micros="epoch_us").replace(PARTITION, SECOND_HOUR)
        tell(engine.sql(question).fetchall()[0])


def chdb(folder):
    from chdb import session

    engine = session.Session()
    engine.query(f"create view flows as select * from file('{folder}/**/*.parquet', Parquet)")
    for question in QUESTIONS:
        # Its `timestamp '..'` has no zone.
        question = question.format(micros="toUnixTimestamp64Micro").replace("timestamp '", "toDateTime64('")
        question = question.replace(":00' and", ":00', 6, 'UTC') and").replace("07:00:00'", "07:00:00', 6, 'UTC')")
        print(str(engine.query(question, "TSV")).strip().replace("\t", "|"))


def pyspark(folder):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    engine = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    engine.read.parquet(folder).createOrReplaceTempView("flows")
    for question in QUESTIONS:
        tell(engine.sql(question.format(micros="unix_micros")).collect()[0])


def pandas(folder):
    import pandas as engine

    flows = engine.read_parquet(folder)
    second_hour = flows[(flows.date == "2026-11-22") & (flows.hour.astype(int) == 6)]
    tell_frame(engine, flows, len(second_hour))


def pyiceberg(folder):
    import pandas as engine
    from pyiceberg.table import StaticTable

    with open(f"{folder}/.iceberg/metadata/version-hint.text") as hint:
        table = StaticTable.from_metadata(f"{folder}/.iceberg/metadata/v{hint.read()}.metadata.json")
    hour = "flow_end >= '2026-11-22T06:00:00+00:00' and flow_end < '2026-11-22T07:00:00+00:00'"
    tell_frame(engine, table.scan().to_pandas(), len(table.scan(hour).to_arrow()))
    # What the table lets an engine leave out: files of other hours, and files that cannot have such an address.
    planned = [table.scan(row_filter).plan_files() for row_filter in ("true", hour, "src = '99.0.0.1'")]
    tell([len(list(files)) for files in planned])
    tell(snapshot.summary.operation.value for snapshot in table.snapshots())


def tell_frame(engine, flows, second_hour):
    known = ["dst_as", "next_hop", "nat_src"]
    sums = [int(flows[name].sum()) for name in ["packets", "bytes", "reverse_bytes", "dropped_packets"]]
    count = flows[known].count()
    tell([len(flows), *sums, count.dst_as, int(flows.dst_as.fillna(0).max()), count.next_hop, count.nat_src])
    telnet = flows[(flows.src == "10.0.0.7") & (flows.application == "telnet")]
    tell([len(telnet), telnet.bytes.sum()])
    tell([len(flows[(flows.drop_reason_1 == "no-route") & (flows.end_reason == "idle-timeout")])])
    time = [engine.Timestamp(f"2026-11-22 0{hour}:00:00", tz="UTC") for hour in (6, 7)]
    tell([len(flows[(flows.flow_end >= time[0]) & (flows.flow_end < time[1])])])
    tell([second_hour])
    micros = [int(time.value) // 1000 for time in (flows.flow_end.min(), flows.flow_start.max())]
    tell([*micros, flows.flow_end_ns.sum(), flows.flow_start_ns.sum()])


globals()[sys.argv[1]](sys.argv[2])
