#!/usr/bin/env python3
"""Runs Tulle against the Linux kernel's own RDMA.

    run.py                      everything
    run.py GROUP ...            all of a group (pingpong, perftest, …), or GROUP.CLASS[.TEST]
    run.py --list               lists what there is

Prints a line for each case, what failed in full behind them, and at the end "N passed, N failed".
"""

import argparse
import os
import pathlib
import re
import signal
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "clients")]
import harness  # noqa: E402  (of tests/clients)

GROUPS = sorted(path.stem.removesuffix("_cases") for path in HERE.glob("*_cases.py"))


class OneLineEach(unittest.TestResult):
    passed = 0

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def say(self, test, what):
        name = re.sub(r"^(setUpClass) \((.*)\)$", r"\2.\1", test.id()).replace("_cases.", ".", 1).replace(".test_", ".")
        print(f"{what:<7} {name}  {time.monotonic() - getattr(self, 'began', time.monotonic()):.1f} s", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1
        self.say(test, "ok")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.say(test, "FAILED")

    def addError(self, test, error):
        super().addError(test, error)
        self.say(test, "FAILED")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, "skipped")
        print(f"        {reason}", flush=True)


def expand(name):
    group, _, rest = name.partition(".")
    if group not in GROUPS:
        sys.exit(f"run.py: there is no group {group}; choose one of: {', '.join(GROUPS)}")
    owner, _, test = rest.partition(".")
    if test and not test.startswith("test_"):
        rest = f"{owner}.test_{test}"
    return f"{group}_cases" + (f".{rest}" if rest else "")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="GROUP, GROUP.CLASS or GROUP.CLASS.TEST; else all")
    parser.add_argument("--list", action="store_true", help="list what there is")
    return parser.parse_args()


def main(arguments):
    suite = unittest.TestLoader().loadTestsFromNames([expand(n) for n in arguments.names] or
                                                     [f"{group}_cases" for group in GROUPS])
    if arguments.list:
        for test in harness.tests_in(suite):
            print(test.id().replace("_cases.", ".", 1).replace(".test_", "."))
        return 0
    if os.geteuid() != 0:
        sys.exit("run.py: needs root, for network namespaces and taps")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = OneLineEach()
    suite.run(result)
    wrong = result.failures + result.errors
    for test, text in wrong:
        print(f"\n--- {test.id()}\n{text}")
    print(f"{result.passed} passed, {len(wrong)} failed"
          + (f", {len(result.skipped)} skipped" if result.skipped else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(read_arguments()))
