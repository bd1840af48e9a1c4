#!/usr/bin/env python3
"""What the RPKI costs a router with a full table.

    bench/bgp/rpki.py VRPS [--prefixes 1000000] [--changes 20] [--seconds 60]

VRPS is a file of rpki-client (JSON, or packed by bzip2). A neighbor with `rpki = "reject-invalid"` announces a table of
/24; a cache announces nothing, then all VRPs at once, then changes: each makes 100 routes invalid, or valid again. At
last the cache drops its connection after each answer, for that many seconds, and comes back with another session, so
that it sends everything again. Printed: times, processor time and memory of the router.

Needs no root. --thalweg names the binary (target/release/thalweg).
"""

import argparse
import bz2
import ipaddress
import itertools
import json
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "web"))
from web import LOCAL_AS, Neighbor, Router, free_port  # noqa: E402

CHANGED = 100
WRONG_AS = 64999


def pdu(kind, field, body=b""):
    return struct.pack("!BBHI", 1, kind, field, 8 + len(body)) + body


def vrp(prefix, max_length, asn, announced=True):
    packed = prefix.network_address.packed
    body = struct.pack("!BBBB", announced, prefix.prefixlen, max_length, 0) + packed + struct.pack("!I", asn)
    return pdu(4 if prefix.version == 4 else 6, 0, body)


class Cache:
    """Serves VRPs by RTR; a difference leads from each serial number to the next."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.everything, self.difference = b"", b""
        self.serial, self.session, self.is_flapping, self.connections = 1, 7, False, 0
        self.client = None
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.client, _ = self.listener.accept()
            self.connections += 1
            if self.is_flapping:
                self.session += 1
            try:
                self.talk(self.client)
            except OSError:
                pass
            self.client.close()

    def talk(self, client):
        while head := client.recv(8, socket.MSG_WAITALL):
            _, kind, session, length = struct.unpack("!BBHI", head)
            body = client.recv(length - 8, socket.MSG_WAITALL) if length > 8 else b""
            if kind == 2:
                self.answer(client, self.everything)
            elif kind == 1 and session == self.session and struct.unpack("!I", body)[0] >= self.serial - 1:
                self.answer(client, self.difference if struct.unpack("!I", body)[0] < self.serial else b"")
            elif kind == 1:
                client.sendall(pdu(8, 0))
            elif kind == 10:
                sys.exit(f"the router complains: {body}")
            if self.is_flapping and kind == 2:
                return

    def answer(self, client, vrps):
        end = struct.pack("!IIII", self.serial, 3600, 1, 7200)
        client.sendall(pdu(3, self.session) + vrps + pdu(7, self.session, end))

    def change(self, difference, everything):
        self.difference, self.everything, self.serial = difference, everything, self.serial + 1
        self.client.sendall(pdu(0, self.session, struct.pack("!I", self.serial)))


def config(port, cache):
    return f"""[bgp]
as = {LOCAL_AS}
router_id = "192.0.2.1"
listen = ["127.0.0.1:{port}"]
[[bgp.rpki_source]]
cache = "127.0.0.1:{cache.listener.getsockname()[1]}"
[[bgp.neighbor]]
name = "n1"
address = "127.3.0.1"
passive = true
as = 65001
hold_time_s = 0
import = "accept"
export = "reject"
rpki = "reject-invalid"
keep_rejected = "all"
"""


def all_vrps(file):
    text = Path(file).read_bytes()
    roas = json.loads(bz2.decompress(text) if file.endswith(".bz2") else text)["roas"]
    vrps = [(ipaddress.ip_network(roa["prefix"]), roa["maxLength"], int(str(roa["asn"]).removeprefix("AS")))
            for roa in roas]
    covering = {(int(prefix.network_address), prefix.prefixlen) for prefix, _, _ in vrps if prefix.version == 4}
    return b"".join(vrp(*each) for each in vrps), len(vrps), covering


def uncovered(prefixes, covering):
    """The first prefixes of the table that no VRP covers."""
    table = (0x01000000 + 256 * number for number in range(prefixes))
    is_free = lambda address: not any((address >> 32 - bits << 32 - bits, bits) in covering for bits in range(25))
    return [ipaddress.ip_network((address, 24)) for address in itertools.islice(filter(is_free, table), CHANGED)]


class Cost:
    """What the router needed since, without what it needs anyhow."""

    def __init__(self, router, idle):
        self.router, self.idle = router, idle
        self.cpu, self.begun = router.cpu_s(), time.monotonic()

    def so_far(self):
        return self.router.cpu_s() - self.cpu - self.idle * (time.monotonic() - self.begun)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thalweg", default="target/release/thalweg")
    parser.add_argument("vrps")
    parser.add_argument("--prefixes", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    everything, count, covering = all_vrps(options.vrps)
    free = uncovered(options.prefixes, covering)
    cache, port = Cache(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        file, control = Path(folder, "router.toml"), str(Path(folder, "router.sock"))
        file.write_text(config(port, cache))
        command = [options.thalweg, "run", str(file), "--socket", control, "--log", "warn"]
        router = Router(options.thalweg, subprocess.Popen(command), control)
        try:
            measured(options, router, cache, port, everything, count, free)
        finally:
            router.process.terminate()
            router.process.wait()


def measured(options, router, cache, port, everything, count, free):
    rpki = lambda: router.show("bgp", "rpki")[0]
    rib = lambda: router.show("bgp", "rib")[0]
    router.until("the router answers", lambda: router.show("bgp", "rib"))
    router.until("the cache is there", lambda: rpki()["sources"][0]["state"] == "synced")
    neighbor = Neighbor(1, port)
    router.until("the neighbor is up", lambda: router.show("bgp", "neighbors")[0]["state"] == "Established")
    neighbor.announce(options.prefixes)
    router.until("the table is there", lambda: rib()["paths"]["ipv4"] == options.prefixes)
    # Paths are counted in rounds meanwhile.
    time.sleep(5)
    idle, begun = router.cpu_s(), time.monotonic()
    time.sleep(5)
    idle = (router.cpu_s() - idle) / (time.monotonic() - begun)
    before = router.memory()
    print(f"{options.prefixes} prefixes, no VRP: memory {before / 1e6:.0f} MB; {100 * idle:.2f} % of a core")

    cost = Cost(router, idle)
    cache.change(everything, everything)
    took = router.until("all VRPs", lambda: sum(rpki()["vrps"].values()) == count)
    settle(rpki)
    print(f"{count} VRPs at once: in force after {took:.1f} s, {cost.so_far():.2f} s of processor time; "
          f"{rpki()['bytes'] / 1e6:.1f} MB; memory {(router.memory() - before) / 1e6:+.0f} MB; "
          f"{rpki()['revalidated']} routes judged again, {rib()['paths']['ipv4']} left")

    on, off = (b"".join(vrp(prefix, 24, WRONG_AS, announced) for prefix in free) for announced in (True, False))
    paths, cost, times = rib()["paths"]["ipv4"], Cost(router, idle), []
    for number in range(options.changes):
        adds = number % 2 == 0
        cache.change(on if adds else off, everything + on if adds else everything)
        wanted = paths - CHANGED if adds else paths
        times.append(router.until("the routes follow", lambda: rib()["paths"]["ipv4"] == wanted))
    print(f"{CHANGED} VRPs changed, {options.changes} times: routes follow within {min(times):.2f} to {max(times):.2f} s; "
          f"{1000 * cost.so_far() / options.changes:.0f} ms of processor time each, with looking at it")

    flaps = lambda: router.show("bgp", "neighbors")[0]["flaps"]
    cost, judged, memory, connections = Cost(router, idle), rpki()["revalidated"], router.memory(), cache.connections
    largest, cache.is_flapping = 0, True
    cache.client.shutdown(socket.SHUT_RDWR)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        time.sleep(1)
        largest = max(largest, router.memory())
    again = cache.connections - connections
    print(f"a cache that drops its connection after everything, {options.seconds:.0f} s: {again} connections, "
          f"{1000 * cost.so_far() / max(again, 1):.0f} ms of processor time each; memory {memory / 1e6:.0f} MB before, "
          f"{largest / 1e6:.0f} at most; {rpki()['revalidated'] - judged} routes judged again, "
          f"{rib()['paths']['ipv4']} left, {flaps()} flaps of the neighbor")


def settle(rpki):
    """Waits until no more routes are judged again."""
    judged = None
    while judged != (judged := rpki()["revalidated"]):
        time.sleep(1)


if __name__ == "__main__":
    main()
