"""Tests Tulle against another implementation: a peer whose packets and checksums are Scapy's and whose state machine
is a page of Python. The peer plays the client of rdma-core's pingpong programs from a namespace without Tulle."""

import pathlib

from harness import ClientTest

PEER = pathlib.Path(__file__).resolve().parent / "scapy_peer.py"


class ScapyPeer(ClientTest):
    def play(self, transport, *options, iterations=50, size=64, mtu=1024):
        here, there = self.joined_namespaces()
        server = self.start_server([f"ibv_{transport}_pingpong", "-g", "0", "-n", str(iterations), "-s", str(size),
                                    *(["-m", str(mtu)] if transport == "rc" else [])], 18515, net=here)
        peer = self.start("/usr/bin/python3", PEER, transport, "10.0.0.1", str(iterations), str(size), str(mtu),
                          *options, net=there)
        self.finish(server, peer)
        self.assertIn(f"{iterations} messages", peer.stdout)
        self.assertIn(f"{iterations} iters", server.stdout)

    def test_ud(self):
        self.play("ud")

    def test_ud_odd_size(self):
        self.play("ud", size=1021)

    def test_rc(self):
        self.play("rc")

    def test_rc_several_packets(self):
        """Sends first, middle and last packets with a padded end, over PSNs that wrap."""
        self.play("rc", size=3001)

    def test_rc_smallest_mtu(self):
        self.play("rc", size=3001, mtu=256)

    def test_rc_loss(self):
        """The peer loses packets and acknowledgements, which leads to NAKs, timeouts and duplicates."""
        self.play("rc", "--lose", size=3001, iterations=30)
