#!/usr/bin/env python3
"""./dev bench scale: how the simulator grows: by threads, by ranks, and by the hosts of a cluster.

Four tables, one for each question:
- threads: each reference workload (bench/sim/workloads.py) is simulated by one thread and by more, in turn. The speed-up is
  the ratio of the medians of the time that the simulation itself takes. The results must be the same bytes.
- ranks: the same with ranks of MPI, by each mpirun that is there.
- hosts: fat trees in which every host sends one message to another. Memory is the peak of the process, and the set-up
  is all that comes before the first event.
- growth: how much longer a packet-hop takes on each of these clusters than on W2, by one thread. Messages of 1 MB, as W3 and
  W4 have, show what the size of a cluster costs; those of 40 KB also show what a connection for each ten packets does.

With --json, the script prints one object a line: {"name", "value", "unit", "rounds"}. Each line is appended to
bench/history.jsonl.
"""

import argparse
import filecmp
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "sim"))

import history  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

TULLE = ROOT / os.environ.get("TULLE_BUILD", "build") / "bin" / "tulle"
SEED = 1
LIMIT_S = 900
# More than any workload needs with two ranks, and any cluster.
WORKLOAD_BYTES, CLUSTER_BYTES = 1 << 30, 4 << 30
FILES = ("summary.json", "flows.csv", "links.csv")
GROWS_FROM = "W2"
# Each cluster's ports a switch, k, and the bytes of each message. A fat tree has k^3 / 4 hosts.
TREES = {"65,536 hosts": (64, "40KB"), "65,536 hosts, 1 MB": (64, "1MB"), "265,302 hosts": (102, "40KB")}
SCENARIO = """\
[topology]
kind = "fat-tree"
k = {k}
link_rate = "400Gbps"
link_delay = "1us"
[traffic]
pattern = "permutation"
bytes = "{bytes}"
"""


class Failed(Exception):
    pass


def launchers(ranks):
    """Returns the command that starts so many ranks, by the name of each MPI that is there."""
    # Ranks of Open MPI that may be more than the processors yield them in each wait, and are not bound to one.
    more = ("--oversubscribe",) if ranks > len(os.sched_getaffinity(0)) else ()
    found = {"Open MPI": ("mpirun.openmpi", "--allow-run-as-root", *more), "MPICH": ("mpirun.mpich",)}
    return {name: [*argv, "-n", str(ranks)] for name, argv in found.items() if shutil.which(argv[0])}


def simulate(tulle, arguments, folder, keep=False, launcher=()):
    """Returns (timings, summary) of one simulation. With `keep`, it leaves its results in the folder, which takes longer."""
    timings = folder / "timings.json"
    argv = [*launcher, tulle, "sim", *arguments, "--json", "--timings", timings, *(["-o", folder] if keep else [])]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {LIMIT_S} s") from None
    if done.returncode != 0:
        raise Failed(done.stderr.strip() or f"exit status {done.returncode}")
    return json.loads(timings.read_text()), json.loads(done.stdout)


def touch_memory(wanted):
    """Uses and frees so many bytes, if they are free, so that the next process gets pages which the machine really has.

    The host of a virtual machine may take free pages back. Whoever uses them next waits until they are there again, which
    made two ranks between 1.4 and 1.9 times as fast as one, by chance.
    """
    available = int(re.search(r"MemAvailable: *(\d+) kB", pathlib.Path("/proc/meminfo").read_text()).group(1)) * 1024
    # In a process of its own: a program inherits the peak of the process that starts it.
    subprocess.run([sys.executable, "-c", f"b'x' * {min(wanted, available // 2)}"], check=True)


def compare(one, other):
    """Fails if two folders of results differ."""
    for name in FILES:
        if not filecmp.cmp(one / name, other / name, shallow=False):
            raise Failed(f"{name} differs with the number of threads or ranks")


def ways_of(threads, ranks):
    """Returns each way to simulate by its name: (launcher, arguments). The first one is one thread."""
    ways = {"one": ((), ())}
    ways.update({f"{count} threads": ((), ("--threads", str(count))) for count in threads})
    for count in ranks:
        ways.update({f"{count} ranks of {name}": (launcher, ()) for name, launcher in launchers(count).items()})
    return ways


def threads_rows(tulle, name, ways, rounds, folder):
    """Yields how much faster each way simulates a workload than one thread, whose time a packet-hop it notes."""
    workload = WORKLOADS[name](SEED)
    workload.write(folder / name)
    arguments = ["--topology", folder / name / "topology.csv", "--flows", folder / name / "flows.csv"]
    times = {way: [] for way in ways}
    for way, (launcher, more) in ways.items():
        out = folder / re.sub(r"\W", "-", f"{name}-{way}")
        out.mkdir()
        _, summary = simulate(tulle, [*arguments, *more], out, True, launcher)
        compare(folder / f"{name}-one", out)
    hops = summary["packet_hops"]
    for _ in range(rounds):
        for way, (launcher, more) in ways.items():
            touch_memory(WORKLOAD_BYTES)
            timings, _ = simulate(tulle, [*arguments, *more], folder, False, launcher)
            times[way].append(timings["run_s"])
    alone = statistics.median(times.pop("one"))
    yield {"name": f"{name}: nanoseconds a packet-hop", "value": round(alone / hops * 1e9, 1), "unit": "ns", "rounds": rounds}
    for way, taken in times.items():
        yield {"name": f"{name}: {way} beside one", "value": round(alone / statistics.median(taken), 2), "unit": "times",
               "rounds": rounds}


def hosts_rows(tulle, name, rounds, folder):
    """Yields the memory, the set-up and the time a packet-hop of a fat tree."""
    scenario = folder / "tree.toml"
    k, message = TREES[name]
    scenario.write_text(SCENARIO.format(k=k, bytes=message))
    runs = []
    for _ in range(rounds):
        touch_memory(CLUSTER_BYTES)
        runs.append(simulate(tulle, [scenario], folder))
    middle = lambda value: statistics.median(value(timings, summary) for timings, summary in runs)  # noqa: E731
    yield {"name": f"{name}: memory", "value": round(middle(lambda t, s: t["peak_bytes"]) / 1e9, 3), "unit": "GB",
           "rounds": rounds}
    yield {"name": f"{name}: set-up", "value": round(middle(lambda t, s: t["setup_s"]), 2), "unit": "s", "rounds": rounds}
    yield {"name": f"{name}: nanoseconds a packet-hop",
           "value": round(middle(lambda t, s: t["run_s"] / s["packet_hops"]) * 1e9, 1), "unit": "ns", "rounds": rounds}


def growth_rows(rows):
    """Returns how much longer a packet-hop takes on each cluster than on W2, of those that were measured."""
    times = {row["name"].split(":")[0]: row["value"] for row in rows if row["name"].endswith("a packet-hop")}
    if GROWS_FROM not in times:
        return []
    return [{"name": f"{name}: time a packet-hop beside {GROWS_FROM}", "value": round(times[name] / times[GROWS_FROM], 2),
             "unit": "times", "rounds": 1} for name in TREES if name in times]


def main(arguments=None):
    processors = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="./dev bench scale")
    parser.add_argument("what", nargs="*", metavar="WHAT",
                        help=f"workloads and clusters: W2, W3, W4, {', '.join(map(repr, TREES))} (all)")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({2, processors} - {1}), metavar="N",
                        help=f"numbers of threads beside one (2, and {processors} for the processors here)")
    parser.add_argument("--ranks", type=int, nargs="*", default=[processors] if processors > 1 else [], metavar="N",
                        help=f"numbers of ranks beside one ({processors} for the processors here)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--history", type=pathlib.Path, default=history.FILE, help="the file to append to")
    parser.add_argument("--no-history", action="store_true", help="append nothing")
    parser.add_argument("--tulle", type=pathlib.Path, default=TULLE, help="the executable")
    options = parser.parse_args(arguments)
    known = ["W2", "W3", "W4", *TREES]
    for name in options.what:
        if name not in known:
            parser.error(f"there is no {name}, only {', '.join(known)}")
    if options.rounds < 1:
        parser.error("at least 1 round is needed")
    rows, failed = [], 0

    def show(row):
        rows.append(row)
        print(json.dumps(row) if options.json else f"{row['name']:48}{row['value']:>10} {row['unit']}", flush=True)
        if not options.no_history:
            history.append(row, options.history)

    for name in options.what or known:
        with tempfile.TemporaryDirectory(prefix="tulle-bench-") as folder:
            folder = pathlib.Path(folder)
            try:
                made = (hosts_rows(options.tulle, name, options.rounds, folder) if name in TREES else
                        threads_rows(options.tulle, name, ways_of(options.threads, options.ranks), options.rounds, folder))
                for row in made:
                    show(row)
            except (Failed, OSError, KeyError, ValueError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                failed += 1
    for row in growth_rows(rows):
        show(row)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
