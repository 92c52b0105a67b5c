"""Runs programs with data on hosts of a software fabric: by LID, through its switches, without RoCE's GIDs."""

import re
import signal

import fabric_test
from harness import TULLE, cpu_ticks, table_rows, wait_until

PINGPONG_ITERATIONS = 200
ATOMIC_KINDS = ("CMP_AND_SWAP", "FETCH_AND_ADD")


class OnFabric(fabric_test.FabricTest):
    """A test whose servers run on h0 and clients on h3, behind two switches."""

    own_manager = True
    hosts = ("h0", "h3")

    def setUp(self):
        super().setUp()
        wait_until(lambda: self.states() == {"active"}, "active ports", pause=0.05)

    def lid(self, name):
        return self.nodes()[name]["lids"][0]

    def on_two_hosts(self, argv, **keywords):
        server, client = self.hosts
        return self.pair(argv, options=("--host", client), server_options=("--host", server), env=self.environment,
                         **keywords)

    def pingpong(self, kind, *options, size=4096):
        argv = [f"ibv_{kind}_pingpong", "-n", str(PINGPONG_ITERATIONS), "-s", str(size), *map(str, options)]
        server, client = self.on_two_hosts(argv)
        for process in (server, client):
            self.assertRegex(process.stdout, rf"(?m)^{PINGPONG_ITERATIONS} iters in [\d.]+ seconds", process.describe())
        return server, client

    def perftest(self, program, *options, iterations=200, **keywords):
        argv = [program, "-F", "-n", str(iterations), *map(str, options)]
        server, client = self.on_two_hosts(argv, **keywords)
        rows = table_rows(client.stdout)
        self.assertTrue(rows, f"{server.describe()}\n{client.describe()}")
        self.assertIn("Link type       : IB", client.stdout)
        return rows


class Pingpong(OnFabric):
    def test_rc_by_lid(self):
        server, _ = self.pingpong("rc", "-c", size=10000)
        found = re.findall(r"(local|remote) address:\s+LID 0x([0-9a-f]+),.* GID (\S+)", server.stdout)
        self.assertEqual([("local", self.lid("h0"), "::"), ("remote", self.lid("h3"), "::")],
                         [(side, int(lid, 16), gid) for side, lid, gid in found])

    def test_with_a_global_route(self):
        """-g gives packets a GRH, whose addresses are made of the subnet's prefix and the ports' GUIDs."""
        for kind, size in (("rc", 4096), ("uc", 4096), ("ud", 1024)):
            server, _ = self.pingpong(kind, "-g", 0, size=size)
            self.assertIn("GID fe80::200:0:0:4", server.stdout)

    def test_transports_and_events(self):
        for kind, options, size in (("rc", ["-e"], 4096), ("uc", [], 4096), ("uc", ["-e"], 4096), ("ud", [], 2048),
                                    ("ud", ["-e"], 2048), ("srq", ["-q", 8], 4096), ("srq", ["-e", "-q", 8], 4096)):
            self.pingpong(kind, *options, size=size)

    def test_on_one_host(self):
        """An adapter loops back what it sends to itself."""
        self.hosts = ("h1", "h1")
        self.pingpong("rc", "-c", size=10000)
        self.pingpong("ud", size=1024)


class Perftest(OnFabric):
    def test_bandwidth(self):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            self.perftest(program, "-s", 65536)
            self.perftest(program, "-s", 16384, "-b", "-q", 8)
        for options in (["-c", "UC", "-s", 16384], ["-c", "UD", "-s", 4096], ["-e", "-s", 4096]):
            self.perftest("ib_send_bw", *options)
        self.perftest("ib_write_bw", "-c", "UC", "-s", 16384)

    def test_nothing_is_lost_without_a_window(self):
        """UC and UD would wait indefinitely for a message that a full ring or switch lost. Credits hold the sender."""
        self.perftest("ib_send_bw", "-c", "UC", "-s", 65536, "-b", "-e", iterations=2000)
        self.perftest("ib_send_bw", "-c", "UD", "-s", 4096, iterations=20000)

    def test_latency(self):
        for program in ("ib_write_lat", "ib_read_lat", "ib_send_lat"):
            self.perftest(program, "-s", 8)
        self.perftest("ib_send_lat", "-s", 8, "-e")
        self.perftest("ib_send_lat", "-s", 1024, "-c", "UD")

    def test_atomics(self):
        for kind in ATOMIC_KINDS:
            self.perftest("ib_atomic_bw", "-A", kind)
            self.perftest("ib_atomic_lat", "-A", kind)

    def test_service_levels(self):
        """A service level has a lane of its own."""
        for level in (0, 1, 7, 15):
            self.perftest("ib_write_bw", "-S", level, "-s", 16384)


class Qperf(OnFabric):
    def test_all_transports(self):
        """Without the connection manager, which qperf needs for UC and UD on RoCE."""
        self.start_server(["qperf"], 19765, options=("--host", "h0"), env=self.environment)
        for test in ("rc_bi_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_write_poll_lat", "uc_bi_bw", "uc_lat",
                     "uc_rdma_write_bw", "ud_bi_bw", "ud_lat", "ver_rc_fetch_add"):
            client = self.run_program(*self.over_tulle(["qperf", "-t", "1", "127.0.0.1", test], ("--host", "h3")),
                                      env=self.environment, limit=30)
            self.assertRegex(client.stdout, rf"{test}:\s+(send_)?(bw|latency|msg_rate)\s+=\s+[\d.]+ ", client.describe())
            self.assertEqual("", client.stderr)


class Fabric(OnFabric):
    topology = 'kind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2'

    def start_pair(self, *argv):
        server = self.start_server(list(argv), 18515, options=("--host", "h0"), env=self.environment)
        client = self.start(*self.over_tulle([*argv, "127.0.0.1"], ("--host", "h3")), env=self.environment)
        return server, client

    def sent_by(self, name):
        """Returns how many packets a host's port has sent, by performance management."""
        output = self.tool("h1", "perfquery", "-x", str(self.lid(name)), "1").stdout
        return int(re.search(r"PortXmitPkts:\.+(\d+)", output)[1])

    def test_an_open_connection_survives_cuts(self):
        """Each spine goes once. The manager finds other routes, and RC sends again what was lost."""
        server, client = self.start_pair("ibv_rc_pingpong", "-c", "-s", "65536", "-n", "60000", "-p", "18515")
        for spine in ("spine0", "spine1", "spine0"):
            before = self.sent_by("h0")
            wait_until(lambda: self.sent_by("h0") > before + 1000, "traffic")  # noqa: B023
            self.fabric("cut", "leaf0", spine)
            before = self.sent_by("h0")
            wait_until(lambda: self.sent_by("h0") > before + 1000, "traffic by the other spine")  # noqa: B023
            self.fabric("join", "leaf0", spine)
        self.finish(server, client, limit=60)

    def test_a_host_without_a_cable_is_told_and_comes_back(self):
        """Its program gets the port's events, and its connection goes on if the cable comes back in time."""
        watcher = self.start(*self.on_host("h3", "ibv_asyncwatch"), env=self.environment)
        wait_until(lambda: "event FD" in watcher.stdout, "the watcher")
        server, client = self.start_pair("ibv_rc_pingpong", "-s", "4096", "-n", "100000", "-p", "18515")
        wait_until(lambda: self.sent_by("h0") > 1000, "traffic")
        self.fabric("cut", "h3", "leaf1")
        wait_until(lambda: "IBV_EVENT_PORT_ERR" in watcher.stdout, "the event")
        self.fabric("join", "h3", "leaf1")
        wait_until(lambda: "IBV_EVENT_PORT_ACTIVE" in watcher.stdout, "the event")
        self.finish(server, client, limit=60)

    def test_a_stopped_program_harms_no_other(self):
        """Its packets are discarded after a while, so that they do not stand in others' way."""
        server, client = self.start_pair("ib_send_bw", "-F", "-c", "UD", "-s", "4096", "-D", "20", "-p", "18515")
        wait_until(lambda: self.sent_by("h3") > 1000, "traffic")
        server.signal(signal.SIGSTOP)
        try:
            self.hosts = ("h0", "h2")
            argv = ["ibv_rc_pingpong", "-c", "-s", "65536", "-n", "500"]
            self.on_two_hosts(argv, port=18516, limit=30)
        finally:
            server.signal(signal.SIGCONT)
        client.end()
        server.end()

    def test_a_killed_program_leaves_its_place(self):
        """More programs come and go than a host has places for."""
        for _ in range(3):
            server, client = self.start_pair("ib_write_bw", "-F", "-s", "65536", "-D", "20", "-p", "18515")
            before = self.sent_by("h3")
            wait_until(lambda: self.sent_by("h3") > before + 1000, "traffic")  # noqa: B023
            client.signal(signal.SIGKILL)
            server.signal(signal.SIGKILL)
            client.wait()
            server.wait()
        self.run_program("sh", "-c", 'for i in $(seq 140); do "$@" >/dev/null || exit 1; done', "sh",
                         *self.on_host("h3", "ibv_devinfo"), env=self.environment, limit=60)

    def test_a_fabric_that_dies_takes_its_programs_ports(self):
        """They get IBV_EVENT_DEVICE_FATAL, use no processor, and can end."""
        watcher = self.start(*self.on_host("h3", "ibv_asyncwatch"), env=self.environment)
        wait_until(lambda: "event FD" in watcher.stdout, "the watcher")
        self.up.signal(signal.SIGKILL)
        self.up.wait()
        wait_until(lambda: "IBV_EVENT_DEVICE_FATAL" in watcher.stdout, "the event")
        before = cpu_ticks(watcher.pid)
        self.run_program("sleep", "1")
        self.assertLessEqual(cpu_ticks(watcher.pid) - before, 2)
        watcher.signal(signal.SIGTERM)
        watcher.wait()

    def test_an_idle_fabric_with_programs_rests(self):
        watcher = self.start(*self.on_host("h3", "ibv_asyncwatch"), env=self.environment)
        wait_until(lambda: "event FD" in watcher.stdout, "the watcher")
        before = cpu_ticks(self.up.pid)
        self.run_program("sleep", "1")
        self.assertLessEqual(cpu_ticks(self.up.pid) - before, 2)
        self.assertTrue(watcher.running)

    def test_another_manager_tells_programs(self):
        """OpenSM takes over: programs are told of another manager."""
        watcher = self.start(*self.on_host("h3", "ibv_asyncwatch"), env=self.environment)
        wait_until(lambda: "event FD" in watcher.stdout, "the watcher")
        self.start_manager("h1")
        wait_until(lambda: "IBV_EVENT_SM_CHANGE" in watcher.stdout, "the event", pause=0.05)


class Files(OnFabric):
    def test_what_the_file_system_shows(self):
        """As a kernel shows it, also after the manager has changed it."""
        show = "cd /sys/class/infiniband/tulle0/ports/1; cat lid state rate link_layer gid_attrs/types/0 pkeys/0 sm_lid"
        output = self.run_program(*self.on_host("h2", "sh", "-c", show), env=self.environment).stdout
        self.assertEqual([hex(self.lid("h2")), "4: ACTIVE", "100 Gb/sec (4X EDR)", "InfiniBand", "IB/RoCE v1", "0xffff",
                          hex(self.lid("switch4"))], output.splitlines())
        self.fabric("cut", "h2", "switch5")
        again = self.run_program(*self.on_host("h2", "cat", "/sys/class/infiniband/tulle0/ports/1/state"),
                                 env=self.environment).stdout
        self.assertEqual("1: DOWN", again.strip())
