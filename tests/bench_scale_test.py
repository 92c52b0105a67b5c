#!/usr/bin/env python3
"""Tests ./dev bench scale: it compares results, takes medians, and reports what failed.

The tests replace the simulator by a small program in a temporary folder, which answers as `tulle sim` does.
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import textwrap
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import scale  # noqa: E402

# With n threads, the fake takes 8 / n seconds. The change that a test asks for is inserted before it writes.
FAKE = """\
    #!{python}
    import argparse, json, os, pathlib, sys
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["sim"])
    parser.add_argument("scenario", nargs="?")
    for name in ("topology", "flows", "timings"):
        parser.add_argument("--" + name)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o")
    parser.add_argument("--json", action="store_true", required=True)
    options = parser.parse_args()
    assert (options.scenario is None) != (options.flows is None)
    run_s, flows = 8 / options.threads / int(os.environ.get("RANKS", 1)), "flows"
    if options.scenario:
        assert "fat-tree" in pathlib.Path(options.scenario).read_text()
        run_s = 12
    {change}
    summary = json.dumps({{"packet_hops": 1000000000}})
    print(summary)
    for name, text in (("summary.json", summary), ("flows.csv", flows), ("links.csv", "links")) if options.o else ():
        (pathlib.Path(options.o) / name).write_text(text)
    pathlib.Path(options.timings).write_text(json.dumps({{"run_s": run_s, "setup_s": 0.5, "peak_bytes": 1500000000}}))
"""


class Scale(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)
        touched = unittest.mock.patch.object(scale, "touch_memory")
        touched.start()
        self.addCleanup(touched.stop)

    def bench(self, *arguments, change="", ranks=()):
        arguments = ("--ranks", *ranks, *arguments)
        program = self.folder / "tulle"
        program.write_text(textwrap.dedent(FAKE).format(python=sys.executable, change=change))
        program.chmod(0o755)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = scale.main(["--tulle", str(program), "--history", str(self.folder / "history.jsonl"), *arguments])
        return status, out.getvalue(), err.getvalue()

    def values(self, *arguments, **more):
        status, out, err = self.bench("--json", *arguments, **more)
        self.assertEqual((0, ""), (status, err))
        return {row["name"]: row["value"] for row in map(json.loads, out.splitlines())}

    def test_threads_are_compared_with_one(self):
        values = self.values("--threads", "2", "4", "--rounds", "1", "W2")
        self.assertEqual({"W2: nanoseconds a packet-hop": 8, "W2: 2 threads beside one": 2, "W2: 4 threads beside one": 4},
                         values)

    # The programs that are found are those of the folder alone.
    def test_ranks_of_each_mpi_are_compared_with_one_thread(self):
        launcher = self.folder / "mpirun.mpich"
        launcher.write_text('#!/bin/sh\n[ "$1" = -n ] || exit 1\nexport RANKS=$2\nshift 2\nexec "$@"\n')
        launcher.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, PATH=str(self.folder)):
            values = self.values("--threads", "2", "--rounds", "1", "W2", ranks=("4",))
        self.assertEqual({"W2: nanoseconds a packet-hop": 8, "W2: 2 threads beside one": 2,
                          "W2: 4 ranks of MPICH beside one": 4}, values)

    def test_clusters_have_memory_and_set_up_and_are_compared_with_w2(self):
        values = self.values("--threads", "2", "--rounds", "2", "W2", "65,536 hosts")
        self.assertEqual(1.5, values["65,536 hosts: memory"])
        self.assertEqual(0.5, values["65,536 hosts: set-up"])
        self.assertEqual(12, values["65,536 hosts: nanoseconds a packet-hop"])
        self.assertEqual(1.5, values["65,536 hosts: time a packet-hop beside W2"])

    def test_other_results_with_more_threads_are_a_failure(self):
        status, _, err = self.bench("--threads", "2", "--rounds", "1", "W2",
                                    change='flows = f"flows of {options.threads}"')
        self.assertEqual((1, "W2: flows.csv differs with the number of threads or ranks\n"), (status, err))

    def test_what_fails_is_named_and_the_others_go_on(self):
        status, out, err = self.bench("--json", "--threads", "2", "--rounds", "1", "W2", "65,536 hosts",
                                      change='if options.flows: sys.exit("tulle: no")')
        self.assertEqual((1, "W2: tulle: no\n"), (status, err))
        self.assertEqual(3, len(out.splitlines()))

    def test_each_row_is_kept(self):
        self.values("--threads", "2", "--rounds", "1", "W2")
        kept = [json.loads(line) for line in (self.folder / "history.jsonl").read_text().splitlines()]
        self.assertEqual([8, 2], [row["value"] for row in kept])

    def test_names_that_are_not_known(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as err:
            scale.main(["W9"])
        self.assertIn("there is no W9, only W2, W3, W4, 65,536 hosts", err.getvalue())


if __name__ == "__main__":
    unittest.main()
