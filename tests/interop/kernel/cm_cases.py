"""Tests connections that rdma_cm makes with rdma-core's own programs: one end over Tulle's connection manager, the
other over the kernel's."""

import time
import unittest

from harness import BUILD, table_rows
from world import OTHER, KernelTest, every_way, spread

# Recovery from a lost message takes about 2.3 s in the kernel (response timeout 20, 4.3 s, and a fraction of it).
LIMIT = 60
PATIENCE = 20
# perftest's client connects twice, the second time whether or not its server listens again. If that server's kernel
# rejects it, the client ends or waits indefinitely, and so does the server.
PERFTEST_LIMIT, PERFTEST_TRIES = 10, 5


class Connections(KernelTest):
    @classmethod
    def setUpClass(cls):
        if not (BUILD / "lib" / "shim" / "librdmacm.so.1").exists():
            raise unittest.SkipTest("librdmacm was not built")
        super().setUpClass()

    def connect(self, server_argv, client_argv, serves):
        """Runs both programs to a successful end. A client that finds no listener yet is started again."""
        server = self.launch(serves, server_argv)
        deadline = time.monotonic() + PATIENCE
        while True:
            client = self.launch(OTHER[serves], client_argv)
            status = client.wait(LIMIT)
            if status == 0 or not server.running or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        both = f"{server.describe()}\n{client.describe()}"
        self.assertEqual(0, status, both)
        self.assertEqual(0, server.wait(10), both)
        return server, client

    def pair(self, server_argv, client_argv, serves):
        """Returns whether a server and its client both ended well, and the client."""
        server = self.launch(serves, server_argv)
        time.sleep(1)  # the test has no port to look at
        client = self.launch(OTHER[serves], client_argv)
        try:
            return (client.wait(PERFTEST_LIMIT), server.wait(PERFTEST_LIMIT)) == (0, 0), client
        except AssertionError:
            return False, client
        finally:
            server.end()


@spread
class Plain(Connections):
    @every_way("ipv4", "ipv6")
    def rping(self, serves, family):
        options = ["-a", self.address_of(serves, family), "-C", "20", "-S", "5000", "-V"]
        self.connect(["rping", "-s", *options], ["rping", "-c", *options], serves)

    @every_way("ipv4", "ipv6")
    def ucmatose(self, serves, family):
        address = self.address_of(serves, family)
        options = ["-C", "10", "-S", "3000", "-c", "4"]
        _, client = self.connect(["ucmatose", "-b", address, *options], ["ucmatose", "-s", address, *options], serves)
        self.assertIn("data transfers complete", client.stdout, client.describe())

    @every_way("ipv4", "ipv6")
    def udaddy(self, serves, family):
        address = self.address_of(serves, family)
        options = ["-C", "10", "-S", "500", "-c", "4"]
        _, client = self.connect(["udaddy", "-b", address, *options], ["udaddy", "-s", address, *options], serves)
        self.assertIn("data transfers complete", client.stdout, client.describe())

    @every_way("ipv4")
    def perftest(self, serves, family):
        address = self.address_of(serves, family)
        argv = ["ib_send_bw", "-R", "-F", "-n", "200", "-s", "4096"]
        for _ in range(PERFTEST_TRIES):
            ended_well, client = self.pair(argv, [*argv, address], serves)
            if ended_well:
                break
        else:
            self.fail(f"{PERFTEST_TRIES} times in vain, at last:\n{client.describe()}")
        self.assertTrue(table_rows(client.stdout), client.describe())

    @every_way("ipv4")
    def rdma_server(self, serves, family):
        self.connect(["rdma_server"], ["rdma_client", "-s", self.address_of(serves, family)], serves)

    @every_way("ipv4")
    def rstream(self, serves, family):
        address = self.address_of(serves, family)
        options = ["-C", "10", "-S", "4096"]
        self.connect(["rstream", "-b", address, *options], ["rstream", "-s", address, *options], serves)
