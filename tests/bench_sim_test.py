#!/usr/bin/env python3
"""Tests ./dev bench sim: the reference workloads are those that the peers ran, and the benchmark reads results right.

The tests replace the simulator by a small program in a temporary folder, which answers as `tulle sim` does.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import sim  # noqa: E402

# SHA-256 of the workloads' files with seed 1. The peers' figures hold for these bytes and no others.
DIGESTS = {
    "W1/flows.csv": "89a07231a4cafd92eb7d8246500ebe2c1ed76c76e2fd38e0e3337452703fa53b",
    "W1/topology.csv": "8f06fd6d79994f0d8640e4e61f2d011a2cd151c67a403d2d1af514d95242e311",
    "W1L/flows.csv": "27946ac90fab489b4f96c5763364122cb19b5cf63e5276acb024e296c759f8ca",
    "W1L/topology.csv": "8f06fd6d79994f0d8640e4e61f2d011a2cd151c67a403d2d1af514d95242e311",
    "W2/flows.csv": "0d398cf37667df9e9e7e59bd19ce9daec57ee12e7b6cb33fb58f2428206e41f0",
    "W2/topology.csv": "834372173086b944a78325482f8874ea1ec4f6440484052819d120093e751e21",
    "W3/flows.csv": "40c4f2301e96d3c122437d5d43e617e8fd81c8b5f6f6f4ddc06bcc907b00f035",
    "W3/topology.csv": "c148ea0a09ab2a1ecbbeec51c67089261560482035bff9c482f611aa68399241",
    "W4/flows.csv": "71e9e52cf8c08094458332da02f2636a59f2cc64eec3dbfe35e152f51292b76a",
    "W4/topology.csv": "19ab5dee5bdf131b889c2505a2807be75cd25e674b1d2c5cc0bae1492870f013",
}
PACKET_HOPS = {"W1": 15_680, "W1L": 156_288, "W2": 1_821_732, "W3": 1_472_940, "W4": 11_901_120}

# The fake simulator. Flow i completes after i + 1 us. The change that a test asks for is inserted before `write()`.
FAKE = """\
    #!{python}
    import argparse, csv, json, os, pathlib, sys, time
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["sim"])
    for name in ("topology", "flows", "fabric", "congestion-control", "timings"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("-o", required=True)
    options = parser.parse_args()
    assert options.fabric == "roce"
    assert next(csv.reader(open(options.topology))) == ["a", "b", "gbps", "delay_ns"]
    flows = list(csv.DictReader(open(options.flows)))
    summary = {{"events": 77, "packet_hops": 15680, "congestion_control": options.congestion_control}}
    times = [1000 * (i + 1) for i in range(len(flows))]
    def write():
        out = pathlib.Path(options.o)
        out.mkdir(parents=True)
        (out / "summary.json").write_text(json.dumps(summary))
        with (out / "flows.csv").open("w") as table:
            rows = csv.writer(table)
            rows.writerow(["src", "dst", "bytes", "start_ns", "fct_ns"])
            rows.writerows([f["src"], f["dst"], f["bytes"], f["start_ns"], t] for f, t in zip(flows, times))
        pathlib.Path(options.timings).write_text(json.dumps({{"setup_s": 0.25, "run_s": 1, "user_s": 1}}))
    {change}
    write()
"""


class Workloads(unittest.TestCase):
    def test_bytes_are_those_that_the_peers_ran(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, make in sim.WORKLOADS.items():
                make(sim.SEED).write(pathlib.Path(folder) / name)
            for name, digest in DIGESTS.items():
                with self.subTest(name=name):
                    self.assertEqual(digest, hashlib.sha256((pathlib.Path(folder) / name).read_bytes()).hexdigest())

    def test_packet_hops(self):
        self.assertEqual(PACKET_HOPS, {name: make(sim.SEED).packet_hops() for name, make in sim.WORKLOADS.items()})

    def test_another_seed_is_another_permutation(self):
        self.assertNotEqual(sim.WORKLOADS["W2"](1).pairs, sim.WORKLOADS["W2"](2).pairs)


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.history = self.folder / "history.jsonl"

    def bench(self, *arguments, change=""):
        """Returns (exit status, standard output, standard error) of a run whose simulator does `change` before it
        writes."""
        tulle = self.folder / "tulle"
        tulle.write_text(textwrap.dedent(FAKE).format(python=sys.executable, change=change))
        tulle.chmod(0o755)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = sim.main(["--tulle", str(tulle), "--history", str(self.history), *arguments])
        return status, out.getvalue(), err.getvalue()

    def assert_failed(self, expected, *arguments, change):
        status, out, err = self.bench("--json", *(arguments or ["W1"]), change=change)
        self.assertEqual(1, status)
        self.assertEqual("", out)
        self.assertIn(expected, err)
        self.assertFalse(self.history.exists())

    def test_a_row(self):
        status, out, err = self.bench("--json", "W1")
        self.assertEqual((0, ""), (status, err))
        row = json.loads(out)
        self.assertEqual(["workload", "congestion_control", "packet_hops", "events", "cpu_s", "user_s",
                          "packet_hops_per_cpu_s", "peak_mb", "setup_s", "fct_us"], list(row))
        self.assertEqual(("W1", "none", 15_680, 77, 0.25),
                         tuple(row[key] for key in ("workload", "congestion_control", "packet_hops", "events", "setup_s")))
        self.assertEqual({"min": 1, "median": 16.5, "p99": 32, "max": 32}, row["fct_us"])
        self.assertGreater(row["cpu_s"], 0)
        self.assertAlmostEqual(1, row["packet_hops_per_cpu_s"] * row["cpu_s"] / 15_680, delta=0.01)

    def test_history_says_which_commit_and_machine(self):
        self.bench("--json", "W1")
        _, out, _ = self.bench("--json", "W1")
        lines = self.history.read_text().splitlines()
        self.assertEqual(2, len(lines))
        line = json.loads(lines[1])
        self.assertEqual(os.cpu_count(), line["machine"]["cores"])
        self.assertIn("cpu", line["machine"])
        self.assertIn("commit", line)
        self.assertEqual(json.loads(out), {key: line[key] for key in json.loads(out)})

    def test_no_history(self):
        self.assertEqual(0, self.bench("--json", "--no-history", "W1")[0])
        self.assertFalse(self.history.exists())

    def test_a_table_with_the_peers(self):
        status, out, _ = self.bench("W1")
        self.assertEqual(0, status)
        lines = [line.split() for line in out.splitlines()]
        self.assertEqual(["Tulle,", "none"], lines[2][:2])
        self.assertEqual(["1", "/", "16", "/", "32", "/", "32"], lines[2][-7:])
        self.assertTrue(any("htsim" in line and "2587" in line for line in lines), out)
        self.assertTrue(any("DCQCN" in line and "0.34" in line for line in lines), out)
        self.assertEqual(6, len(lines), out)  # the columns' names, the workload, Tulle and three peers

    def htsim(self, change=""):
        """Writes a program that answers as htsim does, and returns its path."""
        program = self.folder / "htsim_roce"
        program.write_text(textwrap.dedent("""\
            #!{python}
            import sys
            options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
            assert (options["-nodes"], options["-linkspeed"], options["-mtu"]) == ("128", "100000", "4096")
            lines = open(options["-tm"]).read().splitlines()
            assert lines[:2] == ["Nodes 128", "Connections 128"]
            flows = [line.split() for line in lines[2:]]
            assert all(line[1::2] == ["id", "start", "size"] and line[6] == "10000000" for line in flows)
            {change}
            for number, flow in enumerate(flows):
                print("Flow Roce_" + flow[0].replace("->", "_"), number, "finished at", 900 + number, "total bytes 10002432")
            sum(range(5_000_000))  # takes some time
            """).format(python=sys.executable, change=change))
        program.chmod(0o755)
        return program

    def test_htsim_runs_beside(self):
        status, out, err = self.bench("--json", "--htsim", str(self.htsim()), "W1", "W2",
                                      change="summary['packet_hops'] = 15680 if len(flows) == 32 else 1821732")
        self.assertEqual((0, ""), (status, err))
        rows = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([("W1", None), ("W2", None), ("W2", "htsim")],
                         [(row["workload"], row.get("simulator")) for row in rows], "W1 is no fat tree")
        self.assertEqual({"min": 900, "median": 963.5, "p99": 1026, "max": 1027}, rows[2]["fct_us"])
        self.assertAlmostEqual(rows[1]["packet_hops_per_cpu_s"] / rows[2]["packet_hops_per_cpu_s"], rows[2]["times_as_fast"],
                               delta=0.06)
        _, out, _ = self.bench("--htsim", str(self.htsim()), "W2")
        self.assertIn("htsim, PFC only, in this run", out)
        self.assertRegex(out, r"Tulle does [0-9.]+ times as many packet-hops a CPU second as htsim in this run")

    def test_flows_that_htsim_leaves_are_a_failure(self):
        status, _, err = self.bench("--json", "--htsim", str(self.htsim("flows.pop()")), "W2")
        self.assertEqual(1, status)
        self.assertIn("127 of 128 flows finished in htsim", err)

    def test_congestion_control_is_passed_on(self):
        change = "assert options.congestion_control == 'dcqcn-hpcc'"
        status, out, err = self.bench("--json", "--congestion-control", "dcqcn-hpcc", "W1", change=change)
        self.assertEqual(0, status, err)
        self.assertEqual("dcqcn-hpcc", json.loads(out)["congestion_control"])

    def test_other_packet_hops_are_pointed_out(self):
        status, _, err = self.bench("--json", "W1", change="summary['packet_hops'] = 31360")
        self.assertEqual(0, status)
        self.assertIn("W1: 31,360 packet-hops where the peers had 15,680", err)

    def test_peak_memory_is_the_simulators(self):
        mine = bytearray(os.urandom(1 << 20)) * 200  # memory of the test itself, which must not be counted
        _, out, _ = self.bench("--json", "W1", change="block = b'x' * (80 << 20)")
        self.assertGreater(json.loads(out)["peak_mb"], 80)
        self.assertLess(json.loads(out)["peak_mb"], 160)
        del mine

    def test_failures_are_said(self):
        self.assert_failed("exit status 3\nno such fabric", change="sys.exit(sys.stderr.write('no such fabric') and 3)")
        self.assert_failed("exit status -9", change="os.kill(os.getpid(), 9)")
        self.assert_failed("the results hold no 'packet_hops'", change="del summary['packet_hops']")
        self.assert_failed("2 of 32 flows did not arrive", change="times[3] = times[5] = ''")
        self.assert_failed("31 flows in the results, 32", change="flows.pop()")
        self.assert_failed("results that cannot be read", change="sys.exit(0)")
        self.assert_failed("not done after 1 s", "--limit", "1", "W1", change="time.sleep(60)")

    def test_a_failure_leaves_the_others(self):
        status, out, err = self.bench("--json", "W1", "W1L", change="if flows[0]['bytes'] == '1000000': sys.exit(4)")
        self.assertEqual(1, status)
        self.assertEqual("W1L", json.loads(out)["workload"])
        self.assertIn("W1: ", err)

    def test_a_missing_executable(self):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertEqual(1, sim.main(["--tulle", str(self.folder / "none"), "--json", "--no-history", "W1"]))
        self.assertIn("No such file", err.getvalue())

    def test_unknown_workload(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as err:
            sim.main(["W9"])
        self.assertIn("there is no workload W9", err.getvalue())

    def test_the_run_in_the_middle(self):
        rows = [{"cpu_s": value} for value in (3, 1, 2, 9, 8)]
        self.assertEqual({"cpu_s": 3}, sim.median_run(rows))
        self.assertEqual(0, self.bench("--json", "--rounds", "2", "W1")[0])
        self.assertEqual(1, len(self.history.read_text().splitlines()))


class Statistics(unittest.TestCase):
    def test_percentile(self):
        self.assertEqual(99, sim.percentile(list(range(1, 101)), 0.99))
        self.assertEqual(127, sim.percentile(list(range(1, 129)), 0.99))
        self.assertEqual(5, sim.percentile([5], 0.99))
        self.assertEqual(1, sim.percentile([3, 1, 2], 0.0))


if __name__ == "__main__":
    unittest.main()
