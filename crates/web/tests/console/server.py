#!/usr/bin/env python3
"""Serves the console with recorded answers instead of a router, for tests and screenshots.

    server.py [--port N] [--moving] [--token] [--bare]

Prints its port and serves until its standard input ends. An answer is the file of its path in tests/fixtures; of a
name in the path `any.json`; with `?key=`, the file whose name ends with `@KEY`. --moving: counters grow, and a stream
begins with five minutes of reports. --token: nobody may read before a token, which may be any, is sent.
--bare: the router has nothing optional: lists are empty, and everything else is absent.
"""

import argparse
import functools
import json
import math
import sys
import threading
import time
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

WEB = Path(__file__).resolve().parent.parent.parent
FIXTURES = WEB / "tests" / "fixtures"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
TOPICS = {"ports": "ports", "queues": "queues", "bgp": "bgp/neighbors", "status": "status", "counters": "counters",
          "rib": "bgp/rib", "nat": "nat/counters", "flows": "flows/cache", "forwarding": "forwarding",
          "firewall": "firewall/counters", "firewall-rules": "firewall/rules", "checks": "checks", "vrrp": "vrrp",
          "standby": "standby", "rpki": "bgp/rpki"}
# What a router without anything optional has, and says of what it lacks.
BARE, ABSENT = ["status", "ports", "counters", "checks", "vrrp", "standby"], "this router has no such part"
PAST_S = 300


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A browser that closes a connection is no error."""


@functools.cache
def recorded(file):
    return file.read_text() if file.is_relative_to(FIXTURES) and file.is_file() else None


def fixture(path, key=None):
    """The recorded answer, or None."""
    name = path.rsplit("/", 1)[0]
    candidates = [f"{path}@{key}", path, f"{name}/any", f"{name.rsplit('/', 1)[0]}/any"]
    for each in candidates[0 if key else 1:]:
        text = recorded((FIXTURES / f"{each}.json").resolve())
        if text is not None:
            return json.loads(text)
    return None


def moved(topic, report, at):
    """The report as it would be at a time, with counters that grow unevenly."""
    def grown(per_s, phase):
        # The integral of a rate that swings.
        return int(per_s * (at + 9 * math.sin(at / 17 + phase) + 1.1 * math.sin(at / 3.1 + 2 * phase)))

    for number, item in enumerate(report.get("items", [])):
        rates = item.get("rates") or {}
        if topic == "ports":
            for field, rate in [("received", "packets_received_per_s"), ("sent", "packets_sent_per_s")]:
                item[field] += grown(rates.get(rate, 0), number)
            for field, rate in [("received_bytes", "bits_received_per_s"), ("sent_bytes", "bits_sent_per_s")]:
                item[field] += grown(rates.get(rate, 0) / 8, number)
        if topic == "queues":
            item["sent_bytes"] += grown(rates.get("bits_per_s", 0) / 8, number)
            item["sent"] += grown(rates.get("packets_per_s", 0), number)
            item["dropped_managed"] += grown(item["dropped_managed"] / 4000, number)
            item["waiting"] = max(0, int(item["waiting"] * (1 + 0.8 * math.sin(at / 7 + number))))
    if topic == "counters":
        for number, reason in enumerate(report["item"]["dropped"]):
            report["item"]["dropped"][reason] += grown(report["item"]["dropped"][reason] / 40000, number)
        for number, worker in enumerate(report["item"]["workers"]):
            worker["cpu_ms"] += grown([610, 540, 22][number % 3], number)
    if topic == "status":
        report["item"]["nat"]["sessions"] += int(900 * math.sin(at / 60) + 150 * math.sin(at / 7))
    return report


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        for name, value in [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-cache"),
                            ("Content-Security-Policy", POLICY), ("X-Content-Type-Options", "nosniff")]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, value, status=200, kind="application/json"):
        self.answer(status, kind, json.dumps(value).encode())

    def problem(self, status, kind, detail):
        title = {401: "Unauthorized", 404: "Not Found"}[status]
        value = {"type": f"urn:thalweg:problem:{kind}", "title": title, "status": status, "detail": detail}
        self.answer_json(value, status, "application/problem+json")

    def do_GET(self):
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if not url.path.startswith("/api/v1/"):
            return self.asset(url.path)
        path = unquote(url.path.removeprefix("/api/v1/"))
        if path == "session" and self.server.needs_token:
            return self.answer_json({"may": None, "name": None})
        if self.server.needs_token:
            return self.problem(401, "no-token", "this router wants a token")
        if path == "events":
            return self.events(query["topics"][0].split(","))
        if path == "capture":
            return self.answer(200, "application/octet-stream", b"\x0a\x0d\x0d\x0a" + bytes(1996))
        if self.server.bare and path not in BARE + ["config", "session", "drop-reasons"]:
            return self.problem(404, "absent", ABSENT)
        answer = fixture(path, query.get("key", [None])[0])
        return self.problem(404, "not-found", f"nothing is recorded for {path}") if answer is None else self.answer_json(answer)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path.removeprefix("/api/v1/"))
        if path == "session":
            self.server.needs_token = False
        self.answer_json(fixture(path) or {"done": True} if path.startswith(("config", "session")) else {"done": True})

    def asset(self, path):
        file = (WEB / "assets" / (path.removeprefix("/assets/") if path != "/" else "index.html")).resolve()
        if not file.is_relative_to(WEB / "assets") or not file.is_file():
            return self.problem(404, "not-found", f"no asset {path}")
        return self.answer(200, TYPES.get(file.suffix, "text/plain"), file.read_bytes())

    def events(self, topics):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"retry: 2000\n\n")
        begin = time.time()
        try:
            past = [begin - PAST_S + second for second in range(PAST_S)] if self.server.moving else []
            for at in past:
                self.report(topics, at)
            if self.server.bare:
                for topic in set(topics) - set(BARE):
                    self.wfile.write(f"event: absent\ndata: {json.dumps({'topic': topic, 'detail': ABSENT})}\n\n".encode())
                topics = [topic for topic in topics if topic in BARE]
            while True:
                self.report(topics, time.time())
                time.sleep(1)
        except OSError:
            pass
        self.close_connection = True

    def report(self, topics, at):
        when = datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for topic in topics:
            view = fixture(TOPICS[topic])
            report = {"items": [] if self.server.bare else view["items"]} if "items" in view else {"item": view}
            if self.server.moving:
                report = moved(topic, report, at - self.server.begin + PAST_S)
            self.wfile.write(f"event: {topic}\ndata: {json.dumps({'time': when, **report})}\n\n".encode())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--moving", action="store_true")
    parser.add_argument("--token", action="store_true")
    parser.add_argument("--bare", action="store_true")
    options = parser.parse_args()
    server = Server(("127.0.0.1", options.port), Handler)
    server.moving, server.needs_token, server.begin = options.moving, options.token, time.time()
    server.bare = options.bare
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
