#!/usr/bin/env python3
"""Measures what many short lives, many connections and a long uptime leave behind.

    soak.py                                 100,000 lives, 1,000,000 connections and the uptime, with a record
    soak.py --lives N --connections N       as many; records too if --record is given
    soak.py --uptime                        the uptime alone; prints what came of it

Everything happens in a network namespace of its own, with one host agent and one server that both live from the first
connection to the last. A *life* is a program that opens the device, connects, exchanges a message and ends; one in eight
is killed (SIGKILL) on the way. The connections are made by one more program, one after the other. After each tenth the
memory (without pages of files) and the descriptors of the processes that live on are counted. Growth is from the
first tenth to the last, since the first fills what is kept for later use; some lives before it use every slot of the
host, once by packets and once by memory, and some connections use as much memory for connections as their rate needs.

The uptime is a time namespace whose monotonic clock stands at ten years: programs and an agent of their own run there.
Devices and agents count time in 64 bits of picoseconds, which last 106.75 days, so they move the zero of their clocks
now and then. Two connected programs therefore also have their clocks set ahead while they run, to a little before that
time.

The record is docs/reliability/soak.json, and ./dev reliability makes the page of it.
"""

import argparse
import array
import contextlib
import datetime
import json
import os
import pathlib
import re
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

RECORD = harness.ROOT / "docs" / "reliability" / "soak.json"
PROGRAM = harness.BUILD / "bin" / "soak"
CLOCK = harness.BUILD / "lib" / "libsoak_clock.so"
PORT = "18710"
UPTIME_S = 3652 * 86400  # ten years
LIFE_NS = (1 << 63) // 1000  # how long 64 bits of picoseconds last: 106.75 days
PARTS = 10
# A process keeps two sockets for each of the host's 127 slots that it has sent to. So many lives have used all slots.
WARMING_LIVES = 400
# A peer that is reached through memory costs no socket, but for the few packets that come before its rings. So lives of
# both kinds come first.
WARMING_OPTIONS = ((), ("--no-direct",))
# The agent remembers each connection for half a second. It needs the most memory while programs connect the fastest, so
# that many connections come before the first measurement, at full speed.
WARMING_CONNECTIONS = 5_000
LIVES_A_SECOND_MIN, CONNECTIONS_A_SECOND_MIN = 2, 20  # slower than this, a part is taken to be stuck


class Problem(Exception):
    """A program failed, or hangs."""


def over_tulle(*argv, options=()):
    return [harness.TULLE, "run", *options, "--", *map(str, argv)]


class Place(contextlib.ExitStack):
    """A network namespace in which programs run over Tulle. `prefix` comes before each program."""

    def __init__(self, prefix=()):
        super().__init__()
        self.prefix = [str(word) for word in prefix]
        self.net = harness.Namespace()
        self.callback(self.net.close)

    def start(self, *argv, prefix=None):
        process = harness.Process([*(self.prefix if prefix is None else prefix), *argv], net=self.net)
        self.callback(process.close)
        return process

    def finish(self, process, limit):
        try:
            status = process.wait(limit)
        except AssertionError as error:
            raise Problem(str(error)) from None
        if status != 0:
            raise Problem(process.describe())
        text = process.stdout
        process.close()
        return text

    def run(self, *argv, limit=harness.LIMIT):
        return self.finish(self.start(*argv), limit)

    def status(self):
        return json.loads(self.run(harness.TULLE, "status", "--json"))

    def wait_for(self, condition, what, process=None):
        def holds():
            if process is not None and not process.running:
                raise Problem(process.describe())
            return condition()

        try:
            return harness.wait_until(holds, what, pause=0.05)
        except AssertionError as error:
            raise Problem(f"{error}\n{process.describe() if process else ''}") from None

    def start_server(self):
        """Starts the server of ./soak, and returns (process, the agent's ID) once it listens."""
        server = self.start(*over_tulle(PROGRAM, "server", PORT))

        def agent():
            told = self.status()["agent"]
            return told["pid"] if told and told["listeners"] else None

        return server, self.wait_for(agent, "the server to listen", server)

    def stop_server(self, server):
        """Ends the server, and returns its counts."""
        server.signal(signal.SIGTERM)
        text = self.finish(server, harness.LIMIT)
        return {name: int(count) for name, count in re.findall(r"(\w+) (\d+)", text)}


# --- measuring -----------------------------------------------------------------------------------------------------


def usage(pid):
    """Returns the memory of a process in KiB, and its descriptors. Pages of files are left out: the kernel drops and
    reads them as it likes, and other processes of the machine share them."""
    sizes = dict(re.findall(r"(?m)^Rss(Anon|Shmem):\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text()))
    return {"memory_kib": int(sizes["Anon"]) + int(sizes["Shmem"]), "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


def settled_usage(place, pids, folder):
    """Returns {name: usage}. The server learns with the next connection that a program was killed, and the agent learns
    a moment later that one has ended. So one more program comes and ends in order, and this then waits until the
    descriptors stay the same."""
    place.run(*over_tulle(PROGRAM, "client", PORT, 1, folder / "last"))
    before = None
    for _ in range(40):
        now = {name: usage(pid) for name, pid in pids.items()}
        descriptors = {name: each["descriptors"] for name, each in now.items()}
        if descriptors == before:
            return now
        before = descriptors
        time.sleep(0.1)
    return now


def percentile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def latency_of(values):
    """Returns the median and the 99th percentile."""
    ordered = sorted(values)
    return {"count": len(ordered), "p50_us": percentile(ordered, 0.5), "p99_us": percentile(ordered, 0.99)}


def read_latencies(path):
    values = array.array("I")
    values.frombytes(path.read_bytes())
    return values


def growth_of(parts, names):
    """Returns what each process has more of after the last part than after the first."""
    first, last = parts[0]["usage"], parts[-1]["usage"]
    return {name: {what: last[name][what] - first[name][what] for what in first[name]} for name in names}


def shares(count):
    """Splits a count into PARTS parts, of which none is empty."""
    parts = min(PARTS, count)
    return [count * (i + 1) // parts - count * i // parts for i in range(parts)]


def say(text):
    print(f"soak: {text}", file=sys.stderr, flush=True)


def run_lives(place, pids, count, seed, folder):
    """Runs `count` short programs. Returns the parts, and how many were killed."""
    parts, killed = [], 0
    for number, share in enumerate(shares(count)):
        path = folder / f"lives-{number}"
        began = time.monotonic()
        text = place.run(*over_tulle(PROGRAM, "lives", PORT, share, seed + number, path),
                         limit=60 + share / LIVES_A_SECOND_MIN)
        killed += int(re.search(r"killed (\d+)", text)[1])
        parts.append({"seconds": round(time.monotonic() - began, 1), **latency_of(read_latencies(path)),
                      "usage": settled_usage(place, pids, folder)})
        say(f"{sum(shares(count)[:number + 1]):,} of {count:,} lives")
    return parts, killed


def run_connections(place, pids, count, folder):
    """Makes `count` connections from one program. Returns the parts."""
    path = folder / "connections"
    path.touch()
    client = place.start(*over_tulle(PROGRAM, "stay", PORT, count, path))
    place.wait_for(lambda: path.stat().st_size > 0, "the first connection", client)
    pids = {**pids, "client": client.pid}
    parts, done = [], 0
    for share in shares(count):
        began = time.monotonic()
        deadline = began + 60 + share / CONNECTIONS_A_SECOND_MIN
        while path.stat().st_size < 4 * (done + share):
            if not client.running or time.monotonic() > deadline:
                client.end()
                raise Problem(client.describe())
            time.sleep(0.01)
        values = read_latencies(path)
        parts.append({"seconds": round(time.monotonic() - began, 1), **latency_of(values[done:done + share]),
                      "usage": {name: usage(pid) for name, pid in pids.items()}})
        done += share
        say(f"{done:,} of {count:,} connections")
    client.signal(signal.SIGTERM)
    place.finish(client, harness.LIMIT)
    return parts


def soak(lives, connections, seed=1):
    """Runs both, and returns the record's part about them."""
    began = time.monotonic()
    with Place() as place, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        server, agent = place.start_server()
        pids = {"agent": agent, "server": server.pid}
        say(f"{WARMING_LIVES} lives of each kind first, after which all slots of the host have been used")
        warming = "".join(place.run(*over_tulle(PROGRAM, "lives", PORT, WARMING_LIVES, seed, folder / "first",
                                                options=options), limit=300) for options in WARMING_OPTIONS)
        place.run(*over_tulle(PROGRAM, "client", PORT, min(connections, WARMING_CONNECTIONS), folder / "first"),
                  limit=60 + WARMING_CONNECTIONS / CONNECTIONS_A_SECOND_MIN)
        life_parts, killed = run_lives(place, pids, lives, seed, folder)
        connection_parts = run_connections(place, pids, connections, folder)
        place.wait_for(lambda: len(place.status()["processes"]) <= 1, "the agent to know that its clients have ended")
        same_agent = place.status()["agent"]["pid"] == agent
        after = settled_usage(place, pids, folder)
        counts = place.stop_server(server)
    first = life_parts[0]["usage"]
    return {
        "seed": seed, "killed_at_first": sum(map(int, re.findall(r"killed (\d+)", warming))),
        "seconds": round(time.monotonic() - began), "one_agent": same_agent, "server": counts,
        "lives": {"count": lives, "killed": killed, "parts": life_parts, "growth": growth_of(life_parts, pids)},
        "connections": {"count": connections, "parts": connection_parts,
                        "growth": growth_of(connection_parts, [*pids, "client"])},
        "growth_overall": {name: {what: after[name][what] - first[name][what] for what in after[name]} for name in pids},
    }


# --- uptime --------------------------------------------------------------------------------------------------------


def late_clock(seconds=UPTIME_S):
    """Returns the prefix that runs a program where the monotonic clock is that much ahead."""
    return ["unshare", "--time", "--fork", "--kill-child", "--monotonic", seconds, "--boottime", seconds, "--"]


def integrity(place, options, *arguments):
    """Runs the two ends of the program that checks every byte."""
    argv = over_tulle(harness.INTEGRITY, "-p", 18600, *arguments, options=options)
    server = place.start(*argv)
    place.wait_for(lambda: harness.listens(place.net.holder, 18600), "port 18600 to listen", server)
    client = place.start(*argv, "127.0.0.1")
    for process in (client, server):
        text = place.finish(process, 180)
        if not re.search(r"(?m)^ok: \d+ operations", text):
            raise Problem(text)


def connect(place, client_prefix=None):
    """Makes 200 connections to a server, each with a message."""
    server, _ = place.start_server()
    with tempfile.TemporaryDirectory() as folder:
        client = place.start(*over_tulle(PROGRAM, "client", PORT, 200, pathlib.Path(folder, "times")),
                             prefix=client_prefix)
        place.finish(client, harness.LIMIT)
    counts = place.stop_server(server)
    if counts != {"accepted": 200, "answered": 200, "failed": 0, "open": 0, "given_up": 0}:
        raise Problem(f"the server counts {counts}")


def leave(place):
    """Waits for the agent, which exits when it was idle for ten seconds."""
    agent = place.status()["agent"]
    if agent is None:
        raise Problem("there is no agent that could exit")
    began = time.monotonic()
    place.wait_for(lambda: place.status()["agent"] is None, "the agent to exit")
    if time.monotonic() - began < 1:
        raise Problem("the agent exited at once, and not after ten idle seconds")


CHECKS = (
    ("every operation, directly between processes of one host", lambda place: integrity(place, [])),
    ("every operation, by packets with 2 % lost, which timers must repair",
     lambda place: integrity(place, ["--no-direct", "--faults", "drop=0.02,seed=7"], "-l")),
    ("200 connections by the agent's connection manager, each with a message", connect),
    ("200 connections from a program whose clock is not ahead to a server whose clock is",
     lambda place: connect(place, client_prefix=[])),
    ("the agent exits after ten idle seconds, and not before", leave),
)


def can_move_clocks():
    return subprocess.run([*map(str, late_clock()), "true"], stderr=subprocess.DEVNULL).returncode == 0


def uptime():
    """Returns the record's part about the uptime."""
    results = []
    with Place(late_clock()) as place:
        stands_at = float(place.run("cut", "-d ", "-f1", "/proc/uptime"))
        for name, check in CHECKS:
            began = time.monotonic()
            try:
                check(place)
                outcome, reason = "pass", ""
            except Problem as problem:
                outcome, reason = "fail", str(problem)
            results.append({"check": name, "outcome": outcome, "seconds": round(time.monotonic() - began, 1),
                            **({"reason": reason} if reason else {})})
            say(f"uptime: {name}: {outcome}" + (f"\n{reason}" if reason else ""))
    return {"clock_s": round(stands_at), "checks": results}


# --- a long life of one process -------------------------------------------------------------------------------------


def long_life(options, seconds_before=6, seconds_after=6):
    """Sets the clocks of two connected programs and of their agent ahead while the programs exchange messages, to a
    little before the time when 64 bits of picoseconds since their beginning overflow. Returns {"before": ..., "after":
    ..., "fault": ...}: how many messages they exchanged before and after that, and what a program said if it ended. A
    further program then connects."""
    with Place() as place, tempfile.TemporaryDirectory() as name:
        ahead, times = pathlib.Path(name, "ahead"), pathlib.Path(name, "times")
        ahead.write_bytes(bytes(8))
        times.touch()
        prefix = ["env", f"LD_PRELOAD={CLOCK}", f"SOAK_CLOCK={ahead}"]
        server = place.start(*over_tulle(PROGRAM, "server", PORT, options=options), prefix=prefix)
        place.wait_for(lambda: (place.status()["agent"] or {}).get("listeners"), "the server to listen", server)
        began = time.monotonic()
        client = place.start(*over_tulle(PROGRAM, "steady", PORT, 1 << 30, times, options=options), prefix=prefix)

        def exchanged():
            return times.stat().st_size // 4

        place.wait_for(exchanged, "the first message", client)
        with open(ahead, "r+b") as file:
            # The programs' time counts from their beginning, which was a moment ago.
            file.write((LIFE_NS - int((time.monotonic() - began + seconds_before) * 1e9)).to_bytes(8, "little"))
        time.sleep(max(seconds_before - 2, 0))  # the server is older than the client
        before = exchanged()
        time.sleep(2 + seconds_after)
        middle = exchanged()
        time.sleep(2)
        fault = "" if client.running and exchanged() > middle else client.stderr.strip() or "no message comes any more"
        if not fault:
            try:
                place.run(*over_tulle(PROGRAM, "client", PORT, 1, pathlib.Path(name, "late"), options=options))
            except Problem as problem:
                fault = f"a new program cannot connect: {problem}"
        return {"options": " ".join(options), "before": before, "after": exchanged() - middle, "fault": fault}


def long_lives():
    """Returns the record's part about a process's own life."""
    runs = [long_life(options) for options in ([], ["--no-direct"])]
    return {"seconds": LIFE_NS // 10**9, "runs": runs}


# --- the record ----------------------------------------------------------------------------------------------------


def faults_of(result):
    """Returns sentences about what must never happen. Growth is not among them: the page holds it against its goal."""
    found = []
    if "server" in result:
        if not result["one_agent"]:
            found.append("The agent that the soak began with did not live to its end.")
        if result["server"]["failed"]:
            found.append(f"The server counts {result['server']['failed']} messages or requests that were wrong.")
        if result["server"]["open"]:
            found.append(f"The server still has {result['server']['open']} connections of clients that have ended.")
    found += [f"With a clock at ten years, this failed: {each['check']}." for each in result["uptime"]["checks"]
              if each["outcome"] != "pass"]
    found += [f"Programs ({each['options'] or 'no options'}) do not outlive 64 bits of picoseconds: {each['fault']}."
              for each in result["own_life"]["runs"] if each["fault"]]
    return found


def main():
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--lives", type=int, default=100_000, metavar="N", help="short programs (%(default)s)")
    parser.add_argument("--connections", type=int, default=1_000_000, metavar="N", help="connections (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="draws which lives are killed, and where (%(default)s)")
    parser.add_argument("--uptime", action="store_true", help="the uptime and the long life alone")
    parser.add_argument("--record", action="store_true",
                        help="write docs/reliability/soak.json; runs of at least 10,000 lives do so anyway")
    arguments = parser.parse_args()
    if arguments.lives < 10 or arguments.connections < 100:
        parser.error("at least 10 lives and 100 connections, please: tenths are compared")
    clients.become_root_of_a_namespace()
    # Ended by a signal, this program still ends the programs that it started.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda ended_by, _: sys.exit(128 + ended_by))
    if not PROGRAM.exists():
        sys.exit(f"soak: {PROGRAM} was not built; ./dev soak builds it")
    if not can_move_clocks():
        sys.exit("soak: this machine does not let anybody make time namespaces; run it as root, on Linux 5.6 or later")
    result = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "commit": commit()}
    try:
        if not arguments.uptime:
            result.update(soak(arguments.lives, arguments.connections, arguments.seed))
        result["uptime"] = uptime()
        result["own_life"] = long_lives()
    except Problem as problem:
        sys.exit(f"soak: {problem}")
    found = faults_of(result)
    if not arguments.uptime and (arguments.record or arguments.lives >= 10_000):
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(result, indent=1) + "\n")
    else:
        print(json.dumps(result, indent=1))
    for fault in found:
        print(f"soak: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
