"""Runs ./dev load for seconds: the first block of docs/guide/infiniband-fabric.md and perftest on a busy machine."""

import os
import pathlib
import sys

from harness import ClientTest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "load"))

import load  # noqa: E402

BUSY = 6  # for each processor, so that a program waits for its turn among seven
PROGRAMS = ("ib_write_bw", "ib_read_bw", "ib_send_lat")  # ./dev load runs the others too


class Load(ClientTest):
    def measure(self, kind, runs, programs=None):
        said = []
        result = load.measure(kind, runs, BUSY * len(os.sched_getaffinity(0)), said.append, programs)
        self.assertEqual([], result["faults"], "\n".join(said))
        passed, _ = load.totals([result])
        self.assertEqual(runs, passed)

    def test_the_first_block_of_the_page(self):
        self.measure("page", 1)

    def test_between_hosts_of_a_fabric(self):
        self.measure("fabric", len(PROGRAMS), PROGRAMS)

    def test_between_processes_of_a_host(self):
        self.measure("roce", 2 * len(PROGRAMS), PROGRAMS)

    def test_between_network_namespaces(self):
        self.measure("network", len(PROGRAMS), PROGRAMS)
