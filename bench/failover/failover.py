#!/usr/bin/env python3
"""How long packets are lost when one of two transits fails: Thalweg, the kernel, BIRD with the kernel.

    client ── router ──┬── transit a    both transits announce the same prefixes (BGP, by BIRD) and take
                       └── transit b    every packet to them; a's path is the shorter one

A stream of datagrams goes to destinations spread over the table. A failure is made, and the gap of a destination is
the longest time between two of its datagrams at the transits from then on. Failures:

    far     the far end of the cable to a goes down: the router loses its carrier
    near    the router's own interface goes down
    silent  a's interface stays up, takes no frame any more and answers nobody
    moved   a's interface gets another MAC address and tells nobody; up to 30 s, drawn by chance, after traffic began

Routers:

    thalweg        BGP with both transits, forwarding table of its own, AF_PACKET
    bird           BIRD in the router's namespace, kernel table
    kernel-group   no BGP: all prefixes by one nexthop group of both transits; flows of the dead one count
    kernel-metric  no BGP: all prefixes twice, with two metrics
    thalweg-one    no BGP: one route by a alone (for `moved`)
    kernel-one     the same in the kernel

Needs root, iproute2, BIRD 2. Everything is in namespaces of its own, which go at the end.

    bench/failover/failover.py --thalweg target/release/thalweg --prefixes 200000 --rounds 5
    bench/failover/failover.py --thalweg target/release/thalweg --prefixes 1 --failures moved --routers thalweg-one,kernel-one
"""

import argparse
import ctypes
import json
import os
import random
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
PORT = 7001
DESTINATIONS = 16
PACKET = struct.Struct("!IQ")


def sh(command, check=True, **more):
    return subprocess.run(command.split(), check=check, capture_output=True, text=True, **more).stdout


class Site:
    """Namespaces c, r, a, b of this process."""

    def __init__(self, prefixes):
        self.prefixes = prefixes
        self.folder = tempfile.TemporaryDirectory()
        self.names = {role: f"fo{os.getpid()}{role}" for role in "crab"}
        self.processes = []

    def ip(self, role, arguments, check=True):
        return sh(f"ip -n {self.names[role]} {arguments}", check)

    def make(self):
        for name in self.names.values():
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
        for role, net in (("c", 1), ("a", 2), ("b", 3)):
            self.ip(role, f"link add eth0 type veth peer name to{role} netns {self.names['r']}")
            self.ip(role, f"addr add 10.0.{net}.2/24 dev eth0")
            self.ip(role, "link set eth0 up")
            self.ip("r", f"link set to{role} up")
        self.ip("c", "route add default via 10.0.1.1")
        for role in "ab":
            # Whatever comes for the table is taken.
            self.ip(role, "route add local 20.0.0.0/6 dev lo")
        return self

    def back(self, role, net):
        self.ip(role, f"route replace 10.0.1.0/24 via 10.0.{net}.1")

    def addresses_in_kernel(self):
        for role, net in (("c", 1), ("a", 2), ("b", 3)):
            self.ip("r", f"addr add 10.0.{net}.1/24 dev to{role}")
        sh(f"ip netns exec {self.names['r']} sysctl -qw net.ipv4.ip_forward=1")

    def start(self, role, arguments):
        log = open(os.path.join(self.folder.name, f"log{len(self.processes)}"), "w")
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[role], *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        self.processes.append(process)
        return process

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def prefix(self, n):
        address = (20 << 24) + (n << 8)
        return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0)) + "/24"

    def transit(self, role, net, asn, longer):
        """BIRD that announces the table."""
        routes = "".join(f"route {self.prefix(n)} blackhole;" for n in range(self.prefixes))
        text = f"""router id 10.0.{net}.2;
protocol device {{}}
protocol static {{ ipv4; {routes} }}
protocol bgp peer {{ local 10.0.{net}.2 as {asn}; neighbor 10.0.{net}.1 as 65001;
  connect delay time 1; connect retry time 1; error wait time 1,1; hold time 240;
  ipv4 {{ import none; export filter {{ {longer} accept; }}; }}; }}
"""
        path = self.file(f"{role}.conf", text)
        self.start(role, ["bird", "-f", "-c", path, "-s", os.path.join(self.folder.name, f"{role}.ctl")])

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        for name in self.names.values():
            sh(f"ip netns del {name}", check=False)
        self.folder.cleanup()


class Router:
    """What is measured: makes the router and says when it is ready."""

    def __init__(self, site, arguments):
        self.site, self.arguments = site, arguments

    def transits(self):
        self.site.transit("a", 2, 65002, "")
        self.site.transit("b", 3, 65003, "bgp_path.prepend(65003);")


class Thalweg(Router):
    def ports(self, mirror):
        return "".join(
            f'[ports.{name}]\ninterface = "to{role}"\ndriver = "{self.arguments.driver}"\naddresses = ["10.0.{net}.1/24"]\n'
            f'{mirror if role != "c" else ""}\n\n'
            for name, role, net in (("lan", "c", 1), ("wan1", "a", 2), ("wan2", "b", 3))
        )

    def run(self, text):
        self.socket = os.path.join(self.site.folder.name, "sock")
        path = self.site.file("router.toml", text)
        self.site.start("r", [self.arguments.thalweg, "run", path, "--socket", self.socket])

    def begin(self):
        text = self.ports("mirror = true")
        text += '[bgp]\nas = 65001\nrouter_id = "10.0.1.1"\ninstall = "fib"\n\n'
        for net, asn in ((2, 65002), (3, 65003)):
            text += (
                f'[[bgp.neighbor]]\naddress = "10.0.{net}.2"\nas = {asn}\nimport = "accept"\nexport = "reject"\n'
                "hold_time_s = 240\n\n"
            )
        self.run(text)
        self.transits()

    def ready(self):
        command = [self.arguments.thalweg, "show", "forwarding", "--socket", self.socket, "--format", "json"]
        said = subprocess.run(command, capture_output=True, text=True)
        if said.returncode:
            return False
        view = json.loads(said.stdout.splitlines()[0])
        return view["protected_prefixes"] >= self.site.prefixes and view["waiting"] == 0


class Bird(Router):
    def begin(self):
        self.site.addresses_in_kernel()
        peers = "".join(
            f"protocol bgp p{net} {{ local 10.0.{net}.1 as 65001; neighbor 10.0.{net}.2 as {asn}; direct; check link on;"
            f" connect delay time 1; hold time 240; ipv4 {{ import all; export none; }}; }}\n"
            for net, asn in ((2, 65002), (3, 65003))
        )
        text = f"""router id 10.0.1.1;
protocol device {{ scan time 1; }}
protocol direct {{ ipv4; }}
protocol kernel {{ ipv4 {{ export where source = RTS_BGP; }}; }}
{peers}"""
        self.control = os.path.join(self.site.folder.name, "r.ctl")
        self.site.start("r", ["bird", "-f", "-c", self.site.file("r.conf", text), "-s", self.control])
        self.transits()

    def ready(self):
        said = sh(f"birdc -s {self.control} show route count", check=False)
        total = re.search(r"(\d+) of \d+ routes", said)
        if not total or int(total[1]) < 2 * self.site.prefixes:
            return False
        return len(self.site.ip("r", "route show proto bird").splitlines()) >= self.site.prefixes


class KernelGroup(Router):
    def begin(self):
        self.site.addresses_in_kernel()
        # Without it a member that resolves no more stays in use.
        sh(f"ip netns exec {self.site.names['r']} sysctl -qw net.ipv4.fib_multipath_use_neigh=1")
        self.site.ip("r", "nexthop add id 1 via 10.0.2.2 dev toa")
        self.site.ip("r", "nexthop add id 2 via 10.0.3.2 dev tob")
        self.site.ip("r", "nexthop add id 10 group 1/2")
        batch = "".join(f"route add {self.site.prefix(n)} nhid 10\n" for n in range(self.site.prefixes))
        self.site.ip("r", f"-batch {self.site.file('batch', batch)}")

    def ready(self):
        return True


class KernelMetric(Router):
    def begin(self):
        self.site.addresses_in_kernel()
        lines = []
        for n in range(self.site.prefixes):
            lines.append(f"route add {self.site.prefix(n)} via 10.0.2.2 metric 10\n")
            lines.append(f"route add {self.site.prefix(n)} via 10.0.3.2 metric 20\n")
        sh(f"ip netns exec {self.site.names['r']} sysctl -qw net.ipv4.conf.all.ignore_routes_with_linkdown=1")
        sh(f"ip netns exec {self.site.names['r']} sysctl -qw net.ipv4.conf.toa.ignore_routes_with_linkdown=1")
        self.site.ip("r", f"-batch {self.site.file('batch', ''.join(lines))}")

    def ready(self):
        return True


class ThalwegOne(Thalweg):
    def begin(self):
        self.run(self.ports("") + '[[routes]]\nprefix = "20.0.0.0/6"\nvia = "10.0.2.2"\n')

    def ready(self):
        return os.path.exists(self.socket)


class KernelOne(KernelGroup):
    def begin(self):
        self.site.addresses_in_kernel()
        self.site.ip("r", "route add 20.0.0.0/6 via 10.0.2.2")


ROUTERS = {
    "thalweg": Thalweg,
    "bird": Bird,
    "kernel-group": KernelGroup,
    "kernel-metric": KernelMetric,
    "thalweg-one": ThalwegOne,
    "kernel-one": KernelOne,
}


def within(name):
    """Puts the calling thread into a namespace."""
    with open(f"/run/netns/{name}") as file:
        # os.setns is younger than the Python of many systems.
        if LIBC.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {name}")


def at_once():
    """The thread that measures does not wait for a core."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(20))
    except PermissionError:
        print("no real-time priority: gaps include the waits of the one who measures", file=sys.stderr)


class Stream:
    """Datagrams to all destinations, and when they arrived."""

    def __init__(self, site, rate):
        self.site, self.rate = site, rate
        self.arrivals = [[] for _ in range(DESTINATIONS)]
        self.sent = [0] * DESTINATIONS
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.receive, args=(role,)) for role in "ab"]
        self.threads.append(threading.Thread(target=self.send))
        for thread in self.threads:
            thread.start()

    def destination(self, n):
        step = max(1, (self.site.prefixes - 1) // (DESTINATIONS - 1))
        return self.site.prefix(min(n * step, self.site.prefixes - 1)).replace(".0/24", f".{n + 1}")

    def receive(self, role):
        within(self.site.names[role])
        at_once()
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("0.0.0.0", PORT))
        receiver.settimeout(0.2)
        while not self.stop.is_set():
            try:
                data = receiver.recv(64)
            except TimeoutError:
                continue
            number, _ = PACKET.unpack(data)
            self.arrivals[number].append(time.monotonic())

    def send(self):
        within(self.site.names["c"])
        at_once()
        senders = []
        for n in range(DESTINATIONS):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.setblocking(False)
            sender.connect((self.destination(n), PORT))
            senders.append(sender)
        pause, due = 1 / self.rate, time.monotonic()
        while not self.stop.is_set():
            for n, sender in enumerate(senders):
                try:
                    sender.send(PACKET.pack(n, time.monotonic_ns()))
                    self.sent[n] += 1
                except OSError:
                    pass
            due = max(due + pause, time.monotonic() - 0.05)
            time.sleep(max(0, due - time.monotonic()))

    def flows(self):
        """Whether every destination got something in the last half second."""
        since = time.monotonic() - 0.5
        return all(arrivals and arrivals[-1] > since for arrivals in self.arrivals)

    def gaps(self, since):
        """Of each destination the longest silence from just before the failure on, in ms."""
        longest = []
        for arrivals in self.arrivals:
            before = [at for at in arrivals if at <= since][-1:]
            after = before + [at for at in arrivals if at > since]
            pairs = zip(after, after[1:])
            longest.append(max((b - a for a, b in pairs), default=float("inf")) * 1000)
        return longest

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def wait(what, condition, seconds):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(0.2)


def fail(site, failure):
    if failure == "far":
        site.ip("a", "link set eth0 down")
    elif failure == "near":
        site.ip("r", "link set toa down")
    else:
        if failure == "silent":
            # Frames to the address that the router knows are for somebody else now; nobody answers who asks for the new one.
            site.ip("a", "link set eth0 arp off")
        site.ip("a", "link set eth0 address 02:00:00:00:00:99")


def measure(name, failure, arguments):
    site = Site(arguments.prefixes)
    stream = None
    try:
        site.make()
        router = ROUTERS[name](site, arguments)
        router.begin()
        site.back("a", 2)
        site.back("b", 3)
        wait(f"{name} is ready", router.ready, 300)
        stream = Stream(site, arguments.rate)
        wait(f"{name} forwards", stream.flows, 60)
        # How long a neighbor's address is believed depends on when it was last confirmed.
        time.sleep(2 + (random.uniform(0, 30) if failure == "moved" else 0))
        quiet = max(stream.gaps(time.monotonic() - 2))
        since = time.monotonic()
        fail(site, failure)
        time.sleep(2)
        wait(f"{name} goes another way", stream.flows, 300)
        gaps = stream.gaps(since)
        return {"router": name, "failure": failure, "gap_ms": gaps, "quiet_ms": quiet}
    finally:
        if stream:
            stream.close()
        site.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thalweg", default="target/release/thalweg")
    parser.add_argument("--driver", default="af_packet")
    parser.add_argument("--prefixes", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=500, help="datagrams a second to each of 16 destinations")
    parser.add_argument("--routers", default="thalweg,bird,kernel-group,kernel-metric", help=",".join(ROUTERS))
    parser.add_argument("--failures", default="far,near")
    parser.add_argument("--json", help="file for all gaps")
    arguments = parser.parse_args()
    rows = []
    # Routers take turns, so that what the machine does besides meets all of them.
    for _ in range(arguments.rounds):
        for failure in arguments.failures.split(","):
            for name in arguments.routers.split(","):
                rows.append(measure(name, failure, arguments))
                row = rows[-1]
                print(f"{name} {failure}: {max(row['gap_ms']):.1f} ms (without failure {row['quiet_ms']:.1f})", flush=True)
    print(f"\n{arguments.prefixes} prefixes, {arguments.rounds} rounds; gap of the destination that waited longest, ms")
    print("| failure | router | median | least | most | without a failure, most |\n|---|---|---:|---:|---:|---:|")
    for failure in arguments.failures.split(","):
        for name in arguments.routers.split(","):
            these = [row for row in rows if (row["router"], row["failure"]) == (name, failure)]
            gaps = [max(row["gap_ms"]) for row in these]
            quiet = max(row["quiet_ms"] for row in these)
            print(
                f"| {failure} | {name} | {statistics.median(gaps):.1f} | {min(gaps):.1f} | {max(gaps):.1f} | {quiet:.1f} |"
            )
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file)


if __name__ == "__main__":
    main()
