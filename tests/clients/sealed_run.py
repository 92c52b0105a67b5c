"""./dev client --sealed: runs tests with every program sealed, and tells for each what left its network namespaces.

Groups of tests run beside one another, each in a process of its own. The table has a row for each class.
"""

import collections
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import sealed
from commit import commit

RECORD = harness.ROOT / "docs" / "reliability" / "sealed.json"
ALONE = {"load"}  # makes a load of its own
GOOD = ("sealed", "nothing sent", "refused", "does not apply", "skipped")
LIMIT = 15  # seconds; tests that are known not to apply mostly wait for what does not come

# Tests and classes that do not apply for another reason than these words. Each must fail, or it does not belong here.
LIMITS = {
    "raw": "refused: raw packets",
    "hostile_network.HostileNetwork": "the agent must answer strangers, which needs plain traffic",
    "rdmacm.Rsockets.test_datagrams": "refused: rsockets for datagrams",
    "scapy": "the peer has no key",
    "capture.Capture.test_checksums": "datagrams arrive singly, so a receiver's capture does not know which segment each is",
    "bad_input.ForgedDatagrams": "forged datagrams have no seal, and are dropped before the checks that are tested",
    "sealed.Sealed.test_a_plain_program_is_seen": "the test needs a plain program",
}

# --- the judgement -------------------------------------------------------------------------------------------------


def leaks(seen):
    """Returns what left that should not have, in words."""
    found = [f"{count:,} {kind}" for kind, count in sorted(seen["kinds"].items()) if not kind.startswith("own ")]
    # A program with librspreload that ended before anybody looked may have opened these in place of rsockets.
    if seen.get("preloaded") and seen.get("unowned"):
        found.append(f"{seen['unowned']:,} TCP connections of which nobody can tell the owner, beside librspreload")
    for name, words in (("fallbacks", "TCP connections in place of rsockets"), ("clear", "sealed datagrams with clear bytes"),
                        ("missed", "frames that nobody looked at")):
        if seen[name]:
            found.append(f"{seen[name]:,} {words}")
    return found + ([f"the watch failed: {seen['failure']}"] if seen["failure"] else [])


def verdict(test, outcome, why, seen):
    """Returns the verdict on a test, and the reason for it. `outcome` is pass, fail or skip."""
    if found := leaks(seen):
        return "leak", "; ".join(found)
    limit = sealed.matching(LIMITS, test)
    if outcome == "skip":
        is_refused = why in sealed.REFUSALS.values()
        return "refused" if is_refused else "skipped", why.removeprefix("refused: ") if is_refused else why
    if outcome == "fail":
        if limit is None:
            return "failed", why
        return ("refused", limit.removeprefix("refused: ")) if limit.startswith("refused: ") else ("does not apply", limit)
    return ("sealed", "") if seen["sealed"] else ("nothing sent", "")


class Result(unittest.TextTestResult):
    """Judges each test when all that it started has ended."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.rows, self.limit = [], harness.LIMIT

    def startTest(self, test):
        os.environ["TULLE_TEST_NAME"] = name_of(test)
        self.before = len(self.failures), len(self.errors), len(self.skipped)
        sealed.collect()
        harness.LIMIT = LIMIT if sealed.matching(LIMITS, name_of(test)) else self.limit
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        failures, errors, skips = self.failures[self.before[0]:], self.errors[self.before[1]:], self.skipped[self.before[2]:]
        troubles = failures + errors
        outcome = "fail" if troubles else "skip" if skips else "pass"
        why = headline(troubles[0][1]) if troubles else skips[0][1] if skips else ""
        seen = sealed.collect()
        name = name_of(test)
        judged, reason = verdict(name, outcome, why, seen)
        self.rows.append({"test": name, "verdict": judged, "reason": reason, **seen})
        streams = sum(seen["streams"].values())
        print(f"    {judged}{': ' + reason if reason else ''} ({seen['sealed']:,} sealed, {streams} TCP connections of "
              f"programs)", file=self.stream, flush=True)


def headline(trace):
    """Returns the last line of a trace that says what was wrong."""
    lines = [line for line in trace.strip().splitlines() if re.match(r"\S*(Error|Exception|Fault)\b", line)]
    return (lines or trace.strip().splitlines())[-1][:200]


def name_of(test):
    """Returns the name of a test as run.py takes it; of a subtest, its test's."""
    return getattr(test, "test_case", test).id().replace("_test.", ".", 1)


# --- the table -----------------------------------------------------------------------------------------------------


def by_class(rows):
    """Folds the rows of tests to a row for each class."""
    classes = {}
    for row in rows:
        each = classes.setdefault(row["test"].rpartition(".")[0], {
            "tests": 0, "verdicts": collections.Counter(), "reasons": collections.Counter(), "sealed": 0, "looked": 0,
            "clear": 0, "plain": 0, "fallbacks": 0, "own": collections.Counter(), "streams": collections.Counter(),
            "stream_bytes": 0})
        each["tests"] += 1
        each["verdicts"][row["verdict"]] += 1
        if row["reason"]:
            each["reasons"][row["reason"]] += 1
        each["streams"].update(row["streams"])
        for kind, count in row["kinds"].items():
            if kind.startswith("own "):
                each["own"][kind.removeprefix("own ").removeprefix("plain: ")] += count
            else:
                each["plain"] += count
        for name in ("sealed", "looked", "clear", "fallbacks", "stream_bytes"):
            each[name] += row[name]
    return classes


def idle_limits(rows):
    """Returns the entries of LIMITS of which tests ran, and none failed."""
    def named(verdicts):
        return {name for row in rows for name in LIMITS
                if f"{row['test']}.".startswith(f"{name}.") and row["verdict"] in verdicts}

    return sorted(named(("sealed", "nothing sent")) - named(("does not apply", "refused")))


def table(rows):
    """Returns the lines of a table for people."""
    lines = [f"{'class':34} {'tests':>5} {'sealed datagrams':>17} {'plain':>6} {'Tulle TCP':>9} {'own TCP':>8}  verdicts"]
    for name, each in by_class(rows).items():
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in each["verdicts"].items())
        lines.append(f"{name:34} {each['tests']:5} {each['sealed']:17,} {each['plain']:6} {each['fallbacks']:9} "
                     f"{sum(each['streams'].values()):8}  {verdicts}")
    return lines


def record(rows):
    """Returns what docs/reliability/sealed.json keeps of a run."""
    return {"tests": len(rows), "verdicts": dict(collections.Counter(row["verdict"] for row in rows)),
            "faults": [f"{row['test']}: {row['verdict']}: {row['reason']}" for row in rows if row["verdict"] not in GOOD],
            "classes": {name: {key: dict(value) if isinstance(value, collections.Counter) else value
                               for key, value in each.items()} for name, each in by_class(rows).items()}}


# --- the run -------------------------------------------------------------------------------------------------------


def run_here(suite):
    """Runs the tests of a suite one after the other. Returns their rows."""
    os.environ[harness.PACKETS_ONLY] = "yes"
    with sealed.make_folder():
        return unittest.TextTestRunner(verbosity=2, resultclass=Result).run(suite).rows


def run_apart(groups):
    """Runs each group in a process of its own, some at a time. Returns the rows of all."""
    with tempfile.TemporaryDirectory(prefix="tulle-sealed-rows-") as folder:
        def run(group):
            path = pathlib.Path(folder, f"{group}.json")
            said = subprocess.run([sys.executable, pathlib.Path(__file__).with_name("run.py"), "--sealed", "--rows", path, group],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            print(said.stderr, end="", file=sys.stderr, flush=True)
            if not path.exists():
                sys.exit(f"run.py: {group} came to no end")
            return json.loads(path.read_text())

        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)) + 1) as pool:
            rows = list(pool.map(run, [group for group in groups if group not in ALONE]))
        rows += [run(group) for group in groups if group in ALONE]
        return sorted(sum(rows, []), key=lambda row: row["test"])


def tell(rows, began, wants_record):
    """Prints the table, and writes the record. Returns the exit status."""
    print(*table(rows), sep="\n")
    found = {**record(rows), "seconds": round(time.monotonic() - began)}
    found["faults"] += [f"{name}: is said not to apply, and its tests pass" for name in idle_limits(rows)]
    if wants_record:
        kept = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "commit": commit(), **found}
        RECORD.write_text(json.dumps(kept, indent=1) + "\n")
    for fault in found["faults"]:
        print(f"run.py: {fault}", file=sys.stderr)
    print(", ".join(f"{count} {verdict}" for verdict, count in found["verdicts"].items()))
    return 1 if found["faults"] else 0
