#!/usr/bin/env python3
"""./dev reliability: makes docs/reliability.md from the records in docs/reliability.

    reliability.py             writes the page
    reliability.py --check     ends with status 1 if the page does not say what the records say

Each measure has a record: mutation.json (./dev mutate), fuzzing.json (./dev fuzz), sanitizers.json (./dev sanitize),
chaos.json (./dev chaos), hostile_network.json and hostile_user.json (./dev hostile), sealed.json (./dev client --sealed),
load.json (./dev load) and soak.json (./dev soak). The goals are here, with the figures that they bound.
"""

import argparse
import collections
import itertools
import json
import pathlib
import sys

import mutate

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = ROOT / "docs" / "reliability"
PAGE = ROOT / "docs" / "reliability.md"

HEAD = """# Reliability

This page shows how well Tulle's tests find mistakes, and how Tulle handles malformed input, interruptions and long runs.
`./dev reliability` generates it from the records in [reliability/](reliability/), which the commands below write. Goals that
are missed or not measured are marked.
"""

EXECUTIONS_GOAL, COVERAGE_GOAL = 300_000_000, 0.95
MUTANTS_GOAL, KILLED_GOAL = 40, 0.95
INTERRUPTIONS_GOAL, CALL_GOAL_MS = 10_000, 100
FORGED_GOAL, REQUESTS_GOAL, AGENT_GOAL_KIB, CONNECT_GOAL_S = 10_000_000, 1_000_000, 64 * 1024, 2
CLOCK_GOAL_S = 3652 * 86400  # ten years
ATTACKS_GOAL, RATE_GOAL, OPEN_GOAL_MS = 100, 0.90, 1000
BUSY_RUNS_GOAL, BUSY_LOAD_GOAL = 100, 6.5  # the load of each processor
BUSY_KINDS = ("page", "fabric", "roce", "network")
LIVES_GOAL, CONNECTIONS_GOAL, GROWTH_GOAL_KIB, LATENCY_GOAL = 100_000, 1_000_000, 1024, 0.10

REACHED, MISSED, UNKNOWN = "reached", "**not reached**", "not measured yet"


def outcome(is_reached):
    return UNKNOWN if is_reached is None else REACHED if is_reached else MISSED


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(" ".join(str(cell).replace("|", "\\|").split()) for cell in line) + " |\n"
                   for line in lines)


def goal(text, figure, is_reached):
    """Returns a line of a section's table of goals. `is_reached` is None if there is no figure."""
    return [text, "–" if is_reached is None else figure, outcome(is_reached)]


def goals_table(rows):
    return table(["goal", "measured", ""], rows)


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "–"


def of_run(record):
    return f"Measured on {record['date']} at commit `{record['commit']}`."


# --- fuzzing -------------------------------------------------------------------------------------------------------


def fuzzing_goals(record):
    runs = record.get("runs", []) if record else []
    total = sum(each["executions"] for run in runs for each in run["fuzzers"].values())
    last = runs[-1]["fuzzers"] if runs else {}
    faults = sum(each["faults"] for each in last.values())
    coverage = (record or {}).get("coverage") or None
    parsers = coverage["parsers"] if coverage else {"lines": 0, "covered": 0}
    return [
        goal(f"{EXECUTIONS_GOAL:,} executions in total", f"{total:,}", total >= EXECUTIONS_GOAL if runs else None),
        goal("no fault in the last run", f"{faults} in {len(last)} fuzzers", faults == 0 if runs else None),
        goal(f"{COVERAGE_GOAL * 100:.0f} % of the parsers' lines reached by the stored inputs",
             f"{percent(parsers['covered'], parsers['lines'])} of {parsers['lines']:,}",
             parsers["covered"] >= COVERAGE_GOAL * parsers["lines"] if coverage else None),
    ]


def fuzzing_details(record):
    runs = [[run["date"], f"`{run['commit']}`", run["hours"], run["cores"], len(run["fuzzers"]),
             f"{sum(each['executions'] for each in run['fuzzers'].values()):,}",
             sum(each["faults"] for each in run["fuzzers"].values())] for run in record["runs"]]
    text = table(["date", "commit", "hours", "cores", "fuzzers", "executions", "faults"], runs)
    coverage = record.get("coverage")
    if not coverage:
        return text
    short = [[f"`{path}`", each["lines"], percent(each["covered"], each["lines"])]
             for path, each in coverage["files"].items() if each["covered"] < COVERAGE_GOAL * each["lines"]]
    text += f"\nThe lines were measured on {coverage['date']} at commit `{coverage['commit']}`."
    if short:
        text += " These files are below the goal:\n\n" + table(["file", "lines", "reached"], short)
    return text.rstrip() + "\n"


# --- mutants -------------------------------------------------------------------------------------------------------


def mutation_goals(record):
    rooms = record["rooms"].values() if record else []
    counts = {each["room"]: each["counted"] for each in rooms}
    few = [room for room in mutate.KILLERS if counts.get(room, 0) < MUTANTS_GOAL]
    low = [each["room"] for each in rooms if each["killed"] < KILLED_GOAL * each["counted"]]
    survivors = [each for room in rooms for each in room["survivors"]]
    dark = sum(not each["explanation"] for each in survivors)
    counted, killed = sum(each["counted"] for each in rooms), sum(each["killed"] for each in rooms)
    known = bool(rooms) or None
    return [
        goal(f"at least {MUTANTS_GOAL} mutants per room", f"fewer in {', '.join(few)}" if few else
             f"{min(counts.values(), default=0)} or more in {len(counts)} rooms", known and not few),
        goal(f"at least {KILLED_GOAL * 100:.0f} % of each room's mutants killed",
             f"{percent(killed, counted)} of {counted} in all" + (f"; below the goal: {', '.join(low)}" if low else ""),
             known and not low),
        goal("every survivor explained", f"{len(survivors) - dark} of {len(survivors)}", known and not dark),
    ]


def unmutated_rooms():
    """Returns the rooms that no draw comes from, each with those of its folders that one does come from."""
    rooms = {path.parent.name for path in (ROOT / "src").rglob("CMakeLists.txt")
             if "tulle_room(" in path.read_text() or path.parent.name == "cli"}
    parts = {room: [part for part in sorted(mutate.KILLERS) if part.startswith(room + "/")] for room in rooms}
    return [f"`{room}`" + (f" (apart from {', '.join(f'`{part}`' for part in parts[room])})" if parts[room] else "")
            for room in sorted(rooms - set(mutate.KILLERS))]


def draws_since(record):
    """Returns a sentence about the draws that were recorded apart from the samples in the table."""
    draws = [f"{each['room']} {percent(each['killed'], each['counted'])} of {each['counted']} (seed {each['seed']})"
             for each in record.get("draws", [])]
    return f"\nOther draws, at first: {'; '.join(draws)}.\n" if draws else ""


def mutation_details(record):
    rows = [[f"`{each['files']}`", each["date"], f"`{each['commit']}`", each["counted"], each["killed"],
             percent(each["killed"], each["counted"]),
             percent(each["killed_at_first"], each["counted"] + each.get("gone", 0)) if "killed_at_first" in each else "–",
             f"{sum(bool(one['explanation']) for one in each['survivors'])} of {len(each['survivors'])}"]
            for each in sorted(record["rooms"].values(), key=lambda each: each["room"])]
    return table(["files", "date", "commit", "mutants", "killed", "share", "share at first", "survivors explained"], rows) + """
"At first" is the share that the tests killed when the mutants were drawn. Tests were then written for the survivors. The
higher share therefore describes only these mutants; for others, expect the share at first. A survivor whose line was later
removed no longer counts.
""" + draws_since(record) + f"""
`./dev mutate` does not cover these rooms: {', '.join(unmutated_rooms())}.
"""


# --- sanitizers ----------------------------------------------------------------------------------------------------


SANITIZERS = ("address", "thread")


def sanitizer_goals(record):
    def line(kind):
        run = (record or {}).get(kind)
        if not run:
            return goal(f"`./dev sanitize {kind}` finds nothing", "", None)
        bad = len(run["failures"]) + len(run["reports"])
        return goal(f"`./dev sanitize {kind}` finds nothing",
                    f"{sum(run['passed'].values()):,} tests passed, {len(run['failures'])} failed, "
                    f"{len(run['reports'])} kinds of reports", bad == 0)

    return [line(kind) for kind in SANITIZERS]


def named(tests):
    """Names the tests, or how many groups of real programs they are if that would be a long list."""
    if len(tests) > 12 and all(each.startswith("`clients.") for each in tests):
        return f"the other {len(tests)} groups of `clients`"
    return ", ".join(tests)


def sanitizer_details(record):
    text = ""
    for kind in SANITIZERS:
        run = record.get(kind)
        if not run:
            continue
        text += f"\n### {run['sanitizer']}\n\n{of_run(run)} It took {run['seconds'] / 60:.0f} minutes.\n"
        for title, found in (("Tests that failed", run["failures"]), ("Reports", run["reports"])):
            if found:
                text += f"\n{title}:\n\n" + "".join(f"- {each}\n" for each in found)
        groups = {}
        for each in run["skipped"]:
            groups.setdefault(each["reason"], []).append(f"`{each['test']}`")
        for each in run["left_out"]:
            groups.setdefault(each["reason"], []).append(f"`{each['what']}`")
        if groups:
            text += "\n" + table(["left out", "reason"], [[named(names), why] for why, names in groups.items()])
    return text.lstrip("\n")


# --- interruptions -------------------------------------------------------------------------------------------------


def chaos_runs(record):
    """Returns the last runs in a row without a fault, or the last run if it had one. Their interruptions are added."""
    runs = (record or {}).get("runs", [])
    clean = list(itertools.takewhile(lambda run: not run["faults"], reversed(runs)))
    return clean[::-1] or runs[-1:]


def chaos_goals(record):
    runs = chaos_runs(record)
    longest = max((run["longest_call"]["milliseconds"] for run in runs), default=0)

    def total(name):
        return sum(run.get(name, 0) for run in runs)

    def line(text, figure, holds):
        return goal(text, figure if runs else "", holds if runs else None)

    def none(text, count):
        return line(text, count, count == 0)

    return [
        line(f"{INTERRUPTIONS_GOAL:,} random interruptions", f"{total('interruptions'):,}",
             total("interruptions") >= INTERRUPTIONS_GOAL),
        none("no wrong byte", total("wrong_bytes")),
        none("no operation reported as done that is not", total("false_successes")),
        none("no program stuck beyond 5 s", total("stuck")),
        line(f"no verbs call delayed by {CALL_GOAL_MS} ms by another process", f"longest: {longest:g} ms",
             longest < CALL_GOAL_MS),
        none("no other fault", sum(len(run["faults"]) for run in runs)),
    ]


def chaos_details(record):
    counted = chaos_runs(record)
    text = ("The goals are compared with the last run if it found a fault, and otherwise with all runs since the last "
            "that did:\n\n")
    text += table(["date", "commit", "seed", "minutes", "interruptions", "longest call"],
                  [[run["date"], f"`{run['commit']}`", run["seed"], f"{run['minutes']:g}", f"{run['interruptions']:,}",
                    f"{run['longest_call']['milliseconds']:g} ms"] for run in counted])
    earlier = record["runs"][:-len(counted)]
    if earlier:
        text += f"\n{len(earlier)} earlier runs had {sum(run['interruptions'] for run in earlier):,} interruptions.\n"
    text += "\n"
    kinds = sum((collections.Counter(run["interruptions_by_kind"]) for run in counted), collections.Counter())
    text += table(["interruption", "count"], [[name, f"{count:,}"] for name, count in sorted(kinds.items())])
    faults = [[each["what"], each["place"], ", ".join(each["during"]), each["seed"]]
              for run in counted for each in run["faults"]]
    if faults:
        text += "\n" + table(["fault", "place", "during", "seed"], faults)
    return text


# --- hostile network -----------------------------------------------------------------------------------------------


def forged_datagrams(record):
    return sum(phase["processed"] for phase in record["phases"] if phase["phase"] != "requests")


def request_flood(record):
    return next(phase for phase in record["phases"] if phase["phase"] == "requests")


def timed(phase):
    """Returns the times of the connections for which there is a goal, in both directions."""
    return [phase["connections"][name] for name in ("connections to the target", "connections to the peer")]


def all_kinds(record):
    return [kind for phase in record["phases"] for kind in phase["kinds"]]


def hostile_network_goals(record):
    def line(text, figure, holds):
        return goal(text, figure(record) if record else "", holds(record) if record else None)

    def slowest(each):
        return max(times["p99_us"] for times in timed(request_flood(each)))

    return [
        line(f"{FORGED_GOAL:,} forged datagrams reach programs or the host agent, some while a capture runs",
             lambda r: f"{forged_datagrams(r):,}", lambda r: forged_datagrams(r) >= FORGED_GOAL
             and any(phase["phase"] == "captured" and phase["processed"] for phase in r["phases"])),
        line("no program ends, no byte is wrong, no operation is lost", lambda r: f"{len(r['faults'])} faults",
             lambda r: not r["faults"]),
        line("no answer to a stranger is longer than what it sent",
             lambda r: f"{sum(kind['answered_longer'] for kind in all_kinds(r))} longer ones",
             lambda r: not any(kind["answered_longer"] for kind in all_kinds(r))),
        line(f"the host agent stays below 64 MiB at {REQUESTS_GOAL:,} forged requests for connections",
             lambda r: f"{request_flood(r)['agent_peak_kib'] / 1024:.1f} MiB at {request_flood(r)['processed']:,}",
             lambda r: request_flood(r)["agent_peak_kib"] < AGENT_GOAL_KIB and request_flood(r)["processed"] >= REQUESTS_GOAL),
        line(f"99 % of the honest connections during these requests take less than {CONNECT_GOAL_S} s",
             lambda r: f"p99: {slowest(r) / 1e3:.0f} ms of {sum(each['count'] for each in timed(request_flood(r))):,}",
             lambda r: all(each["count"] for each in timed(request_flood(r))) and slowest(r) <= CONNECT_GOAL_S * 1e6),
    ]


def hostile_network_details(record):
    text = f"{of_run(record)} The seed was {record['seed']}, and the run took {record['seconds'] / 60:.0f} minutes.\n\n"
    rows = []
    for phase in record["phases"]:
        rate = phase["honest_packets_a_second"]
        inward, outward = timed(phase)
        rows.append([phase["phase"], f"{phase['sent']:,}", f"{phase['processed']:,}", phase["seconds"],
                     f"{rate['before']:,}", f"{rate['during']:,}",
                     f"{inward['count'] + outward['count']:,}", f"{max(inward['p99_us'], outward['p99_us']) / 1e3:.0f}",
                     f"{phase['agent_peak_kib'] / 1024:.1f}"])
    text += table(["phase", "sent", "received", "seconds", "honest packets a second before", "and during",
                   "honest connections", "p99, ms", "agent's peak, MiB"], rows)
    totals = {}
    for kind in all_kinds(record):
        sums = totals.setdefault(kind["kind"], [0, 0, 0, 0])
        for place, name in enumerate(("datagrams", "bytes", "asked_bytes", "answered_bytes")):
            sums[place] += kind[name]
    text += "\nWhat was sent, and what came back to addresses of the stranger:\n\n"
    text += table(["kind", "datagrams", "bytes", "bytes of answers"],
                  [[name, f"{sums[0]:,}", f"{sums[1]:,}", f"{sums[3]:,}" if sums[2] else "–"]
                   for name, sums in totals.items()])
    counted = {}
    for phase in record["phases"]:
        for name, count in phase["counters"].items():
            counted[name] = counted.get(name, 0) + count
    text += ("\nThe target's programs counted in these phases (the host agent's own port is not among them, and "
             "`packets_received` includes honest packets): ")
    text += ", ".join(f"`{name}` {count:,}" for name, count in counted.items()) + ".\n"
    besieged = [[phase["phase"], times["count"], f"{times['p50_us'] / 1e6:.1f}", f"{times['max_us'] / 1e6:.1f}"]
                for phase in record["phases"] for name, times in phase["connections"].items()
                if "strangers" in name and times["count"]]
    if besieged:
        text += ("\nHonest connections to the listener that the forged requests name, for which there is no goal:\n\n"
                 + table(["phase", "connections", "median, s", "longest, s"], besieged))
    if record["faults"]:
        text += "\n" + "".join(f"- {fault.splitlines()[0]}\n" for fault in record["faults"])
    return text


# --- sealed programs ---


SEALED_TESTS_GOAL, SEALED_DATAGRAMS_GOAL = 450, 1_000_000


def sealed_goals(record):
    def line(text, figure, holds):
        return goal(text, figure(record) if record else "", holds(record) if record else None)

    def total(each, name):
        return sum(group[name] for group in each["classes"].values())

    return [
        line(f"at least {SEALED_TESTS_GOAL} tests of real programs run with every program sealed, and a capture",
             lambda r: f"{r['tests']} tests: " + ", ".join(f"{count} {name}" for name, count in r["verdicts"].items()),
             lambda r: r["tests"] >= SEALED_TESTS_GOAL),
        line(f"no plain datagram or frame of Tulle's among {SEALED_DATAGRAMS_GOAL:,} sealed ones",
             lambda r: f"{total(r, 'plain'):,} plain, {total(r, 'sealed'):,} sealed",
             lambda r: total(r, "plain") == 0 and total(r, "sealed") >= SEALED_DATAGRAMS_GOAL),
        line("no TCP connection in place of an rsocket", lambda r: f"{total(r, 'fallbacks'):,}",
             lambda r: total(r, "fallbacks") == 0),
        line("no clear byte in a sealed datagram", lambda r: f"{total(r, 'clear'):,} of {total(r, 'looked'):,} searched",
             lambda r: total(r, "clear") == 0 and total(r, "looked") > 0),
        line("no other fault", lambda r: f"{len(r['faults'])} faults", lambda r: not r["faults"]),
    ]


def sealed_groups(record):
    """Returns the sums of the classes of tests by their group, such as `ucx` of `ucx.Ucx`."""
    groups = {}
    for name, each in record["classes"].items():
        group = groups.setdefault(name.split(".")[0], {})
        for key, value in each.items():
            if isinstance(value, dict):
                counts = group.setdefault(key, {})
                for what, count in value.items():
                    counts[what] = counts.get(what, 0) + count
            else:
                group[key] = group.get(key, 0) + value
    return groups


def sealed_details(record):
    def counted(counts):
        return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))

    text = f"{of_run(record)} The run took {record['seconds'] / 60:.0f} minutes.\n\n"
    rows = []
    for name, each in sealed_groups(record).items():
        rows.append([f"`{name}`", each["tests"], f"{each['sealed']:,}",
                     f"{sum(each['streams'].values()):,}" if each["streams"] else "–", counted(each["verdicts"])])
    text += table(["tests", "number", "sealed datagrams", "TCP of programs", "verdicts"], rows)
    leaks = [[f"`{name}`", f"{each['plain']:,}", f"{each['fallbacks']:,}"]
             for name, each in sealed_groups(record).items() if each["plain"] or each["fallbacks"]]
    if leaks:
        text += "\nWhat left unsealed:\n\n" + table(["tests", "plain datagrams", "TCP of Tulle's"], leaks)
    reasons = {}
    for name, each in sealed_groups(record).items():
        for why, count in each["reasons"].items():
            reasons.setdefault(why, {})[f"`{name}`"] = count
    if reasons:
        text += "\nWhy tests do not apply or are refused:\n\n"
        text += table(["reason", "tests"], [[why, counted(names)] for why, names in reasons.items()])
    streams = {}
    for each in sealed_groups(record).values():
        for program, count in each["streams"].items():
            name = "one of several programs" if " or " in program else f"`{program}`"
            streams[name] = streams.get(name, 0) + count
    text += "\nTCP connections that programs open themselves, to exchange addresses or for a comparison:\n\n"
    text += table(["program", "connections"], [[program, f"{number:,}"] for program, number in sorted(streams.items())])
    own = [[f"`{name}`", counted(each["own"])] for name, each in sealed_groups(record).items() if each["own"]]
    if own:
        text += "\nPlain datagrams that tests send themselves, by sockets that are not Tulle's:\n\n"
        text += table(["tests", "sender and datagrams"], own)
    if record["faults"]:
        text += "\n" + "".join(f"- {fault}\n" for fault in record["faults"])
    return text


# --- busy machines -------------------------------------------------------------------------------------------------


def load_counts(record):
    """Yields (kind, program, passed, failed) of all runs."""
    for each in record["kinds"]:
        for program, counts in each["programs"].items():
            yield each["kind"], program, counts["passed"], counts["failed"]


def load_goals(record):
    counts = list(load_counts(record)) if record else []
    passed, failed = sum(each[2] for each in counts), sum(each[3] for each in counts)
    kinds = {each["kind"]: each for each in record["kinds"]} if record else {}
    fewest = min(kinds[kind]["runs"] if kind in kinds else 0 for kind in BUSY_KINDS)
    least_busy = min((each["load"] / each["processors"] for each in kinds.values()), default=0)
    return [
        goal(f"{BUSY_RUNS_GOAL} runs of each kind, with {BUSY_LOAD_GOAL} busy processes for each processor",
             f"{fewest} runs, {least_busy:g} processes for each processor" if record else "",
             fewest >= BUSY_RUNS_GOAL and least_busy >= BUSY_LOAD_GOAL if record else None),
        goal("no run fails", f"{passed:,} passed, {failed:,} failed", failed == 0 if record else None),
    ]


def load_details(record):
    runs = "".join(f"- {each['kind']}: {of_run(each)}\n" for each in record["kinds"])
    return runs + "\n" + table(["kind", "program", "passed", "failed"], map(list, load_counts(record)))


# --- soak ----------------------------------------------------------------------------------------------------------


def p99s(record):
    parts = record["connections"]["parts"]
    return parts[0]["p99_us"], parts[-1]["p99_us"]


def growths(record):
    """Yields (phase, process, KiB, descriptors) of all that was measured."""
    for phase in ("lives", "connections"):
        for name, grown in record[phase]["growth"].items():
            yield phase, name, grown["memory_kib"], grown["descriptors"]
    for name, grown in record["growth_overall"].items():
        yield "both", name, grown["memory_kib"], grown["descriptors"]


def soak_goals(record):
    has_soak = record is not None and "lives" in record

    def line(text, figure, holds):
        return goal(text, figure(record) if has_soak else "", holds(record) if has_soak else None)

    checks = record["uptime"]["checks"] if record else []
    passed = sum(each["outcome"] == "pass" for each in checks)
    clock = record["uptime"]["clock_s"] if record else 0
    lives = record["own_life"]["runs"] if record else []
    return [
        goal("ten years of uptime, in a time namespace", f"{passed} of {len(checks)} checks pass",
             clock >= CLOCK_GOAL_S and passed == len(checks) > 0 if record else None),
        goal("connections survive when their programs' clocks pass 106.75 days",
             f"{sum(not run['fault'] for run in lives)} of {len(lives)} runs", not any(run["fault"] for run in lives)
             if lives else None),
        line(f"{LIVES_GOAL:,} short programs", lambda r: f"{r['lives']['count']:,}, of which {r['lives']['killed']:,} "
             "were killed", lambda r: r["lives"]["count"] >= LIVES_GOAL),
        line(f"{CONNECTIONS_GOAL:,} connections", lambda r: f"{r['connections']['count']:,}",
             lambda r: r["connections"]["count"] >= CONNECTIONS_GOAL),
        line("no long-lived process grows by 1 MiB", lambda r: f"at most {max(g[2] for g in growths(r)):,} KiB",
             lambda r: max(g[2] for g in growths(r)) < GROWTH_GOAL_KIB),
        line("no descriptor is left behind", lambda r: f"at most {max(g[3] for g in growths(r))} more",
             lambda r: max(g[3] for g in growths(r)) <= 0),
        line("the last tenth's connections are as fast as the first's: p99 within 10 %",
             lambda r: "{} µs after {} µs".format(*reversed(p99s(r))),
             lambda r: p99s(r)[1] <= (1 + LATENCY_GOAL) * p99s(r)[0]),
    ]


def soak_details(record):
    text = of_run(record) + "\n"
    if "lives" in record:
        text += f"\nThe soak took {record['seconds'] / 60:.0f} minutes. Growth from the first tenth to the last:\n\n"
        text += table(["phase", "process", "memory, KiB", "descriptors"], [list(each) for each in growths(record)])
        text += "\nThe time to establish a connection:\n\n"
        text += table(["phase", "tenth", "connections", "p50, µs", "p99, µs"],
                      [[phase, number, each["count"], each["p50_us"], each["p99_us"]]
                       for phase in ("lives", "connections")
                       for number, each in ((1, record[phase]["parts"][0]),
                                            (len(record[phase]["parts"]), record[phase]["parts"][-1]))])
    text += f"\nThe uptime: the monotonic clock was at {record['uptime']['clock_s']:,} s.\n\n"
    text += table(["check", "outcome"], [[each["check"], each["outcome"]] for each in record["uptime"]["checks"]])
    text += "\nPrograms whose own clocks pass 106.75 days:\n\n"
    return text + table(["options of `tulle run`", "messages before", "messages in two seconds afterwards", "fault"],
                        [[run["options"] or "none", run["before"], run["after"], run["fault"] or "none"]
                         for run in record["own_life"]["runs"]])


# --- hostile users -------------------------------------------------------------------------------------------------


def hostile_user_goals(record):
    def line(text, figure, holds):
        return goal(text, figure(record) if record else "", holds(record) if record else None)

    def ratios(each):
        return [rate["attacked_to_elsewhere"] for rate in each["rates"].values()]

    def slots(each):
        return each["slots"]["most_of_attacker"], each["slots"]["of_host"]

    return [
        line(f"at least {ATTACKS_GOAL} scripted attacks", lambda r: f"{r['attacks']} attacks, {r['deeds']:,} actions",
             lambda r: r["attacks"] >= ATTACKS_GOAL),
        line("no crash, no wrong byte, no foreign endpoint touched", lambda r: f"{len(r['faults'])} faults",
             lambda r: not r["faults"]),
        line("the attacker gets no byte of other users",
             lambda r: f"{r['foreign_bytes']} in {r['bytes_searched'] / 1e6:,.0f} MB",
             lambda r: not r["foreign_bytes"] and r["bytes_searched"] > 0),
        line(f"the victims keep {RATE_GOAL * 100:.0f} % of their rate", lambda r: "; ".join(
            f"{name}: {rate['attacked_to_elsewhere'] * 100:.0f} %" for name, rate in r["rates"].items()),
             lambda r: bool(ratios(r)) and min(ratios(r)) >= RATE_GOAL),
        line(f"new programs open the device within {OPEN_GOAL_MS:,} ms",
             lambda r: f"longest of {r['opens']['count']}: {r['opens']['longest_ms']:g} ms",
             lambda r: r["opens"]["count"] > 0 and r["opens"]["longest_ms"] <= OPEN_GOAL_MS),
        # Slot 0 is the agent's own.
        line("no user holds more than half of the slots", lambda r: "{} of {}".format(*slots(r)),
             lambda r: slots(r)[1] > 0 and slots(r)[0] <= (slots(r)[1] + 1) // 2),
    ]


def hostile_user_details(record):
    groups = {}
    for name, each in record["outcomes"].items():
        groups.setdefault(name.partition(".")[0], []).append(each)
    rows = [[group, len(those), f"{sum(each['deeds'] for each in those):,}",
             sum(each["outcome"] == "held" for each in those)] for group, those in groups.items()]
    text = f"{of_run(record)} The seed was {record['seed']}, and the run took {record['minutes']:g} minutes.\n\n"
    text += table(["attacks on", "number", "actions", "without effect on others"], rows)
    bad = [[f"`{name}`", each["outcome"]] for name, each in record["outcomes"].items() if each["outcome"] != "held"]
    if bad:
        text += "\n" + table(["attack", "outcome"], bad)
    text += "\nMessages a second, medians:\n\n"
    return text + table(["victims of", "windows", "without attacks", "with attacks", "with attacks elsewhere",
                         "with, to without", "with, to elsewhere"],
                        [[name, rate["windows"], f"{rate['quiet']:,}", f"{rate['attacked']:,}",
                          f"{rate['attacked_elsewhere']:,}", rate["attacked_to_quiet"], rate["attacked_to_elsewhere"]]
                         for name, rate in record["rates"].items()])


# --- the page ------------------------------------------------------------------------------------------------------


SECTIONS = (
    ("Fuzzing", "fuzzing", fuzzing_goals, fuzzing_details, """
A fuzzer feeds random bytes to code that reads untrusted data: packets, messages, files. It keeps the inputs that reach new
code, and mutates them further. Every report of AddressSanitizer or UndefinedBehaviorSanitizer is a fault, and so is an input
that takes too long. `tests/corpora` stores the inputs that reach the most code, and every run of the tests replays them.

To repeat: `./dev fuzz --hours 8` adds a run, and `./dev fuzz --coverage` measures the lines.
"""),
    ("Mutants", "mutation", mutation_goals, mutation_details, """
A mutant is Tulle with one small mistake: an inverted condition, a missing statement. The tests should fail, which kills the
mutant. A mutant that survives either shows a gap in the tests or behaves like the original; the record explains which.

To repeat: `./dev mutate ROOM --record`.
"""),
    ("Sanitizers", "sanitizers", sanitizer_goals, sanitizer_details, """
A sanitizer is code that the compiler adds. It reports invalid memory accesses, leaks and undefined behaviour (`address`) or
data races (`thread`) while the tests run. The tests include the live device, the C libraries and programs that use both. The
table lists what is left out, and why.

To repeat: `./dev sanitize address` and `./dev sanitize thread`.
"""),
    ("Interruptions", "chaos", chaos_goals, chaos_details, """
Programs that exchange data over Tulle are interrupted at random: they are stopped, killed or forked, their agent is killed,
their memory is unmapped, or their network is cut. Afterwards, every byte must be correct, every operation that was reported as
done must be done, and the surviving programs must make progress within 5 s.

To repeat: `./dev chaos`.
"""),
    ("Hostile network", "hostile_network", hostile_network_goals, hostile_network_details, """
An attacker floods a host with forged datagrams. Programs on that host and on a peer work meanwhile and check every byte: RDMA
by packets over IPv4, IPv6 and the loopback, rsockets, and connections in both directions. The datagrams are random bytes,
well-formed packets, mutated copies of captured packets, batches, and messages of the connection manager, of 0 to 65,527 bytes.
They come from the attacker's addresses and from the connected peer's address. In the sealed phase, the programs run with
`tulle run --secure`, and the attacker also replays captured datagrams. The last phase is a flood of connection requests, from
countless addresses, to two listeners, one of which keeps all connections that it accepts.

The attacker draws keys and PSNs at random. Without seals, a host that has a peer's address, its queue pair number and an
expected PSN is trusted, so those phases avoid the honest programs' PSNs. The attacker sends as fast as the target reads.
"Received" counts what programs and the host agent read. The rest went to unused queue pair numbers, or found a full socket.
Honest packets share two cores with the attacker. A listener whose backlog is full of forged requests drops others, as Linux
does. The timed connections go to another listener of the same host.

To repeat: `./dev hostile network`. `clients.hostile_network` is a short form.
"""),
    ("Hostile users", "hostile_user", hostile_user_goals, hostile_user_details, """
A user attacks root's host agent, and the programs of root and of a third user. These exchange secret messages, and reconnect
continuously. Each attack is a row of the tables in `tests/clients/hostile`: messages, commands, descriptors in both
directions, socket options, quotas, names, ports, datagrams, processes. "Staged" attacks happen before an agent runs.
After each attack, the agent and the victims must be alive and make progress, with every byte correct. The attacker searches
for the victims' messages in everything that it can read.

The rates are measured in alternating windows: without attacks, with attacks that do not merely fill or flood, and with the
same attacks on another agent in another network namespace. The last kind uses as much processor time, and is the baseline.

To repeat: `./dev hostile user --rounds 3 --record`.
"""),
    ("Sealed programs", "sealed", sealed_goals, sealed_details, """
All tests of real programs run with every program under `tulle run --secure --no-direct`, and a capture inspects everything that
leaves over the interfaces of their network namespaces. A filter in the kernel counts each sealed datagram and passes everything
else to the capture: UDP that is not sealed, frames of RoCE v1 and of other types, TCP. Sends are segmented before the capture.
A sample of the sealed datagrams is searched for `rping`'s text and for sixteen equal bytes in a row.

A test is "sealed" if it passes and all its datagrams are sealed. It is "refused" if its program gets an error because it cannot
be sealed, as on a software fabric, and "nothing sent" if nothing left. A test that "does not apply" needs what sealing removes,
for example a peer without the key; it must not send anything unsealed either. Tulle does not seal TCP connections that a
program opens itself; the table counts them by program.

To repeat: `./dev client --sealed --record all`.
"""),
    ("Busy machines", "load", load_goals, load_details, """
Programs run on a machine that busy processes of the same priority share. A process that gets no processor for a while is a slow
receiver, and no connection may fail because of that. The kinds are the first commands of
[the fabric guide](guide/infiniband-fabric.md) ("page"), and perftest's programs between two hosts of a software fabric, between
two processes of one host ("roce", alternately by memory and by UDP), and between two network namespaces ("network").

To repeat: `./dev load`, or `./dev load --runs 5 --only fabric`. `clients.load` is a short form.
"""),
    ("Long runs", "soak", soak_goals, soak_details, """
One agent and one server keep running while short programs connect to the server, exchange a message and exit. One in eight is
killed midway. A last program then makes connections, one after the other. Any growth of the agent and the server is a leak.
"Memory" is the proportional set size.

For the uptime, programs and a separate agent run in a time namespace whose monotonic clock is at ten years. A device and an
agent count time from their start, so this shows that they work with a late clock, not how a process of that age behaves. A
process's time has 64 bits of picoseconds, which last 106.75 days, so its clock moves its zero from time to time
([022](decisions/022-a-clock-that-moves-its-zero.md)). To show that connections survive this, a library advances the clocks of
two connected programs and of their agent while they run, to a few seconds before that time.

To repeat: `./dev soak` (hours), or `./dev soak --lives 1000 --connections 10000`. `clients.soak` is a short form.
"""),
)


def read_records(folder=RECORDS):
    paths = {name: folder / f"{name}.json" for _, name, *_ in SECTIONS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def write(records):
    """Returns the whole page. `records` is {name: record}; a measure that was never taken has none."""
    text, all_goals = "", []
    for title, name, goals, details, prose in SECTIONS:
        record = records.get(name)
        rows = goals(record)
        all_goals += [[f"[{title}](#{title.lower().replace(' ', '-')})", *row] for row in rows]
        text += f"\n## {title}\n{prose}\n{goals_table(rows)}\n"
        text += details(record) if record else f"There is no record yet: `reliability/{name}.json`.\n"
    reached = sum(row[3] == REACHED for row in all_goals)
    head = f"{HEAD}\n{reached} of {len(all_goals)} goals are reached.\n\n"
    return head + table(["measure", "goal", "measured", ""], all_goals) + text


def main():
    parser = argparse.ArgumentParser(prog="./dev reliability", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare the page with the records")
    arguments = parser.parse_args()
    page = write(read_records())
    if arguments.check:
        if not PAGE.exists() or PAGE.read_text() != page:
            sys.exit("reliability: docs/reliability.md does not say what its records say; run ./dev reliability")
        return
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
