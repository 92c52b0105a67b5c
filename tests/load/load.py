#!/usr/bin/env python3
"""Runs programs over Tulle on a machine that has far too few processors for all who want one.

    load.py                      100 runs of each kind beside 13 busy processes for two processors; records them
    load.py --runs N --load N    as many; records too if --record is given
    load.py --only KIND          one kind alone: page, fabric, roce, network. The record keeps the others

A process without a processor is a slow receiver, and no dead one: no connection may end, and no datagram of a connection
may be given up, because the machine is busy. Load processes only count, at the priority of the programs.

    page      the first block of commands in docs/guide/infiniband-fabric.md, as it is written
    fabric    perftest's programs in turn, between two hosts of a software fabric
    roce      these between two processes of one host, by memory and by UDP alternately
    network   these between two network namespaces, by UDP

The record is docs/reliability/load.json, and ./dev reliability makes the page of it.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "clients"), str(HERE.parent.parent / "tools")]

import harness  # noqa: E402
import run as clients  # noqa: E402
from commit import commit  # noqa: E402

RECORD = harness.ROOT / "docs" / "reliability" / "load.json"
PAGE = harness.ROOT / "docs" / "guide" / "infiniband-fabric.md"
PROGRAMS = ("ib_write_bw", "ib_send_bw", "ib_read_bw", "ib_atomic_bw", "ib_write_lat", "ib_send_lat", "ib_read_lat",
            "ib_atomic_lat")
RUNS, LOAD, RECORDED_RUNS = 100, 13, 100
PORT = 18515
LIMIT = 120  # of one program; that long, it hangs


class Problem(Exception):
    """A program failed, or hangs."""


@contextlib.contextmanager
def busy(processes):
    """Keeps as many processes running that never wait for anything."""
    started = [subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def commands_of(page):
    """Returns the commands of a page's first block, without the prompts and without what they print."""
    lines = page.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("    $ "))
    block = lines[first:next((i for i in range(first, len(lines)) if not lines[i].startswith("    ")), len(lines))]
    return [line.removeprefix("    $ ") for line in block if line.startswith("    $ ")]


class Place(contextlib.ExitStack):
    """Network namespaces in which programs run over Tulle, and a folder for the files of a fabric."""

    def __init__(self):
        super().__init__()
        folder = self.enter_context(tempfile.TemporaryDirectory())
        self.environment = {"XDG_RUNTIME_DIR": folder, "OSM_CACHE_DIR": folder}
        self.net = self.namespace()

    def namespace(self):
        net = harness.Namespace()
        self.callback(net.close)
        return net

    def start(self, *argv, net=None):
        process = harness.Process(argv, net=net or self.net, env=self.environment, cwd=harness.ROOT)
        self.callback(process.close)
        return process

    def finish(self, *processes):
        """Waits for all of them. The first one's fault may be why the others hang."""
        statuses = []
        for process in processes:
            try:
                statuses.append(process.wait(LIMIT if not any(statuses) else 5))
            except AssertionError:
                statuses.append(None)
        if any(status != 0 for status in statuses):
            raise Problem("\n".join(process.describe() for process in processes))
        texts = [process.stdout for process in processes]
        for process in processes:
            process.close()
        return texts

    def run(self, *argv):
        return self.finish(self.start(*argv))[0]

    def pair(self, program, server_run, client_run, host, server_net=None, client_net=None):
        argv = [program, "-F", "-p", PORT]
        server = self.start(*server_run, "--", *argv, net=server_net)
        try:
            harness.wait_until(lambda: not server.running or harness.listens(server, PORT), "a server", LIMIT)
        except AssertionError as error:
            raise Problem(f"{error}\n{server.describe()}") from None
        client = self.start(*client_run, "--", *argv, host, net=client_net)
        text, _ = self.finish(client, server)
        if not harness.table_rows(text):
            raise Problem(client.describe())


class Page:
    """A block of commands, which a shell runs as they are written."""

    def __init__(self, place):
        self.place = place
        self.commands = commands_of(PAGE)
        binaries = shlex.quote(str(harness.BUILD))
        # A command that fails ends the shell with its status. A program in the background must not fail either.
        self.script = "".join(f"{line.replace('build/bin', f'{binaries}/bin')}\n" for line in self.commands)
        self.script = f"set -e\n{self.script}for each in $(jobs -p); do wait $each; done\n"

    def run(self, _):
        try:
            text = self.place.run("bash", "-c", self.script)
        finally:
            leftover = self.place.start(harness.TULLE, "fabric", "down")  # of a block that failed
            leftover.wait(LIMIT)
            leftover.close()
        if len(harness.table_rows(text)) != 2:
            raise Problem(f"two programs did not print their tables\n{text}")
        if not re.search(r"Active", text):
            raise Problem(f"iblinkinfo shows no active link\n{text}")

    names = ("block",)


class Fabric:
    names = PROGRAMS

    def __init__(self, place):
        self.place = place
        place.run(harness.TULLE, "fabric", "up")
        place.callback(lambda: place.run(harness.TULLE, "fabric", "down"))

    def run(self, program):
        self.place.pair(program, [harness.TULLE, "run", "--host", "h0"], [harness.TULLE, "run", "--host", "h3"], "h0")


class Roce:
    names = PROGRAMS

    def __init__(self, place):
        self.place = place
        self.turns = 0

    def run(self, program):
        self.turns += 1
        by_udp = (self.turns - 1) // len(self.names) % 2 == 1
        run = [harness.TULLE, "run", *(["--no-direct"] if by_udp else [])]
        self.place.pair(program, run, run, "127.0.0.1")


class Network:
    names = PROGRAMS

    def __init__(self, place):
        self.place = place
        self.other = place.namespace()
        harness.join(place.net, self.other)

    def run(self, program):
        run = [harness.TULLE, "run"]
        self.place.pair(program, run, run, "10.0.0.1", self.place.net, self.other)


KINDS = {"page": Page, "fabric": Fabric, "roce": Roce, "network": Network}


def measure(kind, runs, load, progress=lambda text: None, programs=None):
    """Returns how many runs passed and failed, by program, and which ones failed. `programs` are some of PROGRAMS, for
    kinds that run them."""
    result = {"kind": kind, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "commit": commit(),
              "processors": len(os.sched_getaffinity(0)), "load": load, "runs": runs, "programs": {}, "faults": []}
    began = time.monotonic()
    with Place() as place:
        each = KINDS[kind](place)
        each.names = programs or each.names
        with busy(load):
            for number in range(1, runs + 1):
                name = each.names[(number - 1) % len(each.names)]
                counts = result["programs"].setdefault(name, {"passed": 0, "failed": 0})
                try:
                    each.run(name)
                    counts["passed"] += 1
                except Problem as problem:
                    counts["failed"] += 1
                    result["faults"].append({"program": name, "run": number})
                    progress(f"{kind}, run {number}, {name}:\n{problem}")
                progress(f"{kind}: {number} of {runs} runs, {len(result['faults'])} failures")
    result["seconds"] = round(time.monotonic() - began)
    return result


def totals(results):
    counts = [each for result in results for each in result["programs"].values()]
    return sum(each["passed"] for each in counts), sum(each["failed"] for each in counts)


def keep(result):
    """Writes the result of one kind into the record, in the place of an older one."""
    results = {each["kind"]: each for each in json.loads(RECORD.read_text())["kinds"]} if RECORD.exists() else {}
    results[result["kind"]] = result
    RECORD.write_text(json.dumps({"kinds": [results[kind] for kind in KINDS if kind in results]}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(prog="./dev load", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help="runs of each kind (%(default)s)")
    parser.add_argument("--load", type=int, default=LOAD, metavar="N", help="busy processes (%(default)s)")
    parser.add_argument("--only", choices=KINDS, action="append", metavar="KIND",
                        help=f"one kind: {', '.join(KINDS)}; may be given again")
    parser.add_argument("--record", action="store_true",
                        help=f"write docs/reliability/load.json; {RECORDED_RUNS} runs do so anyway")
    arguments = parser.parse_args()
    clients.become_root_of_a_namespace()
    # Ended by a signal, this program still ends the programs that it started.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda ended_by, _: sys.exit(128 + ended_by))
    results = []
    for kind in arguments.only or KINDS:
        results.append(measure(kind, arguments.runs, arguments.load,
                               lambda text: print(text, file=sys.stderr, flush=True)))
        if arguments.record or arguments.runs >= RECORDED_RUNS:
            keep(results[-1])
    passed, failed = totals(results)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
