"""Runs the project's own verbs program, which checks every byte (tests/clients/integrity), between Tulle and the
kernel."""

from harness import INTEGRITY
from world import KernelTest, every_way, spread

PORT = 18600


class Integrity(KernelTest):
    def integrity(self, serves, family, *options):
        processes = self.across([INTEGRITY, "-k", *options], serves, family, port=PORT, limit=100)
        for process in processes:
            self.assertRegex(process.stdout, r"(?m)^ok: \d+ operations", process.describe())


@spread
class Plain(Integrity):
    @every_way("ipv4", "ipv6")
    def single(self, serves, family):
        """Runs every verb of every transport at many lengths. Each side initiates."""
        self.integrity(serves, family, "-M", "single")

    @every_way("ipv4")
    def mix(self, serves, family):
        self.integrity(serves, family, "-M", "mix")

    @every_way("ipv4")
    def streams(self, serves, family):
        self.integrity(serves, family, "-M", "streams", "-l")

    @every_way("ipv4")
    def refusals(self, serves, family):
        self.integrity(serves, family, "-M", "refusals")

    @every_way("ipv4")
    def windows(self, serves, family):
        """Uses memory windows of either type, and SENDs that invalidate."""
        self.integrity(serves, family, "-M", "windows")

    @every_way("ipv4")
    def smallest_mtu(self, serves, family):
        self.integrity(serves, family, "-M", "mix", "-m", 256, "-s", 2)

    @every_way("ipv4")
    def events(self, serves, family):
        self.integrity(serves, family, "-M", "mix", "-e", "-s", 3)


@spread
class Jumbo(Integrity):
    MTU = 5000

    @every_way("ipv4", "ipv6")
    def mix(self, serves, family):
        self.integrity(serves, family, "-M", "mix", "-s", 4)
