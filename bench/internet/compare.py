#!/usr/bin/env python3
"""Where routes end up on one graph of ASes: Thalweg's fixpoint and BGPy, side by side.

Both get the same file of AS relationships and announce one prefix from each origin. They must reach the same ASes by
neighbors of the same kind over as many links, or the run fails. Times are of the
announcement alone: Thalweg's by the clock, BGPy's in processor time of its one thread.

    thalweg lab network --ases 78000 --engine fixpoint --origin 1 --output net
    bench/internet/compare.py --thalweg target/release/thalweg --graph net/relationships.txt --origins 1,9000,70000

Needs BGPy: pip install bgpy_pkg.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter

from bgpy.as_graphs import ASGraphInfo, CAIDAASGraph, PeerLink
from bgpy.as_graphs import CustomerProviderLink as Transit
from bgpy.simulation_engine import BGP, Announcement, SimulationEngine

PREFIX = "192.0.2.0/24"
KINDS = ("PROVIDERS", "PEERS", "CUSTOMERS", "ORIGIN")


def bgpy_graph(path):
    transits, peers = set(), set()
    with open(path) as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            a, b, relation = line.strip().split("|")[:3]
            if relation == "-1":
                transits.add(Transit(customer_asn=int(b), provider_asn=int(a)))
            else:
                peers.add(PeerLink(int(a), int(b)))
    info = ASGraphInfo(customer_provider_links=frozenset(transits), peer_links=frozenset(peers))
    # Cones are not needed to spread routes.
    cones = ("customer_cone_size", "customer_cone_asns", "provider_cone_size", "provider_cone_asns")
    return CAIDAASGraph(info, **{f"store_{cone}": False for cone in cones})


def bgpy(graph, origin):
    engine = SimulationEngine(graph)
    for each in graph:
        del each.policy.as_
        each.policy = BGP(as_=each)
    engine.ready_to_run_round = 0
    started = time.process_time()
    engine._seed_announcements((Announcement(prefix=PREFIX, as_path=(origin,), seed_asn=origin),))
    engine.run(0, scenario=object())
    seconds = time.process_time() - started
    routes = [each.policy.local_rib.get(PREFIX) for each in graph]
    routes = [route for route in routes if route]
    kinds = Counter(route.recv_relationship.name for route in routes)
    links = sum(len(route.as_path) - 1 for route in routes)
    return seconds, (len(routes), links, [kinds[kind] for kind in KINDS])


def thalweg(program, path, origin):
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "lab", "network", "--caida", path, "--engine", "fixpoint", "--origin", str(origin)]
        command += ["--output", folder, "--format", "json"]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    step = answer["results"]["steps"][0]
    summary = step["summary"]
    return step["seconds"], (summary["reached"], summary["links"], summary["by_class"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thalweg", required=True)
    parser.add_argument("--graph", required=True)
    parser.add_argument("--origins", required=True)
    options = parser.parse_args()
    started = time.perf_counter()
    graph = bgpy_graph(options.graph)
    print(f"BGPy has read the graph in {time.perf_counter() - started:.1f} s")
    different = False
    for origin in map(int, options.origins.split(",")):
        ours_s, ours = thalweg(options.thalweg, options.graph, origin)
        theirs_s, theirs = bgpy(graph, origin)
        different |= ours != theirs
        print(
            f"AS{origin}: thalweg {ours_s * 1e3:.2f} ms, BGPy {theirs_s:.2f} s ({theirs_s / ours_s:,.0f} times);"
            f" reached, links, by kind: {ours if ours == theirs else (ours, theirs)}",
            flush=True,
        )
    print(f"BGPy's memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    if different:
        sys.exit("the two disagree")


if __name__ == "__main__":
    main()
