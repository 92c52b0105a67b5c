"""Runs rdma-core's ibv_*_pingpong programs, one end over Tulle, the other over the kernel's Soft-RoCE."""

from world import KernelTest, every_way, spread

ITERATIONS = 100


class Pingpong(KernelTest):
    def pingpong(self, program, serves, family, *options, size=4096, iterations=ITERATIONS):
        argv = [f"ibv_{program}_pingpong", "-n", iterations, "-s", size, *options]
        for process in self.across(argv, serves, family):
            self.assertRegex(process.stdout, rf"(?m)^{iterations} iters in [\d.]+ seconds", process.describe())


@spread
class Plain(Pingpong):
    @every_way("ipv4", "ipv6")
    def rc(self, serves, family):
        self.pingpong("rc", serves, family)

    @every_way("ipv4", "ipv6")
    def uc(self, serves, family):
        self.pingpong("uc", serves, family)

    @every_way("ipv4", "ipv6")
    def ud(self, serves, family):
        self.pingpong("ud", serves, family, size=1024)

    @every_way("ipv4", "ipv6")
    def srq(self, serves, family):
        self.pingpong("srq", serves, family)

    @every_way("ipv4")
    def rc_events(self, serves, family):
        self.pingpong("rc", serves, family, "-e")

    @every_way("ipv4")
    def rc_checks_its_data(self, serves, family):
        self.pingpong("rc", serves, family, "-c", size=10000)

    @every_way("ipv4")
    def rc_sizes(self, serves, family):
        for size in (1, 3, 255, 1023, 1025, 4097, 65536, 1 << 20):
            self.pingpong("rc", serves, family, size=size, iterations=10)

    @every_way("ipv4")
    def rc_path_mtu(self, serves, family):
        for mtu in (256, 512, 1024):
            self.pingpong("rc", serves, family, "-m", mtu, size=3001, iterations=20)


@spread
class Jumbo(Pingpong):
    MTU = 5000

    @every_way("ipv4", "ipv6")
    def rc_path_mtu(self, serves, family):
        for mtu in (256, 1024, 2048, 4096):
            self.pingpong("rc", serves, family, "-m", mtu, size=10001, iterations=20)

    @every_way("ipv4")
    def ud(self, serves, family):
        self.pingpong("ud", serves, family, size=4096)
