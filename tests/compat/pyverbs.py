#!/usr/bin/env python3
"""rdma-core's own Python tests over Tulle, each in a process of its own with a time limit.

    pyverbs.py                  all of them
    pyverbs.py [-v] NAME ...    a module (test_cq), a class (test_cq.CQTest), a test; -v shows what a test printed
    pyverbs.py --list           their names

Prints one JSON object a line: {"suite": "pyverbs", "test": "test_cq.CQTest.test_resize_cq", "outcome": "pass",
"reason": ""}. The outcomes: pass, skip (the reason is the test's own), fail (an assertion), error (another exception),
crash (a signal), hang (ended at the time limit). The exit status is 1 when any is neither pass nor skip.

The tests are those that Debian's python3-pyverbs and rdma-core bring along, unmodified. They run in a network namespace
with one interface that has an IPv4 and an IPv6 address, as the machine's own python3.
"""

import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))

import harness  # noqa: E402

PYTHON = "/usr/bin/python3"  # Debian's, for which its pyverbs is built
SOURCE = pathlib.Path("/usr/share/doc/rdma-core/tests")
LIMIT = 60  # seconds; the slowest test that passes takes some five on two cores
SUITE = "pyverbs"
OTHERS_DEVICES = re.compile(r"test_(mlx5|efa)")

# The program that runs one test and writes its outcome as JSON into a file. A test skipped in setUp counts as skipped.
RUN_ONE = """
import json, sys, unittest
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests"]
name, answer = sys.argv[2:4]
sys.argv[1:] = []
from args_parser import parser
parser.parse_args()
suite = unittest.defaultTestLoader.loadTestsFromName(name)
result = unittest.TextTestRunner(verbosity=2).run(suite)
def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
if result.errors:
    outcome, reason = "error", last_line(result.errors[0][1])
elif result.failures:
    outcome, reason = "fail", last_line(result.failures[0][1])
elif result.skipped:
    outcome, reason = "skip", result.skipped[0][1]
elif result.testsRun == 0:
    outcome, reason = "error", "no such test"
else:
    outcome, reason = "pass", ""
with open(answer, "w") as file:
    json.dump({"outcome": outcome, "reason": reason}, file)
"""

# Newer tests ask iproute2's `rdma link show -j` for the interface below a port. That program asks the kernel, which
# knows nothing of a device that lives in processes. This program answers in its place, from what Tulle reports about
# the device.
RDMA_LINK = """#!{python}
import json, subprocess
devices = json.loads(subprocess.run(["{tulle}", "devices", "--json"], check=True, capture_output=True).stdout)
print(json.dumps([{{"ifname": device["name"], "port": 1, "netdev": device["gids"][0]["interface"]}}
                  for device in devices]))
"""

LIST_ALL = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests"]
sys.argv[1:] = []
from args_parser import parser
parser.parse_args()
import unittest
def ids(suite):
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from ids(entry)
        else:
            yield entry.id()
import tests
for module in tests.__test_modules__:
    for name in ids(unittest.defaultTestLoader.loadTestsFromModule(module)):
        print(name)
"""


def unpack(source, target):
    """Copies the tests as Debian ships them, some compressed, to importable files. Returns the folder."""
    tests = target / "tests"
    tests.mkdir()
    for path in source.iterdir():
        if path.name.endswith(".py.gz"):
            with gzip.open(path) as packed:
                (tests / path.stem).write_bytes(packed.read())
        elif path.suffix == ".py":
            shutil.copy(path, tests / path.name)
    return target


def add_rdma_link(folder):
    """Writes the program above as `rdma`, and returns the environment in which it is found."""
    programs = pathlib.Path(folder) / "bin"
    programs.mkdir()
    program = programs / "rdma"
    program.write_text(RDMA_LINK.format(python=PYTHON, tulle=harness.TULLE))
    program.chmod(0o755)
    return {"PATH": f"{programs}:{os.environ['PATH']}"}


def namespace():
    """Returns a network namespace with lo and one more interface, which has addresses of both kinds."""
    net = harness.Namespace()
    net.run("sh", "-c", "for each in all default; do echo 0 > /proc/sys/net/ipv6/conf/$each/accept_dad; done")
    net.run("ip", "link", "add", "eth0", "mtu", "4200", "type", "veth", "peer", "name", "eth1", "mtu", "4200")
    net.run("ip", "address", "add", "10.0.0.1/24", "dev", "eth0")
    net.run("ip", "-6", "address", "add", "fd00::1/64", "dev", "eth0", "nodad")
    for name in ("eth0", "eth1"):
        net.run("ip", "link", "set", name, "up")
    harness.wait_until(lambda: "state UP" in net.run("ip", "link", "show", "dev", "eth0"), "the interface")
    harness.wait_until(lambda: "tentative" not in net.run("ip", "-6", "address", "show", "dev", "eth0"), "addresses")
    return net


def names(net, folder):
    """Returns the names of all tests, without those of a vendor's own interfaces, which only its adapters have."""
    process = harness.Process([harness.TULLE, "run", "--", PYTHON, "-c", LIST_ALL, folder], net=net, cwd=folder)
    try:
        if process.wait(60) != 0:
            raise SystemExit(f"pyverbs.py: cannot list the tests\n{process.describe()}")
        found = [line.removeprefix("tests.") for line in process.stdout.splitlines() if line.startswith("tests.")]
    finally:
        process.close()
    return [name for name in found if not OTHERS_DEVICES.match(name)]


def chosen(name, patterns):
    return not patterns or any(name == each or name.startswith(each + ".") for each in patterns)


def run_one(net, folder, env, name, limit, verbose):
    answer = pathlib.Path(folder) / "answer.json"
    answer.unlink(missing_ok=True)
    process = harness.Process(
        [harness.TULLE, "run", "--", PYTHON, "-c", RUN_ONE, folder, f"tests.{name}", answer], net=net, env=env,
        cwd=folder)
    try:
        status = process.wait(limit)
    except AssertionError:
        return "hang", f"still running after {limit} s"
    finally:
        if verbose:
            print(process.describe(), file=sys.stderr)
        process.close()
    if status < 0:
        return "crash", f"signal {-status}"
    if not answer.exists():
        return "error", f"exit status {status}, {process.argv[0]} or Python did not get as far as the test"
    said = json.loads(answer.read_text())
    return said["outcome"], said["reason"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a module, a class or a test; without a name, all tests run")
    parser.add_argument("--list", action="store_true", help="print the names of the tests and end")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"end a test after this many seconds ({LIMIT})")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the output of each test to standard error")
    arguments = parser.parse_args()
    if not SOURCE.is_dir():
        parser.error(f"{SOURCE} is missing; install the package rdma-core")
    if os.geteuid() != 0 and os.spawnlp(os.P_WAIT, "unshare", "unshare", "--map-root-user", "--net", "true") == 0:
        os.execvp("unshare", ["unshare", "--map-root-user", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # an exit by which the processes are ended
    counts = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="tulle-pyverbs-") as scratch:
        folder = str(unpack(SOURCE, pathlib.Path(scratch)))
        env = add_rdma_link(folder)
        net = namespace()
        try:
            wanted = [name for name in names(net, folder) if chosen(name, arguments.names)]
            if not wanted:
                parser.error("no such test")
            for name in wanted:
                if arguments.list:
                    print(name)
                    continue
                outcome, reason = run_one(net, folder, env, name, arguments.limit, arguments.verbose)
                counts[outcome] += 1
                print(json.dumps({"suite": SUITE, "test": name, "outcome": outcome, "reason": reason}), flush=True)
        finally:
            net.close()
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())), file=sys.stderr)
    return 1 if set(counts) - {"pass", "skip"} else 0


if __name__ == "__main__":
    sys.exit(main())
