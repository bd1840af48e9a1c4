#!/usr/bin/env python3
"""What clients of the HTTP API cost a router.

    bench/web/web.py half-open [--connections 10000] [--seconds 10]
    bench/web/web.py scrape [--neighbors 100] [--prefixes 1000000] [--scrapes 30]

`half-open`: `thalweg demo` forwards and speaks BGP while that many clients connect, say nothing, and stay (those whom
the server refuses connect again). A client that was there before asks for the status all the while. Printed: packets,
memory, files, latency and flaps before and meanwhile, and what the server counted.

`scrape`: a router has that many neighbors, and two of them announce the same full table. Printed: how long scrapes of
/metrics take, what they cost, and how long the table takes to come in with a scrape each second and without.

Neither needs root. --thalweg names the binary (target/release/thalweg).
"""

import argparse
import http.client
import json
import os
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

LOCAL_AS = 64500


def quantiles(values):
    values = sorted(values)
    at = lambda part: 1000 * values[min(len(values) - 1, int(part * len(values)))]
    return f"median {at(0.5):.2f} ms, 99% {at(0.99):.2f} ms, longest {at(1):.2f} ms of {len(values)}"


class Router:
    """A running router and its control socket."""

    def __init__(self, binary, process, control):
        self.binary, self.process, self.control = binary, process, control

    def show(self, *what):
        command = [self.binary, "show", *what, "--format", "json", "--socket", self.control]
        output = subprocess.run(command, capture_output=True, text=True)
        return [json.loads(line) for line in output.stdout.splitlines()] if output.returncode == 0 else []

    def until(self, what, holds):
        begun = time.monotonic()
        while not holds():
            if self.process.poll() is not None or time.monotonic() - begun > 600:
                sys.exit(f"never: {what}")
            time.sleep(0.05)
        return time.monotonic() - begun

    def memory(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_s(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asked(connection, path):
    """Seconds until the answer was whole, and the answer."""
    begun = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, (answer.status, body)
    return time.perf_counter() - begun, body


# --- Half-open connections


def half_open_client(address, number):
    client = socket.socket()
    client.setblocking(False)
    client.bind((f"127.{2 + number // 60000}.{number // 240 % 250}.{1 + number % 240}", 0))
    client.connect_ex(address)
    return client


def measured(router, connection, seconds):
    """Packets a second, latencies of the status, memory and files at the end."""
    packets = lambda: sum(port["received"] for port in router.show("ports"))
    latencies, begun, before = [], time.monotonic(), packets()
    while time.monotonic() - begun < seconds:
        latencies.append(asked(connection, "/api/v1/status")[0])
        # A client may ask twenty times a second.
        time.sleep(0.07)
    rate = (packets() - before) / (time.monotonic() - begun)
    print(f"  {rate:.0f} packets/s received; memory {router.memory() / 1e6:.1f} MB; {router.files()} files; "
          f"status: {quantiles(latencies)}")


def half_open(options):
    resource.setrlimit(resource.RLIMIT_NOFILE, (options.connections + 100,) * 2)
    process = subprocess.Popen([options.thalweg, "demo", "--format", "json"], stdout=subprocess.PIPE)
    try:
        said = json.loads(process.stdout.readline())
        router = Router(options.thalweg, process, said["socket"])
        host, port = said["console"].removeprefix("http://").rstrip("/").split(":")
        address = (host, int(port))
        # One of the five neighbors comes and goes.
        router.until("neighbors are up", lambda: len([
            each for each in router.show("bgp", "neighbors") if each["state"] == "Established"]) >= 4)
        flaps = lambda: [each["flaps"] for each in router.show("bgp", "neighbors")[:4]]
        connection = http.client.HTTPConnection(*address)
        asked(connection, "/api/v1/status")
        print("before:")
        measured(router, connection, options.seconds)
        flaps_before, cpu_before = flaps(), router.cpu_s()
        begun = time.monotonic()
        clients = [half_open_client(address, number) for number in range(options.connections)]
        print(f"{len(clients)} half-open connections, begun in {time.monotonic() - begun:.2f} s:")
        stop, again = threading.Event(), [0]

        def renew():
            while not stop.is_set():
                for place, client in enumerate(clients):
                    try:
                        is_over = client.recv(1024, socket.MSG_DONTWAIT) is not None
                    except BlockingIOError:
                        is_over = False
                    except OSError:
                        is_over = True
                    if is_over:
                        client.close()
                        clients[place] = half_open_client(address, place)
                        again[0] += 1
                stop.wait(0.1)

        thread = threading.Thread(target=renew)
        thread.start()
        measured(router, connection, options.seconds)
        stop.set()
        thread.join()
        print(f"  {again[0]} connected again; {router.cpu_s() - cpu_before:.2f} s of processor time")
        print(f"flaps of the steady neighbors: {flaps_before} before, {flaps()} after")
        _, metrics = asked(connection, "/metrics")
        for line in metrics.decode().splitlines():
            if line.startswith("thalweg_web_connections") and not line.endswith(" 0"):
                print(line)
        for client in clients:
            client.close()
        print("afterwards:")
        measured(router, connection, options.seconds)
    finally:
        process.terminate()
        process.wait()


# --- Scrapes


def message(kind, body):
    return b"\xff" * 16 + struct.pack("!HB", 19 + len(body), kind) + body


def open_message(as_number, router_id):
    capabilities = b"\x01\x04\x00\x01\x00\x01" + b"\x41\x04" + struct.pack("!I", as_number)
    parameters = b"\x02" + bytes([len(capabilities)]) + capabilities
    return message(1, struct.pack("!BHH4sB", 4, as_number, 0, router_id, len(parameters)) + parameters)


KEEPALIVE = message(4, b"")


def updates(first_as, prefixes):
    """A table of /24: ten prefixes share attributes."""
    for start in range(0, prefixes, 10):
        path = struct.pack("!BB4I", 2, 4, first_as, 65000 + start % 97, 70000 + start % 9973, 80000 + start % 50021)
        attributes = (b"\x40\x01\x01\x00" + b"\x40\x02" + bytes([len(path)]) + path
                      + b"\x40\x03\x04" + bytes([192, 0, 2, 9]) + b"\xc0\x08\x04" + struct.pack("!I", start))
        reachable = b"".join(b"\x18" + struct.pack("!I", 0x01000000 + number * 256)[:3]
                             for number in range(start, min(start + 10, prefixes)))
        yield message(2, b"\x00\x00" + struct.pack("!H", len(attributes)) + attributes + reachable)


class Neighbor:
    def __init__(self, number, port):
        self.number = number
        self.socket = socket.create_connection(("127.0.0.1", port), source_address=(f"127.3.0.{number}", 0))
        self.socket.sendall(open_message(65000 + number, bytes([198, 51, 100, number])) + KEEPALIVE)
        self.socket.setblocking(False)

    def announce(self, prefixes):
        self.socket.setblocking(True)
        self.socket.sendall(b"".join(updates(65000 + self.number, prefixes)))


def router_with(options, folder, port, web):
    config = [f"[web]\nlisten = \"127.0.0.1:{web}\"\n[bgp]\nas = {LOCAL_AS}\nrouter_id = \"192.0.2.1\"\n"
              f"listen = [\"127.0.0.1:{port}\"]\n"]
    for number in range(1, options.neighbors + 1):
        config.append(f"[[bgp.neighbor]]\nname = \"n{number}\"\naddress = \"127.3.0.{number}\"\npassive = true\n"
                      f"as = {65000 + number}\nhold_time_s = 0\nimport = \"accept\"\nexport = \"reject\"\n")
    file, control = Path(folder, "router.toml"), str(Path(folder, "router.sock"))
    file.write_text("".join(config))
    command = [options.thalweg, "run", str(file), "--socket", control, "--log", "warn"]
    return Router(options.thalweg, subprocess.Popen(command), control)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def scrape(options):
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    took = {False: [], True: []}
    for round_number in range(2 * options.rounds):
        is_scraped = round_number % 2 == 1
        with tempfile.TemporaryDirectory() as folder:
            port, web = free_port(), free_port()
            router = router_with(options, folder, port, web)
            try:
                router.until("the router answers", lambda: router.show("bgp", "rib"))
                neighbors = [Neighbor(number, port) for number in range(1, options.neighbors + 1)]
                router.until("neighbors are up", lambda: all(
                    each["state"] == "Established" for each in router.show("bgp", "neighbors")))
                stop = threading.Event()

                def scrape_each_second():
                    while not stop.wait(1):
                        asked(http.client.HTTPConnection("127.0.0.1", web), "/metrics")

                scraper = threading.Thread(target=scrape_each_second)
                if is_scraped:
                    scraper.start()
                senders = [threading.Thread(target=each.announce, args=[options.prefixes]) for each in neighbors[:2]]
                begun = time.monotonic()
                for sender in senders:
                    sender.start()
                router.until("the table is there", lambda: router.show("bgp", "rib")[0]["paths"]["ipv4"]
                             == 2 * options.prefixes)
                took[is_scraped].append(time.monotonic() - begun)
                stop.set()
                if is_scraped:
                    scraper.join()
                print(f"the table came in within {took[is_scraped][-1]:.2f} s, "
                      f"{'a scrape each second' if is_scraped else 'no scrapes'}", flush=True)
                if round_number == 2 * options.rounds - 1:
                    scrapes(options, router, web)
            finally:
                router.process.terminate()
                router.process.wait()
    medians = {key: statistics.median(values) for key, values in took.items()}
    print(f"the table: {medians[False]:.2f} s without scrapes, {medians[True]:.2f} s with one each second")


def scrapes(options, router, web):
    connection = http.client.HTTPConnection("127.0.0.1", web)
    times, cpu = [], router.cpu_s()
    for _ in range(options.scrapes):
        # What was made less than a second ago is sent again.
        time.sleep(1.05)
        took, text = asked(connection, "/metrics")
        times.append(took)
    cpu = (router.cpu_s() - cpu) / options.scrapes
    time.sleep(1)
    idle = router.cpu_s()
    time.sleep(10)
    idle = (router.cpu_s() - idle) / 10 * 1.05
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    print(f"{options.neighbors} neighbors, {options.prefixes} prefixes: {len(lines)} series, {len(text)} bytes; "
          f"memory {router.memory() / 1e6:.0f} MB")
    print(f"scrape: {quantiles(times)}; {1000 * (cpu - idle):.2f} ms of processor time each")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thalweg", default="target/release/thalweg")
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("half-open")
    part.add_argument("--connections", type=int, default=10_000)
    part.add_argument("--seconds", type=float, default=10)
    part = parts.add_parser("scrape")
    part.add_argument("--neighbors", type=int, default=100)
    part.add_argument("--prefixes", type=int, default=1_000_000)
    part.add_argument("--scrapes", type=int, default=30)
    part.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    {"half-open": half_open, "scrape": scrape}[options.part](options)


if __name__ == "__main__":
    main()
