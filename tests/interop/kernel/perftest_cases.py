"""Runs perftest's programs, one end over Tulle, the other over the kernel's Soft-RoCE."""

from harness import table_rows
from world import KernelTest, every_way, spread

# Outstanding READs and atomics. Each side of perftest asks its own device for as many as the other side's device could
# do, which is more with Soft-RoCE (128) than Tulle, or a common adapter, has.
OUTSTANDING = 16


class Perftest(KernelTest):
    def perftest(self, program, serves, family, *options, size=4096, iterations=200, **keywords):
        if "read" in program or "atomic" in program:
            options = ("-o", OUTSTANDING, *options)
        argv = [program, "-F", "-n", iterations, *(["-s", size] if size else []), *options]
        server, client = self.across(argv, serves, family, gid_option="-x", **keywords)
        # On a busy machine perftest may fail to find out the clock's rate in the peer. Its times are "inf" then.
        self.assertTrue(table_rows(client.stdout), client.describe())
        return client


@spread
class Plain(Perftest):
    @every_way("ipv4", "ipv6")
    def write_bw(self, serves, family):
        self.perftest("ib_write_bw", serves, family, size=65536)

    @every_way("ipv4", "ipv6")
    def read_bw(self, serves, family):
        self.perftest("ib_read_bw", serves, family, size=65536)

    @every_way("ipv4", "ipv6")
    def send_bw(self, serves, family):
        self.perftest("ib_send_bw", serves, family, size=65536)

    @every_way("ipv4")
    def send_bw_uc(self, serves, family):
        self.perftest("ib_send_bw", serves, family, "-c", "UC")

    @every_way("ipv4")
    def send_bw_ud(self, serves, family):
        self.perftest("ib_send_bw", serves, family, "-c", "UD", size=1024)

    @every_way("ipv4")
    def write_bw_uc(self, serves, family):
        self.perftest("ib_write_bw", serves, family, "-c", "UC")

    @every_way("ipv4")
    def both_ways(self, serves, family):
        for program in ("ib_write_bw", "ib_send_bw", "ib_read_bw"):
            self.perftest(program, serves, family, "-b", size=16384)

    @every_way("ipv4")
    def several_queue_pairs(self, serves, family):
        self.perftest("ib_write_bw", serves, family, "-q", 4, size=16384)

    @every_way("ipv4")
    def events(self, serves, family):
        self.perftest("ib_send_bw", serves, family, "-e")

    @every_way("ipv4")
    def write_lat(self, serves, family):
        self.perftest("ib_write_lat", serves, family, size=8)

    @every_way("ipv4")
    def read_lat(self, serves, family):
        self.perftest("ib_read_lat", serves, family, size=8)

    @every_way("ipv4")
    def send_lat(self, serves, family):
        for transport in ("RC", "UC", "UD"):
            self.perftest("ib_send_lat", serves, family, "-c", transport, size=8)

    @every_way("ipv4")
    def atomic_bw(self, serves, family):
        for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
            self.perftest("ib_atomic_bw", serves, family, "-A", kind, size=None)

    @every_way("ipv4")
    def atomic_lat(self, serves, family):
        self.perftest("ib_atomic_lat", serves, family, size=None)

    @every_way("ipv4")
    def path_mtu(self, serves, family):
        for mtu in (256, 512, 1024):
            self.perftest("ib_write_bw", serves, family, "-m", mtu, size=10000, iterations=50)

    @every_way("ipv4")
    def all_sizes(self, serves, family):
        client = self.perftest("ib_write_bw", serves, family, "-a", size=None, iterations=10, limit=300)
        self.assertEqual(23, len(table_rows(client.stdout)), client.describe())


@spread
class Jumbo(Perftest):
    MTU = 5000

    @every_way("ipv4", "ipv6")
    def path_mtu(self, serves, family):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            for mtu in (2048, 4096):
                self.perftest(program, serves, family, "-m", mtu, size=100000, iterations=50)
