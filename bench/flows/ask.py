#!/usr/bin/env python3
"""`thalweg flows` and DuckDB asked the same about the same dataset; equal answers are required.

    cargo bench -p thalweg-store -- make 50000000 /var/tmp     # makes /var/tmp/thalweg-flows-50000000
    bench/flows/ask.py /var/tmp/thalweg-flows-50000000 [--times 5] [--thalweg target/release/thalweg | --bench BINARY] [--columns]

Needs a Python with `duckdb`. Both use all cores, in turns, warm. A time of ours is that of a whole process; one of
DuckDB is that of the query alone, in a process that has loaded it, on a new connection. `--columns` prints the bytes a
record of each column instead.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import duckdb

SUMS = "sum(packets)::BIGINT, sum(bytes)::BIGINT, count(*)"
# Keys of `flows top`, its filter, the condition in SQL.
QUESTIONS = [
    ("proto", "", ""),
    ("app", "", ""),
    ("dst-port", "", ""),
    ("src", "", ""),
    ("dst", "", ""),
    ("dst-as", "", ""),
    ("src,dst-port", "", ""),
    ("src,dst", "", ""),
    ("src", "dst port 53 and packets > 10", "dst_port = 53 AND packets > 10"),
    ("src", "dst port 5000", "dst_port = 5000"),
    ("src", "dst 10.0.0.1", "dst = '10.0.0.1'"),
    ("dst", "src 10.0.0.77", "src = '10.0.0.77'"),
    ("dst-port", "src 10.1.200.77", "src = '10.1.200.77'"),
    ("src", "bytes > 1M", "bytes > 1000000"),
]
NAMES = {"proto": "protocol", "app": "application"}


def ours(arguments, keys, condition):
    command = [arguments.thalweg, "flows", "--data", arguments.data, "--no-live", "--format", "json", "top", keys, "-n", "10"]
    if arguments.bench:
        command = [arguments.bench, "top", arguments.data, keys]
    begun = time.monotonic()
    output = subprocess.run(command + ([condition] if condition else []), capture_output=True, text=True)
    took = time.monotonic() - begun
    if output.returncode != 0:
        sys.exit(f"{' '.join(command)} {condition}: {output.stderr}")
    rows = json.loads(output.stdout)["rows"]
    values = [[row[key.replace("-", "_")] for key in keys.split(",")] for row in rows]
    return took, [tuple(value) + (row["packets"], row["bytes"], row["flows"]) for value, row in zip(values, rows)]


def theirs(arguments, keys, condition):
    columns = ", ".join(NAMES.get(key, key.replace("-", "_")) for key in keys.split(","))
    files = f"read_parquet('{arguments.data}/**/*.parquet')"
    where = f"WHERE {condition}" if condition else ""
    sql = f"SELECT {columns}, {SUMS} FROM {files} {where} GROUP BY ALL ORDER BY sum(bytes) DESC, {columns} LIMIT 10"
    connection = duckdb.connect()
    begun = time.monotonic()
    rows = connection.execute(sql).fetchall()
    took = time.monotonic() - begun
    connection.close()
    return took, rows


def shown(times):
    return f"{statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})"


def columns(arguments):
    files = f"'{arguments.data}/**/*.parquet'"
    sql = f"""SELECT path_in_schema, first(encodings), first(compression), sum(total_compressed_size) AS bytes,
        sum(num_values) AS records FROM parquet_metadata({files}) GROUP BY 1 ORDER BY bytes DESC"""
    rows = duckdb.sql(sql).fetchall()
    for name, encodings, compression, size, records in rows:
        print(f"{name:24} {size / records:8.3f}  {encodings}, {compression}")
    print(f"{'all columns':24} {sum(row[3] for row in rows) / rows[0][4]:8.3f}")
    size = sum(path.stat().st_size for path in Path(arguments.data).rglob("*.parquet"))
    print(f"{'files':24} {size / rows[0][4]:8.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--thalweg", default="target/release/thalweg")
    parser.add_argument("--bench", help="ask through this build of `cargo bench -p thalweg-store` instead")
    parser.add_argument("--columns", action="store_true")
    arguments = parser.parse_args()
    if arguments.columns:
        return columns(arguments)
    print(f"{'top':14} {'filter':30} {'thalweg, s':>24} {'DuckDB ' + duckdb.__version__ + ', s':>24}")
    for keys, condition, where in QUESTIONS:
        times = ([], [])
        for _ in range(arguments.times):
            answers = []
            for ask, condition_of, list_of in ((ours, condition, times[0]), (theirs, where, times[1])):
                took, answer = ask(arguments, keys, condition_of)
                list_of.append(took)
                answers.append(answer)
            if answers[0] != answers[1]:
                sys.exit(f"top {keys} {condition}: we say {answers[0]}, DuckDB {answers[1]}")
        print(f"{keys:14} {condition:30} {shown(times[0]):>24} {shown(times[1]):>24}", flush=True)


if __name__ == "__main__":
    main()
