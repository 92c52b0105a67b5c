#!/usr/bin/env python3
"""./dev fuzz: runs the fuzzers, and keeps their corpora and the record of what they found.

    fuzz.py [--seconds N] [NAME...]   replays the stored corpora, then fuzzes for N seconds each
    fuzz.py --hours N [NAME...]       fuzzes for N hours on all cores, and records what was done
    fuzz.py --merge [NAME...]         stores the inputs that reach the most, of all that are known
    fuzz.py --coverage [NAME...]      measures the lines that the stored corpora reach, and records them

Stored inputs lie in tests/corpora: NAME.zip is a corpus, which --merge writes, and regressions/NAME/ holds an input for
each fault that was found and removed. New inputs go to build-fuzz/corpus/NAME, and faults to build-fuzz/crashes. The
record is docs/reliability/fuzzing.json.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile

from commit import commit

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD, COVERAGE_BUILD = ROOT / "build-fuzz", ROOT / "build-fuzz-coverage"
STORED = ROOT / "tests/corpora"
RECORD = ROOT / "docs/reliability/fuzzing.json"
FILES_MAX, BYTES_MAX = 160, 64 * 1024  # bounds of a stored corpus
INPUT_TIMEOUT_S = 10
SLICE_S = 60  # --hours changes from fuzzer to fuzzer about this often
COVERAGE_GOAL = 0.95
# What a stranger's bytes go through first: the files whose lines --coverage holds against the goal.
PARSERS = (
    "src/rdma/wire/", "src/live/message/codec.h", "src/live/message/connection.cc", "src/live/message/connection_values.cc",
    "src/live/message/framing.h", "src/live/message/protocol.cc", "src/management/cm/receiver.cc",
    "src/management/cm/message_values.cc", "src/management/performance/", "src/management/subnet/",
    "src/management/port_agents.cc", "src/shim/rsockets/protocol/", "src/study/scenario/", "src/study/workload/csv.h",
    "src/study/workload/flow_file.cc", "src/study/workload/distribution.cc", "src/fabric/topology_csv.cc",
    "src/fabric/faults.cc", "src/study/report/quantity.cc", "src/rdma/port/framing/", "src/study/traces/",
    "src/rdma/device/flow_fields.cc", "src/shim/exports/", "src/live/path/packets/capture_ring.cc", "src/live/settings.cc")
COMPUTED = ("src/rdma/wire/opcode.cc",)  # tables that the compiler computes; no line of theirs runs
# Seeds that lie elsewhere in the repository.
SEEDS = {
    "scenario_fuzz": ("scenarios/**/*.toml",),
    "topology_csv_fuzz": ("scenarios/tables/*.csv",),
}


def cores():
    return len(os.sched_getaffinity(0))


def sources():
    """Returns the fuzzers' sources by name."""
    return {path.stem: path for path in sorted((ROOT / "src").rglob("*_fuzz.cc"))}


def regressions(name):
    """Returns the inputs of faults. They are replayed once, and not fuzzed further: many of them take long."""
    folder = STORED / "regressions" / name
    return sorted(folder.iterdir()) if folder.is_dir() else []


def unpack_corpus(name, folder):
    """Unpacks a fuzzer's stored corpus, with its seeds, into a folder, which it returns."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    packed = STORED / f"{name}.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            for entry in archive.namelist():
                (folder / pathlib.PurePosixPath(entry).name).write_bytes(archive.read(entry))
    for pattern in SEEDS.get(name, ()):
        for path in sorted(ROOT.glob(pattern)):
            shutil.copy(path, folder / ("seed-" + path.name))
    return folder


def sanitizer_environment():
    # Memory that a fuzzer asks for in one piece is bounded too, so that no small input costs much memory.
    return dict(os.environ, ASAN_OPTIONS="detect_leaks=1:max_allocation_size_mb=2048:allocator_may_return_null=0:"
                "malloc_context_size=10",
                UBSAN_OPTIONS="print_stacktrace=1")


def options_of(name):
    """Returns libFuzzer's options for a fuzzer, which are in its source: `// libFuzzer: -max_len=…`."""
    text = sources()[name].read_text()
    return [option for line in re.findall(r"^// libFuzzer: (.*)$", text, re.MULTILINE) for option in line.split()]


class Outcome:
    """What one or more runs of a fuzzer did."""

    def __init__(self):
        self.executions = self.seconds = self.faults = self.edges = self.features = 0
        self.logs = []

    def add(self, log, status, seconds):
        self.seconds += seconds
        self.logs.append(log)
        text = log.read_text(errors="replace")
        executions = re.findall(r"number_of_executed_units: (\d+)", text) or re.findall(r"^#(\d+)", text, re.MULTILINE)
        self.executions += int(executions[-1]) if executions else 0
        for name, numbers in (("edges", re.findall(r" cov: (\d+)", text)), ("features", re.findall(r" ft: (\d+)", text))):
            setattr(self, name, max([getattr(self, name), *map(int, numbers[-1:])]))
        self.faults += status != 0


def run_once(name, seconds, number, seed=0):
    """Runs a fuzzer, whose first run also replays its regressions. Returns (log, exit status, seconds).

    libFuzzer begins with inputs as long as the stored ones, which are short, and lengthens them slowly. Every second
    run has inputs of any length from the start: long scripts lead to states that short ones do not.
    """
    for folder in (BUILD / "corpus" / name, BUILD / "crashes", BUILD / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    log = BUILD / "logs" / f"{name}-{number}.log"
    command = [BUILD / "bin" / name, f"-max_total_time={seconds}", "-print_final_stats=1", "-reload=1", f"-seed={seed}",
               f"-timeout={INPUT_TIMEOUT_S}", "-rss_limit_mb=3072", f"-artifact_prefix={BUILD}/crashes/{name}-",
               *(["-len_control=0"] if number % 2 == 0 else []), *options_of(name)]
    folders = [BUILD / "corpus" / name, stored_corpus(name)]
    began = time.monotonic()
    with log.open("w") as out:
        status = 0
        for inputs in ([*regressions(name)] if number == 0 else [], folders):
            if inputs and status == 0:
                status = subprocess.run([*command, *inputs], stdout=out, stderr=subprocess.STDOUT, cwd=BUILD,
                                        stdin=subprocess.DEVNULL, env=sanitizer_environment()).returncode
    return log, status, time.monotonic() - began


_stored, _stored_lock = {}, threading.Lock()


def stored_corpus(name):
    with _stored_lock:
        if name not in _stored:
            _stored[name] = unpack_corpus(name, BUILD / "stored" / name)
        return _stored[name]


def show_fault(name, log):
    print("\n".join(log.read_text(errors="replace").splitlines()[-40:]))
    print(f"{name} found a fault; again with: build-fuzz/bin/{name} build-fuzz/crashes/{name}-...")


def fuzz(names, slices, seed=0):
    """Runs `slices`, pairs of a name and seconds, on all cores. A fuzzer that found a fault is not run again."""
    outcomes = {name: Outcome() for name in names}
    lock = threading.Lock()

    def work(item):
        number, (name, seconds) = item
        with lock:
            if outcomes[name].faults:
                return
        log, status, took = run_once(name, seconds, number // len(names), seed)
        with lock:
            outcome = outcomes[name]
            outcome.add(log, status, took)
            if status != 0:
                show_fault(name, log)
            print(f"{name}: {outcome.executions:,} executions in {outcome.seconds:.0f} s, {outcome.edges:,} edges",
                  flush=True)

    with concurrent.futures.ThreadPoolExecutor(cores()) as pool:
        for done in pool.map(work, enumerate(slices)):
            pass
    failed = sum(outcome.faults > 0 for outcome in outcomes.values())
    print(f"{len(names) - failed} passed, {failed} failed")
    return outcomes, failed


def slices_of(names, hours):
    """Spreads hours on all cores evenly over the fuzzers, in turns of about SLICE_S."""
    total = hours * 3600 * cores()
    turns = max(1, round(total / SLICE_S / len(names)))
    seconds = max(1, round(total / turns / len(names)))
    return [(name, seconds) for _ in range(turns) for name in names]


# --- the record ------------------------------------------------------------------------------------------------------

def read_record():
    return json.loads(RECORD.read_text()) if RECORD.exists() else {"runs": [], "coverage": {}}


def write_record(record):
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    partial = RECORD.with_suffix(".part")
    partial.write_text(json.dumps(record, indent=1) + "\n")
    partial.rename(RECORD)


def stamp():
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "commit": commit()}


def record_run(begun, outcomes, hours):
    """`begun` is the stamp of the run's beginning: the tree may have changed since."""
    record = read_record()
    fuzzers = {name: {"executions": o.executions, "seconds": round(o.seconds), "faults": o.faults, "edges": o.edges,
                      "features": o.features} for name, o in outcomes.items()}
    record["runs"].append({**begun, "hours": hours, "cores": cores(), "fuzzers": fuzzers})
    write_record(record)


# --- the stored corpora ----------------------------------------------------------------------------------------------

def read_control_file(path):
    """Reads what libFuzzer wrote while it merged. Returns the files with what each of them reaches."""
    lines = path.read_text().splitlines()
    files = lines[2:2 + int(lines[0])]
    reached = {}
    for line in lines[2 + len(files):]:
        kind, number, *rest = line.split()
        if kind in ("COV", "FT"):
            reached.setdefault(files[int(number)], set()).update((kind, each) for each in rest)
    return reached


def choose(reached, sizes):
    """Chooses inputs that reach much, within the bounds of a stored corpus: all edges that fit, and then features."""
    chosen, seen, total = [], set(), 0
    for kinds in (("COV",), ("COV", "FT")):
        left = {name: {each for each in what if each[0] in kinds} for name, what in reached.items()}
        while left and len(chosen) < FILES_MAX:
            # An input is worth the more the more it adds for its length.
            best = max(left, key=lambda name: len(left[name] - seen) / (BYTES_MAX // FILES_MAX + sizes[name]))
            gain = left.pop(best) - seen
            if not gain:
                break
            if best in chosen or total + sizes[best] > BYTES_MAX:
                continue
            chosen.append(best)
            total += sizes[best]
            seen |= reached[best]
    return chosen


def merge(name):
    folders = [folder for folder in (BUILD / "corpus" / name, stored_corpus(name)) if folder.is_dir()]
    out, control = BUILD / "merged" / name, BUILD / "merged" / f"{name}.control"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    control.unlink(missing_ok=True)
    done = subprocess.run([BUILD / "bin" / name, "-merge=1", f"-merge_control_file={control}", *options_of(name),
                           f"-timeout={INPUT_TIMEOUT_S}", "-rss_limit_mb=3072", out, *folders],
                          capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, cwd=BUILD,
                          env=sanitizer_environment())
    if done.returncode != 0 or not control.exists():
        print(done.stderr[-3000:], file=sys.stderr)
        sys.exit(f"fuzz: {name} cannot be merged; its messages are above")
    reached = read_control_file(control)
    # Seeds are in the repository already.
    reached = {file: what for file, what in reached.items() if not pathlib.Path(file).name.startswith("seed-")}
    chosen = choose(reached, {file: os.path.getsize(file) for file in reached})
    STORED.mkdir(parents=True, exist_ok=True)
    entries = {}
    for file in chosen:
        data = pathlib.Path(file).read_bytes()
        entries[f"{name}/{len(entries):03}"] = data
    with zipfile.ZipFile(STORED / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry, data in entries.items():  # without times, so that equal corpora are equal files
            archive.writestr(zipfile.ZipInfo(entry), data, zipfile.ZIP_DEFLATED)
    edges = len({each for what in reached.values() for each in what if each[0] == "COV"})
    kept = len({each for file in chosen for each in reached[file] if each[0] == "COV"})
    print(f"{name}: {len(chosen)} of {len(reached)} inputs, {sum(map(len, entries.values())):,} bytes, "
          f"{kept:,} of {edges:,} edges", flush=True)


# --- coverage --------------------------------------------------------------------------------------------------------

def measure_coverage(names):
    """Replays the stored corpora in a build that counts lines. Returns lines and covered lines by file."""
    profiles = COVERAGE_BUILD / "profiles"
    shutil.rmtree(profiles, ignore_errors=True)
    profiles.mkdir()

    def folders(name):
        return [stored_corpus(name), *{file.parent for file in regressions(name)}]

    def replay(name):
        raw = profiles / f"{name}.profraw"
        done = subprocess.run([COVERAGE_BUILD / "bin" / name, "-runs=0", f"-timeout={INPUT_TIMEOUT_S}",
                               "-rss_limit_mb=4096", *options_of(name), *folders(name)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              cwd=COVERAGE_BUILD, env=dict(os.environ, LLVM_PROFILE_FILE=str(raw)))
        if done.returncode != 0 or not raw.exists():
            sys.exit(f"fuzz: {name} failed on its stored corpus:\n{done.stderr.decode(errors='replace')[-2000:]}")

    with concurrent.futures.ThreadPoolExecutor(cores()) as pool:
        list(pool.map(replay, names))
    merged = profiles / "all.profdata"
    subprocess.run(["llvm-profdata", "merge", "-sparse", "-o", merged, *profiles.glob("*.profraw")], check=True)
    binaries = [COVERAGE_BUILD / "bin" / name for name in names]
    objects = [argument for binary in binaries[1:] for argument in ("-object", str(binary))]
    exported = subprocess.run(["llvm-cov", "export", "-summary-only", f"-instr-profile={merged}", str(binaries[0]),
                               *objects], check=True, capture_output=True, text=True).stdout
    files = {}
    for entry in json.loads(exported)["data"][0]["files"]:
        path = os.path.relpath(entry["filename"], ROOT)
        is_ours = path.startswith("src/") and not re.search(r"_(test|fuzz|bench)\.", path)
        if is_ours:
            files[path] = (entry["summary"]["lines"]["count"], entry["summary"]["lines"]["covered"])
    return files


def is_parser(path):
    return path.startswith(PARSERS) and path not in COMPUTED


def show_coverage(files):
    width = max(map(len, files))
    lines = covered = 0
    for path, (count, reached) in sorted(files.items()):
        if not is_parser(path):
            continue
        lines, covered = lines + count, covered + reached
        mark = "" if reached >= COVERAGE_GOAL * count else "  below the goal"
        print(f"{path:{width}}  {reached:5} of {count:5} lines  {reached / count:6.1%}{mark}")
    print(f"parsers: {covered:,} of {lines:,} lines, {covered / lines:.1%} (goal: {COVERAGE_GOAL:.0%})")
    return lines, covered


def coverage(names):
    files = measure_coverage(names)
    lines, covered = show_coverage(files)
    record = read_record()
    record["coverage"] = {**stamp(), "parsers": {"lines": lines, "covered": covered},
                          "files": {path: {"lines": count, "covered": reached}
                                    for path, (count, reached) in sorted(files.items()) if is_parser(path)}}
    write_record(record)


def main():
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__.split("\n")[0])
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--seconds", type=float, default=60, help="fuzz each fuzzer for so long (60)")
    parser.add_argument("--seed", type=int, default=0, help="with --seconds: change the inputs in the same way each "
                        "time; 0 draws a seed (0)")
    kind.add_argument("--hours", type=float, help="fuzz for so long on all cores, and record it")
    kind.add_argument("--merge", action="store_true", help="store the inputs that reach the most in tests/corpora")
    kind.add_argument("--coverage", action="store_true", help="measure the lines that the stored corpora reach")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # reads the arguments only
    parser.add_argument("names", nargs="*", metavar="NAME", help="a fuzzer, as in NAME.cc; all of them without it")
    arguments = parser.parse_args()
    known = sources()
    names = arguments.names or list(known)
    for name in names:
        if name not in known:
            sys.exit(f"fuzz: there is no fuzzer {name}; there are {', '.join(known)}")
    if arguments.check:
        return
    if arguments.merge:
        with concurrent.futures.ThreadPoolExecutor(cores()) as pool:
            list(pool.map(merge, names))
    elif arguments.coverage:
        coverage(names)
    elif arguments.hours:
        begun = stamp()
        outcomes, failed = fuzz(names, slices_of(names, arguments.hours))
        record_run(begun, outcomes, arguments.hours)
        sys.exit(failed > 0)
    else:
        _, failed = fuzz(names, [(name, max(1, round(arguments.seconds))) for name in names], arguments.seed)
        sys.exit(failed > 0)


if __name__ == "__main__":
    main()
