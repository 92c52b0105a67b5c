"""Tests librdmacm on the hosts of a software fabric: rdma-core's rdmacm-utils, perftest that connects with it, rsockets."""

import fabric_test
import infiniband_test
import rdma_cm
from harness import wait_until

UDPONG_PORT = 7174


class OnFabric(infiniband_test.OnFabric):
    def listeners(self):
        return self.nodes()["h0"]["listeners"]

    def listening(self, *argv, is_ready=None):
        """Starts a server on h0, and returns when it listens with the connection manager there."""
        before = self.listeners()
        server = self.start(*self.on_host("h0", *argv), env=self.environment)

        def ready():
            self.assertTrue(server.running, server.describe())
            return is_ready(server) if is_ready else self.listeners() > before

        wait_until(ready, f"{argv[0]} to listen", pause=0.03)
        return server

    def both(self, server, client, is_ready=None, ends=True):
        """Runs a server on h0 and its client on h3 to their ends. One that serves without end is ended."""
        started = self.listening(*server, is_ready=is_ready)
        other = self.start(*self.on_host("h3", *client), env=self.environment)
        if ends:
            self.finish(started, other, limit=60)
        else:
            self.assertEqual(0, other.wait(60), other.describe())
            started.end()
        return started, other

    def utility(self, *argv):
        for process in self.both(argv, [*argv, "-s", "h0"]):
            self.assertIn("return status 0", process.stdout, process.describe())

    def multicast(self):
        """mckey's receiver says when it has joined, and its sender leaves the group at once."""
        argv = ["mckey", "-m", "239.1.2.3", "-C", "20"]
        receiver = self.start(*self.on_host("h0", "stdbuf", "-oL", *argv), env=self.environment)
        wait_until(lambda: "joined" in receiver.stdout or not receiver.running, "the receiver")
        self.run_program(*self.on_host("h3", *argv, "-s"), env=self.environment, limit=30)
        self.assertEqual(0, receiver.wait(30), receiver.describe())
        self.assertIn("data transfers complete", receiver.stdout)


class Utilities(OnFabric):
    def test_rping(self):
        for options, address, name in (((), "10.0.0.1", "h0"), (("-q",), "10.0.0.1", "h0"), ((), "10.1.0.1", "h0-ib0")):
            argv = ["rping", "-C", "20", "-v", "-V", *options]
            for process in self.both([*argv, "-s", "-a", address], [*argv, "-c", "-a", name]):
                self.assertIn("rdma-ping-19: ", process.stdout, process.describe())

    def test_ucmatose_and_udaddy(self):
        self.utility("ucmatose", "-c", "4", "-C", "20", "-S", "3000")
        self.utility("udaddy", "-c", "4", "-C", "20", "-S", "1000")

    def test_addresses_that_are_gids(self):
        """AF_IB: a service has no IP address, and rsockets have no header that names some."""
        gid = self.run_program(*self.on_host("h0", "cat", "/sys/class/infiniband/tulle0/ports/1/gids/0"),
                               env=self.environment).stdout.strip()
        argv = ["ucmatose", "-f", "gid", "-c", "4", "-C", "20", "-S", "3000"]
        for at in ((), ("-b", gid)):
            for process in self.both([*argv, *at], [*argv, "-s", gid]):
                self.assertIn("return status 0", process.stdout, process.describe())
        argv = ["rstream", "-f", "gid", "-S", "4096", "-I", "20"]
        _, client = self.both([*argv, "-b", gid], [*argv, "-s", gid], ends=False)
        self.assertIn("usec/xfer", client.stdout, client.describe())

    def test_multicast(self):
        for _ in range(3):
            self.multicast()

    def test_cmtime(self):
        _, client = self.both(["cmtime", "-c", "50"], ["cmtime", "-s", "h0", "-c", "50"], ends=False)
        self.assertRegex(client.stdout, r"connect( +:)? +[\d.]+", client.describe())

    def test_rdma_client(self):
        for server, client, options in (("rdma_server", "rdma_client", ()), ("rdma_xserver", "rdma_xclient", ("-c", "x"))):
            started, other = self.both([server, *options], [client, *options, "-s", "h0"])
            self.assertIn(f"{server}: end 0", started.stdout, started.describe())
            self.assertIn(f"{client}: end 0", other.stdout, other.describe())

    def test_rsockets(self):
        for program, options, is_ready in (("rstream", ("-S", "4096", "-I", "20"), None),
                                           ("riostream", ("-S", "4096", "-I", "20"), None),
                                           ("udpong", ("-S", "512", "-C", "20"), rdma_cm.binds(UDPONG_PORT))):
            argv = [program, *options]
            server = [*argv, "-b", "10.0.0.1"] if is_ready else argv
            _, client = self.both(server, [*argv, "-s", "h0"], is_ready=is_ready, ends=False)
            self.assertIn("usec/xfer", client.stdout, client.describe())
            self.assertGreater(len(client.stdout.splitlines()), 1, client.describe())


class Perftest(OnFabric):
    def test_connected_by_the_connection_manager(self):
        for program, options in (("ib_write_bw", ()), ("ib_send_lat", ()), ("ib_send_bw", ("-c", "UD", "-s", "4096"))):
            argv = [program, "-R", "-F", "-n", "200", *options]
            _, client = self.both(argv, [*argv, "h0"])
            self.assertRegex(client.stdout, r"(?m)^ \d+ +200 ", client.describe())


class OnOpenSm(OnFabric):
    """Routes and groups of OpenSM's subnet administration."""

    own_manager = False

    def setUp(self):
        fabric_test.FabricTest.setUp(self)
        self.bring_up()

    def test_connections_and_groups(self):
        self.utility("ucmatose", "-C", "10", "-S", "3000")
        self.multicast()


class WithoutWay(OnFabric):
    def test_a_host_that_nobody_has(self):
        client = self.run_program(*self.on_host("h3", "rping", "-c", "-a", "10.0.0.9"), env=self.environment, expect=None)
        self.assertNotEqual(0, client.wait())
        self.assertIn("RDMA_CM_EVENT_ADDR_ERROR, error -101", client.stderr)

    def test_a_host_without_a_cable(self):
        """Subnet administration knows no way there. The program is told, and the next one connects."""
        self.fabric("cut", "h1", "switch4")
        wait_until(lambda: "h1 tulle0" not in self.tool("h3", "saquery", "NR").stdout, "the manager to notice")
        client = self.run_program(*self.on_host("h3", "ucmatose", "-s", "h1"), env=self.environment, expect=None, limit=30)
        self.assertNotEqual(0, client.wait())
        self.assertIn("RDMA_CM_EVENT_ROUTE_ERROR, error: -113", client.stdout + client.stderr)
        self.utility("ucmatose")

    def test_nobody_listens(self):
        client = self.run_program(*self.on_host("h3", "rping", "-c", "-a", "h0"), env=self.environment, expect=None)
        self.assertIn("RDMA_CM_EVENT_REJECTED", client.stderr)

    def test_a_killed_server(self):
        """Its client is told that the connection is over."""
        server = self.listening("rping", "-s", "-a", "10.0.0.1")
        client = self.start(*self.on_host("h3", "rping", "-c", "-a", "h0", "-d"), env=self.environment)
        wait_until(lambda: "ESTABLISHED" in client.stdout, "the connection")
        server.end()
        wait_until(lambda: not client.running, "the end of the client")
        self.assertIn("DISCONNECT EVENT", client.stderr + client.stdout)
