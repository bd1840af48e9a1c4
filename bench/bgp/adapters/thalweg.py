"""Thalweg: two threads, sharded. BENCH_SCHEDULING and BENCH_THREADS choose others."""
import os, subprocess

BINARIES = ["thalweg"]


def version(exe):
    return subprocess.run([exe, "--version"], text=True, capture_output=True).stdout.strip()


def files(c):
    head = f"""[control]
socket = "{c.path('thalweg.sock')}"

[bgp]
as = {c.dut_as}
router_id = "{c.dut}"
listen = ["{c.dut}:179"]
install = "none"
hold_time_s = {c.hold}

[[bgp.group]]
name = "peers"
families = ["ipv4"]
import = "accept"
export = "accept"
passive = true
"""
    peers = "".join(f'\n[[bgp.neighbor]]\naddress = "{a}"\nas = {n}\ngroup = "peers"\n' for a, n in c.peers)
    return {"thalweg.toml": head + peers}


def command(c):
    return [c.exe, "run", c.path("thalweg.toml"),
            "--scheduling", os.environ.get("BENCH_SCHEDULING", "sharded"),
            "--threads", os.environ.get("BENCH_THREADS", str(os.cpu_count()))]
