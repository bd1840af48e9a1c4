#!/usr/bin/env python3
"""Millions of records from a probe into ClickHouse or Spark by Kafka, or into Iceberg by S3, while programs are killed.

    bench/flows/once.py --into clickhouse [--thalweg target/release/thalweg] [--seconds 15] [--python PYTHON] [--jars DIR]
    bench/flows/once.py --into spark
    bench/flows/once.py --into iceberg

A probe meters a made capture again and again, and its dataset goes on by a feed (docs/export.md) or an archive. It is killed
(SIGKILL) five times, and the broker once, or the bucket stands still; then what sends the rest is killed three times. Who
reads the topic is killed too. At the end the other side has to have the dataset's records: as many, all different, with the
same sums. Exit code 1 if not.

For Kafka it needs Java 17, Kafka's and ZooKeeper's jars (`--jars`, else fetched by mvn into a folder of that name), and a
Python with chdb, which has ClickHouse's engine, or with pyspark; for Iceberg a Python with moto, pyiceberg and DuckDB, as the
tests make one (crates/thalweg/tests/flows_archive). All of it runs on loopback, in a temporary folder.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOWS, CAPTURE_S = 200_000, 60
KILLS = 5
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>thalweg</groupId>
<artifactId>once</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.1.0</version></dependency>
<dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>3.9.3</version></dependency>
<dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.2.30</version></dependency>
<dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version></dependency>
</dependencies></project>"""

# Reads the topic into the shipped tables until it is killed; prints what they have, again and again.
CLICKHOUSE = r"""
import re, sys, time
from chdb import session
folder, brokers, topic, root, keeper, expected = sys.argv[1:]
open(folder + "/server.xml", "w").write(
    f"<clickhouse><zookeeper><node><host>127.0.0.1</host><port>{keeper}</port></node></zookeeper></clickhouse>")
engine = session.Session(f"{folder}/clickhouse?config-file={folder}/server.xml")
ask = lambda question: str(engine.query(question, "TSV")).strip()
ask("SET allow_kafka_offsets_storage_in_keeper = 1")
sql = open(root + "/contrib/clickhouse/flows.sql").read()
sql = "\n".join(line for line in sql.splitlines() if not line.startswith("--"))
sql = sql.replace("'localhost:9092'", f"'{brokers}'").replace("kafka_topic_list = 'flows'", f"kafka_topic_list = '{topic}'")
sql = sql.replace("'flow_record:FlowRecord'", f"'{root}/crates/probe/proto/flow_record.proto:FlowRecord'")
sql = sql.replace("kafka_num_consumers = 1", "kafka_num_consumers = 1, kafka_flush_interval_ms = 1000, "
                  "kafka_keeper_path = '/clickhouse/flows_from_kafka', kafka_replica_name = 'one'")
sql = re.sub(r"\nTTL [^\n]*", "", sql)
for statement in sql.split(";\n"):
    if statement.strip():
        ask(statement)
last, still = None, 0
while True:
    now = ask("SELECT count(), sum(packets), sum(bytes), (SELECT sum(flows) FROM flows_by_minute), "
              "(SELECT sum(bytes) FROM flows_by_hour) FROM flows")
    print(now, flush=True)
    still = still + 1 if now == last else 0
    last = now
    # A little longer when all of it is there: nothing may come twice. A block can take long on a busy machine.
    if still == (15 if int(now.split()[0]) >= int(expected) else 120):
        print("different", ask("SELECT uniqExact(flow_start, flow_end, src, dst, src_port, dst_port) FROM flows"), flush=True)
        break
    time.sleep(1)
"""

SPARK = r"""
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false").getOrCreate()
flows = spark.read.parquet(sys.argv[1])
key = ["flow_start", "flow_start_ns", "flow_end", "flow_end_ns", "src", "dst", "src_port", "dst_port"]
row = flows.agg(F.count("*"), F.sum("packets"), F.sum("bytes")).collect()[0]
print("sums", *row, flows.select(*key).distinct().count())
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def capture(path, run):
    """A packet of each of many flows, over a minute; each run of the probe has flows of its own."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1))
        for number in range(FLOWS):
            at_us = number * CAPTURE_S * 1_000_000 // FLOWS
            udp = struct.pack(">HHHH", 1024 + number % 60_000, 53, 8 + 34, 0) + bytes(34)
            src, dst = 0x0A000000 + (run << 20) + number, 0xC0000200 + number % 251
            ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(udp), number & 0xFFFF, 0, 64, 17, 0, src, dst)
            frame = bytes(12) + b"\x08\x00" + ip + udp
            file.write(struct.pack("<IIII", 1_795_323_600 + at_us // 1_000_000, at_us % 1_000_000, len(frame), len(frame)))
            file.write(frame)


class Servers:
    """A broker and a keeper, each a process that can be killed and started again."""

    def __init__(self, folder, jars):
        self.folder, self.jars = folder, jars
        self.port, self.keeper, controller = free_port(), free_port(), free_port()
        self.processes = {}
        (folder / "broker.properties").write_text(f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/kafka
num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
""")
        (folder / "zoo.cfg").write_text(
            f"tickTime=500\ndataDir={folder}/keeper\nclientPort={self.keeper}\nadmin.enableServer=false\n"
        )
        formats = ["format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(folder / "broker.properties")]
        subprocess.run([*self.java("kafka.tools.StorageTool"), *formats], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def java(self, name, memory="512m"):
        return ["java", f"-Xmx{memory}", "-XX:+UseSerialGC", "-cp", f"{self.jars}/*", name]

    def start(self, name):
        what = {"broker": ("kafka.Kafka", "broker.properties", self.port),
                "keeper": ("org.apache.zookeeper.server.ZooKeeperServerMain", "zoo.cfg", self.keeper)}  # fmt: skip
        program, configuration, port = what[name]
        log = open(self.folder / f"{name}.log", "ab")
        command = [*self.java(program), str(self.folder / configuration)]
        self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                if self.processes[name].poll() is not None:
                    sys.exit(f"the {name} ended: see {log.name}")
                time.sleep(0.1)
        sys.exit(f"the {name} does not answer")

    def kill(self, name):
        process = self.processes.pop(name)
        process.kill()
        process.wait()


def kill_group(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def meter(options, folder, sends, down, up):
    """Runs the probe and kills it, again and again, then what sends the rest; returns what the dataset has."""
    dataset, chance = str(folder / "flows"), random.Random(1)
    began = time.time()
    for number in range(KILLS):
        capture(folder / "capture.pcap", number)
        command = [options.thalweg, "probe", str(folder / "capture.pcap"), "--loop", "1000000", "--rate", str(options.rate)]
        command += ["--store", dataset, *sends]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lasts = options.seconds / KILLS * (0.5 + chance.random())
        if number == 2:
            time.sleep(lasts / 2)
            down()
            time.sleep(lasts / 4)
            up()
        time.sleep(lasts)
        if process.poll() is not None:
            sys.exit("the probe ended by itself")
        process.kill()
        process.wait()
    metered = time.time()
    rest = [options.thalweg, "flows", "--data", dataset, "compact", *sends, "--format", "json"]
    killed = 0
    for _ in range(3):
        process = subprocess.Popen(rest, stdout=subprocess.DEVNULL)
        time.sleep(0.05 + 0.5 * chance.random())
        process.kill()
        killed += process.wait() != 0
    last = time.time()
    answer = json.loads(subprocess.run(rest, check=True, capture_output=True).stdout)
    took, sent = time.time() - last, answer["records_fed"] + answer["records_archived"]
    print(f"the probe was killed {KILLS} times in {metered - began:.0f} s, what sent the rest {killed} times; the last of it: "
          f"{sent:,} records in {took:.1f} s", flush=True)  # fmt: skip
    ask = [options.thalweg, "flows", "--data", dataset, "top", "proto", "--format", "json"]
    total = json.loads(subprocess.run(ask, check=True, capture_output=True).stdout)["total"]
    return int(total["flows"]), int(total["packets"]), int(total["bytes"])


def clickhouse(options, servers, folder, topic, expected):
    """Reads while the probe runs, killed now and then; returns a function that waits for the end."""
    command = [options.python, "-c", CLICKHOUSE, str(folder), f"127.0.0.1:{servers.port}", topic, str(ROOT), str(servers.keeper), str(expected)]
    chance, told = random.Random(2), []
    for number in range(KILLS + 1):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        began, lasts = time.time(), 6 + 6 * chance.random()
        seen, different = [], None
        for line in process.stdout:
            if line.startswith("different"):
                different = int(line.split()[1])
                break
            seen = [int(word) for word in line.split()]
            if number < KILLS and time.time() - began > lasts and seen[0] > 0:
                break
        kill_group(process)
        told.append(f"{seen[0]:,}" if seen else "-")
    print(f"ClickHouse was killed {KILLS} times, with so many records: {', '.join(told)}", flush=True)
    flows, packets, octets, by_minute, by_hour = seen
    return (flows, packets, octets), different, {"flows in flows_by_minute": (by_minute, flows), "bytes in flows_by_hour": (by_hour, octets)}


def spark(options, servers, folder, topic, _expected):
    submit = str(Path(options.python).parent / "spark-submit")
    follow = [submit, "--packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", "--conf", "spark.ui.enabled=false",
              "--conf", "spark.driver.memory=4g", str(ROOT / "contrib/spark/flows.py"), "follow", "--brokers",
              f"127.0.0.1:{servers.port}", "--topic", topic, "--to", str(folder / "spark"), "--once"]  # fmt: skip
    log = open(folder / "spark.log", "ab")
    environment = {**os.environ, "PYSPARK_PYTHON": options.python}
    killed = 0
    for _ in range(2):
        process = subprocess.Popen(follow, stdout=log, stderr=log, start_new_session=True, env=environment)
        # In the middle of writing.
        while process.poll() is None and len(list((folder / "spark").glob("date=*/hour=*/*.parquet"))) <= killed:
            time.sleep(0.02)
        if process.poll() is None:
            kill_group(process)
            killed += 1
    subprocess.run(follow, check=True, stdout=log, stderr=log, env=environment)
    files = len(list((folder / "spark").glob("date=*/hour=*/*.parquet")))
    print(f"Spark was killed {killed} times while it wrote; {files} files are there", flush=True)
    asks = [options.python, "-c", SPARK, str(folder / "spark")]
    answer = subprocess.run(asks, check=True, capture_output=True, text=True, env=environment).stdout
    flows, packets, octets, different = map(int, re.search(r"sums (\d+) (\d+) (\d+) (\d+)", answer).groups())
    return (flows, packets, octets), different, {}


def iceberg(options, folder):
    """The store and the engines are those of the tests."""
    program = ROOT / "crates/thalweg/tests/flows_archive/tables.py"
    engines = subprocess.Popen([options.python, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = int(engines.stdout.readline())
        os.environ.update(AWS_ACCESS_KEY_ID="test-key", AWS_SECRET_ACCESS_KEY="test/secret+key")
        sends = ["--archive", f"s3://flows/site/edge1?endpoint=http://127.0.0.1:{port}", "--iceberg"]
        down, up = (lambda to=to: engines.send_signal(to) for to in (signal.SIGSTOP, signal.SIGCONT))
        flows, _, octets = meter(options, folder, sends, down, up)
        engines.stdin.write(f"{port} site/edge1\n")
        engines.stdin.flush()
        rows = []
        for _ in range(2):
            name, records, total, _ = engines.stdout.readline().split()
            rows += [(f"records ({name})", flows, int(records)), (f"bytes ({name})", octets, int(total))]
        return rows
    finally:
        engines.kill()
        engines.wait()


def kafka(options, folder):
    if not options.jars.is_dir():
        (folder / "pom.xml").write_text(POM)
        copy = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*copy, f"-DoutputDirectory={options.jars}"], check=True)
    servers = Servers(folder, options.jars)
    try:
        for name in ["keeper", "broker"]:
            servers.start(name)
        form = "protobuf" if options.into == "clickhouse" else "json"
        sends = ["--feed", f"kafka://127.0.0.1:{servers.port}/flows?format={form}"]
        down, up = lambda: servers.kill("broker"), lambda: servers.start("broker")
        expected = meter(options, folder, sends, down, up)
        read = clickhouse if options.into == "clickhouse" else spark
        found, different, sums = read(options, servers, folder, "flows", expected[0])
    finally:
        for name in list(servers.processes):
            servers.kill(name)
    rows = list(zip(["records", "packets", "bytes"], expected, found)) + [("different records", expected[0], different)]
    return rows + [(name, wanted, value) for name, (value, wanted) in sums.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", choices=["clickhouse", "spark", "iceberg"], required=True)
    parser.add_argument("--thalweg", default=str(ROOT / "target/release/thalweg"))
    parser.add_argument("--seconds", type=float, default=15, help="for how long the probe runs in all")
    parser.add_argument("--rate", type=int, default=200_000, help="packets a second, each of a new flow")
    parser.add_argument("--python", default=sys.executable, help="a Python with what is asked")
    parser.add_argument("--jars", type=Path, default=Path(tempfile.gettempdir()) / "thalweg-kafka-zookeeper")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="thalweg-once-"))
    rows = iceberg(options, folder) if options.into == "iceberg" else kafka(options, folder)
    shutil.rmtree(folder)
    print(f"{'':26}{'dataset':>16}{options.into:>16}")
    for name, one, other in rows:
        print(f"{name:26}{one:>16,}{other:>16,}{'' if one == other else '   DIFFERENT'}")
    return int(any(one != other for _, one, other in rows))


if __name__ == "__main__":
    sys.exit(main())
