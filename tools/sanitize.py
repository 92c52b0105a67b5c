#!/usr/bin/env python3
"""./dev sanitize: runs the tests of a build with a sanitizer, and records what came of them.

    sanitize.py address|thread          all tests that can run so, and programs over the live device
    sanitize.py address|thread -R REGEX
                                        only the tests whose names match; nothing is recorded

A report of the sanitizer counts as a failure wherever it is made: in a test, in a program that a test runs, or in a host
agent that nobody waits for. The reports are in build-address/reports or build-thread/reports. The record is
docs/reliability/sanitizers.json, and ./dev reliability makes the page of it.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from commit import commit  # noqa: E402
from layers_test import PURE_ROOMS  # noqa: E402

RECORD = ROOT / "docs" / "reliability" / "sanitizers.json"
NAMES = {"address": "AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer", "thread": "ThreadSanitizer"}
# The options of each runtime. %s is the file that reports go to; the runtime appends the process's ID.
OPTIONS = {
    "address": {"ASAN_OPTIONS": "detect_stack_use_after_return=1:verify_asan_link_order=0:log_path=%s",
                "UBSAN_OPTIONS": "print_stacktrace=1:log_path=%s"},
    "thread": {"TSAN_OPTIONS": "second_deadlock_stack=1:atexit_sleep_ms=100:log_path=%s"},
}
NOT_BY_CTEST = "^(live|not_sanitized)$"
# The thread sanitizer has nothing to look for in what starts no thread: the pure rooms, which layers.archives holds to
# that, and what drives them in virtual time. Other rooms' tests run the same code in threads.
WITHOUT_THREADS = [room for room in PURE_ROOMS if "/" not in room] + ["scenarios", "extension"]
TOO_LONG = "sim.shipped"
# The programs of these tests are built here, with the sanitizer. (tests/clients/run.py) AddressSanitizer also bears the
# Debian programs of clients.events.
OWN_CLIENTS = ("integrity.Loopback", "soak.Soak", "rdmacm.Lifetime.test_connections_leave_nothing_behind")
CLIENTS = {"address": ("events", *OWN_CLIENTS), "thread": ("events.Loopback", "events.Port", "events.Queues", *OWN_CLIENTS)}
DEBIANS = ("The programs of this test are not built with the sanitizer, whose runtime must be the first library that a "
           "program loads.")
LEFT_OUT = {
    "layers.archives": "The sanitizer's runtime adds symbols, and this test compares symbols.",
    "dev.sanitized_compile": "This test itself compiles with a sanitizer.",
    "clients.soak.Soak: the growth of memory":
        "A sanitizer's runtime keeps memory that has been freed. It still checks for leaks.",
    "sim.ranks: leaks": "MPI's libraries keep memory until the process ends. All other checks are on.",
    "libtulle-advice.so": "Any program can load this library before the C library, so it must not need a runtime.",
    "libtulle-paths.so": "Any program can load this library before the C library, so it must not need a runtime.",
}


LEFT_OUT_BY_THREAD = {
    "the tests of " + ", ".join(WITHOUT_THREADS):
        "Nothing in them starts a thread, as layers.archives checks.",
    TOO_LONG: "Its threads are those of sim.reference, and it takes a quarter of an hour.",
}


def environment(kind, reports):
    log = str(reports / "report")
    return {**os.environ, **{name: value.replace("%s", log) for name, value in OPTIONS[kind].items()}}


def take_reports(reports):
    """Returns the text of each report."""
    return [path.read_text(errors="replace") for path in sorted(reports.iterdir())]


def headline(report):
    """Returns the line that says what a report is about."""
    for line in report.splitlines():
        if re.search(r"ERROR: |WARNING: |runtime error: ", line):
            return re.sub(r"^=*\d*=*", "", line).strip()
    return report.strip().partition("\n")[0]


# --- ctest ---------------------------------------------------------------------------------------------------------


def run_ctest(kind, build, env, regex):
    arguments = ["--label-exclude", NOT_BY_CTEST, *(["--tests-regex", regex] if regex else [])]
    if kind == "thread":
        arguments += ["--exclude-regex", f"^({'|'.join(WITHOUT_THREADS)})[.]|^{re.escape(TOO_LONG)}$"]
    results = build / "tests.xml"
    results.unlink(missing_ok=True)
    subprocess.run(["ctest", "--test-dir", build, "--parallel", str(len(os.sched_getaffinity(0))),
                    "--output-on-failure", "--no-tests=error", "--output-junit", results, *arguments],
                   env=env, stdin=subprocess.DEVNULL)
    if not results.exists():
        sys.exit("sanitize: ctest wrote no results; its messages are above")
    return read_results(results.read_text())


def reason_of(output):
    """Returns why a test of GoogleTest or unittest was skipped."""
    found = re.search(r": Skipped\n(.*(?:\n(?!\[).*)*)", output) or re.search(r"skipped ['\"](.*)['\"]", output)
    return " ".join(found[1].split()) if found else "The test gives no reason."


def read_results(text):
    """Reads ctest's JUnit file. Returns (passed by room, failures, skipped)."""
    passed, failures, skipped = collections.Counter(), [], []
    for case in xml.etree.ElementTree.fromstring(text).iter("testcase"):
        name, status = case.get("name"), case.get("status")
        if status == "run":
            passed[name.partition(".")[0]] += 1
        elif status in ("disabled", "notrun") and case.find("skipped") is not None:
            skipped.append({"test": name, "reason": reason_of(case.findtext("system-out") or "")})
        else:
            failures.append(name)
    return passed, failures, skipped


def tests_with_label(build, label):
    text = subprocess.run(["ctest", "--test-dir", build, "-N", "--label-regex", f"^{label}$"], capture_output=True,
                          text=True, check=True).stdout
    return re.findall(r"(?m)^ *Test +#\d+: (\S+)", text)


# --- clients -------------------------------------------------------------------------------------------------------


def run_client(name, kind, build, env):
    """Runs one entry of CLIENTS. Returns (passed, failures, skipped) as read_results() does."""
    done = subprocess.run([sys.executable, ROOT / "tests" / "clients" / "run.py", name], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**env, "TULLE_BUILD": str(build), "TULLE_TEST_LIMIT": "300", "TULLE_SANITIZER": kind})
    passed, failures, skipped = read_unittest(done.stdout)
    if failures or done.returncode not in (0, 77) or not (passed or skipped):
        print(done.stdout)
        failures = failures or [f"clients.{name}"]
    print(f"clients.{name}: {passed} passed, {len(failures)} failed, {len(skipped)} skipped", flush=True)
    return passed, failures, skipped


def read_unittest(text):
    """Reads what unittest prints about each test. Other lines may stand between a test's name and its outcome."""
    passed, failures, skipped, name = 0, [], [], None
    for line in text.splitlines():
        begun = re.match(r"\w+ \((\w+)_test\.([\w.]+)\)", line)
        if begun:
            name = f"clients.{begun[1]}.{begun[2]}"
        ended = re.search(r"(?:^|\.\.\. )(ok|FAIL|ERROR|skipped ['\"](.*)['\"])$", line)
        if name and ended:
            if ended[1] == "ok":
                passed += 1
            elif ended[2] is not None:
                skipped.append({"test": name, "reason": ended[2]})
            else:
                failures.append(name)
            name = None
    return passed, failures, skipped


def left_out(kind, build):
    """Returns what does not run, with the reasons: all tests with the label `live` but those of CLIENTS."""
    whole = {f"clients.{name}" for name in CLIENTS[kind] if "." not in name}
    parts = collections.defaultdict(list)
    for name in CLIENTS[kind]:
        group, _, part = name.partition(".")
        if part:
            parts[f"clients.{group}"].append(part)
    reasons = LEFT_OUT | (LEFT_OUT_BY_THREAD if kind == "thread" else {})
    entries = [{"what": what, "reason": reason} for what, reason in reasons.items()]
    for name in sorted(set(tests_with_label(build, "live")) - whole):
        what = f"{name}, except {', '.join(parts[name])}" if name in parts else name
        entries.append({"what": what, "reason": DEBIANS})
    return entries


# --- the record ----------------------------------------------------------------------------------------------------


def write_record(kind, result):
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record[kind] = result
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def main():
    parser = argparse.ArgumentParser(prog="./dev sanitize", description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=sorted(NAMES))
    parser.add_argument("-R", dest="regex", metavar="REGEX", help="only tests whose names match; records nothing")
    arguments = parser.parse_args()
    build = ROOT / f"build-{arguments.kind}"
    begun = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "commit": commit()}
    start = time.monotonic()
    reports = build / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    env = environment(arguments.kind, reports)
    passed, failures, skipped = run_ctest(arguments.kind, build, env, arguments.regex)
    if not arguments.regex:
        print("programs over the live device:", flush=True)
        for name in CLIENTS[arguments.kind]:
            more, failed, not_run = run_client(name, arguments.kind, build, env)
            passed["clients"] += more
            failures += failed
            skipped += not_run
    found = take_reports(reports)
    for report in found[:10]:
        print("\n".join(report.splitlines()[:60]))
    for name in failures:
        print(f"failed: {name}")
    print(f"{sum(passed.values())} passed, {len(failures)} failed, {len(skipped)} skipped, {len(found)} reports")
    if not arguments.regex:
        write_record(arguments.kind, {
            **begun, "sanitizer": NAMES[arguments.kind], "seconds": round(time.monotonic() - start),
            "passed": dict(sorted(passed.items())), "failures": sorted(failures),
            "reports": sorted(set(map(headline, found))), "skipped": skipped, "left_out": left_out(arguments.kind, build)})
        # The next run, with the other sanitizer, tests whether the page is that of the records.
        subprocess.run([sys.executable, ROOT / "tools" / "reliability.py"], check=True)
    return 1 if failures or found or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
