"""Runs the project's own verbs program, which checks every byte (tests/clients/integrity)."""

from harness import INTEGRITY, ClientTest

PORT = 18600


class Integrity(ClientTest):
    def integrity(self, *options, **keywords):
        argv = [INTEGRITY, *map(str, options)]
        server, client = self.pair(argv, port=PORT, **{"limit": 180, **keywords})
        for process in (server, client):
            self.assertRegex(process.stdout, r"(?m)^ok: \d+ operations", process.describe())
        return server, client


class Loopback(Integrity):
    def test_everything(self):
        self.integrity()

    def test_events(self):
        self.integrity("-e")

    def test_smallest_mtu(self):
        self.integrity("-m", 256, "-s", 2)

    def test_seeds(self):
        """Runs more of the random mode. The seed is in the output."""
        for seed in (11, 12, 13):
            with self.subTest(seed=seed):
                self.integrity("-M", "mix", "-n", 40, "-s", seed)

    def test_packets(self):
        """All data goes through sockets, without the direct path between processes of one host."""
        self.integrity(options=["--no-direct"])

    def test_selective_repeat(self):
        """The other kind of recovery, beside the direct path and without it."""
        for options in ([], ["--no-direct"]):
            self.integrity(options=["--recovery", "selective-repeat", *options])

    def test_packets_without_offload(self):
        """The kernel gets each datagram on its own, as kernels without UDP segmentation do."""
        self.integrity(options=["--no-direct", "--no-offload"])


class TwoHosts(Integrity):
    """Two network namespaces, joined by a cable."""

    def test_ipv4(self):
        first, second = self.joined_namespaces()
        self.integrity(net=second, server_net=first, host="10.0.0.1")

    def test_ipv6(self):
        first, second = self.joined_namespaces()
        self.integrity("-g", 1, net=second, server_net=first, host="fd00::1")

    def test_jumbo_frames(self):
        first, second = self.joined_namespaces(mtu=9000)
        self.integrity(net=second, server_net=first, host="10.0.0.1")
