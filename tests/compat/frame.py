"""The common parts of the suites that run real programs: cases, their outcomes, and the places where they run.

A suite is a module with

    NAME        the name that people give the program
    PACKAGES    Debian's packages that it comes from; the page shows the first one's version
    WHAT        one line that says what is run

and with some of

    cases()     its cases
    GROUPS      groups of tests/clients whose tests count as cases too, or one class of a group ("raw.Perftest")
    results(names)  outcomes right away instead, for a suite with a runner of its own

Each case runs in network namespaces and process groups of its own, which end with it (tests/clients/harness.py).
"""

import collections
import dataclasses
import re
import subprocess
import sys
import typing
import unittest

import harness

# Outcomes in the order in which they are reported. The reason of a `skip` says why a test does not apply.
OUTCOMES = ("pass", "skip", "fail", "error", "crash", "hang")
BAD = frozenset(OUTCOMES) - {"pass", "skip"}


@dataclasses.dataclass(frozen=True)
class Result:
    suite: str
    test: str
    outcome: str
    reason: str = ""


class Stage(harness.ClientTest):
    """The stage on which one case runs: it has the harness's tools, and everything that it started ends with it."""

    def __init__(self, case):
        super().__init__()
        self.case = case

    def id(self):
        return self.case.name

    def runTest(self):
        self.case.run(self)
        if self.case.bytes_min > 0:
            self.check_traffic()

    def check_traffic(self):
        """Checks that the program moved its data through the device. A program that went another way, over TCP or
        shared memory of its own, leaves no trace in the device's counters. The namespaces, and so the host agents,
        belong to this case alone: their counters began at 0."""
        agents = [self.status(net)["agent"] for net in self.namespaces]
        counters = [agent["counters"] for agent in agents if agent is not None]
        moved = sum(counted["bytes_sent"] + counted["direct_bytes"] for counted in counters)
        self.assertGreaterEqual(moved, self.case.bytes_min, "the program moved less than that through the device")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    run: typing.Callable[[Stage], None]  # raises AssertionError, or unittest.SkipTest
    bytes_min: int = 0  # bytes that the devices must have carried at the end; 0 if no data is moved


Place = collections.namedtuple("Place", "server client host prefix")


def one_host(stage):
    return Place(stage.net, stage.net, "127.0.0.1", [])


def two_hosts(stage):
    first, second = stage.joined_namespaces()
    return Place(first, second, "10.0.0.1", [])


def ordinary_user(stage):
    """Returns a place on one host, for a user without root and without capabilities."""
    from unprivileged_test import as_ordinary_user

    prefix = as_ordinary_user()
    if stage.start(*prefix, "test", "-x", harness.TULLE).wait() != 0:
        raise unittest.SkipTest(f"an ordinary user cannot reach {harness.TULLE}")
    stage.prefix = prefix
    return Place(stage.net, stage.net, "127.0.0.1", prefix)


PLACES = {"one_host": one_host, "two_hosts": two_hosts, "ordinary_user": ordinary_user}


def headline(said):
    """Summarises a failure for people: what was wrong, and the last line that a program printed about it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    if re.match(r"Tuples differ|-?\d+ [!=]= -?\d+", first) or " : $ " in first:
        first = ""  # this line is of use only beside the programs' output
    status = re.search(r"\[(exit status -?\d+|running)\]", said)
    complaint = [block.split("\n") for block in re.findall(r"stderr:\n((?:    .*\n?)+)", said)]
    last = next((line.strip() for block in complaint for line in reversed(block) if line.strip()), "")
    return ": ".join(part for part in (first or status and status.group(1), last) if part)[:300]


def run_test(suite, name, test, verbose=False):
    result = unittest.TestResult()
    test.run(result)
    if result.skipped:
        return Result(suite, name, "skip", result.skipped[0][1])
    if not result.failures and not result.errors:
        return Result(suite, name, "pass")
    trace = (result.failures + result.errors)[0][1]
    if verbose:
        print(trace, file=sys.stderr)
    said = trace.split("AssertionError: ", 1)[-1] if "AssertionError: " in trace else trace.strip().splitlines()[-1]
    outcome = "fail" if result.failures else "error"
    if "still running after" in said:
        outcome = "hang"
    return Result(suite, name, outcome, headline(said))


def tests_of(suite):
    """Yields (name, test) for the suite's cases and for the tests of its groups."""
    if hasattr(suite, "cases"):
        for case in suite.cases():
            yield case.name, Stage(case)
    for group in getattr(suite, "GROUPS", ()):
        module, _, owner = group.partition(".")
        name = f"{module}_test" + (f".{owner}" if owner else "")
        for test in harness.tests_in(unittest.defaultTestLoader.loadTestsFromName(name)):
            yield test.id().replace("_test.", ".", 1), test


def version(package):
    """Returns Debian's version of an installed package, or None."""
    asked = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True, check=False)
    return asked.stdout if asked.returncode == 0 and asked.stdout else None


def numbers(version):
    """Returns the numbers of a version without its epoch, for comparison."""
    return [int(number) for number in re.findall(r"\d+", version.rpartition(":")[2])]


def form(forms, package):
    """Returns the form that differs from one release of a package to another. `forms` has each form under its first
    release, in rising order. The last form that is not newer than the installed package applies."""
    installed = numbers(version(package))
    return [value for first, value in forms.items() if numbers(first) <= installed][-1]


def results(suite, names, verbose=False):
    """Yields the suite's outcomes, one by one, for all cases or for those whose names start with one of `names`."""
    missing = [package for package in suite.PACKAGES if version(package) is None]
    if missing:
        yield Result(suite.NAME, "all", "skip", f"not installed: {' '.join(missing)}")
        return
    if hasattr(suite, "results"):
        yield from suite.results(names)
        return
    for test_name, test in tests_of(suite):
        if not names or any(test_name == name or test_name.startswith(name + ".") for name in names):
            yield run_test(suite.NAME, test_name, test, verbose)
