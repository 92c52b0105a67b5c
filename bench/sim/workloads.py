#!/usr/bin/env python3
"""Writes the simulator's reference workloads: FOLDER/{W1,W1L,W2,W3,W4}/{flows,topology}.csv, and prints their packet-hops.

flows.csv: src,dst,bytes,start_ns. topology.csv: a,b,gbps,delay_ns; hosts come first (0..H-1), then edge, aggregation
and core switches. A packet-hop is one data packet serialised on one link; a host's own link counts. The bytes are
pinned in tests/bench_sim_test.py: the peers in peers.json ran these very flows.
Usage: workloads.py FOLDER [--seed 1] [WORKLOAD...]
"""

import argparse
import csv
import pathlib
import random
from dataclasses import dataclass, field
from typing import Callable

PAYLOAD_BYTES = 4096


@dataclass
class Workload:
    name: str
    what: str
    gbps: int
    links: list
    pairs: list
    flow_bytes: int
    hops: Callable = field(repr=False)  # links between two hosts
    fat_tree_hosts: int = 0  # 0: another topology

    def packet_hops(self, payload_bytes=PAYLOAD_BYTES):
        return -(-self.flow_bytes // payload_bytes) * sum(self.hops(src, dst) for src, dst in self.pairs)

    def write(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        flows = ([src, dst, self.flow_bytes, 0] for src, dst in self.pairs)
        links = ([a, b, self.gbps, 1000] for a, b in self.links)
        _write_table(folder / "flows.csv", ["src", "dst", "bytes", "start_ns"], flows)
        _write_table(folder / "topology.csv", ["a", "b", "gbps", "delay_ns"], links)


def _write_table(path, columns, rows):
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(columns)
        writer.writerows(rows)


def incast(name, flow_bytes):
    return Workload(name, "1 switch, 33 hosts, 32 to 1", 100, [(host, 33) for host in range(33)],
                    [(host, 32) for host in range(32)], flow_bytes, lambda src, dst: 2)


def fat_tree_permutation(name, k, gbps, flow_bytes, seed):
    hosts, links = fat_tree(k)
    return Workload(name, f"fat-tree k={k}, {hosts} hosts, permutation", gbps, links, permutation(hosts, seed),
                    flow_bytes, lambda src, dst: fat_tree_hops(k, src, dst), hosts)


def fat_tree(k):
    half, hosts = k // 2, k**3 // 4
    edge, aggregation = hosts, hosts + k * half
    core = aggregation + k * half
    links = [(host, edge + host // half) for host in range(hosts)]
    for pod in range(k):
        for e in range(half):
            links += [(edge + pod * half + e, aggregation + pod * half + a) for a in range(half)]
    for pod in range(k):
        for a in range(half):
            links += [(aggregation + pod * half + a, core + a * half + c) for c in range(half)]
    return hosts, links


def fat_tree_hops(k, src, dst):
    half = k // 2
    if src // half == dst // half:
        return 2
    return 4 if src // half**2 == dst // half**2 else 6


def permutation(hosts, seed):
    rng = random.Random(seed)
    while True:
        targets = list(range(hosts))
        rng.shuffle(targets)
        if all(src != dst for src, dst in enumerate(targets)):
            return list(enumerate(targets))


WORKLOADS = {
    "W1": lambda seed: incast("W1", 1_000_000),
    "W1L": lambda seed: incast("W1L", 10_000_000),
    "W2": lambda seed: fat_tree_permutation("W2", 8, 100, 10_000_000, seed),
    "W3": lambda seed: fat_tree_permutation("W3", 16, 400, 1_000_000, seed),
    "W4": lambda seed: fat_tree_permutation("W4", 32, 400, 1_000_000, seed),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    options = parser.parse_args()
    for name in options.workloads or WORKLOADS:
        if name not in WORKLOADS:
            parser.error(f"there is no workload {name}, only {', '.join(WORKLOADS)}")
        workload = WORKLOADS[name](options.seed)
        workload.write(options.folder / name)
        print(f"{name}: {workload.what}, {workload.packet_hops()} packet-hops at {PAYLOAD_BYTES} bytes a packet")


if __name__ == "__main__":
    main()
