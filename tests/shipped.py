"""Runs the scenarios that ship with Tulle, each once for all tests of a process, and reads their results."""

import csv
import functools
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCENARIOS = ROOT / "scenarios"
TULLE = ROOT / os.environ.get("TULLE_BUILD", "build") / "bin" / "tulle"
LIMIT_S = 600  # a sanitizer's build takes some ten times as long

FOLDER = tempfile.TemporaryDirectory(prefix="tulle-scenarios-")


def simulate(scenario, folder, *arguments):
    """Runs a scenario, writes its results to the folder and returns its summary."""
    done = subprocess.run([TULLE, "sim", scenario, "-o", folder, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise AssertionError(f"tulle sim {scenario}: exit status {done.returncode}\n{done.stderr}")
    return json.loads((pathlib.Path(folder) / "summary.json").read_text())


@functools.cache
def results(scenario):
    """Runs a scenario as it is shipped, only once, and returns {variant: its figures}."""
    summary = simulate(scenario, pathlib.Path(FOLDER.name) / scenario)
    return {variant["variant"]: variant for variant in summary["variants"]}


def flows(scenario, variant):
    results(scenario)
    with (pathlib.Path(FOLDER.name) / scenario / variant / "flows.csv").open(newline="") as table:
        return list(csv.DictReader(table))


class Case(unittest.TestCase):
    def assert_between(self, least, value, most):
        self.assertGreaterEqual(value, least)
        self.assertLessEqual(value, most)

    def assert_all_arrived(self, scenario):
        for name, variant in results(scenario).items():
            self.assertEqual(variant["flows"], variant["finished"], name)
            self.assertEqual(0, variant["lossless_dropped"], name)
