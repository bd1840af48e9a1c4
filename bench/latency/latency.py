#!/usr/bin/env python3
"""How long packets take through the router while other programs want the cores: Thalweg by priority, the kernel, and
the least that a program can do.

    sender ── router ── echo        one datagram every --interval ms; the echo's namespace answers (ping)

Each round measures every router under every load, in turn. Loads: `idle`; `ten`: each core is wanted 10 % of the time by
a program of ordinary priority; `busy`: all cores all the time. A router is `thalweg-PRIORITY`, or `thalweg-PRIORITY-pollN`: it
polls for N us before it sleeps.

`relay` is that least: two threads at real-time priority that only pass frames on. What it shows in the last quantiles is what
the machine adds by waking a thread, and no program that sleeps between packets can be below it.

    bench/latency/latency.py --thalweg target/release/thalweg --rounds 5

Needs root (real-time priority: CAP_SYS_NICE) and ping. Everything is in namespaces of its own.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

BURN = {
    "busy": "while True: pass",
    "ten": "import time\nwhile True:\n end = time.monotonic() + 0.01\n while time.monotonic() < end: pass\n time.sleep(0.09)",
}


# Arguments, in threes: interface to receive from, interface to send to, MAC address to send to.
RELAY = """
import os, socket, sys, threading
def relay(source, target, mac):
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    receiver.bind((source, 0x0800))
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind((target, 0))
    mac = bytes.fromhex(mac.replace(":", ""))
    while True:
        frame, (_, _, kind, _, _) = receiver.recvfrom(2048)
        if kind != socket.PACKET_OUTGOING:
            sender.send(mac + frame[6:])
words = sys.argv[1:]
for at in range(0, len(words), 3):
    threading.Thread(target=relay, args=words[at:at + 3]).start()
"""


def sh(command, check=True):
    return subprocess.run(command.split(), check=check, capture_output=True, text=True).stdout


class Site:
    def __init__(self):
        self.names = {role: f"la{os.getpid()}{role}" for role in "sre"}
        self.folder = tempfile.TemporaryDirectory()
        for name in self.names.values():
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
        for role, net in (("s", 1), ("e", 2)):
            sh(f"ip -n {self.names[role]} link add eth0 type veth peer name to{role} netns {self.names['r']}")
            sh(f"ip -n {self.names[role]} addr add 10.0.{net}.2/24 dev eth0")
            sh(f"ip -n {self.names[role]} link set eth0 up")
            sh(f"ip -n {self.names[role]} route add default via 10.0.{net}.1")
            sh(f"ip -n {self.names['r']} link set to{role} up")
        self.process = None

    def begin(self, router, arguments):
        if router == "kernel":
            for role, net in (("s", 1), ("e", 2)):
                sh(f"ip -n {self.names['r']} addr add 10.0.{net}.1/24 dev to{role}")
            sh(f"ip netns exec {self.names['r']} sysctl -qw net.ipv4.ip_forward=1")
        elif router == "relay":
            self.relay()
        else:
            text = "".join(
                f'[ports.{role}]\ninterface = "to{role}"\ndriver = "{arguments.driver}"\naddresses = ["10.0.{net}.1/24"]\n\n'
                for role, net in (("s", 1), ("e", 2))
            )
            path = os.path.join(self.folder.name, "router.toml")
            with open(path, "w") as file:
                priority, _, poll = router.removeprefix("thalweg-").partition("-poll")
                file.write(f'{text}[workers]\npriority = "{priority}"\nbusy_poll_us = {poll or 0}\n')
            command = ["ip", "netns", "exec", self.names["r"], arguments.thalweg, "run", path]
            command += ["--socket", os.path.join(self.folder.name, "sock")]
            log = open(os.path.join(self.folder.name, "log"), "w")
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + 30
        while "1 received" not in self.ping(1, 1):
            if time.monotonic() > until:
                sys.exit(f"{router} does not forward")

    def relay(self):
        macs = {}
        for role in "se":
            path = "/sys/class/net/eth0/address"
            macs[role] = sh(f"ip netns exec {self.names[role]} cat {path}").strip()
        words = []
        for role, other, net in (("s", "e", 1), ("e", "s", 2)):
            # The gateway has the address of the other side, which takes the frames as they are.
            sh(f"ip -n {self.names[role]} neigh replace 10.0.{net}.1 lladdr {macs[other]} dev eth0")
            words += [f"to{role}", f"to{other}", macs[other]]
        command = ["ip", "netns", "exec", self.names["r"], sys.executable, "-c", RELAY, *words]
        self.process = subprocess.Popen(command)

    def ping(self, count, interval):
        command = f"ip netns exec {self.names['s']} ping -n -c {count} -i {interval} -W 2 10.0.2.2"
        # The one who measures does not wait for a core.
        return sh(f"chrt -f 50 {command}", check=False)

    def close(self):
        if self.process:
            self.process.terminate()
            self.process.wait(10)
        for name in self.names.values():
            sh(f"ip netns del {name}", check=False)
        self.folder.cleanup()


def measure(router, load, arguments):
    site = Site()
    burners = []
    try:
        site.begin(router, arguments)
        if load in BURN:
            burners = [subprocess.Popen([sys.executable, "-c", BURN[load]]) for _ in range(os.cpu_count())]
            time.sleep(1)
        said = site.ping(arguments.count, arguments.interval / 1000)
        times = [float(text) for text in re.findall(r"time=([0-9.]+) ms", said)]
        return times, arguments.count - len(times)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
        site.close()


def quantile(times, part):
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thalweg", default="target/release/thalweg")
    parser.add_argument("--driver", default="af_packet")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=5000, help="datagrams of one measurement")
    parser.add_argument("--interval", type=float, default=2, help="ms between them")
    parser.add_argument("--routers", default="kernel,relay,thalweg-normal,thalweg-nice,thalweg-realtime")
    parser.add_argument("--loads", default="idle,ten,busy")
    arguments = parser.parse_args()
    found = {}
    for _ in range(arguments.rounds):
        for load in arguments.loads.split(","):
            for router in arguments.routers.split(","):
                times, lost = measure(router, load, arguments)
                found.setdefault((load, router), []).append((times, lost))
                row = [quantile(times, part) for part in (0.5, 0.99, 0.999)]
                print(f"{load} {router}: p50 {row[0]:.3f} p99 {row[1]:.3f} p99.9 {row[2]:.3f} ms, {lost} lost", flush=True)
    print(f"\n{arguments.rounds} rounds of {arguments.count}; round trip, ms: median of rounds (least to most)")
    print("| load | router | p50 | p99 | p99.9 | lost |\n|---|---|---:|---:|---:|---:|")
    for (load, router), rounds in found.items():
        cells = []
        for part in (0.5, 0.99, 0.999):
            values = [quantile(times, part) for times, _ in rounds]
            cells.append(f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
        print(f"| {load} | {router} | {' | '.join(cells)} | {sum(lost for _, lost in rounds)} |")


if __name__ == "__main__":
    main()
