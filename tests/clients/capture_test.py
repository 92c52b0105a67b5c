"""Tests that Wireshark reads what `tulle capture` writes: every operation is dissected, and nothing is malformed."""

import collections
import os
import pathlib
import signal
import struct
import tempfile
import unittest

from harness import INTEGRITY, TULLE, ClientTest, wait_until

PORT = 18600

# Operations of IBTA 9.2.1, as Wireshark names them.
RC = {0x00: "SEND First", 0x01: "SEND Middle", 0x02: "SEND Last", 0x03: "SEND Last with Immediate", 0x04: "SEND Only",
      0x05: "SEND Only with Immediate", 0x06: "RDMA WRITE First", 0x07: "RDMA WRITE Middle", 0x08: "RDMA WRITE Last",
      0x09: "RDMA WRITE Last with Immediate", 0x0A: "RDMA WRITE Only", 0x0B: "RDMA WRITE Only with Immediate",
      0x0C: "RDMA READ Request", 0x0D: "RDMA READ response First", 0x0E: "RDMA READ response Middle",
      0x0F: "RDMA READ response Last", 0x10: "RDMA READ response Only", 0x11: "Acknowledge",
      0x12: "ATOMIC Acknowledge", 0x13: "CmpSwap", 0x14: "FetchAdd", 0x17: "SEND Only Invalidate"}
UC = {0x20 + code: RC[code] for code in range(0x0C)}
UD = {0x64: "SEND Only", 0x65: "SEND Only with Immediate"}


class Capture(ClientTest):
    def setUp(self):
        super().setUp()
        # Wireshark guesses what a payload is from its first bytes, and if it guesses so, calls the programs' payload
        # malformed. So only the protocols that occur stay enabled.
        self.wireshark = self.enterContext(tempfile.TemporaryDirectory())
        protocols = self.run_program("tshark", "-G", "protocols").stdout.splitlines()
        names = {line.split("\t")[2] for line in protocols} - {"frame", "raw", "eth", "ethertype", "ip", "ipv6", "udp",
                                                                 "infiniband"}
        pathlib.Path(self.wireshark, "disabled_protos").write_text("\n".join(sorted(names)) + "\n")

    def tshark(self, path, *arguments):
        output = self.run_program("tshark", "-r", path, *arguments, env={"WIRESHARK_CONFIG_DIR": self.wireshark},
                                  limit=120)
        return output.stdout.splitlines()

    def capture(self, work, *options):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "capture.pcapng")
        capture = self.start(TULLE, "capture", "-o", path, *options)
        wait_until(lambda: os.path.exists(path) or not capture.running, "the capture to start")
        work()
        capture.signal(signal.SIGINT)
        self.assertEqual(130, capture.wait(20), capture.describe())
        return path, capture

    def test_every_operation(self):
        def work():
            self.pair([INTEGRITY, "-m", "1024", "-n", "2"], port=PORT, limit=180)

        path, capture = self.capture(work)
        self.assertEqual([], self.tshark(path, "-Y", "_ws.malformed")[:5])
        seen = collections.Counter(int(line, 0) for line in self.tshark(
            path, "-T", "fields", "-e", "infiniband.bth.opcode") if line)
        for name, table in (("RC", RC), ("UC", UC), ("UD", UD)):
            missing = [operation for code, operation in table.items() if code not in seen]
            self.assertEqual([], missing, f"{name} operations that were not captured; {capture.describe()}")
        self.assertEqual(set(), set(seen) - RC.keys() - UC.keys() - UD.keys(), "opcodes that nobody sends")
        addresses = set(self.tshark(path, "-c", "1000", "-T", "fields", "-e", "ip.src", "-e", "udp.dstport"))
        self.assertEqual({"127.0.0.1\t4791"}, addresses)

    def test_checksums(self):
        """Scapy, another implementation, finds every ICRC right."""
        from scapy.contrib.roce import BTH
        from scapy.utils import PcapNgReader

        def work():
            self.pair(["ibv_rc_pingpong", "-g", "0", "-n", "20", "-s", "3000"])

        path, _ = self.capture(work)
        checked = 0
        for packet in PcapNgReader(path):
            if BTH in packet:
                bth = packet[BTH]
                self.assertEqual(bth.compute_icrc(b""), struct.pack("!I", bth.icrc), packet.show(dump=True))
                checked += 1
        self.assertGreater(checked, 40)

    def test_stops_when_told(self):
        path, _ = self.capture(lambda: self.pair(["ibv_rc_pingpong", "-g", "0", "-n", "10"]))
        self.assertGreater(os.path.getsize(path), 1000)
        self.assertEqual(0o100600, os.stat(path).st_mode)  # packets hold what programs sent
        self.assertTrue(self.tshark(path, "-c", "1"))

    @unittest.skipUnless(os.geteuid() == 0, "it gives files to another user")
    def test_a_file_that_another_user_has_made(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o1777)
            planted, own = pathlib.Path(folder) / "planted", pathlib.Path(folder) / "own"
            for path in planted, own:
                path.touch()
                path.chmod(0o666)
            os.chown(planted, 65533, 65533)
            unguarded = pathlib.Path(folder) / "unguarded"  # the kernel looks at links in sticky folders alone
            unguarded.mkdir()
            unguarded.chmod(0o777)
            link = unguarded / "link"
            link.symlink_to(own)
            os.lchown(link, 65533, 65533)
            for path, message in ((planted, "belongs to user 65533"), (link, "the link belongs to user 65533")):
                process = self.start(TULLE, "capture", "-o", path, "--duration", "1")
                self.assertEqual(1, process.wait(), process.describe())
                self.assertIn(message, process.stderr)
            self.assertEqual(0, self.start(TULLE, "capture", "-o", own, "--duration", "0.2").wait())
            self.assertEqual(0o600, own.stat().st_mode & 0o777)

    def test_unwritable(self):
        process = self.run_program(TULLE, "capture", "-o", "/nonexistent/capture.pcapng", expect=None, limit=20)
        self.assertGreater(process.wait(), 0)
        self.assertEqual(1, len(process.stderr.splitlines()), process.describe())
