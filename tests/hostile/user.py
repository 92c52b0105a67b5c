"""A user of a host attacks root's host agent, and the programs of root and of another user.

    ./dev hostile user                     all attacks once, and the victims' rates for a while
    ./dev hostile user --rounds N          as often, each round with a seed of its own, and N times as many windows
    ./dev hostile user --record            the same, with the record docs/reliability/hostile_user.json
    ./dev hostile user NAME...             these attacks alone

The attacks are rows of tables in tests/clients/hostile. Each expects some things itself: that a command is refused, that
memory keeps its size. After each attack this driver looks at the rest: that agent and victims live, that no byte of the
victims' messages was wrong or came to the attacker, that no event came that nobody caused, that the victims go on and
their listeners accept. While an attacker holds what he took, new programs open the device, and the slots are counted.

The victims' rate is compared between windows: without attacks, with attacks that do not merely fill or flood, and with
the same attacks on another agent in another network namespace. The last take as much of the processors, so what they
leave the victims is the measure.
"""

import argparse
import contextlib
import datetime
import json
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import harness
import staged
from place import ATTACKER, PROGRAM, SKIPPED, Arena, Fault, as_user, may_run

sys.path.append(str(harness.ROOT / "tools"))

from commit import commit  # noqa: E402

RECORD = harness.ROOT / "docs" / "reliability" / "hostile_user.json"
ATTACK_SECONDS = 90  # the longest that an attack may take
OPEN_GOAL_S = 1.0
OPENS_MAX = 3
SLICE_SECONDS, SLICES = 0.12, 8  # of each kind in a window
ROUND_WINDOWS = 20  # for each victim, in a round
LONGEST_RATES_SECONDS = 86400
OUTCOME_HELD = "held"


def known_attacks():
    """Returns {name: whether it is a flood}."""
    text = subprocess.run([PROGRAM, "list"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    if len({row[0] for row in rows}) != len(rows):
        raise AssertionError("two attacks have the same name")
    return {row[0]: row[1:] == ["flood"] for row in rows}


class Attacker:
    """The hostile program. Lines come from it as they are printed."""

    def __init__(self, arena, mode, names, seed):
        options = ["--seed", seed, "--secrets", ",".join(arena.secrets), "--agent", arena.agent,
                   "--victims", ",".join(map(str, arena.pids)), "--listeners", ",".join(map(str, arena.ports))]
        argv = ["nsenter", f"--net=/proc/{arena.net.holder.pid}/ns/net", "nice", "-n", "19", *as_user(ATTACKER), PROGRAM,
                *mode, *options, *names]
        self.errors = tempfile.TemporaryFile()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TULLE_")}
        self.popen = subprocess.Popen([str(word) for word in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=self.errors, env=environment, cwd="/", encoding="utf-8", errors="replace",
                                      start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.popen.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def next(self, seconds=ATTACK_SECONDS):
        """Returns the next line, or None after the last or if none comes."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def go_on(self):
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write("\n")
            self.popen.stdin.flush()

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def stop(self):
        self.signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def at_work(self):
        self.signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.stop()

    def close(self):
        self.signal(signal.SIGKILL)
        self.popen.wait()
        self.popen.stdin.close()
        self.popen.stdout.close()
        self.errors.close()


class Run:
    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.outcomes = {}  # by attack
        self.opens = []  # seconds
        self.slots = {}  # the most that a user held, by user
        self.slots_of_host = 0
        self.faults = []
        self.rates = {}
        self.connects = {}

    def fault(self, attack, seed, what):
        self.faults.append({"attack": attack, "seed": seed, "what": what})
        print(f"hostile: FAULT: {attack}: {what}\n"
              f"hostile:   again with: ./dev hostile user --seed {seed} {attack}", file=sys.stderr, flush=True)

    # --- attacks ---

    def attack(self, names, seed):
        """Carries out the attacks in turn, each judged alone. Goes on with a new arena if one is ruined."""
        rest = list(names)
        while rest:
            with Arena() as arena:
                rest = self.attack_in(arena, rest, seed)

    def attack_in(self, arena, names, seed):
        attacker = Attacker(arena, ["attack"], names, seed)
        try:
            for number, name in enumerate(names):
                if not self.judge(arena, attacker, name, seed):
                    return names[number + 1:]
        finally:
            attacker.close()
        return []

    def judge(self, arena, attacker, name, seed):
        """Waits for the attack's end. Returns False if the arena is of no more use."""
        before = arena.counts()
        found = []
        while (line := attacker.next()) == "holding":
            found += self.look_from_outside(arena)
            attacker.go_on()
        fields = line.split("\t") if line else []
        if len(fields) != 8 or fields[1] != name:
            found.append(f"the attacking program said {line!r} {attacker.said()}")
            fields = ["done", name, "0", "0", "0", "0", "", ""]
        _, _, deeds, scanned, foreign, milliseconds, skipped, violations = fields
        if int(foreign):
            found.append(f"{foreign} bytes of the victims' came to the attacker")
        if violations:
            found.append(violations)
        found += arena.harm(before)
        self.note(name, int(deeds), int(scanned), int(foreign), float(milliseconds), skipped, found)
        for what in found:
            self.fault(name, seed, what)
        attacker.go_on()
        return bool(line) and not found and not arena.is_ruined()

    def note(self, name, deeds, scanned, foreign, milliseconds, skipped, found):
        outcome = "; ".join(found) or (f"not possible here: {skipped}" if skipped else OUTCOME_HELD)
        known = self.outcomes.setdefault(name, {"deeds": 0, "bytes_searched": 0, "foreign_bytes": 0, "milliseconds": 0,
                                                "outcome": outcome})
        known["deeds"] += deeds
        known["bytes_searched"] += scanned
        known["foreign_bytes"] += foreign
        known["milliseconds"] = round(max(known["milliseconds"], milliseconds), 1)
        if found or known["outcome"] == OUTCOME_HELD:
            known["outcome"] = outcome

    def look_from_outside(self, arena):
        """Opens the device as new programs do, and counts slots, while the attacker holds what he took."""
        found = []
        for user in (0, arena.other_user):
            try:
                seconds = self.time_to_open(arena, user)
            except Fault as fault:
                found.append(str(fault))
                continue
            if seconds > OPEN_GOAL_S:
                found.append(f"user {user} opened the device after {seconds:.2f} s")
        try:
            status = arena.status()
        except Fault as fault:
            return [*found, str(fault)]
        self.slots_of_host = status["agent"]["slots"]
        held = {}
        for process in status["processes"]:
            held[process["uid"]] = held.get(process["uid"], 0) + 1
        for user, count in held.items():
            self.slots[user] = max(self.slots.get(user, 0), count)
        # Slot 0 is the agent's, so half of the slots is half of one more than it tells.
        if held.get(ATTACKER, 0) > (self.slots_of_host + 1) // 2:
            found.append(f"the attacker holds {held[ATTACKER]} of {self.slots_of_host} slots")
        return found

    def time_to_open(self, arena, user):
        """Returns the shortest of up to three: what an attacker holds, he holds for each, and other work comes and goes."""
        times = []
        while len(times) < OPENS_MAX and (not times or min(times) > OPEN_GOAL_S):
            times.append(arena.open_device(user))
        self.opens += times
        return min(times)

    def staged(self, seed):
        """Attacks that are made before there is an agent, or on what the programs start from."""
        for name, attack in staged.ATTACKS.items():
            if self.options.names and name not in self.options.names:
                continue
            began = time.monotonic()
            try:
                result = attack()
            except (Fault, AssertionError) as fault:
                result = staged.Result(deeds=1, found=[str(fault)])
            self.note(name, result.deeds, result.scanned, 0, 1e3 * (time.monotonic() - began), result.skipped, result.found)
            for what in result.found:
                self.fault(name, seed, what)

    # --- rates ---

    def measure_rates(self, names, seed, windows):
        """Measures in windows that consist of short slices of each kind in turn, so that whatever else the machine does
        meets all kinds alike."""
        with contextlib.ExitStack() as places:
            arena, elsewhere = places.enter_context(Arena()), places.enter_context(Arena(paused=True))
            attackers = {}
            for kind, place in (("attacked", arena), ("attacked_elsewhere", elsewhere)):
                attackers[kind] = Attacker(place, ["repeat", LONGEST_RATES_SECONDS], names, seed)
                places.callback(attackers[kind].close)
                attackers[kind].stop()
            draw = random.Random(seed)
            for pair in arena.pairs:
                arena.pause_all_but(pair)
                figures = {"quiet": [], "attacked": [], "attacked_elsewhere": []}
                connects = {kind: [] for kind in figures}
                for _ in range(windows):
                    for kind, (rate, connect) in self.window(pair, attackers, draw).items():
                        figures[kind].append(rate)
                        connects[kind].append(connect)
                self.rates[pair.name] = summary(figures)
                self.connects[pair.name] = {kind: milliseconds(statistics.median(values))
                                            for kind, values in connects.items()}
            for kind, attacker in attackers.items():
                if attacker.popen.poll() is not None:
                    self.fault("rates", seed, f"the program for {kind} has ended: {attacker.said()}")
            for what in arena.harm(None):
                self.fault("rates", seed, what)

    @staticmethod
    def window(pair, attackers, draw):
        """Returns {kind: (messages a second, seconds to connect)}."""
        names = ("messages", "message_ns", "connections", "connect_ns")
        sums = {kind: dict.fromkeys(names, 0) for kind in ("quiet", *attackers)}
        for _ in range(SLICES):
            for kind in draw.sample(list(sums), len(sums)):
                with attackers[kind].at_work() if kind in attackers else contextlib.nullcontext():
                    time.sleep(SLICE_SECONDS / 4)
                    before = pair.counts()
                    time.sleep(SLICE_SECONDS)
                    after = pair.counts()
                for name in names:
                    sums[kind][name] += after[name] - before[name]
        return {kind: (1e9 * each["messages"] / max(each["message_ns"], 1),
                       1e-9 * each["connect_ns"] / max(each["connections"], 1)) for kind, each in sums.items()}

    # --- results ---

    def record(self):
        opens = sorted(self.opens)
        return {
            "date": datetime.date.today().isoformat(), "commit": commit(), "seed": self.options.seed,
            "rounds": self.options.rounds, "minutes": round((time.monotonic() - self.began) / 60, 1),
            "attacks": len(self.outcomes),
            "deeds": sum(each["deeds"] for each in self.outcomes.values()),
            "bytes_searched": sum(each["bytes_searched"] for each in self.outcomes.values()),
            "foreign_bytes": sum(each["foreign_bytes"] for each in self.outcomes.values()),
            "rates": self.rates, "connect_milliseconds": self.connects,
            "opens": {"count": len(opens), "p99_ms": milliseconds(opens[int(0.99 * (len(opens) - 1))]) if opens else None,
                      "longest_ms": milliseconds(opens[-1]) if opens else None},
            "slots": {"of_host": self.slots_of_host, "most_of_attacker": self.slots.get(ATTACKER, 0)},
            "outcomes": self.outcomes, "faults": self.faults}


def milliseconds(seconds):
    return round(1e3 * seconds, 2)


def summary(figures):
    """Returns the median rates, and the medians of the ratios within windows."""
    def ratio(of, to):
        pairs = [a / b for a, b in zip(figures[of], figures[to]) if b]
        return round(statistics.median(pairs), 3) if pairs else None

    return {"windows": len(figures["quiet"]),
            **{kind: round(statistics.median(values)) for kind, values in figures.items()},
            "attacked_to_quiet": ratio("attacked", "quiet"),
            "attacked_to_elsewhere": ratio("attacked", "attacked_elsewhere")}


def print_table(result):
    groups = {}
    for name, each in result["outcomes"].items():
        groups.setdefault(name.partition(".")[0], []).append((name, each))
    print(f"{'attacks on':<14} {'number':>6} {'deeds':>9} {'held':>5}  bytes searched")
    for group, rows in groups.items():
        held = sum(each["outcome"] == OUTCOME_HELD for _, each in rows)
        print(f"{group:<14} {len(rows):>6} {sum(each['deeds'] for _, each in rows):>9,} {held:>5}  "
              f"{sum(each['bytes_searched'] for _, each in rows):,}")
    for name, each in result["outcomes"].items():
        if each["outcome"] != OUTCOME_HELD:
            print(f"  {name}: {each['outcome']}")
    for name, rate in result["rates"].items():
        print(f"rate of {name}: {rate['quiet']:,} messages/s without attacks, {rate['attacked']:,} with, "
              f"{rate['attacked_elsewhere']:,} with attacks elsewhere; ratios {rate['attacked_to_quiet']} and "
              f"{rate['attacked_to_elsewhere']} (medians of {rate['windows']})")
    opens, slots = result["opens"], result["slots"]
    if opens["count"]:
        print(f"{opens['count']} programs opened the device during attacks: p99 {opens['p99_ms']} ms, longest "
              f"{opens['longest_ms']} ms; the attacker held {slots['most_of_attacker']} of {slots['of_host']} slots at most")
    print(f"{result['attacks']} attacks, {result['deeds']:,} deeds, {result['foreign_bytes']} foreign bytes, "
          f"{len(result['faults'])} faults, seed {result['seed']}, {result['minutes']} minutes")


def run(options):
    attacks = known_attacks()
    unknown = set(options.names) - set(attacks) - set(staged.ATTACKS)
    if unknown:
        raise SystemExit(f"hostile: there is no attack {', '.join(sorted(unknown))}")
    names = [name for name in attacks if not options.names or name in options.names]
    current = Run(options)
    for number in range(options.rounds):
        current.attack(names, options.seed + number)
        current.staged(options.seed + number)
    if not options.names and options.windows:
        gentle = [name for name in names if not attacks[name]]
        current.measure_rates(gentle, options.seed, options.windows * options.rounds)
    return current.record()


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev hostile user", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these attacks, and no rates")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="how often (%(default)s)")
    parser.add_argument("--windows", type=int, default=ROUND_WINDOWS, metavar="N",
                        help="windows in which rates are measured, in a round (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="the run's seed (drawn)")
    parser.add_argument("--list", action="store_true", help="list the attacks")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(harness.ROOT)}")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.getrandbits(32)
    return options


def main(arguments):
    options = parse(arguments)
    if options.list:
        print("\n".join([*known_attacks(), *staged.ATTACKS]))
        return 0
    if reason := may_run():
        print(f"hostile: {reason}", file=sys.stderr)
        return SKIPPED
    print(f"hostile: seed {options.seed}", file=sys.stderr, flush=True)
    result = run(options)
    if options.record:
        RECORD.write_text(json.dumps(result, indent=2) + "\n")
    print_table(result)
    return 1 if result["faults"] else 0


