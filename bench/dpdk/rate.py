#!/usr/bin/env python3
"""How fast packets go through the whole router by DPDK's devices, and by AF_PACKET for comparison. Needs root.

    cargo test -p thalweg --features dpdk --test live --no-run     # or: cargo build --release -p thalweg --features dpdk
    bench/dpdk/rate.py target/debug/thalweg [SECONDS] [RUNS]

memory     a capture over and over (net_pcap, infinite_rx) -> router -> nowhere (net_null); model serial, core 1
af_packet  a capture over and over -> a router as sender, core 0 -> veth -> router, core 1 -> veth -> dropped
dpdk       the same, the router's ports by net_af_packet
Idle costs: processor time of a router that gets nothing, in percent of a core.
"""
import json, os, signal, statistics, struct, subprocess, sys, tempfile, time

PROGRAM = os.path.abspath(sys.argv[1])
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
RUNS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
FLOWS, BYTES = 256, 60
NAMES = [f"twd{os.getpid()}{letter}" for letter in "srd"]


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(flow):
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, BYTES - 14, 0, 0x4000, 64, 17, 0,
                     bytes([10, 1, 0, 9]), bytes([10, 2, 0, 1 + flow % 200]))
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    udp = struct.pack(">HHHH", 1000 + flow, 2000, BYTES - 34, 0)
    return (bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0]) + ip + udp).ljust(BYTES, b"\0")


def capture(path):
    with open(path, "wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for flow in range(FLOWS):
            file.write(struct.pack("=IIII", 0, 0, BYTES, BYTES) + frame(flow))


def port(name, number, device, net):
    how = f'driver = "dpdk"\ndevice = "{device}"' if device.startswith("net_") else \
          f'driver = "af_packet"\ninterface = "{device}"'
    return f'[ports.{name}]\n{how}\nmac = "02:00:00:00:00:0{number}"\naddresses = ["{net}"]\n' \
           f'default_mac = "02:00:00:00:01:0{number}"\n'


def ip(arguments):
    subprocess.run(["ip"] + arguments.split(), check=True)


class Router:
    def __init__(self, folder, name, config, core, namespace=None):
        file, self.socket = f"{folder}/{name}.toml", f"{folder}/{name}.sock"
        open(file, "w").write(config)
        self.inside = ["ip", "netns", "exec", namespace] if namespace else []
        # `taskset` and `ip netns exec` become the program.
        command = self.inside + ["taskset", "-c", str(core), PROGRAM, "run", file, "--socket", self.socket, "--model", "serial"]
        self.process = subprocess.Popen(command, stderr=open(f"{folder}/{name}.log", "w"))
        for _ in range(200):
            if self.ports():
                return
            time.sleep(0.05)
        raise SystemExit(open(f"{folder}/{name}.log").read())

    def ports(self):
        show = subprocess.run([PROGRAM, "show", "ports", "--socket", self.socket, "--format", "json"], capture_output=True)
        return {one["name"]: one for one in map(json.loads, show.stdout.splitlines())} if show.returncode == 0 else None

    def cpu_s(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def rate(router, seconds=SECONDS):
    """Packets sent a second, and processor seconds of the process a second."""
    time.sleep(1)
    begin, cpu, sent = time.monotonic(), router.cpu_s(), router.ports()["out"]["sent"]
    time.sleep(seconds)
    took = time.monotonic() - begin
    return (router.ports()["out"]["sent"] - sent) / took, (router.cpu_s() - cpu) / took


def generator(file):
    return port("in", 1, f"net_pcap0,rx_pcap={file},infinite_rx=1", "10.1.0.1/24")


def in_memory(folder, file):
    router = Router(folder, "memory", generator(file) + port("out", 2, "net_null1", "10.2.0.1/24"), 1)
    try:
        return rate(router)
    finally:
        router.stop()


def on_cables(folder, file, ways):
    sender_name, router_name, sink_name = NAMES
    router = Router(folder, "router", port("in", 1, ways[0], "10.1.0.1/24") + port("out", 2, ways[1], "10.2.0.1/24"), 1, router_name)
    sender = None
    try:
        idle = router.cpu_s()
        time.sleep(2)
        idle = (router.cpu_s() - idle) / 2
        to_cable = port("out", 3, "s0", "10.2.0.1/24").replace("02:00:00:00:01:03", "02:00:00:00:00:01")
        sender = Router(folder, "sender", generator(file) + to_cable, 0, sender_name)
        return rate(router) + (idle,)
    finally:
        for one in filter(None, (sender, router)):
            one.stop()


def cables():
    sender_name, router_name, sink_name = NAMES
    for name in NAMES:
        ip(f"netns add {name}")
        subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"])
    ip(f"-n {sender_name} link add s0 type veth peer name r0 netns {router_name}")
    ip(f"-n {router_name} link add r1 type veth peer name d0 netns {sink_name}")
    for name, interface in ((sender_name, "s0"), (router_name, "r0"), (router_name, "r1"), (sink_name, "d0")):
        ip(f"-n {name} link set {interface} up")
    for rule in ("add table netdev t", "add chain netdev t c { type filter hook ingress device d0 priority 0; policy drop; }"):
        subprocess.run(["ip", "netns", "exec", sink_name, "nft", rule], check=True)


def main():
    drivers = {
        "af_packet": ("r0", "r1"),
        "dpdk": ("net_af_packet0,iface=r0,framecnt=4096", "net_af_packet1,iface=r1,framecnt=4096"),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/in.pcap"
        capture(file)
        cables()
        try:
            results = {}
            for _ in range(RUNS):
                results.setdefault("memory", []).append(in_memory(folder, file))
                for driver, ways in drivers.items():
                    results.setdefault(driver, []).append(on_cables(folder, file, ways))
        finally:
            for name in NAMES:
                ip(f"netns delete {name}")
    for case, rows in results.items():
        packets = [row[0] / 1e6 for row in rows]
        cost = [row[1] / row[0] * 1e9 for row in rows if row[0]]
        text = f"{case:10} {statistics.median(packets):6.3f} Mpps ({min(packets):.3f}-{max(packets):.3f}), {statistics.median(cost):6.0f} ns of the process a packet"
        if len(rows[0]) > 2:
            text += f", idle {100 * statistics.median(row[2] for row in rows):.1f} % of a core"
        print(text)


main()
