#!/usr/bin/env python3
"""./dev bench sim: runs the simulator on the reference workloads, and shows beside it what other simulators needed.

A packet-hop is one data packet serialised on one link. CPU seconds are user and system time together. The peers' are
user time only, from another day on a machine of the same kind (bench/sim/peers.json). Each line that was measured is
appended to bench/history.jsonl with the commit and the machine.
With --htsim, another simulator runs the same flows in turn with Tulle, and its row and the ratio of both are of this run.
With --json, the script prints one object a line: {"workload", "congestion_control", "packet_hops", "events", "cpu_s",
"user_s", "packet_hops_per_cpu_s", "peak_mb", "setup_s", "fct_us": {"min", "median", "p99", "max"}}. htsim's has a
"simulator", no "events" and no "setup_s", and "times_as_fast": how many times as many packet-hops Tulle does a CPU second.
"""

import argparse
import csv
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "sim"))

import history  # noqa: E402
import htsim  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

BUILD = ROOT / os.environ.get("TULLE_BUILD", "build")
TULLE = BUILD / "bin" / "tulle"
PEERS = ROOT / "bench" / "sim" / "peers.json"
LIMIT_S = 900
SEED = 1  # seed of the flows that the peers ran


class Failed(Exception):
    pass


# --- the simulator's command line and its results ------------------------------------------------------------------

CONGESTION_CONTROLS = ["none", "dcqcn-hpcc"]  # PFC alone, or DCQCN with the parameters of the peer's runs


def command(tulle, folder, results, timings, congestion_control):
    return [tulle, "sim", "--topology", folder / "topology.csv", "--flows", folder / "flows.csv", "--fabric", "roce",
            "--congestion-control", congestion_control, "-o", results, "--timings", timings]


def read_results(results, timings):
    """Returns (the summary, flow completion times in microseconds, seconds of set-up)."""
    try:
        summary = json.loads((results / "summary.json").read_text())
        setup_s = json.loads(timings.read_text())["setup_s"]
        with (results / "flows.csv").open(newline="") as table:
            times = [row["fct_ns"] for row in csv.DictReader(table)]
        missing = sum(not time for time in times)
        if missing or not times:
            raise Failed(f"{missing} of {len(times)} flows did not arrive")
        return {key: summary[key] for key in ("events", "packet_hops")}, [float(time) / 1e3 for time in times], setup_s
    except KeyError as error:
        raise Failed(f"the results hold no {error}") from None
    except (OSError, TypeError, ValueError) as error:
        raise Failed(f"results that cannot be read: {error}") from None


# --- measuring -----------------------------------------------------------------------------------------------------


def run_measured(argv, limit_s, output=subprocess.DEVNULL, folder=None):
    """Runs a command and returns (user seconds, system seconds, peak MB). It runs in `folder`, and its
    standard output goes to `output`."""
    with tempfile.NamedTemporaryFile("r") as used:
        process = subprocess.Popen([sys.executable, "-I", "-S", ROOT / "bench" / "sim" / "usage.py", used.name, *map(str, argv)],
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True, cwd=folder)
        try:
            _, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {limit_s:g} s") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        fields = used.read().split()
    if len(fields) != 4 or fields[0] != "0":
        last_lines = "\n".join(errors.strip().splitlines()[-5:])
        raise Failed(f"{' '.join(map(str, argv))}: exit status {fields[0] if fields else '?'}\n{last_lines}".strip())
    user_s, system_s, peak_kib = map(float, fields[1:])
    return user_s, system_s, peak_kib * 1024 / 1e6


def percentile(values, share):
    """Returns the smallest value that at least this share of all values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def measure(tulle, workload, congestion_control, limit_s):
    """Measures one workload and returns its row."""
    with tempfile.TemporaryDirectory(prefix="tulle-bench-") as folder:
        folder = pathlib.Path(folder)
        workload.write(folder)
        results, timings = folder / "results", folder / "timings.json"
        user_s, system_s, peak_mb = run_measured(command(tulle, folder, results, timings, congestion_control), limit_s)
        summary, fct_us, setup_s = read_results(results, timings)
    if len(fct_us) != len(workload.pairs):
        raise Failed(f"{len(fct_us)} flows in the results, {len(workload.pairs)} in the workload")
    return {"workload": workload.name, "congestion_control": congestion_control, "packet_hops": summary["packet_hops"],
            "events": summary["events"], **measured(summary["packet_hops"], user_s, system_s, peak_mb), "setup_s": setup_s,
            "fct_us": spread(fct_us)}


def measured(packet_hops, user_s, system_s, peak_mb):
    cpu_s = user_s + system_s
    return {"cpu_s": round(cpu_s, 4), "user_s": round(user_s, 4),
            "packet_hops_per_cpu_s": round(packet_hops / cpu_s) if cpu_s > 0 else None, "peak_mb": round(peak_mb, 1)}


def spread(fct_us):
    return {"min": min(fct_us), "median": statistics.median(fct_us), "p99": percentile(fct_us, 0.99), "max": max(fct_us)}


def measure_htsim(program, workload, limit_s):
    """Measures one workload with htsim and returns its row."""
    with tempfile.TemporaryDirectory(prefix="tulle-bench-") as folder:
        folder = pathlib.Path(folder)
        said = folder / "output.txt"
        with said.open("w") as output:
            user_s, system_s, peak_mb = run_measured(htsim.command(pathlib.Path(program).resolve(), workload, folder), limit_s,
                                                    output, folder)  # htsim writes a file of its own there
        fct_us = htsim.completion_times_us(said.read_text())
    if len(fct_us) != len(workload.pairs):
        raise Failed(f"{len(fct_us)} of {len(workload.pairs)} flows finished in htsim")
    return {"workload": workload.name, "simulator": "htsim", "congestion_control": "none", "packet_hops": workload.packet_hops(),
            **measured(workload.packet_hops(), user_s, system_s, peak_mb), "fct_us": spread(fct_us)}


def median_run(rows):
    """Returns the run in the middle by CPU time."""
    return sorted(rows, key=lambda row: row["cpu_s"])[(len(rows) - 1) // 2]


# --- reporting -----------------------------------------------------------------------------------------------------


HEADER = (f"{'':34}{'CPU s':>9}{'set-up s':>10}{'peak MB':>9}{'packet-hops/s':>15}"
          f"   completion us: min / median / p99 / max")


def table_line(name, cpu_s, setup_s, peak_mb, rate, fct_us):
    def cell(value, width, digits=3):
        if value is None:
            return f"{'-':>{width}}"
        return f"{value:>{width},.0f}" if value >= 100 else f"{value:>{width}.{digits}g}"
    million = f"{'-':>15}" if rate is None else f"{rate / 1e6:>13.2f} M"
    times = "-" if fct_us is None else " / ".join(f"{fct_us[key]:.0f}" for key in ("min", "median", "p99", "max"))
    return f"{name:34}{cell(cpu_s, 9)}{cell(setup_s, 10)}{cell(peak_mb, 9)}{million}   {times}"


def report(row, workload, peers, as_json):
    if as_json:
        print(json.dumps(row), flush=True)
        return
    print(f"{workload.name}: {workload.what}, {workload.flow_bytes / 1e6:g} MB each, {workload.gbps} Gb/s")
    print(table_line(f"  Tulle, {row['congestion_control']}", row["cpu_s"], row["setup_s"], row["peak_mb"],
                     row["packet_hops_per_cpu_s"], row["fct_us"]))
    for peer in peers:
        if peer["workload"] == workload.name:
            print(table_line(f"  {peer['simulator']}, {peer['mode']}", peer["user_cpu_s"], peer["setup_s"],
                             peer["peak_mb"], peer["packet_hops_per_cpu_s"], peer["fct_us"]))
    sys.stdout.flush()


def report_htsim(row, own, as_json):
    """Reports htsim's row, to which it adds the ratio of both simulators' rates."""
    row["times_as_fast"] = round(own["packet_hops_per_cpu_s"] / row["packet_hops_per_cpu_s"], 1)
    if as_json:
        print(json.dumps(row), flush=True)
        return
    print(table_line("  htsim, PFC only, in this run", row["cpu_s"], None, row["peak_mb"], row["packet_hops_per_cpu_s"],
                     row["fct_us"]))
    print(f"  Tulle does {row['times_as_fast']} times as many packet-hops a CPU second as htsim in this run", flush=True)


def warn_of_other_work(row, workload):
    """Warns if other packets crossed the links than in the peers' runs. Rates compare only where the same packets
    cross the same links: none lost, and none counted that others do not count."""
    expected = workload.packet_hops()
    if row["packet_hops"] != expected:
        print(f"{workload.name}: {row['packet_hops']:,} packet-hops where the peers had {expected:,}; "
              f"their rates do not compare", file=sys.stderr)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="./dev bench sim")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"{', '.join(WORKLOADS)} (all)")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--congestion-control", choices=CONGESTION_CONTROLS, default="none")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each; the one in the middle is reported (1)")
    parser.add_argument("--htsim", metavar="PROGRAM", help="its htsim_roce, which runs the workloads on fat trees too")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help=f"seconds that a run may take ({LIMIT_S})")
    parser.add_argument("--history", type=pathlib.Path, default=history.FILE, help="the file to append to")
    parser.add_argument("--no-history", action="store_true", help="append nothing")
    parser.add_argument("--tulle", type=pathlib.Path, default=TULLE, help="the executable")
    options = parser.parse_args(arguments)
    for name in options.workloads:
        if name not in WORKLOADS:
            parser.error(f"there is no workload {name}, only {', '.join(WORKLOADS)}")
    if options.rounds < 1:
        parser.error("at least 1 round is needed")
    peers = json.loads(PEERS.read_text())["runs"]
    if not options.json:
        print(HEADER)
    failed = 0
    for name in options.workloads or WORKLOADS:
        workload = WORKLOADS[name](SEED)
        beside = options.htsim if workload.fat_tree_hosts else None  # htsim's program has no other topology
        rows, peer_rows = [], []
        try:
            for _ in range(options.rounds):
                rows.append(measure(options.tulle, workload, options.congestion_control, options.limit))
                if beside is not None:
                    peer_rows.append(measure_htsim(beside, workload, options.limit))
            row = median_run(rows)
        except Failed as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed += 1
            continue
        warn_of_other_work(row, workload)
        report(row, workload, peers, options.json)
        if peer_rows:
            report_htsim(median_run(peer_rows), row, options.json)
        if not options.no_history:
            history.append(row, options.history)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
