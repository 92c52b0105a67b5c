#!/usr/bin/env python3
"""What `tulle sim --capture` writes, as Wireshark reads it."""

import collections
import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TULLE = ROOT / os.environ.get("TULLE_BUILD", "build") / "bin" / "tulle"
INCAST = """
[topology]
kind = "single-switch"
hosts = 5
link_rate = "100Gbps"
[fabric.ecn]
kmin = "8KB"
kmax = "40KB"
[congestion]
control = "dcqcn"
[traffic]
pattern = "incast"
receiver = 4
bytes = "200KB"
"""
PACKETS = 49  # of 200 kB, 4,096 bytes each
TWO_HOSTS = """
[topology]
kind = "single-switch"
hosts = 2
link_rate = "100Gbps"
[traffic]
pattern = "shift"
bytes = "200KB"
"""


class Case(unittest.TestCase):
    """A simulation of the class's `scenario`, captured at `node`."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tulle-sim-capture-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        (cls.path / "scenario.toml").write_text(cls.scenario)
        cls.trace = cls.path / "trace.pcapng"
        done = cls.tulle("scenario.toml", "--json", "--capture", cls.trace, "--capture-at", cls.node, "-o", cls.path)
        assert done.returncode == 0, done.stderr
        cls.summary = json.loads(done.stdout)

    @classmethod
    def tulle(cls, *arguments):
        return subprocess.run([TULLE, "sim", *arguments], cwd=cls.path, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)

    def tshark(self, *arguments):
        done = subprocess.run(["tshark", "-r", self.trace, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120, env={**os.environ, "WIRESHARK_CONFIG_DIR": self.folder.name})
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.splitlines()

    def fields(self, *names):
        """Of every packet, as text."""
        arguments = [argument for name in names for argument in ("-e", name)]
        return [line.split("\t") for line in self.tshark("-T", "fields", *arguments)]


class Capture(Case):
    scenario = INCAST
    node = "host 4"

    def test_nothing_is_malformed_and_every_checksum_holds(self):
        self.assertEqual([], self.tshark("-Y", "_ws.malformed")[:5])
        wrong = self.tshark("-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-Y",
                            "ip.checksum.status == 0 || udp.checksum.status == 0")
        self.assertEqual([], wrong[:5])

    def test_every_packet_is_there(self):
        seen = collections.Counter(int(line, 0) for line in self.tshark("-T", "fields", "-e", "infiniband.bth.opcode"))
        first, middle, last, acknowledge, notification = 6, 7, 8, 17, 0x81
        self.assertEqual({first: 4, middle: 4 * (PACKETS - 2), last: 4}, {key: seen[key] for key in (first, middle, last)})
        self.assertEqual(self.summary["notifications"], seen[notification])
        self.assertGreater(seen[notification], 0)
        self.assertGreater(seen[acknowledge], 2 * PACKETS)
        self.assertEqual({first, middle, last, acknowledge, notification}, set(seen))

    def test_marks_are_in_the_ip_header(self):
        marked = self.tshark("-Y", "ip.dsfield.ecn == 3")
        self.assertEqual(self.summary["marked"], len(marked))

    def test_times_are_virtual_and_never_go_back(self):
        times = [float(line) for line in self.tshark("-T", "fields", "-e", "frame.time_epoch")]
        self.assertEqual(sorted(times), times)
        self.assertLess(times[-1], 0.01)

    def test_errors_are_one_line(self):
        for arguments in (["--capture", self.path / "x", "--capture-at", "host 9"],
                          ["--capture", self.path / "none" / "x"],
                          ["--capture", self.path / "x", "--set", 'fabric.kind="infiniband"', "--set", "fabric.ecn={}"]):
            done = self.tulle("scenario.toml", *arguments)
            self.assertEqual(1, done.returncode, arguments)
            self.assertEqual(1, done.stderr.count("\n"), done.stderr)


class BitErrors(Case):
    scenario = TWO_HOSTS + "[fabric]\nbit_error_rate = 2e-6\n"
    node = "host 1"

    def test_a_damaged_frame_is_shown_as_it_was_sent(self):
        self.assertEqual([], self.tshark("-Y", "_ws.malformed")[:5])
        packets = self.fields("frame.packet_flags_direction", "frame.packet_flags_crc_error", "infiniband.bth.opcode")
        inbound, outbound = "0x00000001", "0x00000002"
        damaged = [packet for packet in packets if packet[1] == "1"]
        self.assertGreater(len(damaged), 3)
        self.assertEqual({inbound}, {direction for direction, _, _ in damaged}, "a sender does not know")
        self.assertIn(outbound, {direction for direction, _, _ in packets})
        with (self.path / "links.csv").open(newline="") as table:
            received = next(int(row["frames"]) for row in csv.DictReader(table) if row["to"] == "host 1")
        self.assertEqual(received, sum(direction == inbound for direction, _, _ in packets))
        self.assertLessEqual({int(opcode, 0) for _, _, opcode in packets}, {6, 7, 8, 17}, "WRITE and acknowledgement")


if __name__ == "__main__":
    unittest.main()
