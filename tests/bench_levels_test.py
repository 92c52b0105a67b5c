#!/usr/bin/env python3
"""Tests ./dev bench levels: which ranges its cases validate, and what stands in the table."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import levels  # noqa: E402


def row(error, flows, load=0.5, hosts=128, backlog="credits", flow_bytes=100_000):
    return {
        "backlog": backlog, "network": "a tree", "hosts": hosts, "traffic": "web-search", "load": load, "seed": 3,
        "flows": 100, "flow_bytes": flow_bytes,
        "packet_slowdown": 2.0, "flow_slowdown": 2.0 * (1 + error), "error": error, "packet_p99": 5.0,
        "flow_p99": 5.1, "offered_load": load or None, "bottleneck_flows": flows, "packet_s": 1.0, "flow_s": 0.01,
        "speed_up": 100.0,
    }


class Ranges(unittest.TestCase):
    def test_a_range_ends_before_the_first_case_that_does_not_hold(self):
        rows = [row(0.01, 3, 0.3), row(-0.05, 6, 0.5), row(-0.12, 8, 0.6), row(0.02, 9, 0.7)]
        found = levels.range_of(rows, "credits", False, "2026-01-01")
        self.assertEqual(found["bottleneck_flows_max"], 6)
        self.assertEqual(found["load_max"], 0.5)
        self.assertEqual(found["error_max"], 0.05)
        self.assertEqual(found["runs"], 2)
        verdicts = [levels.is_within(each, [found]) for each in rows]
        self.assertEqual(verdicts, [True, True, False, False])

    def test_networks_that_are_too_small_say_nothing(self):
        rows = [row(0.01, 3), row(0.3, 2, hosts=16)]
        found = levels.range_of(rows, "credits", False, "2026-01-01")
        self.assertEqual((found["hosts_min"], found["runs"]), (128, 1))
        self.assertFalse(levels.is_within(rows[1], [found]))

    def test_jobs_have_a_bound_of_their_own(self):
        cases = ((0.001, 1), (-0.009, 2), (0.011, 4), (0.0, 5))
        rows = [{**row(error, flows), "of_jobs": True, "pauses": 0} for error, flows in cases]
        found = levels.range_of(rows, "credits", False, "2026-01-01", of_jobs=True)
        self.assertEqual((found["bottleneck_flows_max"], found["error_max"], found["runs"]), (2, 0.009, 2))
        self.assertTrue(found["of_jobs"])
        self.assertIsNone(levels.range_of(rows[2:3], "credits", False, "2026-01-01", of_jobs=True))
        rows[1]["pauses"] = 3
        found = levels.range_of(rows, "credits", False, "2026-01-01", of_jobs=True)
        self.assertEqual(found["bottleneck_flows_max"], 1)

    def test_long_flows_have_a_range_of_their_own(self):
        rows = [row(0.01, 3), row(0.2, 9), row(0.03, 12, flow_bytes=2_000_000)]
        found = levels.ranges_of(rows, "window", False, "2026-01-01")
        self.assertEqual([(r["bottleneck_flows_max"], r["flow_bytes_min"]) for r in found], [(3, 100_000), (12, 2_000_000)])
        self.assertTrue(levels.is_within(row(0, 12, flow_bytes=2_000_000, backlog="window"), found))
        self.assertFalse(levels.is_within(row(0, 12, backlog="window"), found))
        self.assertEqual(len(levels.ranges_of(rows[2:], "window", False, "2026-01-01")), 1)

    def test_with_credits_flows_that_begin_at_once_validate_nothing(self):
        self.assertEqual(levels.ranges_of([row(0.01, 3, load=0)], "credits", True, "2026-01-01"), [])
        self.assertEqual(len(levels.ranges_of([row(0.01, 3, load=0)], "window", True, "2026-01-01")), 1)

    def test_no_case_that_holds_is_no_range(self):
        self.assertIsNone(levels.range_of([row(0.2, 3)], "credits", False, "2026-01-01"))

    def test_flows_that_begin_at_once_have_no_load(self):
        rows = [row(0.01, 4, load=0)]
        found = levels.range_of(rows, "credits", True, "2026-01-01")
        self.assertEqual(found["load_max"], 0)
        self.assertTrue(levels.is_within(rows[0], [found]))
        self.assertFalse(levels.is_within(row(0.01, 4), [found]))


class Document(unittest.TestCase):
    def test_the_table_says_what_is_refused(self):
        rows = [row(0.01, 3), row(0.2, 9)]
        ranges = [levels.range_of(rows, "credits", False, "2026-01-01")]
        lines = levels.table(rows, ranges, "2026-01-01").splitlines()
        self.assertIn("2026-01-01", lines[0])
        self.assertEqual([line.endswith("| refused |") for line in lines if "+" in line], [False, True])

    def test_the_table_replaces_the_last_one_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            document = pathlib.Path(folder) / "d.md"
            document.write_text("before\n" + levels.BEGIN + "old\n" + levels.END + "after\n")
            with mock.patch.object(levels, "DOCUMENT", document):
                levels.write_document("new")
                self.assertEqual(document.read_text(), "before\n" + levels.BEGIN + "\nnew\n" + levels.END + "after\n")
                document.write_text("nothing")
                with self.assertRaises(levels.Failed):
                    levels.write_document("new")


class Cases(unittest.TestCase):
    def test_no_case_comes_twice_and_each_network_has_its_hosts(self):
        cases = [*levels.OVER_TIME, *levels.AT_ONCE]
        self.assertEqual(len(cases), len(set(cases)))
        self.assertEqual(set(levels.HOSTS), set(levels.NETWORKS))

    def test_a_percentile_is_the_nearest_rank(self):
        self.assertEqual(levels.quantile(range(1, 101), 99), 99)
        self.assertEqual(levels.quantile([7.0], 99), 7.0)


if __name__ == "__main__":
    unittest.main()
