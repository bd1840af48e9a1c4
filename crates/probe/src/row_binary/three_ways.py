"""Loads rows, lines and messages of the same records into the shipped tables of ClickHouse: SQL FOLDER DASHBOARD.

Prints for each way the number of rows, of packets, and of rows that the first way has not; then the records in rollups.
Then asks what the dashboard asks, and prints its questions without an answer, and how many there are.
"""

import json
import re
import sys

from chdb import session

with open(sys.argv[1]) as file:
    lines = [line for line in file.read().splitlines() if not line.startswith("--")]
folder = sys.argv[2]
engine = session.Session()


def ask(question):
    return str(engine.query(question, "TSVRaw")).strip()


def columns(table):
    ours = f"FROM system.columns WHERE table = '{table}' AND database = currentDatabase()"
    listed = f"SELECT concat(name, ' ', type) AS one {ours} ORDER BY position"
    return ask(f"SELECT arrayStringConcat(groupArray(one), ', ') FROM ({listed})").replace("'", "\\'")


for statement in "\n".join(lines).split(";\n"):
    if statement.strip():
        # No broker is asked: a table of the same columns takes the place of the topic.
        before, topic, _ = statement.partition("ENGINE = Kafka")
        ask(before + "ENGINE = Memory" if topic else statement)

ways = {
    "rows": ("RowBinary", "flows", ""),
    "lines": ("JSONEachRow", "flows", "date_time_input_format = 'best_effort'"),
    "messages": ("Protobuf", "flows_from_kafka", f"format_schema = '{folder}/flow_record.proto:FlowRecord'"),
}
for way, (form, table, settings) in ways.items():
    ask(f"CREATE TABLE {way} AS flows ENGINE = Memory")
    source = f"SELECT * FROM file('{folder}/{way}', {form}, '{columns(table)}')"
    # The view puts messages into the table of flows.
    into = way if table == "flows" else table
    ask(f"INSERT INTO {into} {source} {'SETTINGS ' + settings if settings else ''}")
ask("INSERT INTO messages SELECT * FROM flows")
for way in ways:
    others = f"SELECT count() FROM (SELECT * FROM {way} EXCEPT SELECT * FROM rows)"
    print(ask(f"SELECT count(), sum(packets), ({others}) FROM {way}"))
print(ask("SELECT (SELECT sum(flows) FROM flows_by_minute), (SELECT sum(flows) FROM flows_by_hour)"))

macros = [
    (r"\$__timeFilter\((\w+)\)", r"\1 >= now() - 7200 AND \1 <= now() + 7200"),
    (r"\$__timeInterval\((\w+)\)", r"toStartOfInterval(toDateTime(\1), INTERVAL 60 second)"),
    (r"\$__interval_s", "60"),
    (r"\$__fromTime", "(now() - 7200)"),
    (r"\$__toTime", "(now() + 7200)"),
    (r"\$\{exporter:singlequote\}", "'', 'edge1'"),
]
with open(sys.argv[3]) as file:
    board = json.load(file)
questions = {panel["title"]: panel["targets"][0]["rawSql"] for panel in board["panels"] if panel["type"] != "row"}
questions["exporters to choose"] = board["templating"]["list"][1]["query"]
for title, question in questions.items():
    for macro, meaning in macros:
        question = re.sub(macro, meaning, question)
    if "$" in question or not ask(question):
        print("no answer:", title, question)
print(len(questions))
