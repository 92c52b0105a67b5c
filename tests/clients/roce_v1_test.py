"""Tests RoCE v1: frames of Ethernet between two hosts and within one, by unmodified programs, with GID types as the
kernel names them."""

import json
import os
import pathlib
import re
import signal
import tempfile

import frame
import ucx
from roce import icrc_v1

from harness import INTEGRITY, TULLE, ClientTest, cpu_ticks, table_rows, wait_until
from unprivileged_test import as_ordinary_user, skip_out_of_reach

V1, BOTH = ("--roce", "v1"), ("--roce", "both")


class TwoHosts(ClientTest):
    def setUp(self):
        super().setUp()
        self.first, self.second = self.joined_namespaces()

    def between(self, *argv, host="10.0.0.1", options=V1, **keywords):
        return self.pair([str(a) for a in argv], net=self.second, server_net=self.first, host=host, options=options,
                         **keywords)

    def listens(self, net):
        agent = self.status(net)["agent"]
        return agent is not None and agent["listeners"] > 0

    def datagrams(self, net):
        """Returns how many UDP datagrams a host has sent."""
        lines = [line.split() for line in net.run("cat", "/proc/net/snmp").splitlines() if line.startswith("Udp:")]
        return int(dict(zip(*lines))["OutDatagrams"])

    def test_pingpong(self):
        for program in ("rc", "uc", "srq"):
            for options in ((), ("-e",)):
                with self.subTest(program=program, options=options):
                    server, _ = self.between(f"ibv_{program}_pingpong", "-g", 0, "-n", 200, *options)
                    self.assertIn("::ffff:10.0.0.2", server.stdout)
        self.between("ibv_ud_pingpong", "-g", 0, "-n", 200, "-s", 1024)

    def test_ipv6_and_link_local_addresses(self):
        for gid, own in ((1, "fd00::2"), (2, "fe80::")):
            with self.subTest(gid=gid):
                server, _ = self.between("ibv_rc_pingpong", "-g", gid, "-n", 200)
                self.assertIn(own, server.stdout)

    def test_perftest(self):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat"):
            with self.subTest(program=program):
                _, client = self.between(program, "-F", "-n", 100, "-s", 65536)
                self.assertTrue(table_rows(client.stdout), client.describe())
        self.between("ib_atomic_bw", "-F", "-n", 100)

    def test_every_byte(self):
        self.between(INTEGRITY, "-m", 1024, "-n", 2, limit=180)

    def test_connections(self):
        """Management datagrams travel as frames too: apart from the question for the MAC address, which is the kernel's,
        the only datagram of UDP is the one that makes the kernel ask."""
        server = self.start(*self.over_tulle(["rping", "-s", "-C", "20", "-a", "10.0.0.1"], V1), net=self.first)
        wait_until(lambda: self.listens(self.first), "the listener")
        before = self.datagrams(self.second), self.datagrams(self.first)
        client = self.run_program(*self.over_tulle(["rping", "-c", "-v", "-C", "20", "-a", "10.0.0.1"], V1),
                                  net=self.second)
        self.assertEqual(20, len(re.findall(r"ping data", client.stdout)), client.describe())
        self.assertEqual(0, server.wait(), server.describe())
        self.assertLessEqual(self.datagrams(self.second) - before[0], 1)
        self.assertEqual(self.datagrams(self.first), before[1])

    def test_connections_again_and_again(self):
        for i in range(5):
            with self.subTest(i=i):
                server = self.start(*self.over_tulle(["udaddy"], V1), net=self.first)
                wait_until(lambda: self.listens(self.first), "the listener")
                self.run_program(*self.over_tulle(["udaddy", "-s", "10.0.0.1"], V1), net=self.second)
                self.assertEqual(0, server.wait(), server.describe())

    def test_news_of_neighbours_take_no_processor(self):
        """The kernel tells the host agent of every neighbour, whether or not somebody waits for one."""
        keeper = self.start(*self.over_tulle(["rping", "-s", "-a", "10.0.0.1"], V1), net=self.first)
        wait_until(lambda: self.listens(self.first), "the listener")
        for _ in range(3):
            self.first.run("ip", "neighbour", "flush", "all")
            self.first.run("ping", "-c", "1", "-W", "2", "10.0.0.2")
        agent = self.status(self.first)["agent"]["pid"]
        before = cpu_ticks(agent)
        self.run_program("sleep", "1")
        self.assertLess(cpu_ticks(agent) - before, os.sysconf("SC_CLK_TCK") / 10)
        self.assertTrue(keeper.running)

    def test_nobody_at_the_address(self):
        """The kernel gives up after its three questions, and the program is told within two seconds."""
        client = self.run_program(*self.over_tulle(["rping", "-c", "-C", "1", "-a", "10.0.0.77"], V1), net=self.second,
                                  expect=None, limit=10)
        self.assertIn("ROUTE_ERROR, error -113", client.stdout + client.stderr)

    def test_multicast(self):
        argv = ["stdbuf", "-oL", "mckey", "-m", "239.1.2.3", "-b"]
        server = self.start(*self.over_tulle([*argv, "10.0.0.1"], V1), net=self.first)
        local = self.start(*self.over_tulle([*argv, "10.0.0.2"], V1), net=self.second)
        for member in (server, local):
            wait_until(lambda: "joined dgid" in member.stdout or not member.running, "a member to join")
        self.run_program(*self.over_tulle([*argv, "10.0.0.2", "-s"], V1), net=self.second)
        for member in (server, local):
            self.assertEqual(0, member.wait(), member.describe())

    def test_both_versions(self):
        """Each address has an index of either version. Packets of one version do not come to queue pairs of the other."""
        for gid in (0, 1):
            with self.subTest(gid=gid):
                self.between("ibv_rc_pingpong", "-g", gid, "-n", 200, options=BOTH)
        server = self.start_server(["ibv_rc_pingpong", "-g", "0"], 18515, net=self.first, options=BOTH)
        client = self.run_program(*self.over_tulle(["ibv_rc_pingpong", "-g", "1", "-n", "10", "10.0.0.1"], BOTH),
                                  net=self.second, expect=None, limit=60)
        self.assertIn("transport retry counter exceeded", client.stderr, client.describe())
        self.assertTrue(server.running)

    def test_capture(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "capture.pcapng")
        capture = self.start(TULLE, "capture", "-o", path, net=self.first)
        wait_until(lambda: os.path.exists(path) or not capture.running, "the capture to start")
        self.between("ibv_rc_pingpong", "-g", 0, "-n", 50, options=BOTH)
        self.between("ibv_ud_pingpong", "-g", 1, "-n", 50, "-s", 1024, options=BOTH)
        capture.signal(signal.SIGINT)
        self.assertEqual(130, capture.wait(20), capture.describe())

        def tshark(*arguments):
            return self.run_program("tshark", "-r", path, *arguments).stdout.splitlines()
        self.assertEqual([], tshark("-Y", "_ws.malformed"))
        fields = ("infiniband.grh.sgid", "infiniband.grh.dgid", "infiniband.bth")
        frames = tshark("-Y", "eth.type == 0x8915 && infiniband.bth", "-T", "fields", *(
            each for field in fields for each in ("-e", field)))
        self.assertGreater(len(frames), 100)
        hosts = frozenset({"::ffff:10.0.0.1", "::ffff:10.0.0.2"})
        self.assertEqual({hosts}, {frozenset(line.split("\t")[:2]) for line in frames})
        self.assertGreater(len(tshark("-Y", "udp.port == 4791")), 50)
        raw = json.loads("\n".join(tshark("-Y", "eth.type == 0x8915", "-T", "jsonraw")))
        self.assertEqual(len(frames), len(raw))
        for each in raw:
            frame = bytes.fromhex(each["_source"]["layers"]["frame_raw"][0])
            self.assertEqual(icrc_v1(frame[14:-4]), frame[-4:])

    def test_a_cable_that_is_pulled_and_put_back(self):
        """An open connection survives, as its neighbour keeps its MAC address."""
        server = self.start_server(["ibv_rc_pingpong", "-g", "0", "-n", "20000"], 18515, net=self.first, options=V1)
        client = self.start(*self.over_tulle(["ibv_rc_pingpong", "-g", "0", "-n", "20000", "10.0.0.1"], V1),
                            net=self.second)
        wait_until(lambda: "remote address" in client.stdout or not client.running, "the connection")
        self.first.run("ip", "link", "set", "veth0", "down")
        self.first.run("ip", "link", "set", "veth0", "up")
        self.finish(server, client, limit=60)


class OneHost(ClientTest):
    def test_a_forked_child_keeps_no_sockets(self):
        """A child that lives on would have the kernel keep frames for it."""
        program = ("import os, sys, time; import pyverbs.device as d; c = d.Context(name='tulle0')\n"
                   "if os.fork():\n    os._exit(0)\n"
                   "print('child', flush=True); time.sleep(30)\n")
        parent = self.start(*self.over_tulle(["/usr/bin/python3", "-c", program], V1))
        wait_until(lambda: "child" in parent.stdout or not parent.running, "the child")
        if "pyverbs" in parent.stderr:
            self.skipTest("not installed: python3-pyverbs")
        # The protocol is 8915 in /proc/net/packet. That of the sending socket is 0.
        wait_until(lambda: " 8915 " not in self.run_program("cat", "/proc/net/packet").stdout, "the sockets to go")

    def test_by_memory_and_by_frames(self):
        for options in (V1, (*V1, "--no-direct")):
            for program in ("rc", "uc", "ud"):
                with self.subTest(options=options, program=program):
                    self.pair([f"ibv_{program}_pingpong", "-g", "0", "-n", "200", "-s", "1024"], options=options)

    def test_types(self):
        """As Linux names and orders them: RoCE v1 first."""
        listed = self.run_program(*self.over_tulle(["ibv_devinfo", "-v"], BOTH)).stdout
        self.assertEqual(["RoCE v1", "RoCE v2"], re.findall(r"GID\[\s*\d+\]:.*, (\S+ \S+)", listed)[:2])
        folder = "/sys/class/infiniband/tulle0/ports/1/gid_attrs/types"
        for options, types in ((V1, ["IB/RoCE v1"]), (BOTH, ["IB/RoCE v1", "RoCE v2"]), ((), ["RoCE v2"])):
            for index, name in enumerate(types):
                shown = self.run_program(*self.over_tulle(["cat", f"{folder}/{index}"], options)).stdout
                self.assertEqual(name, shown.strip(), options)

    def test_ucx(self):
        """UCX takes RoCE v2's index by itself, where there are both."""
        env = {"UCX_TLS": "rc", "UCX_NET_DEVICES": "tulle0:1"}
        for options in (V1, BOTH):
            with self.subTest(options=options):
                argv = ["ucx_perftest", *frame.form(ucx.EXCHANGE, ucx.PACKAGES[0]), "-t", "tag_lat", "-n", "100"]
                self.pair(argv, options=options, env=env)

    def test_without_the_right_to_send_frames(self):
        prefix = as_ordinary_user()
        skip_out_of_reach(self, prefix)
        refused = self.run_program(*prefix, *self.over_tulle(["ibv_devinfo"], V1), expect=None)
        self.assertNotEqual(0, refused.wait())
        self.assertIn("RoCE v1 needs CAP_NET_RAW", refused.stdout + refused.stderr)

    def test_what_excludes_it(self):
        for options, said in ((("--faults", "drop=0.1"), "--faults goes with --roce v2 alone"),):
            refused = self.run_program(*self.over_tulle(["ibv_devinfo"], (*V1, *options)), expect=None)
            self.assertIn(said, refused.stdout + refused.stderr)
        keys = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "keys")
        keys.write_text("00" * 32 + "\n")
        keys.chmod(0o600)
        net = self.namespace()
        refused = self.run_program(*self.over_tulle(["ibv_devinfo"], (*V1, "--secure", str(keys))), net=net, expect=None)
        self.assertIn("--secure goes with --roce v2 alone", refused.stdout + refused.stderr)
