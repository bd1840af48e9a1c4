"""A store of others, moto, and engines that read the Iceberg table of a bucket: prints the port, and then, after each line
with an endpoint, a line for each engine: its name, records, bytes, and records that end in the second hour.

A line is `PORT PREFIX`; the store may be another one than moto.
"""

import glob
import logging
import sys

import boto3
import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg
import pyarrow.compute as compute
from moto.server import ThreadedMotoServer
from pyarrow import fs
from pyiceberg.table import StaticTable

KEY, SECRET = "test-key", "test/secret+key"


def pyiceberg(port, table):
    bucket = fs.S3FileSystem(access_key=KEY, secret_key=SECRET, scheme="http", region="us-east-1",
                             endpoint_override=f"127.0.0.1:{port}")
    with bucket.open_input_stream(f"{table}/metadata/version-hint.text") as hint:
        version = hint.read().decode()
    properties = {"s3.endpoint": f"http://127.0.0.1:{port}", "s3.access-key-id": KEY,
                  "s3.secret-access-key": SECRET, "s3.region": "us-east-1",
                  "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    flows = StaticTable.from_metadata(f"s3://{table}/metadata/v{version}.metadata.json", properties)
    hour = "flow_end >= '2026-11-22T06:00:00+00:00' and flow_end < '2026-11-22T07:00:00+00:00'"
    all_of_it = flows.scan(selected_fields=("bytes",)).to_arrow()
    second = flows.scan(hour, selected_fields=("bytes",)).to_arrow()
    return all_of_it.num_rows, compute.sum(all_of_it["bytes"]).as_py() or 0, second.num_rows


def duck(port, table):
    engine = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for extension in duckdb_extension_httpfs, duckdb_extension_avro, duckdb_extension_iceberg:
        file = glob.glob(f"{list(extension.__path__)[0]}/**/*.duckdb_extension", recursive=True)[0]
        engine.sql(f"load '{file}'")
    engine.sql(f"create secret (type s3, key_id '{KEY}', secret '{SECRET}', region 'us-east-1', use_ssl false, "
               f"endpoint '127.0.0.1:{port}', url_style 'path')")
    engine.sql("set TimeZone = 'UTC'")
    hour = "flow_end >= timestamp '2026-11-22 06:00:00' and flow_end < timestamp '2026-11-22 07:00:00'"
    question = f"select count(*), sum(bytes), count(*) filter ({hour}) from iceberg_scan('s3://{table}')"
    records, total, second = engine.sql(question).fetchone()
    return records, int(total or 0), second


logging.getLogger("werkzeug").setLevel(logging.ERROR)
moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
moto.start()
_, port = moto.get_host_and_port()
boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id=KEY, aws_secret_access_key=SECRET,
             region_name="us-east-1").create_bucket(Bucket="flows")
print(port, flush=True)
for line in sys.stdin:
    place, prefix = line.split()
    for name, ask in ("pyiceberg", pyiceberg), ("duckdb", duck):
        print(name, *ask(place, f"flows/{prefix}/.iceberg"), flush=True)
