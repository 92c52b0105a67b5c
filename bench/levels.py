#!/usr/bin/env python3
"""./dev bench levels: how far the flow level (`tulle sim --level flow`) is from packets, and how much faster.

Each case of the validation set is simulated at both levels, from the same seed. Its error is that of the mean slowdown of
all flows. Cases of one range differ only in what a range leaves open: the load, the size and kind of the network, the rate
of links, the distribution of sizes and the seed. A range reaches as far as no case has an error above the bound (range_of);
the cases beyond it stand in the table all the same.

The script writes scenarios/flow-level.json, from which `tulle sim` knows what to refuse and which error to print, and the
table in docs/fidelity.md. None of the cases was looked at while the model was made: its seeds were 11 to 14.

The time is the processor time of each level's own run, without building the scenario and its routes, which both need. That
of the flow level is the least of five, since the first ones fill the caches.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
TULLE = ROOT / os.environ.get("TULLE_BUILD", "build") / "bin" / "tulle"
RESULT = ROOT / "scenarios" / "flow-level.json"
DOCUMENT = ROOT / "docs" / "fidelity.md"
BEGIN, END = "<!-- bench levels: begin -->\n", "<!-- bench levels: end -->\n"
ERROR_MAX = 0.10  # of the mean slowdown, as a share of it
# Flows of hadoop are mostly shorter than a window, and those of web search 1.7 MB in the mean.
LONG_FLOW_BYTES = 1_000_000
# On small networks with credits, where a blocked link blocks much of the network, the error of a run was up to 24 %.
HOSTS_MIN = {"credits": 64, "window": 16}
LIMIT_S = 300

NETWORKS = {
    "fat tree, 128 hosts": 'kind = "fat-tree"\nk = 8\nlink_rate = "100Gbps"\n',
    "fat tree, 16 hosts, 400 Gb/s": 'kind = "fat-tree"\nk = 4\nlink_rate = "400Gbps"\n',
    "leaves, 64 hosts, 2 : 1": 'kind = "leaf-spine"\nleaves = 8\nspines = 4\nhosts_per_leaf = 8\nlink_rate = "100Gbps"\n',
    "leaves, 32 hosts, 25 Gb/s": 'kind = "leaf-spine"\nleaves = 4\nspines = 8\nhosts_per_leaf = 8\nlink_rate = "25Gbps"\n',
}
FABRICS = {
    "credits": '[fabric]\nkind = "infiniband"\n',
    "window": '[fabric]\nkind = "roce"\nflow_control = "none"\n[host]\nrecovery = "selective-repeat"\n',
}
FABRIC_NAMES = {"credits": "InfiniBand", "window": "RoCE v2, a bandwidth-delay product in flight"}


@dataclass(frozen=True)
class Case:
    network: str
    traffic: str  # TOML
    name: str  # of the traffic, for people
    load: float  # 0: the flows begin at once
    seed: int

    def text(self, backlog):
        return (f"seed = {self.seed}\n[topology]\n{NETWORKS[self.network]}[traffic]\n{self.traffic}"
                f"{FABRICS[backlog]}")


def poisson(network, sizes, load, duration, seed):
    traffic = f'pattern = "poisson"\nsizes = "{sizes}"\nload = {load}\nduration = "{duration}"\n'
    return Case(network, traffic, f"{sizes}, {load:.0%}", load, seed)


def permutation(network, size, seed):
    return Case(network, f'pattern = "permutation"\nbytes = "{size}"\n', f"permutation, {size}", 0, seed)


BIG, SMALL, NARROW, SLOW = NETWORKS
HOSTS = {BIG: 128, SMALL: 16, NARROW: 64, SLOW: 32}
LOADS = (0.1, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
OVER_TIME = [
    *(poisson(BIG, "web-search", load, "2ms", 1100 + round(load * 10)) for load in LOADS),
    *(poisson(BIG, "web-search", 0.5, "1ms", seed) for seed in (1, 1201, 1202)),
    *(poisson(BIG, "web-search", 0.6, "2ms", seed) for seed in (1203, 1204)),
    *(poisson(BIG, "hadoop", load, "1ms", 1300 + round(load * 10)) for load in (0.3, 0.5, 0.7)),
    *(poisson(SMALL, "web-search", load, "4ms", 1400 + round(load * 10)) for load in (0.3, 0.5, 0.7)),
    *(poisson(NARROW, "web-search", load, "4ms", 1500 + round(load * 10)) for load in (0.2, 0.4)),
    *(poisson(NARROW, "web-search", 0.3, "4ms", seed) for seed in (1506, 1507)),
    *(poisson(SLOW, "web-search", load, "20ms", 1600 + round(load * 10)) for load in (0.3, 0.5, 0.7)),
]
AT_ONCE = [
    *(permutation(BIG, "1MB", seed) for seed in (1701, 1702, 1703)),
    *(permutation(SMALL, "4MB", seed) for seed in (1711, 1712, 1713)),
    *(permutation(SLOW, "100KB", seed) for seed in (1721, 1722, 1723)),
]


class Failed(Exception):
    pass


def simulate(scenario, folder, *options):
    """Returns (seconds of the run, summary, slowdowns of the flows, bytes of a flow in the mean)."""
    timings = folder / "timings.json"
    argv = [TULLE, "sim", scenario, "--json", "--timings", timings, "-o", folder, *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise Failed(done.stderr.strip() or f"exit status {done.returncode}")
    with open(folder / "flows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    if any(row["status"] != "done" for row in rows):
        raise Failed(f"{scenario}: not all flows are done")
    return json.loads(timings.read_text())["run_cpu_s"], json.loads(done.stdout), [float(row["slowdown"]) for row in rows], \
        statistics.mean(int(row["bytes"]) for row in rows)


def quantile(values, share):
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]


def measure(case, backlog, folder):
    scenario = folder / "scenario.toml"
    scenario.write_text(case.text(backlog))
    packet_s, _, packets, mean_bytes = simulate(scenario, folder)
    flow_s, summary, flows, _ = min((simulate(scenario, folder, "--level", "flow", "--unvalidated") for _ in range(5)),
                                 key=lambda run: run[0])
    mean_packet, mean_flow = statistics.mean(packets), statistics.mean(flows)
    return {
        "backlog": backlog, "network": case.network, "hosts": HOSTS[case.network],
        "traffic": case.name, "load": case.load, "seed": case.seed,
        "flows": len(flows), "flow_bytes": mean_bytes, "packet_slowdown": mean_packet, "flow_slowdown": mean_flow,
        "error": mean_flow / mean_packet - 1,
        "packet_p99": quantile(packets, 99), "flow_p99": quantile(flows, 99),
        "offered_load": summary.get("offered_load"), "bottleneck_flows": summary["bottleneck_flows"],
        "packet_s": packet_s, "flow_s": flow_s, "speed_up": packet_s / flow_s,
    }


def range_of(rows, backlog, at_once, date):
    """Returns the range that these cases validate, or None if they validate none.

    The number of flows that share a bottleneck says best how far the flow level holds: a range has fewer than any case with
    an error above the bound.
    """
    rows = [row for row in rows if row["hosts"] >= HOSTS_MIN[backlog]]
    failed = [row["bottleneck_flows"] for row in rows if abs(row["error"]) > ERROR_MAX]
    held = [row for row in rows if not failed or row["bottleneck_flows"] < min(failed)]
    if not held:
        return None
    return {
        "backlog": backlog, "at_once": at_once, "hosts_min": min(row["hosts"] for row in held),
        "flow_bytes_min": int(min(row["flow_bytes"] for row in held)),
        "load_max": 0 if at_once else max(row["offered_load"] for row in held),
        "bottleneck_flows_max": max(row["bottleneck_flows"] for row in held),
        "error_max": max(abs(row["error"]) for row in held),
        "error_mean": statistics.mean(abs(row["error"]) for row in held),
        "runs": len(held), "date": date,
    }


def ranges_of(rows, backlog, at_once, date):
    """Returns one range of all cases, and one of those with long flows, of which more may share a bottleneck.

    With credits, flows that begin at once validate nothing: a permutation holds, but an incast of as few flows starves some
    of them and blocks others, which the flow level does not know.
    """
    if backlog == "credits" and at_once:
        return []
    ranges = [range_of(rows, backlog, at_once, date),
              range_of([row for row in rows if row["flow_bytes"] >= LONG_FLOW_BYTES], backlog, at_once, date)]
    ranges = [found for found in ranges if found]
    return ranges[:1] if len(ranges) == 2 and ranges[0] == ranges[1] else ranges


def is_within(row, ranges):
    """Returns True if `tulle sim` does not refuse the case."""
    return any(r["backlog"] == row["backlog"] and r["at_once"] == (row["load"] == 0) and row["hosts"] >= r["hosts_min"]
               and row["flow_bytes"] >= r["flow_bytes_min"]
               and row["bottleneck_flows"] <= r["bottleneck_flows_max"]
               and (r["at_once"] or row["offered_load"] <= r["load_max"]) for r in ranges)


def table(rows, ranges, date):
    lines = [f"Measured by `./dev bench levels` on {date}. Speed is the ratio of the processor times of the runs themselves.", ""]
    for backlog, name in FABRIC_NAMES.items():
        lines += [f"{name}:", "",
                  "| network | traffic | seed | mean slowdown, packets | flows | error | 99 %, packets | flows | speed | |",
                  "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
        for row in rows:
            if row["backlog"] != backlog:
                continue
            verdict = "" if is_within(row, ranges) else "refused"
            lines.append(f"| {row['network']} | {row['traffic']} | {row['seed']} | {row['packet_slowdown']:.3f} | "
                         f"{row['flow_slowdown']:.3f} | {row['error']:+.1%} | {row['packet_p99']:.2f} | "
                         f"{row['flow_p99']:.2f} | {row['speed_up']:.0f} x | {verdict} |")
        lines.append("")
    return "\n".join(lines)


def write_document(text):
    document = DOCUMENT.read_text()
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise Failed(f"{DOCUMENT} has no place for the table")
    DOCUMENT.write_text(head + begin + "\n" + text + "\n" + end + tail)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print a JSON object for each case")
    parser.add_argument("--dry-run", action="store_true", help="measure, and write neither the file nor the table")
    options = parser.parse_args()
    date = datetime.date.today().isoformat()
    rows, ranges = [], []
    with tempfile.TemporaryDirectory() as folder:
        for backlog in FABRICS:
            for at_once, cases in ((False, OVER_TIME), (True, AT_ONCE)):
                of_range = []
                for case in cases:
                    row = measure(case, backlog, pathlib.Path(folder))
                    of_range.append(row)
                    text = (f"{backlog:8} {row['network']:30} {row['traffic']:20} seed {row['seed']:4} "
                            f"{row['packet_slowdown']:7.3f} {row['flow_slowdown']:7.3f} {row['error']:+7.1%} "
                            f"{row['speed_up']:6.0f} x {row['bottleneck_flows']:4} flows at a bottleneck")
                    print(json.dumps(row) if options.json else text, flush=True)
                rows += of_range
                ranges += ranges_of(of_range, backlog, at_once, date)
    if options.dry_run:
        return
    RESULT.write_text(json.dumps({"measured_by": "./dev bench levels", "date": date, "ranges": ranges, "cases": rows},
                                 indent=1) + "\n")
    write_document(table(rows, ranges, date))


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"levels: {error}")
