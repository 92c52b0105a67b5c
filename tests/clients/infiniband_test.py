"""Runs programs with data on hosts of a software fabric: by LID, through its switches, without RoCE's GIDs."""

import collections
import glob
import itertools
import os
import re
import signal

import fabric_test
import frame
import mpich
import openmpi
from harness import BUILD, TULLE, cpu_ticks, table_rows, wait_until, with_the_clock
from mpi_jobs import MPICH, OPEN_MPI

MIGRATION = BUILD / "bin" / "migration"
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
        return self.pair(argv, host=server, options=("--host", client), server_options=("--host", server),
                         env=self.environment, **keywords)

    def pingpong(self, kind, *options, size=4096):
        argv = [f"ibv_{kind}_pingpong", "-n", str(PINGPONG_ITERATIONS), "-s", str(size), *map(str, options)]
        server, client = self.on_two_hosts(argv)
        for process in (server, client):
            self.assertRegex(process.stdout, rf"(?m)^{PINGPONG_ITERATIONS} iters in [\d.]+ seconds", process.describe())
        return server, client

    def perftest(self, program, *options, iterations=200, **keywords):
        argv = [program, "-F", "-n", str(iterations), *map(str, options)]
        server, client = with_the_clock(lambda: self.on_two_hosts(argv, **keywords))
        rows = table_rows(client.stdout)
        self.assertTrue(rows, f"{server.describe()}\n{client.describe()}")
        self.assertIn("Link type       : IB", client.stdout)
        return rows


class SweptByOpenSm(OnFabric):
    """A test whose ports stay down until OpenSM has been there. It sets them up in one sweep, and ends."""

    own_manager = False

    def setUp(self):
        fabric_test.FabricTest.setUp(self)

    def sweep(self, *arguments):
        log = self.folder / "opensm.log"
        log.unlink(missing_ok=True)
        self.tool("h1", "opensm", "-o", "-f", log, *arguments)
        text = log.read_text()
        self.assertIn("SUBNET UP", text)
        return text


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
            client = self.run_program(*self.over_tulle(["qperf", "-t", "1", "h0", test], ("--host", "h3")),
                                      env=self.environment, limit=30)
            self.assertRegex(client.stdout, rf"{test}:\s+(send_)?(bw|latency|msg_rate)\s+=\s+[\d.,]+ ", client.describe())
            self.assertEqual("", client.stderr)


class Fabric(OnFabric):
    topology = 'kind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2'

    def start_pair(self, *argv):
        server = self.start_server(list(argv), 18515, options=("--host", "h0"), env=self.environment)
        client = self.start(*self.over_tulle([*argv, "h0"], ("--host", "h3")), env=self.environment)
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
        self.finish(server, client, limit=180)

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
        """OpenSM takes over: programs are told of another manager, and that they must join their groups anew."""
        watcher = self.start(*self.on_host("h3", "ibv_asyncwatch"), env=self.environment)
        wait_until(lambda: "event FD" in watcher.stdout, "the watcher")
        self.start_manager("h1")
        for event in ("IBV_EVENT_SM_CHANGE", "IBV_EVENT_CLIENT_REREGISTER"):
            wait_until(lambda: event in watcher.stdout, event, pause=0.05)  # noqa: B023


class ByOpenSm(SweptByOpenSm):
    """Data on a subnet that OpenSM has set up, in one sweep each."""

    topology = 'kind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2'

    def test_routing_engines(self):
        """All that the topology allows."""
        for engine in ("minhop", "updn", "dnup", "ftree", "lash", "dor", "sssp", "dfsssp", "nue"):
            log = self.sweep("-R", engine)
            self.assertIn(f"{engine} tables configured on all switches", log)
            for hosts in (("h0", "h3"), ("h1", "h0")):
                self.hosts = hosts
                self.pingpong("rc", "-c", size=10000)

    def test_partitions(self):
        """Two partitions do not hear each other, and neither do two limited members of one."""
        guids = [int(self.nodes()[f"h{i}"]["guid"], 16) for i in range(4)]
        (self.folder / "partitions.conf").write_text(
            "Default=0x7fff : ALL=limited, SELF=full ;\n"
            f"A=0x0001 : {guids[0]:#x}=full, {guids[1]:#x}=full ;\nB=0x0002 : {guids[2]:#x}=full, {guids[3]:#x}=full ;\n")
        self.sweep("-P", self.folder / "partitions.conf")
        for hosts, index, hear in ((("h0", "h1"), 1, True), (("h2", "h3"), 1, True), (("h0", "h2"), 1, False),
                                   (("h0", "h1"), 0, True), (("h0", "h2"), 0, False)):
            self.hosts = hosts
            argv = ["ib_write_bw", "-F", "-n", "100", "-s", "4096", "-u", "8", f"--pkey_index={index}"]
            with self.subTest(hosts=hosts, index=index):
                _, client = self.on_two_hosts(argv, expect=None, limit=30)
                if hear:
                    self.assertEqual(0, client.wait(), client.describe())
                else:
                    self.assertIn("Failed status 12", client.stderr, client.describe())

    def test_quality_of_service(self):
        """OpenSM's tables are taken, and packets of each level travel on the lanes that they say."""
        (self.folder / "opensm.conf").write_text(
            "qos TRUE\nqos_max_vls 8\nqos_high_limit 4\nqos_vlarb_high 0:64,1:128\nqos_vlarb_low 0:64,1:64,5:64,6:64\n"
            "qos_sl2vl 0,1,2,6,4,5,6,7,0,1,2,3,4,5,15,7\n")
        log = self.sweep("-Q", "-F", self.folder / "opensm.conf")
        self.assertNotIn("ERR", log)
        lid = str(self.lid("h3"))
        self.assertIn("| 0| 1| 2| 6| 4| 5| 6| 7| 0| 1| 2| 3| 4| 5|15| 7|", self.tool("h0", "smpquery", "sl2vl", lid, "1").stdout)
        self.assertIn("WEIGHT: |0x40|0x80|", self.tool("h0", "smpquery", "vlarb", lid, "1").stdout)
        path = self.folder / "lanes.pcapng"
        capture = self.start(TULLE, "capture", "--fabric", "default", "-o", path, env=self.environment)
        wait_until(lambda: path.exists() and path.stat().st_size > 0, "the capture")
        self.perftest("ib_write_bw", "-S", 3, "-s", 16384)
        self.perftest("ib_write_bw", "-S", 5, "-s", 16384)
        _, client = self.on_two_hosts(["ib_write_bw", "-F", "-n", "10", "-u", "8", "-S", "14"], expect=None, limit=30)
        self.assertIn("Failed status 12", client.stderr, client.describe())  # the level has no lane
        capture.signal(signal.SIGINT)
        self.assertEqual(130, capture.wait(20), capture.describe())
        shown = self.run_program("tshark", "-r", path, "-Y", "infiniband.lrh.vl", "-T", "fields", "-e", "infiniband.lrh.sl",
                                 "-e", "infiniband.lrh.vl", limit=60).stdout.splitlines()
        lanes = {tuple(int(field, 0) for field in line.split("\t")) for line in shown}
        self.assertLessEqual({(3, 6), (5, 5)}, lanes)
        self.assertEqual({(3, 6), (5, 5)}, {(level, lane) for level, lane in lanes if level in (3, 5, 14)})


class Rates(OnFabric):
    """Links of one lane at single data rate, which carry 2 Gb/s of data."""

    topology = 'kind = "single-switch"\nhosts = 3\nlink_rate = "2.5Gbps"'
    options = ("--rates",)
    hosts = ("h0", "h1")

    def test_links_keep_to_their_rates(self):
        """Of 4,096 bytes of payload, 4,124 to 4,140 are on the link. perftest counts MB of 2^20 bytes."""
        most = 2e9 / 8 * 4096 / 4124 / 2**20
        for program, *options in (("ib_write_bw", "-s", 65536), ("ib_send_bw", "-s", 65536, "-e"),
                                  ("ib_write_bw", "-s", 4096, "-q", 4)):
            with self.subTest(program=program, options=options):
                rows = self.perftest(program, *options, iterations=2000)
                average = rows[-1][3]
                self.assertLess(average, most * 1.02)
                self.assertGreater(average, most * 0.2)

    def test_nothing_to_carry_takes_no_processor(self):
        self.perftest("ib_write_bw")
        before = cpu_ticks(self.up.pid)
        self.run_program("sleep", "1")
        self.assertLess(cpu_ticks(self.up.pid) - before, os.sysconf("SC_CLK_TCK") / 20)


class Arbitration(SweptByOpenSm):
    topology = Rates.topology
    options = Rates.options

    def test_lanes_share_a_link_by_the_managers_weights(self):
        """Two hosts send to a third, each on a lane of its own. A packet of 4 KiB is 65 units of 64 bytes."""
        (self.folder / "opensm.conf").write_text(
            "qos TRUE\nqos_max_vls 8\nqos_high_limit 255\nqos_vlarb_high 0:65,1:195\nqos_vlarb_low 0:1,1:1\n"
            "qos_sl2vl 0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7\n")
        self.sweep("-Q", "-F", self.folder / "opensm.conf")
        argv = ["ib_write_bw", "-F", "-D", "3", "-s", "65536"]
        flows = [("h1", ("-S", "0"), 18515), ("h2", ("-S", "1"), 18516)]
        for _, options, port in flows:
            self.start_server([*argv, *options, "-p", str(port)], port, options=("--host", "h0"), env=self.environment)
        clients = [self.start(*self.on_host(host, *argv, *options, "-p", str(port), "h0"), env=self.environment)
                   for host, options, port in flows]
        rates = []
        for client in clients:
            self.assertEqual(0, client.wait(30), client.describe())
            rates.append(table_rows(client.stdout)[-1][3])
        # A sender without enough of the processor leaves a part of its share to the other one. Without the manager's
        # weights, the flows have the same.
        self.assertGreater(rates[1] / rates[0], 1.3, rates)
        self.assertLess(rates[1] / rates[0], 4, rates)


class TwoPaths(SweptByOpenSm):
    """Two spines, and two LIDs for each port, whose paths OpenSM leads over different spines. It has ended since, so that
    nobody repairs a path that breaks."""

    topology = 'kind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\nlink_rate = "100Gbps"'

    def spine_between(self, here, there, path):
        """Returns the spine on the way from one host to another, by the LIDs of that path."""
        shown = self.tool(here, "ibtracert", str(self.lid(here) + path), str(self.lid(there) + path)).stdout
        spine = re.search(r'"(spine \d+)', shown)
        self.assertTrue(spine, shown)
        return spine[1].replace(" ", "")

    def two_hosts_and_a_spine(self):
        """Returns two hosts whose first path is over a spine that the second one does not need in either direction."""
        for client, server in itertools.product(("h0", "h1"), ("h2", "h3")):
            spine = self.spine_between(client, server, 0)
            second = {self.spine_between(client, server, 1), self.spine_between(server, client, 1)}
            if spine not in second:
                return client, server, spine
        self.fail("OpenSM leads no two paths over different spines")

    def test_a_connection_takes_its_alternate_path(self):
        self.sweep("-l", "1")
        here, there, spine = self.two_hosts_and_a_spine()
        port = 18600
        server = self.start_server([MIGRATION, port], port, options=("--host", there), env=self.environment)
        client = self.start(*self.on_host(here, MIGRATION, port, there), env=self.environment)
        wait_until(lambda: "armed" in client.stdout or not client.running, "both ends to be armed")
        for leaf in ("leaf0", "leaf1"):
            self.fabric("cut", spine, leaf)
        self.finish(server, client, limit=30)
        self.assertEqual(["armed", "migrated"], client.stdout.split(), client.describe())
        self.assertEqual(["migrated"], server.stdout.split(), server.describe())


class Mpi(OnFabric):
    """A rank on each host, started on one of them. Every byte is checked."""

    def collectives(self, packages, mpi, options, transports):
        missing = [package for package in packages if frame.version(package) is None]
        if missing:
            self.skipTest(f"not installed: {' '.join(missing)}")
        argv, env = mpi.job(mpi.build(self), transports, options)
        process = self.run_program(*self.on_host("h0", *argv), env={**env, **self.environment}, limit=120)
        self.assertIn("ok: 4 ranks", process.stdout, process.describe())
        return process

    def test_open_mpi(self):
        """UCX says that it took the fabric's device."""
        process = self.collectives(openmpi.PACKAGES, OPEN_MPI, ["--host", "h0,h1,h2,h3"], "rc_v,self")
        self.assertIn("rc_verbs/tulle0:1", process.stdout + process.stderr)

    def test_open_mpi_by_verbs(self):
        """Open MPI 4 speaks verbs itself, too, and makes its connections by LID without librdmacm."""
        if not glob.glob("/usr/lib/*/openmpi/lib/openmpi*/mca_btl_openib.so"):
            self.skipTest("this Open MPI has no openib BTL")
        program = OPEN_MPI.build(self)
        # Where registrations are left in its cache, Open MPI calls the component to end them after it has unloaded it
        # (mca_rcache_grdma), which depends on where buffers lie.
        process = self.run_program(
            *self.on_host("h0", OPEN_MPI.launcher, "-n", "4", "--host", "h0,h1,h2,h3", "--mca", "pml", "ob1", "--mca", "btl",
                          "openib,self", "--mca", "btl_openib_allow_ib", "1", "--mca", "mpi_leave_pinned", "0", "--mca",
                          "btl_base_verbose", "30", program),
            env={**OPEN_MPI.env, **self.environment}, limit=120)
        self.assertIn("ok: 4 ranks", process.stdout, process.describe())
        self.assertIn("Using openib btl for send to", process.stdout + process.stderr)

    def test_mpich(self):
        process = self.collectives(mpich.PACKAGES, MPICH, ["-hosts", "h0,h1,h2,h3", "-ppn", "1"], "ud_v,self")
        self.assertIn("ud_verbs/tulle0:1", process.stdout + process.stderr)


class Capture(OnFabric):
    def start_capture(self, *options):
        self.path = self.folder / "links.pcapng"
        capture = self.start(TULLE, "capture", "--fabric", "default", "-o", self.path, *options, env=self.environment)
        wait_until(lambda: self.path.exists() and self.path.stat().st_size > 0, "the capture")
        return capture

    def end_capture(self, capture):
        capture.signal(signal.SIGINT)
        self.assertEqual(130, capture.wait(20), capture.describe())
        self.assertNotIn("lost", capture.stderr)

    def tshark(self, *arguments):
        return self.run_program("tshark", "-r", self.path, *arguments, limit=60).stdout.splitlines()

    def peers(self):
        """Returns the port at the other end of each port's cable, both as a capture names them."""
        return {f"{name} port {port['port']}": f"{port['peer']} port {port['peer_port']}"
                for name, node in self.nodes().items() for port in node["ports"] if port.get("peer")}

    def test_no_packet_without_credits(self):
        """An account of the credits on every link and lane, from what the links carried alone (IBTA 7.9.4)."""
        capture = self.start_capture("--flow-control")
        self.perftest("ib_write_bw", "-s", 65536, "-t", 64, iterations=300)
        self.perftest("ib_send_bw", "-c", "UD", "-s", 64, "-S", 5, iterations=500)
        self.perftest("ib_write_bw", "-b", "-S", 3, "-s", 4096, iterations=500)
        self.end_capture(capture)
        self.assertEqual([], self.tshark("-Y", "_ws.malformed")[:5])
        fields = ["frame.interface_name", "frame.len", "infiniband.lrh.vl", "infiniband_link.vl", "infiniband_link.fctbs",
                  "infiniband_link.fccl"]
        peers = self.peers()
        sent, limits = {}, {}  # by port and lane: blocks that it has sent, and that it may have sent
        checked = collections.Counter()
        for line in self.tshark("-T", "fields", *(part for name in fields for part in ("-e", name))):
            port, length, lane, told_lane, total, limit = line.split("\t")
            if told_lane:
                key = port, int(told_lane, 0)
                self.assertEqual(int(total, 0), sent.setdefault(key, int(total, 0)), f"what {key} says that it has sent")
                limits[peers[port], key[1]] = int(limit, 0)
                continue
            key = port, int(lane, 0)
            if key not in sent:
                continue  # the port has not said yet what it had sent before the capture
            # A packet takes its bytes without the VCRC, and 512 at least, in blocks of 64.
            sent[key] = (sent[key] + max(512, int(length) - 2 + 63) // 64) % 4096
            if key in limits:
                self.assertLess((limits[key] - sent[key]) % 4096, 2048, f"{key} sends without credits")
                checked[key] += 1
        for lane in (0, 3, 5):
            self.assertGreater(checked["h3 port 1", lane], 200, checked)
        # What a switch's port has sent is known once it has told credits for what came the other way.
        self.assertGreater(checked["switch5 port 3", 0], 1000, checked)
        self.assertGreater(checked["switch5 port 3", 3], 0, checked)

    def test_wireshark_reads_every_hop(self):
        """Native InfiniBand: nothing is malformed, and each packet is on each of its links once, on its lane."""
        capture = self.start_capture()
        self.pingpong("rc", "-l", 3, size=3000)
        self.pingpong("uc", "-g", 0, size=3000)
        self.pingpong("ud", size=1000)
        self.end_capture(capture)
        self.assertRegex(capture.stderr, r"Captured \d+ packets of 6 ports\.\n$")
        tshark = self.tshark
        self.assertEqual([], tshark("-Y", "_ws.malformed")[:5])
        fields = ["frame.interface_name", "infiniband.lrh.slid", "infiniband.lrh.dlid", "infiniband.lrh.vl",
                  "infiniband.lrh.sl", "infiniband.lrh.lnh", "infiniband.bth.opcode"]
        rows = [line.split("\t") for line in tshark("-Y", "infiniband.lrh", "-T", "fields",
                                                    *(part for name in fields for part in ("-e", name)))]
        hops = collections.defaultdict(collections.Counter)
        for interface, source, destination, lane, level, header, opcode in rows:
            self.assertEqual(int(lane, 0), int(level, 0) % 8)
            hops[source, destination, opcode, level, header][interface] += 1
        for packet, by_port in hops.items():
            ports = {"h0 port 1", "switch4 port 3", "switch5 port 2"}
            if int(packet[0], 0) == self.lid("h3"):
                ports = {"h3 port 1", "switch5 port 3", "switch4 port 1"}
            self.assertEqual(ports, set(by_port), packet)
            self.assertEqual(1, len(set(by_port.values())), by_port)
        self.assertEqual({3, 0}, {int(packet[3], 0) for packet in hops}, "service levels")
        self.assertEqual({2, 3}, {int(packet[4], 0) for packet in hops}, "without a GRH, and with one")


class Files(OnFabric):
    def test_what_the_file_system_shows(self):
        """As a kernel shows it, also after the manager has changed it."""
        show = "cd /sys/class/infiniband/tulle0/ports/1; cat lid state rate link_layer gid_attrs/types/0 pkeys/0 sm_lid"
        output = self.run_program(*self.on_host("h2", "sh", "-c", show), env=self.environment).stdout
        self.assertEqual([hex(self.lid("h2")), "4: ACTIVE", "100 Gb/sec (4X EDR)", "InfiniBand", "IB/RoCE v1", "0xffff",
                          hex(self.lid("switch4"))], output.splitlines())
        folder = "/sys/class/infiniband/tulle0/ports/1/counters/"
        files = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
        counters = lambda: list(map(int, self.run_program(  # noqa: E731
            *self.on_host("h2", "cat", *(folder + name for name in files)), env=self.environment).stdout.split()))
        before = counters()
        self.hosts = ("h2", "h0")
        self.pingpong("rc", size=4096)
        sent, received = (now - then for now, then in zip(counters()[:2], before[:2]))
        # Each message is 1,024 words, and its headers and acknowledgement some 20 each.
        for words in (sent, received):
            self.assertGreater(words, PINGPONG_ITERATIONS * 1024)
            self.assertLess(words, PINGPONG_ITERATIONS * 1200)
        self.fabric("cut", "h2", "switch5")
        again = self.run_program(*self.on_host("h2", "cat", "/sys/class/infiniband/tulle0/ports/1/state"),
                                 env=self.environment).stdout
        self.assertEqual("1: DOWN", again.strip())
