#!/usr/bin/env python3
"""Interrupts programs that work over Tulle, at random, and checks that nothing is wrong, stuck or left behind.

A run consists of episodes. In each, a server and a client (tests/clients/chaos) work on one host or on two, and are
interrupted a number of times. What happens follows from the episode's seed; how the machine's processes meet does
not. Everything runs in a process namespace of its own, so that the kernel ends all of it with this program.
"""

import argparse
import collections
import contextlib
import ctypes
import datetime
import faulthandler
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients"), str(HERE.parent.parent / "tools")]

import harness  # noqa: E402
from arena import Arena, Fault  # noqa: E402
from commit import commit  # noqa: E402
from interruptions import KINDS  # noqa: E402

RECORD = ROOT / "docs" / "reliability" / "chaos.json"
SCRATCH = "/mnt"  # a folder of every Debian, over which the driver's mount namespace has memory
STALLS = pathlib.Path(SCRATCH, "stalls")
IN_MEMORY = pathlib.Path(SCRATCH, "build")
INSIDE = "TULLE_CHAOS_INSIDE"
LONGEST_CALL_SECONDS = 0.1
WATCHDOG_SECONDS = 240  # without an interruption, after which the driver itself is stuck
SKIPPED = 77
PR_SET_PDEATHSIG = 1


def duration(draw, longest):
    """Draws how long an interruption lasts, in seconds: mostly milliseconds, seldom up to a minute."""
    place = draw.random()
    seconds = 10 ** draw.uniform(-3, -1.7)
    if place > 0.985:
        seconds = draw.uniform(5, 60)
    elif place > 0.9:
        seconds = draw.uniform(0.5, 5)
    elif place > 0.7:
        seconds = draw.uniform(0.02, 0.5)
    return min(seconds, longest)


class Run:
    def __init__(self, options):
        self.options = options
        self.start = time.monotonic()
        self.deadline = self.start + options.seconds
        self.counts = collections.Counter()
        self.by_kind = collections.Counter()
        self.faults = []
        self.longest = {"milliseconds": 0.0, "call": "none", "during": []}
        self.slowest_recovery = {"seconds": 0.0, "after": []}
        self.said = self.start

    @property
    def over(self):
        if self.options.interruptions and self.counts["interruptions"] >= self.options.interruptions:
            return True
        return time.monotonic() >= self.deadline

    def say(self, at_once=False):
        now = time.monotonic()
        if at_once or now - self.said >= 10:
            self.said = now
            print(f"chaos: {now - self.start:.0f} s of {self.options.seconds:.0f} s, "
                  f"{self.counts['interruptions']} interruptions, {self.counts['rounds']} rounds, "
                  f"{len(self.faults)} faults", file=sys.stderr, flush=True)

    def episode(self, seed):
        draw = random.Random(seed)
        place = draw.choice(self.options.place or list(Arena.KINDS))
        interruptions = draw.randrange(10, 40)
        politely = draw.random() < 0.5
        number = 0
        folder = pathlib.Path(SCRATCH, "episode")
        folder.mkdir()
        try:
            with Arena(place, seed, folder, STALLS) as arena:
                try:
                    arena.recover(())
                    while number < interruptions and not self.over:
                        number += 1
                        self.interrupt(arena, draw)
                        self.say()
                    number, arena.during = number + 1, ["the end"]
                    arena.finish(politely)
                except Fault:
                    arena.photograph(folder / "state.log")
                    raise
                finally:
                    self.add_counts(arena)
        except Fault as fault:
            self.report(fault, arena, number)
        finally:
            shutil.rmtree(folder)
        self.counts["episodes"] += 1

    def interrupt(self, arena, draw):
        """Interrupts once, in one to three ways, and waits for progress."""
        kinds = [kind for kind in self.options.kind or KINDS if kind.hosts <= len(arena.nets)]
        chosen = draw.choices(kinds, [kind.weight for kind in kinds], k=draw.choice([1, 1, 1, 2, 3]))
        seconds = min([duration(draw, self.options.longest_stop)] + [kind.longest for kind in chosen])
        before = draw.uniform(0, 0.05)
        draws = [random.Random(draw.getrandbits(64)) for _ in chosen]
        arena.during = [kind.name for kind in chosen]
        faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)
        time.sleep(before)
        arena.introduce()
        for program in arena.programs:
            program.page["longest_ns"] = 0
        with contextlib.ExitStack() as effects:
            for kind, own in zip(chosen, draws):
                effects.enter_context(kind.apply(arena, own, seconds))
            time.sleep(seconds)
        self.counts["interruptions"] += 1
        self.by_kind.update(arena.during)
        took = arena.recover({status for kind in chosen for status in kind.endings})
        arena.check_helpers()
        if took > self.slowest_recovery["seconds"]:
            self.slowest_recovery = {"seconds": round(took, 3), "after": arena.during}
        self.check_calls(arena)

    def check_calls(self, arena):
        for program in arena.programs:
            seconds, call = program.page.longest
            if seconds * 1e3 > self.longest["milliseconds"]:
                self.longest = {"milliseconds": round(seconds * 1e3, 3), "call": call, "during": arena.during}
            if seconds > LONGEST_CALL_SECONDS:
                raise Fault(f"the {program.role}'s call of {call} took {seconds * 1e3:.0f} ms")

    def add_counts(self, arena):
        for program in arena.programs:
            for field in ("sessions", "rounds", "operations", "failed_operations", "kilobytes_verified", "wrong_bytes",
                          "false_successes", "bad_completions", "refusals", "undestroyed", "allocations_failed"):
                self.counts[field] += program.page[field]
        self.counts["ended_for_want_of_memory"] += arena.want_of_memory
        self.counts["process_numbers_reused"] += arena.reused

    def report(self, fault, arena, number):
        seed = arena.seed
        chosen = [word for place in self.options.place or () for word in ("--place", place)]
        chosen += [word for kind in self.options.kind for word in ("--kind", kind.name)]
        again = shlex.join(["./dev", "chaos", "--again", str(seed), "--longest-stop", f"{self.options.longest_stop:g}",
                            *chosen])
        kept = ROOT / "build" / "chaos" / f"{seed}-{number}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for log in arena.folder.glob("*.log"):
            shutil.copy(log, kept)
        self.faults.append({"what": str(fault), "place": arena.kind, "seed": seed, "interruption": number,
                            "during": arena.during})
        during = ", ".join(arena.during)
        print(f"chaos: FAULT at interruption {number} ({arena.kind}, seed {seed}, {during}): {fault}\n"
              f"chaos:   again with: {again}\n"
              f"chaos:   logs: {kept.relative_to(ROOT)}", file=sys.stderr, flush=True)

    def record(self):
        stuck = sum("no progress" in fault["what"] for fault in self.faults)
        return {"date": datetime.date.today().isoformat(), "commit": commit(), "seed": self.options.seed,
                "minutes": round((time.monotonic() - self.start) / 60, 1), **dict(sorted(self.counts.items())),
                "interruptions_by_kind": dict(sorted(self.by_kind.items())), "stuck": stuck,
                "longest_call": self.longest, "slowest_recovery": self.slowest_recovery, "faults": self.faults}


def run_from_memory():
    """Starts this program again with copies of the programs in memory. Otherwise a program that the machine has dropped
    from its cache waits for the disk, which looks as if somebody held it up."""
    for folder in (SCRATCH, "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    (IN_MEMORY / "bin").mkdir(parents=True)
    for name in ("tulle", "chaos"):
        shutil.copy2(harness.BUILD / "bin" / name, IN_MEMORY / "bin")
    shutil.copytree(harness.BUILD / "lib", IN_MEMORY / "lib", symlinks=True)
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "TULLE_BUILD": str(IN_MEMORY)})


def inside(options):
    """Runs as the first process of a process namespace, with a mount namespace of its own."""
    if harness.BUILD != IN_MEMORY:
        run_from_memory()

    def leave(number, _):
        os._exit(128 + number)  # and the kernel ends all other processes of the namespace

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    # It ends with this process. Without it, a processor that stands still makes calls look long.
    subprocess.Popen([harness.BUILD / "bin" / "chaos", "stalls", STALLS], stdin=subprocess.DEVNULL)
    run = Run(options)
    seeds = random.Random(options.seed)
    if options.again is not None:
        run.episode(options.again)
    else:
        while not run.over:
            run.episode(seeds.getrandbits(40))
    run.say(at_once=True)
    result = run.record()
    if options.record:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        runs = json.loads(RECORD.read_text())["runs"] if RECORD.exists() else []
        RECORD.write_text(json.dumps({"runs": [*runs, result]}, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    print(f"{result['interruptions']} interruptions, {len(run.faults)} faults")
    return 1 if run.faults or not run.counts["rounds"] else 0


def outside():
    """Starts this program again in namespaces of its own, which end with it, however it ends."""
    libc = ctypes.CDLL(None)
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("chaos: this machine does not allow process and mount namespaces; run it as root", file=sys.stderr)
        return SKIPPED
    child = subprocess.Popen([*unshare, sys.executable, *sys.argv], env={**os.environ, INSIDE: "yes"},
                             start_new_session=True,
                             preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))

    ended_by = []

    def leave(number, _):  # must not wait: it interrupts the wait below, which holds a lock
        ended_by.append(number)
        child.kill()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    status = child.wait()
    return 128 + ended_by[0] if ended_by else status


def parse():
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="how long to go on (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="the run's seed (drawn)")
    parser.add_argument("--interruptions", type=int, metavar="N", help="end after this number of interruptions")
    parser.add_argument("--again", type=int, metavar="SEED", help="run only the episode with this seed")
    parser.add_argument("--longest-stop", type=float, default=60, metavar="SECONDS",
                        help="the longest interruption (%(default)s)")
    parser.add_argument("--place", action="append", choices=Arena.KINDS, metavar="PLACE",
                        help=f"only such episodes, of {', '.join(Arena.KINDS)}; may be repeated")
    parser.add_argument("--kind", action="append", metavar="KIND",
                        help="only this kind of interruption, by the name that the result has; may be repeated")
    parser.add_argument("--record", action="store_true",
                        help=f"add the result to {RECORD.relative_to(ROOT)}; without --again, --interruptions, --place and "
                             "--kind, runs of five minutes or more do so anyway")
    options = parser.parse_args()
    options.seconds = options.minutes * 60 if options.again is None else 3600
    chosen = options.again is not None or options.interruptions or options.place or options.kind
    options.record |= options.minutes >= 5 and not chosen
    known = {kind.name: kind for kind in KINDS}
    for name in options.kind or ():
        if name not in known:
            parser.error(f"there is no kind {name}; there are {', '.join(known)}")
    options.kind = [known[name] for name in options.kind or ()]
    if options.kind and all(kind.hosts > 1 for kind in options.kind):
        options.place = ["two hosts"]
    if options.seed is None:
        options.seed = int(os.environ.setdefault("TULLE_CHAOS_SEED", str(random.getrandbits(32))))
    return options


def main():
    options = parse()
    for program in (harness.TULLE, harness.BUILD / "bin" / "chaos"):
        if not program.exists():
            sys.exit(f"chaos: {program} was not built; run ./dev build and the tests' build first")
    if INSIDE not in os.environ:
        print(f"chaos: seed {options.seed}", file=sys.stderr, flush=True)
        return outside()
    return inside(options)


if __name__ == "__main__":
    sys.exit(main())
