"""Tests a cable between Tulle and the kernel that loses, doubles, swaps, delays and damages RoCE v2 frames, with
every byte checked, and a cable that is cut."""

import json
import signal

from harness import INTEGRITY, wait_until
from world import OTHER, KernelTest, every_way, spread

PORT = 18600
RETRY_EXCEEDED = 12  # IBV_WC_RETRY_EXC_ERR


class Loss(KernelTest):
    def integrity(self, serves, family, *options):
        processes = self.across([INTEGRITY, "-k", "-l", *options], serves, family, port=PORT, limit=150)
        for process in processes:
            self.assertRegex(process.stdout, r"(?m)^ok: \d+ operations", process.describe())

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.FAULTS:  # the test checks what the relay did after the relay has ended
            cls.addClassCleanup(cls.check_counts)

    @classmethod
    def check_counts(cls):
        relay = cls.world.relay
        relay.signal(signal.SIGTERM)
        relay.wait(10)
        counts = json.loads(relay.stdout.splitlines()[-1])
        for fault in cls.FAULTS.split(","):
            name = fault.partition("=")[0]
            assert counts[name] > 0, f"the relay never did {name}: {counts}"


@spread
class Everything(Loss):
    FAULTS = "drop=1,double=1,swap=1,delay=1,damage=1"

    @every_way("ipv4", "ipv6")
    def mix(self, serves, family):
        self.integrity(serves, family, "-M", "mix", "-n", 5)

    @every_way("ipv4")
    def single(self, serves, family):
        self.integrity(serves, family, "-M", "single")

    @every_way("ipv4", "ipv6")
    def streams(self, serves, family):
        self.integrity(serves, family, "-M", "streams")


@spread
class Drops(Loss):
    FAULTS, SEED = "drop=3", 2

    @every_way("ipv4")
    def mix(self, serves, family):
        self.integrity(serves, family, "-M", "mix", "-n", 5)


@spread
class Doubles(Loss):
    FAULTS, SEED = "double=10", 3

    @every_way("ipv4")
    def mix(self, serves, family):
        self.integrity(serves, family, "-M", "mix", "-n", 5)


@spread
class LateDuplicates(Loss):
    """A packet that comes again behind a READ whose response is lost must not be taken for that response."""
    FAULTS, SEED = "drop=1,double=15,delay=3", 6

    @every_way("ipv4")
    def mix(self, serves, family):
        self.integrity(serves, family, "-M", "mix", "-n", 40)


@spread
class Reorders(Loss):
    FAULTS, SEED = "swap=5,delay=2", 4

    @every_way("ipv4")
    def mix(self, serves, family):
        self.integrity(serves, family, "-M", "mix", "-n", 5)


@spread
class Damages(Loss):
    FAULTS, SEED = "damage=5", 5

    @every_way("ipv4", "ipv6")
    def mix(self, serves, family):
        self.integrity(serves, family, "-M", "mix", "-n", 5)


@spread
class Cut(Loss):
    FAULTS = ""

    @every_way("ipv4", "ipv6")
    def retries_exhausted(self, serves, family):
        """The cable is cut while a client writes and reads without end."""
        argv = [INTEGRITY, "-k", "-M", "until-error"]
        gid = self.world.gid
        server = self.launch(serves, [*argv, "-g", str(gid[serves, family])])
        self.await_port(serves, server, PORT)
        calls = OTHER[serves]
        client = self.launch(calls, [*argv, "-g", str(gid[calls, family]), self.address_of(serves)])
        wait_until(lambda: "1000 operations" in client.stdout or not client.running, "1000 operations")
        try:
            self.world.relay.signal(signal.SIGUSR1)
            self.assertEqual(0, client.wait(60), client.describe())
        finally:
            self.world.relay.signal(signal.SIGUSR2)
        self.assertIn(f"status {RETRY_EXCEEDED} ", client.stdout, client.describe())
        self.assertIn("15 flushed", client.stdout, client.describe())
        server.end()
