#!/usr/bin/env python3
"""Tests that docs/reliability.md says what its records say, that it tells a goal that is missed or not measured, and that
./dev sanitize reads its tests' results right."""

import copy
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))

import reliability  # noqa: E402
import sanitize  # noqa: E402


def usage(kib=0, descriptors=0):
    return {"memory_kib": kib, "descriptors": descriptors}


def part(p99):
    return {"seconds": 1, "count": 10, "p50_us": 5, "p99_us": p99, "usage": {"agent": usage(100, 9)}}


def flood(name, received, **changes):
    kind = {"kind": "random bytes", "family": "IPv4", "datagrams": 9, "bytes": 99, "asked_bytes": 99, "answered_bytes": 9,
            "answered_longer": 0}
    times = {"count": 5, "p50_us": 1, "p99_us": 2_000_000, "max_us": 3}
    return {"phase": name, "sent": received, "processed": received, "seconds": 1, "agent_peak_kib": 65_535,
            "honest_packets_a_second": {"before": 2, "during": 1}, "kinds": [kind], "counters": {"received_bad_icrc": 1_200},
            "connections": {"connections to the target": times, "connections to the peer": times,
                            "connections to the listener that strangers ask for, too": {**times, "count": 0}}, **changes}


RUN = {"date": "2026-01-02", "commit": "abc"}
ROOM = {**RUN, "files": "src/rdma/wire/**/*.cc", "counted": 50, "killed": 49, "killed_at_first": 40,
        "survivors": [{"explanation": "It changes nothing."}]}
FAULT = {"what": "odd", "place": "one host", "during": ["freeze"], "seed": 5}
# Records in which each goal is just reached.
GOOD = {
    "fuzzing": {"runs": [{**RUN, "hours": 1, "cores": 2, "fuzzers": {"a": {"executions": 300_000_000, "faults": 0}}}],
                "coverage": {**RUN, "parsers": {"lines": 100, "covered": 95}, "files": {
                    "src/a.cc": {"lines": 80, "covered": 79}, "src/b.cc": {"lines": 20, "covered": 16}}}},
    "mutation": {"rooms": {room: {**ROOM, "room": room} for room in reliability.mutate.KILLERS}},
    "sanitizers": {kind: {**RUN, "sanitizer": f"{kind} sanitizer", "seconds": 60, "passed": {"live": 7}, "failures": [],
                          "reports": [], "skipped": [{"test": "live.a", "reason": "it may not"}],
                          "left_out": [{"what": "b", "reason": "it may not"}]} for kind in reliability.SANITIZERS},
    "chaos": {"runs": [
        {**RUN, "seed": 3, "minutes": 60, "interruptions": 70, "stuck": 1, "interruptions_by_kind": {"freeze": 70},
         "longest_call": {"milliseconds": 900, "call": "ibv_poll_cq", "during": []}, "faults": [FAULT]},
        {**RUN, "seed": 4, "minutes": 60, "interruptions": 10_000, "wrong_bytes": 0, "false_successes": 0, "stuck": 0,
         "longest_call": {"milliseconds": 99.5, "call": "ibv_poll_cq", "during": []},
         "interruptions_by_kind": {"freeze": 10_000}, "faults": []}]},
    "hostile_network": {**RUN, "seed": 4, "seconds": 60, "faults": [], "phases": [
        flood("plain", 4_000_000), flood("captured", 6_000_000), flood("requests", 1_000_000)]},
    "hostile_user": {**RUN, "seed": 6, "minutes": 5, "attacks": 100, "deeds": 1_000, "bytes_searched": 10**6,
                     "foreign_bytes": 0, "opens": {"count": 9, "p99_ms": 50, "longest_ms": 1_000},
                     "slots": {"of_host": 127, "most_of_attacker": 64}, "faults": [],
                     "rates": {"root": {"windows": 9, "quiet": 100, "attacked": 90, "attacked_elsewhere": 100,
                                        "attacked_to_quiet": 0.9, "attacked_to_elsewhere": 0.9}},
                     "outcomes": {"memory.resize": {"deeds": 1_000, "outcome": "held"}}},
    "sealed": {**RUN, "seconds": 600, "tests": 450, "verdicts": {"sealed": 300, "refused": 150}, "faults": [], "classes": {
        "perftest.Bandwidth": {"tests": 300, "verdicts": {"sealed": 300}, "reasons": {}, "sealed": 1_000_000, "looked": 9,
                               "clear": 0, "plain": 0, "fallbacks": 0, "own": {}, "streams": {"ib_write_bw": 3},
                               "stream_bytes": 9},
        "fabric.Managed": {"tests": 150, "verdicts": {"refused": 150}, "reasons": {"a fabric": 150}, "sealed": 0, "looked": 0,
                           "clear": 0, "plain": 0, "fallbacks": 0, "own": {"forge.py": 7}, "streams": {"ib_write_bw": 4},
                           "stream_bytes": 9}}},
    "load": {"kinds": [{**RUN, "kind": kind, "processors": 2, "load": 13, "runs": 100, "seconds": 9,
                        "programs": {"ib_write_bw": {"passed": 100, "failed": 0}}, "faults": []}
                       for kind in reliability.BUSY_KINDS]},
    "soak": {**RUN, "seconds": 60, "lives": {"count": 100_000, "killed": 9, "parts": [part(90), part(90)],
                                              "growth": {"agent": usage(1023)}},
             "connections": {"count": 1_000_000, "parts": [part(100), part(110)], "growth": {"agent": usage(-5)}},
             "growth_overall": {"agent": usage()},
             "uptime": {"clock_s": reliability.CLOCK_GOAL_S, "checks": [{"check": "it runs", "outcome": "pass"}]},
             "own_life": {"seconds": 9, "runs": [{"options": "", "before": 5, "after": 6, "fault": ""}]}},
}
# For each goal, in the page's order, a change to the good records that misses it: the path to a value, and the value.
MISSED = (
    ("fuzzing", "runs", 0, "fuzzers", "a", "executions", 299_999_999),
    ("fuzzing", "runs", 0, "fuzzers", "a", "faults", 1),
    ("fuzzing", "coverage", "parsers", "covered", 94),
    ("mutation", "rooms", "wire", "counted", 39),
    ("mutation", "rooms", "wire", "killed", 47),
    ("mutation", "rooms", "wire", "survivors", 0, "explanation", ""),
    ("sanitizers", "address", "failures", ["live.a"]),
    ("sanitizers", "thread", "reports", ["data race"]),
    ("chaos", "runs", 1, "interruptions", 9_999),
    ("chaos", "runs", 1, "wrong_bytes", 1),
    ("chaos", "runs", 1, "false_successes", 1),
    ("chaos", "runs", 1, "stuck", 1),
    ("chaos", "runs", 1, "longest_call", "milliseconds", 100),
    ("chaos", "runs", 1, "faults", [FAULT]),
    ("hostile_network", "phases", 1, "processed", 5_999_999),
    ("hostile_network", "faults", ["a program ended"]),
    ("hostile_network", "phases", 0, "kinds", 0, "answered_longer", 1),
    ("hostile_network", "phases", 2, "agent_peak_kib", 65_536),
    ("hostile_network", "phases", 2, "connections", "connections to the peer", {"count": 5, "p99_us": 2_000_001}),
    ("hostile_user", "attacks", 99),
    ("hostile_user", "faults", [{"attack": "memory.resize", "seed": 6, "what": "the host agent is dead"}]),
    ("hostile_user", "foreign_bytes", 8),
    ("hostile_user", "rates", "root", "attacked_to_elsewhere", 0.89),
    ("hostile_user", "opens", "longest_ms", 1_001),
    ("hostile_user", "slots", "most_of_attacker", 65),
    ("sealed", "tests", 449),
    ("sealed", "classes", "fabric.Managed", "plain", 1),
    ("sealed", "classes", "fabric.Managed", "fallbacks", 1),
    ("sealed", "classes", "perftest.Bandwidth", "clear", 1),
    ("sealed", "faults", ["a.B.c: failed: odd"]),
    ("load", "kinds", 1, "load", 12),
    ("load", "kinds", 0, "programs", "ib_write_bw", "failed", 1),
    ("soak", "uptime", "checks", 0, "outcome", "fail"),
    ("soak", "own_life", "runs", 0, "fault", "it hangs"),
    ("soak", "lives", "count", 99_999),
    ("soak", "connections", "count", 999_999),
    ("soak", "lives", "growth", "agent", "memory_kib", 1024),
    ("soak", "growth_overall", "agent", "descriptors", 1),
    ("soak", "connections", "parts", 1, "p99_us", 111),
)


def outcomes(records):
    """Returns what the page's first table says of each goal."""
    first = reliability.write(records).partition("\n## ")[0]
    return [line.split(" | ")[-1].removesuffix(" |") for line in first.splitlines() if line.startswith("| [")]


def changed(path, value):
    records = copy.deepcopy(GOOD)
    place = records
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return records


class Page(unittest.TestCase):
    def test_interruptions_of_runs_without_a_fault_are_added(self):
        runs = [{"faults": faults, "interruptions": count} for faults, count in (([], 1), ([FAULT], 2), ([], 4), ([], 8))]
        self.assertEqual([4, 8], [run["interruptions"] for run in reliability.chaos_runs({"runs": runs})])
        self.assertEqual([2], [run["interruptions"] for run in reliability.chaos_runs({"runs": runs[:2]})])

    def test_the_page_equals_its_records(self):
        page = reliability.PAGE.read_text()
        self.assertEqual(reliability.write(reliability.read_records()), page, "make it again: ./dev reliability")

    def test_goals_that_are_reached(self):
        self.assertEqual([reliability.REACHED] * len(MISSED), outcomes(GOOD))

    def test_each_goal_that_is_missed(self):
        for number, (*path, value) in enumerate(MISSED):
            expected = [reliability.REACHED] * len(MISSED)
            expected[number] = reliability.MISSED
            self.assertEqual(expected, outcomes(changed(path, value)), path)

    def test_a_kind_of_busy_runs_that_is_short_or_missing(self):
        few = changed(("load", "kinds", 1, "runs"), 99)
        missing = {**GOOD, "load": {"kinds": GOOD["load"]["kinds"][1:]}}
        for records in (few, missing):
            self.assertEqual([reliability.MISSED], [each for each in outcomes(records) if each != reliability.REACHED])

    def test_goals_without_a_record(self):
        self.assertEqual([reliability.UNKNOWN] * len(MISSED), outcomes({}))
        for name in GOOD:
            others = {key: record for key, record in GOOD.items() if key != name}
            self.assertIn(reliability.UNKNOWN, outcomes(others), name)
            self.assertIn(f"There is no record yet: `reliability/{name}.json`.", reliability.write(others))

    def test_a_run_of_the_uptime_alone(self):
        soak = {key: GOOD["soak"][key] for key in ("date", "commit", "uptime", "own_life")}
        rows = outcomes({"soak": soak})[-7:]
        self.assertEqual([reliability.REACHED] * 2 + [reliability.UNKNOWN] * 5, rows)

    def test_connections_to_a_listener_under_attack_are_told(self):
        self.assertNotIn("for which there is no goal", reliability.write(GOOD))
        times = {"count": 2, "p50_us": 1_500_000, "max_us": 33_900_000}
        path = ("hostile_network", "phases", 0, "connections", "connections to the listener that strangers ask for, too")
        self.assertIn("| plain | 2 | 1.5 | 33.9 |", reliability.write(changed(path, times)))

    def test_counters_of_all_phases_are_added(self):
        self.assertIn("`received_bad_icrc` 3,600", reliability.write(GOOD))

    def test_what_is_left_out_shares_a_line_with_its_reason(self):
        self.assertIn("| `live.a`, `b` | it may not |", reliability.write(GOOD))

    def test_sealed_programs_are_summed_by_group(self):
        page = reliability.write(GOOD)
        self.assertIn("| `perftest` | 300 | 1,000,000 | 3 | sealed 300 |", page)
        self.assertIn("| a fabric | `fabric` 150 |", page)
        self.assertIn("| `ib_write_bw` | 7 |", page)
        self.assertIn("| `fabric` | forge.py 7 |", page)
        self.assertNotIn("What left unsealed", page)

    def test_files_below_the_goal(self):
        page = reliability.write(GOOD)
        self.assertIn("| `src/b.cc` | 20 | 80.0 % |", page)
        self.assertNotIn("src/a.cc", page)

    def test_absent_records_are_not_read(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "chaos.json").write_text("{}")
            self.assertEqual({"chaos": {}}, reliability.read_records(pathlib.Path(folder)))


class SanitizerResults(unittest.TestCase):
    def test_ctests_results(self):
        text = """<testsuite>
<testcase name="live.A.b" status="run"><system-out>ok</system-out></testcase>
<testcase name="live.A.c" status="run"/>
<testcase name="abi.A.d" status="fail"><failure/></testcase>
<testcase name="abi.A.e" status="notrun"><skipped/><system-out>x.cc:3: Skipped
it may
not

[  SKIPPED ] A.e</system-out></testcase>
</testsuite>"""
        passed, failures, skipped = sanitize.read_results(text)
        self.assertEqual({"live": 2}, dict(passed))
        self.assertEqual(["abi.A.d"], failures)
        self.assertEqual([{"test": "abi.A.e", "reason": "it may not"}], skipped)

    def test_unittests_results(self):
        text = """test_a (soak_test.Soak.test_a)
It does. ... soak: 3 lives
ok
test_b (soak_test.Soak.test_b) ... FAIL
test_c (soak_test.Soak.test_c) ... skipped 'no tools'
test_d (events_test.Events.test_d) ... ok
Ran 4 tests
"""
        self.assertEqual((2, ["clients.soak.Soak.test_b"], [{"test": "clients.soak.Soak.test_c", "reason": "no tools"}]),
                         sanitize.read_unittest(text))

    def test_a_reports_headline(self):
        report = "=======\n==12==ERROR: AddressSanitizer: heap-use-after-free on address 1\n  #0 main"
        self.assertEqual("ERROR: AddressSanitizer: heap-use-after-free on address 1", sanitize.headline(report))
        self.assertEqual("a.cc:3:4: runtime error: shift", sanitize.headline("a.cc:3:4: runtime error: shift\n  #0"))


if __name__ == "__main__":
    unittest.main()
