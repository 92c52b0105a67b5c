"""Runs the programs of ./dev bench live for a moment. What they measure is no matter here."""

import json
import pathlib
import sys
import tempfile

from harness import BUILD, ROOT, ClientTest

SMALL = {"exchange": ("--count", "20"), "data": ("--count", "20", "--data", "131072", "--depth", "4"),
         "large": ("--count", "20", "--request", "262144", "--answer", "262144", "--depth", "2")}


class Programs(ClientTest):
    def result(self, *argv):
        process = self.start(*argv, env={"TULLE_BUILD": str(BUILD)})
        self.assertEqual(0, process.wait(), process.describe())
        return json.loads(process.stdout)

    def test_exchanges(self):
        program = BUILD / "bin" / "exchanges"
        for name, options in SMALL.items():
            for way in self.over_tulle([program, *options]), [program, "--tcp", *options]:
                with self.subTest(name, way=way):
                    result = self.result(*way)
                    self.assertGreater(result["median_us"], 0)
                    self.assertGreaterEqual(result["p99_us"], result["median_us"])
                    self.assertGreater(result["per_second"], 0)

    def test_verbs_calls(self):
        for kind in "queries", "objects", "registration":
            for call, microseconds in self.result(*self.over_tulle([BUILD / "bin" / "verbs_calls", kind,
                                                                    "--rounds", "10"])).items():
                self.assertRegex(call, "^ibv_")
                self.assertGreater(microseconds, 0, call)

    def test_memory_limits(self):
        for way in ("copy", "4096"), ("visit", "8"), ("line",):
            self.assertGreater(self.result(BUILD / "bin" / "memory_limits", "--count", "100", *way)["us"], 0)

    def test_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            history = pathlib.Path(folder, "history.jsonl")
            row = self.result(sys.executable, ROOT / "bench" / "live.py", "--json", "--rounds", "1",
                              "--only", "exchange_64b", "--history", history)
            self.assertEqual("exchange_64b", row["name"])
            self.assertAlmostEqual(row["value"] / row["peers"]["tcp"]["value"], row["peers"]["tcp"]["ratio"])
            kept = json.loads(history.read_text())
            self.assertEqual((row["value"], "exchange_64b"), (kept["value"], kept["live"]))
            self.assertIn("commit", kept)
