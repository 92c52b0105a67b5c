#!/usr/bin/env python3
"""Tests that Wireshark reads what `tulle sim --capture` writes."""

import collections
import csv
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/clients"))

from roce import icrc_v1  # noqa: E402

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
ERF_HEADER = 16  # bytes before each InfiniBand packet
SET = {"0": False, "1": True, "False": False, "True": True}  # tshark 4.0 prints flags as numbers, tshark 4.4 as words
PACKETS = 49  # packets of 4,096 bytes in a message of 200 kB
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
    """Simulates the class's `scenario` once, with a capture at `node`."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tulle-sim-capture-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        (cls.path / "scenario.toml").write_text(cls.scenario)
        cls.trace = cls.path / "trace.pcapng"
        done = cls.tulle("scenario.toml", "--json", "--capture", cls.trace, "--capture-at", cls.node, "-o",
                         cls.path / "results")
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
        """Returns the named fields of every packet, as text."""
        arguments = [argument for name in names for argument in ("-e", name)]
        return [line.split("\t") for line in self.tshark("-T", "fields", *arguments)]


class InfiniBandCase(Case):
    def packets(self):
        """Yields every captured packet from LRH to VCRC."""
        data = self.trace.read_bytes()
        at = 0
        while at < len(data):
            kind, length = struct.unpack_from("<II", data, at)
            if kind == 1:  # interface description
                self.assertEqual(197, struct.unpack_from("<H", data, at + 8)[0], "LINKTYPE_ERF")
            if kind == 6:  # enhanced packet
                captured, original = struct.unpack_from("<II", data, at + 20)
                self.assertEqual(captured, original)
                yield data[at + 28 + ERF_HEADER:at + 28 + captured]
            at += length


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
        for status, arguments in ((2, ["--capture", self.path / "x", "--capture-at", "host 9"]),
                                  (1, ["--capture", self.path / "none" / "x"])):
            done = self.tulle("scenario.toml", *arguments)
            self.assertEqual(status, done.returncode, arguments)
            self.assertEqual(1, done.stderr.count("\n"), done.stderr)


class RoceV1(Case):
    scenario, node = TWO_HOSTS + "[fabric]\nkind = \"roce-v1\"\n", "host 0"

    def test_nothing_is_malformed_and_every_checksum_holds(self):
        self.assertEqual([], self.tshark("-Y", "_ws.malformed"))
        frames = json.loads("\n".join(self.tshark("-T", "jsonraw")))
        self.assertGreater(len(frames), PACKETS)
        for each in frames:
            frame = bytes.fromhex(each["_source"]["layers"]["frame_raw"][0])
            self.assertEqual(b"\x89\x15", frame[12:14])
            self.assertEqual(icrc_v1(frame[14:-4]), frame[-4:])

    def test_every_packet_is_there(self):
        sent = self.tshark("-Y", "infiniband.grh.sgid == ::ffff:10.0.0.1 && infiniband.bth.opcode in {6, 7, 8, 10}")
        self.assertEqual(PACKETS, len(sent))


class Tcp(Case):
    scenario = INCAST.replace('[congestion]\ncontrol = "dcqcn"', '[host]\ntransport = "tcp"\ntcp.control = "dctcp"')
    scenario = scenario.replace("[fabric.ecn]", '[fabric]\nflow_control = "none"\nbuffer = "120KB"\n[fabric.ecn]')
    node = "host 4"

    def test_wireshark_reads_tcp_with_right_checksums(self):
        self.assertEqual([], self.tshark("-Y", "_ws.malformed && tcp")[:5])
        seen = collections.Counter(
            line for line in self.tshark("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields",
                                         "-e", "ip.checksum.status", "-e", "tcp.checksum.status"))
        self.assertEqual(["1\t1"], list(seen))

    def test_all_bytes_come_and_are_acknowledged(self):
        end = collections.Counter()
        acknowledged = collections.Counter()
        for source, destination, sequence, length, acknowledgement in self.fields(
                "ip.src", "ip.dst", "tcp.seq", "tcp.len", "tcp.ack"):
            if destination == "10.0.0.5":
                end[source] = max(end[source], int(sequence) + int(length) - 1)
            else:
                acknowledged[destination] = max(acknowledged[destination], int(acknowledgement) - 1)
        self.assertEqual({f"10.0.0.{i}": 200_000 for i in range(1, 5)}, dict(end))
        self.assertEqual(dict(end), dict(acknowledged))

    def test_losses_are_told_by_sack(self):
        self.assertGreater(self.summary["dropped"], 0)
        self.assertGreater(len(self.tshark("-Y", "tcp.options.sack_le")), 0)


class BitErrors(Case):
    scenario = TWO_HOSTS + "[fabric]\nbit_error_rate = 2e-6\n"
    node = "host 1"

    def test_a_damaged_frame_is_shown_as_it_was_sent(self):
        self.assertEqual([], self.tshark("-Y", "_ws.malformed")[:5])
        packets = self.fields("frame.packet_flags_direction", "frame.packet_flags_crc_error", "infiniband.bth.opcode")
        inbound, outbound = "0x00000001", "0x00000002"
        damaged = [packet for packet in packets if SET[packet[1]]]
        self.assertGreater(len(damaged), 3)
        self.assertEqual({inbound}, {direction for direction, _, _ in damaged}, "a sender does not know")
        self.assertIn(outbound, {direction for direction, _, _ in packets})
        with (self.path / "results" / "links.csv").open(newline="") as table:
            received = next(int(row["frames"]) for row in csv.DictReader(table) if row["to"] == "host 1")
        self.assertEqual(received, sum(direction == inbound for direction, _, _ in packets))
        self.assertLessEqual({int(opcode, 0) for _, _, opcode in packets}, {6, 7, 8, 17}, "WRITE and acknowledgement")


class InfiniBand(InfiniBandCase):
    scenario = TWO_HOSTS.replace("hosts = 2", "hosts = 3") + """
[fabric]
kind = "infiniband"
bit_error_rate = 1e-6
sl_to_vl = [0, 3]
[host]
service_levels = 2
[routing]
lmc = 1
"""
    scenario = scenario.replace('bytes = "200KB"', 'bytes = "200KB"\nqueue_pairs = 2')
    node = "host 1"

    def test_nothing_is_malformed(self):
        self.assertEqual([], self.tshark("-Y", "_ws.malformed")[:5])

    def test_local_routes_are_whole(self):
        seen = set()
        for vl, version, level, following, to, words, origin, length in self.fields(
                "infiniband.lrh.vl", "infiniband.lrh.lver", "infiniband.lrh.sl", "infiniband.lrh.lnh",
                "infiniband.lrh.dlid", "infiniband.lrh.pktlen", "infiniband.lrh.slid", "frame.len"):
            self.assertEqual((0, 2), (int(version, 0), int(following, 0)), "BTH follows")
            self.assertEqual(int(length), 4 * int(words, 0) + 2, "all but the VCRC")
            self.assertEqual(int(vl, 0), 3 * int(level, 0))
            seen.add((int(origin, 0), int(to, 0), int(level, 0)))
        # Host h has the LIDs 2 (h + 1) and 2 (h + 1) + 1 and sends to host h + 1. Its two queue pairs have different
        # service levels.
        self.assertEqual({(2, 4, 0), (3, 5, 1), (4, 2, 0), (5, 3, 1), (4, 6, 0), (5, 7, 1), (6, 4, 0), (7, 5, 1)}, seen)

    def test_both_crcs_are_good(self):
        """Checks both as IBTA 7.8 defines them, since Wireshark does not check them."""
        table = []
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0xD008 if byte & 1 else 0)  # the polynomial 0x100B, reflected
            table.append(byte)
        count = 0
        for packet in self.packets():
            masked = bytearray(packet[:-6])
            masked[0] |= 0xF0  # the VL
            masked[8 + 4] = 0xFF  # FECN, BECN, reserved
            self.assertEqual(zlib.crc32(masked), int.from_bytes(packet[-6:-2], "little"))
            vcrc = 0xFFFF
            for byte in packet[:-2]:
                vcrc = vcrc >> 8 ^ table[(vcrc ^ byte) & 0xFF]
            self.assertEqual(vcrc ^ 0xFFFF, int.from_bytes(packet[-2:], "little"))
            count += 1
        self.assertGreater(count, 4 * PACKETS)

    def test_every_packet_is_there(self):
        inbound = collections.Counter(int(opcode, 0) for direction, bad, opcode in self.fields(
            "frame.packet_flags_direction", "frame.packet_flags_crc_error", "infiniband.bth.opcode")
            if direction == "0x00000001" and not SET[bad])
        first, middle, last = 6, 7, 8
        self.assertGreaterEqual(inbound[middle], 2 * (25 - 2), "of 100 kB, two times")
        self.assertGreaterEqual(min(inbound[first], inbound[last]), 2)


class Bytes(InfiniBandCase):
    scenario = TWO_HOSTS + 'payload = "bytes"\nqueue_pairs = 2\n[fabric]\nkind = "infiniband"\n'
    node = "host 1"

    @staticmethod
    def split_mix(state):
        """Yields the numbers of SplitMix64 (Steele et al. 2014)."""
        mask = (1 << 64) - 1
        while True:
            state = state + 0x9E3779B97F4A7C15 & mask
            z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
            z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
            yield z ^ z >> 31

    def pattern(self, flow, count):
        words = self.split_mix(next(self.split_mix(1 ^ flow << 32)))
        return b"".join(next(words).to_bytes(8, "little") for _ in range(count // 8))

    def test_payloads_are_those_of_the_seed(self):
        sent = collections.defaultdict(bytes)  # by destination and queue pair
        for packet in self.packets():
            opcode, to, queue_pair = packet[8], packet[2:4], packet[13:16]
            if opcode in (6, 7, 8):  # WRITE; its first packet has a RETH of 16 bytes
                sent[to, queue_pair] += packet[8 + 12 + (16 if opcode == 6 else 0):-6]
        self.assertEqual({self.pattern(flow, 100_000) for flow in range(4)}, set(sent.values()))
        self.assertEqual(400_000, self.summary["bytes_verified"])


if __name__ == "__main__":
    unittest.main()
