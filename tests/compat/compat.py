#!/usr/bin/env python3
"""Runs real programs over Tulle, and writes down which work: docs/compatibility.md.

    compat.py                    runs all of them, records the outcomes for this machine's release and makes the page
    compat.py NAME ...           runs a suite (ucx), or some of its tests (ucx.one_host.rc); records nothing
    compat.py --record NAME ...  runs these suites, and records them beside the release's others
    compat.py --render           makes the page from the records alone
    compat.py --list             lists the suites
    compat.py --json             prints one JSON object a line: suite, test, outcome, reason

The records are docs/compatibility/CODENAME.json, one file a release; the page has a column for each.

The outcomes are pass, skip (the reason says why the test does not apply), fail, error, crash and hang. The exit status
is 1 if any outcome is neither pass nor skip.
"""

import argparse
import dataclasses
import importlib
import json
import os
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]

import document  # noqa: E402
import frame  # noqa: E402
import harness  # noqa: E402
import records  # noqa: E402
from run import become_root_of_a_namespace  # noqa: E402

SUITES = ("ibverbs_utils", "perftest", "ucx", "openmpi", "mpich", "gloo", "late_binding", "libfabric", "fio",
          "qemu", "qperf", "iser", "rdmacm_utils", "iperf3", "socket_servers", "infiniband_diags", "infiniband",
          "rdma_core")

PAGE = ROOT / "docs" / "compatibility.md"
TESTS = ROOT / "docs" / "compatibility" / "tests.csv"
INTERRUPTED = 128 + signal.SIGINT  # the exit status that a shell gives


def available():
    return [name for name in SUITES if (HERE / f"{name}.py").exists()]


def selection(names):
    """Returns {suite: names of its tests}. No names mean all tests."""
    chosen = {}
    for name in names:
        suite, _, rest = name.partition(".")
        if suite not in available():
            sys.exit(f"compat: there is no suite {suite}; choose one of: {', '.join(available())}")
        chosen.setdefault(suite, []).extend([rest] if rest else [])
    return chosen or {suite: [] for suite in available()}


def tell(result, as_json):
    if as_json:
        print(json.dumps(dataclasses.asdict(result)), flush=True)
    elif sys.stdout.isatty() or result.outcome in frame.BAD:
        print(f"{result.outcome:6} {result.suite} {result.test}  {result.reason}", flush=True)


def end_at_a_signal(number, _):
    raise KeyboardInterrupt


def run(chosen, arguments):
    """Runs the chosen suites and returns [(name, suite, its results)]."""
    told = []
    for name, tests in chosen.items():
        suite = importlib.import_module(name)
        began = time.monotonic()
        results = []
        for result in frame.results(suite, tests, arguments.verbose):
            tell(dataclasses.replace(result, suite=name), arguments.json)  # under the name that the caller gave
            results.append(result)
        if not results:
            sys.exit(f"compat: suite {name} has no test of that name: {' '.join(tests)}")
        told.append((name, suite, results))
        counted = document.counts(result.outcome for result in results)
        print(f"{name}: {counted} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return told


def suites():
    """Returns {name: module}."""
    return {name: importlib.import_module(name) for name in available()}


def page():
    """Returns the page, made from the records of every release."""
    return document.write(suites(), records.read_all())


def every_test():
    """Returns the table of all tests, as CSV."""
    return document.every_test(suites(), records.read_all())


def write_page():
    PAGE.write_text(page())
    TESTS.write_text(every_test())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a suite, or SUITE.TEST")
    parser.add_argument("--record", action="store_true", help="record the outcomes of the named suites")
    parser.add_argument("--render", action="store_true", help="make the page from the records and end")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--list", action="store_true", help="name the suites and end")
    parser.add_argument("--packets", action="store_true", help="processes of one host also meet by UDP alone; records nothing")
    parser.add_argument("--share-memory", action="store_true", help="programs share registered memory; records nothing")
    parser.add_argument("--strict", action="store_true", help="the device is as strict as hardware; records nothing")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the output of failing programs to standard error")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(available()))
        return 0
    if arguments.render:
        write_page()
        return 0
    if arguments.record and any("." in name for name in arguments.names):
        parser.error("--record takes whole suites")
    ways = {harness.PACKETS_ONLY: arguments.packets, harness.SHARED_MEMORY: arguments.share_memory,
            harness.STRICTLY: arguments.strict}
    if arguments.record and any(ways.values()):
        parser.error("--packets, --share-memory and --strict record nothing")
    os.environ.update({name: "yes" for name, is_chosen in ways.items() if is_chosen})
    chosen = selection(arguments.names)
    become_root_of_a_namespace()
    signal.signal(signal.SIGTERM, end_at_a_signal)
    try:
        told = run(chosen, arguments)
    except KeyboardInterrupt:
        print("compat: interrupted; the programs, agents and namespaces that it started have ended", file=sys.stderr)
        return INTERRUPTED
    if arguments.record or not (arguments.names or any(ways.values())):
        records.update(told, available())
        write_page()
    return 1 if any(result.outcome in frame.BAD for *_, results in told for result in results) else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
