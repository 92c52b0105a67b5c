"""Runs rdma-core's ibv_*_pingpong programs: every transport, polled and with events, sizes, MTUs, iterations."""

import re

from harness import ClientTest

# The number suits a laptop's CI, and no benchmark: the tests check their data and count their messages.
ITERATIONS = 200


class Pingpong(ClientTest):
    def pingpong(self, program, *options, iterations=ITERATIONS, size=4096, **keywords):
        argv = [f"ibv_{program}_pingpong", "-g", "0", "-n", str(iterations), "-s", str(size), *map(str, options)]
        server, client = self.pair(argv, **keywords)
        for process in (server, client):
            self.assertRegex(process.stdout, rf"(?m)^{iterations} iters in [\d.]+ seconds", process.describe())
            # Both programs send and receive each message. Their last lines say how many bytes that was.
            self.assertRegex(process.stdout, r"(?m)^\d+ bytes in [\d.]+ seconds")
        return server, client

    def test_rc(self):
        server, _ = self.pingpong("rc")
        addresses = re.findall(r"(?:local|remote) address:.*GID (\S+)", server.stdout)
        self.assertEqual(["::ffff:127.0.0.1"] * 2, addresses, server.stdout)

    def test_rc_checks_its_data(self):
        self.pingpong("rc", "-c", size=10000)

    def test_rc_events(self):
        self.pingpong("rc", "-e")

    def test_uc(self):
        self.pingpong("uc")

    def test_uc_events(self):
        self.pingpong("uc", "-e")

    def test_ud(self):
        self.pingpong("ud", size=1024)

    def test_ud_events(self):
        self.pingpong("ud", "-e", size=1024)

    def test_srq(self):
        self.pingpong("srq", "-q", 8)

    def test_srq_events(self):
        self.pingpong("srq", "-e", "-q", 8)

    def test_sizes(self):
        for program in ("rc", "uc"):
            for size in (1, 3, 255, 4097, 65536, 1 << 20):
                with self.subTest(program=program, size=size):
                    self.pingpong(program, size=size, iterations=20)

    def test_path_mtu(self):
        for program in ("rc", "uc", "srq"):
            for mtu in (256, 512, 1024, 2048, 4096):
                with self.subTest(program=program, mtu=mtu):
                    self.pingpong(program, "-m", mtu, size=10000, iterations=50)

    def test_iterations(self):
        for iterations in (1, 5000):
            with self.subTest(iterations=iterations):
                self.pingpong("rc", iterations=iterations, size=64)

    def test_deep_receive_queue(self):
        self.pingpong("rc", "-r", 16)

    def test_timestamps(self):
        """-t takes completions with their times, and prints how far apart the receives were."""
        server, client = self.pingpong("rc", "-t", iterations=100)
        for process in (server, client):
            match = re.search(r"Max receive completion clock cycles = (\d+)", process.stdout)
            self.assertIsNotNone(match, process.describe())
            self.assertGreater(int(match[1]), 0)
