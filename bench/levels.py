#!/usr/bin/env python3
"""./dev bench levels: how far the flow level (`tulle sim --level flow`) is from packets, and how much faster.

Each case of the validation set is simulated at both levels, from the same seed. Its error is that of the mean slowdown of
all flows. Cases of one range differ only in what a range leaves open: the load, the size and kind of the network, the rate
of links, the distribution of sizes and the seed. A range reaches as far as no case has an error above the bound (range_of);
the cases beyond it stand in the table all the same. For jobs the error is that of the job's time, and the bound is 1 %.

The script writes scenarios/flow-level.json, from which `tulle sim` knows what to refuse and which error to print, and the
tables in docs/reference/simulator/flow-level.md. None of the cases was looked at while the model was made: its seeds were 11
to 14.

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
DOCUMENT = ROOT / "docs" / "reference" / "simulator" / "flow-level.md"
BEGIN, END = "<!-- bench levels: begin -->\n", "<!-- bench levels: end -->\n"
JOBS_BEGIN, JOBS_END = "<!-- bench levels jobs: begin -->\n", "<!-- bench levels jobs: end -->\n"
ERROR_MAX = 0.10  # of the mean slowdown, as a share of it
JOB_ERROR_MAX = 0.01  # of a job's time
# Flows of hadoop are mostly shorter than a window, and those of web search 1.7 MB in the mean.
LONG_FLOW_BYTES = 1_000_000
# On small networks with credits, where a blocked link blocks much of the network, the error of a run was up to 24 %.
HOSTS_MIN = {"credits": 64, "window": 16}
LIMIT_S = 300
AT_FLOW_LEVEL = ("--level", "flow", "--unvalidated")

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


# Jobs among GPUs in servers of 8, on rails or on a fat tree. Their packets travel one by one.
JOB_NETWORKS = {
    "rails": 'kind = "rail-optimised"\nservers = 8\nrails = 8\nservers_per_group = 4\nspines = 8\n',
    "rails, 2 : 1": 'kind = "rail-optimised"\nservers = 8\nrails = 8\nservers_per_group = 4\nspines = 2\n',
    "fat tree": 'kind = "fat-tree"\nk = 8\nhosts_per_edge = 2\n',
    "two servers": 'kind = "rail-optimised"\nservers = 2\nrails = 8\nservers_per_group = 4\nspines = 2\n',
}
JOB_HOSTS = {"rails": 64, "rails, 2 : 1": 64, "fat tree": 64, "two servers": 16}
JOB_FABRICS = {"credits": '[fabric]\nkind = "infiniband"\n', "window": '[fabric]\nkind = "roce"\n'}
JOB_FABRIC_NAMES = {"credits": "InfiniBand", "window": "RoCE v2 with PFC"}
MODEL = """\
[model]
layers = {layers}
hidden = 4096
feed_forward = 14336
heads = 32
key_value_heads = 8
sequence = 8192
{experts}[gpu]
profile = "h100"
[parallel]
tensor = {tensor}
pipeline = {pipeline}
micro_batch = 1
micro_batches = 4
{parallel}"""
DENSE = MODEL.format(layers=4, experts="", tensor=2, pipeline=1, parallel="")
STAGES = MODEL.format(layers=4, experts="", tensor=4, pipeline=4, parallel="")
EXPERTS = MODEL.format(layers=4, experts="experts = 8\nexperts_of_token = 2\n", tensor=2, pipeline=4,
                       parallel="expert = 8\nsequence = true\n")


def collective(kind, algorithm, size, more=""):
    return f'pattern = "collective"\ncollective = "{kind}"\nalgorithm = "{algorithm}"\nbytes = "{size}"\n{more}'


@dataclass(frozen=True)
class JobCase:
    network: str
    traffic: str  # TOML
    name: str
    model: str = ""

    def text(self, backlog):
        return (f"[topology]\n{JOB_NETWORKS[self.network]}link_rate = \"400Gbps\"\nlink_delay = \"100ns\"\n[traffic]\n"
                f"{self.traffic}servers.profile = \"dgx-h100\"\n{JOB_FABRICS[backlog]}[host]\ntrain = 1\n")


STEP = 'pattern = "step"\nstep = "model.toml"\n'
JOBS = [
    *(JobCase(network, collective("all-reduce", "ring", "64MiB"), "all-reduce, ring, 64 MiB") for network in JOB_NETWORKS),
    JobCase("rails", collective("all-reduce", "ring", "1MiB"), "all-reduce, ring, 1 MiB"),
    JobCase("rails", collective("all-gather", "ring", "64MiB"), "all-gather, ring, 64 MiB"),
    JobCase("rails", collective("all-reduce", "hierarchical", "64MiB"), "all-reduce, hierarchical, 64 MiB"),
    JobCase("rails", collective("all-reduce", "hierarchical", "64MiB", "group_servers = 4\n"),
            "all-reduce, hierarchical in groups, 64 MiB"),
    JobCase("rails", collective("all-reduce", "halving-doubling", "32MiB"), "all-reduce, halving and doubling, 32 MiB"),
    JobCase("rails, 2 : 1", collective("all-reduce", "halving-doubling", "32MiB"),
            "all-reduce, halving and doubling, 32 MiB"),
    JobCase("rails", collective("all-reduce", "tree", "64MiB"), "all-reduce, trees, 64 MiB"),
    JobCase("rails", collective("all-to-all", "direct", "16MiB"), "all-to-all, 16 MiB"),
    JobCase("rails", 'pattern = "experts"\noperation = "layer"\nroute = "by-server"\n', "a layer of experts"),
    JobCase("rails", STEP, "a training step, data parallel", DENSE),
    JobCase("rails", STEP, "a training step, four stages", STAGES),
    JobCase("rails", STEP, "a training step, experts", EXPERTS),
]


class Failed(Exception):
    pass


def run(scenario, folder, *options):
    """Returns (seconds of the run, summary)."""
    timings = folder / "timings.json"
    argv = [TULLE, "sim", scenario, "--json", "--timings", timings, *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise Failed(done.stderr.strip() or f"exit status {done.returncode}")
    summary = json.loads(done.stdout)
    if summary["finished"] != summary["flows"]:
        raise Failed(f"{scenario}: not all flows are done")
    return json.loads(timings.read_text())["run_cpu_s"], summary


def flows_in(folder):
    with open(folder / "flows.csv", newline="") as file:
        return list(csv.DictReader(file))


def simulate(scenario, folder, *options):
    """Returns (seconds of the run, summary, slowdowns of the flows, bytes of a flow in the mean)."""
    seconds, summary = run(scenario, folder, "-o", folder, *options)
    rows = flows_in(folder)
    return seconds, summary, [float(row["slowdown"]) for row in rows], statistics.mean(int(row["bytes"]) for row in rows)


def fastest_at_flow_level(simulate_once, scenario, folder):
    """Returns the result of the fastest of five runs."""
    runs = [simulate_once(scenario, folder, *AT_FLOW_LEVEL) for _ in range(5)]
    return min(runs, key=lambda result: result[0])


def quantile(values, share):
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]


def measure(case, backlog, folder):
    scenario = folder / "scenario.toml"
    scenario.write_text(case.text(backlog))
    packet_s, _, packets, mean_bytes = simulate(scenario, folder)
    flow_s, summary, flows, _ = fastest_at_flow_level(simulate, scenario, folder)
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


def time_of(summary):
    return summary["job_us"] if "job_us" in summary else summary["time_us"]


def measure_job(case, backlog, folder):
    scenario = folder / "scenario.toml"
    scenario.write_text(case.text(backlog))
    (folder / "model.toml").write_text(case.model)
    profiles = folder / "profiles"
    if not profiles.exists():
        profiles.symlink_to(ROOT / "scenarios" / "profiles")
    packet_s, packets = run(scenario, folder)
    flow_s, flows = fastest_at_flow_level(run, scenario, folder)
    run(scenario, folder, *AT_FLOW_LEVEL, "-o", folder)
    mean_bytes = statistics.mean(int(row["bytes"]) for row in flows_in(folder))
    return {
        "backlog": backlog, "of_jobs": True, "network": case.network, "hosts": JOB_HOSTS[case.network], "traffic": case.name,
        "flows": flows["flows"], "flow_bytes": mean_bytes,
        "packet_us": time_of(packets), "flow_us": time_of(flows), "error": time_of(flows) / time_of(packets) - 1,
        "bottleneck_flows": flows["bottleneck_flows"], "pauses": packets["pauses"],
        "packet_s": packet_s, "flow_s": flow_s, "speed_up": packet_s / flow_s,
    }


def range_of(rows, backlog, at_once, date, of_jobs=False):
    """Returns the range that these cases validate, or None if they validate none.

    The number of flows that share a bottleneck says best how far the flow level holds: a range has fewer than any case with
    an error above the bound. A job whose packets were paused counts as such a case, however small its error is: it was lucky.
    """
    error_max = JOB_ERROR_MAX if of_jobs else ERROR_MAX
    rows = [row for row in rows if of_jobs or row["hosts"] >= HOSTS_MIN[backlog]]
    failed = [row["bottleneck_flows"] for row in rows if abs(row["error"]) > error_max or (of_jobs and row["pauses"] > 0)]
    held = [row for row in rows if not failed or row["bottleneck_flows"] < min(failed)]
    if not held:
        return None
    return {
        "backlog": backlog, "at_once": at_once, **({"of_jobs": True} if of_jobs else {}),
        "hosts_min": min(row["hosts"] for row in held), "flow_bytes_min": int(min(row["flow_bytes"] for row in held)),
        "load_max": 0 if at_once or of_jobs else max(row["offered_load"] for row in held),
        "bottleneck_flows_max": max(row["bottleneck_flows"] for row in held),
        "error_max": max(abs(row["error"]) for row in held),
        "error_mean": statistics.mean(abs(row["error"]) for row in held), "runs": len(held), "date": date,
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
    return any(not r.get("of_jobs") and r["backlog"] == row["backlog"] and r["at_once"] == (row["load"] == 0)
               and row["hosts"] >= r["hosts_min"]
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


def job_table(rows, ranges, date):
    lines = [f"Measured by `./dev bench levels jobs` on {date}, among 64 GPUs, or 16 in two servers.", ""]
    for backlog, name in JOB_FABRIC_NAMES.items():
        limit = [r["bottleneck_flows_max"] for r in ranges if r.get("of_jobs") and r["backlog"] == backlog]
        lines += [f"{name}:", "",
                  "| network | job | time, packets | flows | error | flows at a bottleneck | pauses | speed | |",
                  "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
        for row in rows:
            if row["backlog"] != backlog:
                continue
            verdict = "" if limit and row["bottleneck_flows"] <= limit[0] else "refused"
            lines.append(f"| {row['network']} | {row['traffic']} | {row['packet_us']:.1f} us | {row['flow_us']:.1f} us | "
                         f"{row['error']:+.2%} | {row['bottleneck_flows']} | {row['pauses']} | {row['speed_up']:.0f} x | "
                         f"{verdict} |")
        lines.append("")
    return "\n".join(lines)


def write_document(text, begin_mark=BEGIN, end_mark=END):
    document = DOCUMENT.read_text()
    head, begin, rest = document.partition(begin_mark)
    _, end, tail = rest.partition(end_mark)
    if not begin or not end:
        raise Failed(f"{DOCUMENT} has no place for the table")
    DOCUMENT.write_text(head + begin + "\n" + text + "\n" + end + tail)


def measure_flows(folder, show, date):
    rows, ranges = [], []
    for backlog in FABRICS:
        for at_once, cases in ((False, OVER_TIME), (True, AT_ONCE)):
            of_range = []
            for case in cases:
                row = measure(case, backlog, folder)
                of_range.append(row)
                show(row, f"{row['packet_slowdown']:7.3f} {row['flow_slowdown']:7.3f}")
            rows += of_range
            ranges += ranges_of(of_range, backlog, at_once, date)
    return rows, ranges


def measure_jobs(folder, show, date):
    rows, ranges = [], []
    for backlog in JOB_FABRICS:
        of_range = []
        for case in JOBS:
            row = measure_job(case, backlog, folder)
            of_range.append(row)
            show(row, f"{row['packet_us']:10.1f} {row['flow_us']:10.1f} us")
        rows += of_range
        found = range_of(of_range, backlog, False, date, of_jobs=True)
        ranges += [found] if found else []
    return rows, ranges


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["flows", "jobs", []], metavar="flows|jobs",
                        help="what to measure; what was measured before of the other stays (both)")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each case")
    parser.add_argument("--dry-run", action="store_true", help="measure, and write neither the file nor the table")
    options = parser.parse_args()
    what = options.what or ["flows", "jobs"]
    date = datetime.date.today().isoformat()

    def show(row, values):
        text = (f"{row['backlog']:8} {row['network']:30} {row['traffic']:44} {values} {row['error']:+7.2%} "
                f"{row['speed_up']:6.0f} x {row['bottleneck_flows']:4} flows at a bottleneck")
        print(json.dumps(row) if options.json else text, flush=True)

    before = json.loads(RESULT.read_text())
    of_jobs = lambda each: each.get("of_jobs", False)  # noqa: E731
    kept = {"flows": ([c for c in before["cases"] if not of_jobs(c)], [r for r in before["ranges"] if not of_jobs(r)]),
            "jobs": ([c for c in before["cases"] if of_jobs(c)], [r for r in before["ranges"] if of_jobs(r)])}
    with tempfile.TemporaryDirectory() as folder:
        for name, measure_all in (("flows", measure_flows), ("jobs", measure_jobs)):
            if name in what:
                kept[name] = measure_all(pathlib.Path(folder), show, date)
    if options.dry_run:
        return
    rows, ranges = kept["flows"][0] + kept["jobs"][0], kept["flows"][1] + kept["jobs"][1]
    RESULT.write_text(json.dumps({"measured_by": "./dev bench levels", "date": date, "ranges": ranges, "cases": rows},
                                 indent=1) + "\n")
    if "flows" in what:
        write_document(table(kept["flows"][0], ranges, date))
    if "jobs" in what:
        write_document(job_table(kept["jobs"][0], ranges, date), JOBS_BEGIN, JOBS_END)


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"levels: {error}")
