"""Tests two hosts, each a network namespace with a host agent of its own, joined by a cable; and many processes on
one address."""

from harness import ClientTest, table_rows, wait_until


class TwoHosts(ClientTest):
    def setUp(self):
        super().setUp()
        self.first, self.second = self.joined_namespaces()

    def between(self, *argv, host="10.0.0.1", **keywords):
        return self.pair([str(a) for a in argv], net=self.second, server_net=self.first, host=host, **keywords)

    def test_agent_each(self):
        self.between("ibv_rc_pingpong", "-g", 0, "-n", 10)
        self.assertNotEqual(self.status(self.first)["agent"]["pid"], self.status(self.second)["agent"]["pid"])

    def test_pingpong_ipv4(self):
        for program in ("rc", "uc", "srq"):
            with self.subTest(program=program):
                server, _ = self.between(f"ibv_{program}_pingpong", "-g", 0, "-n", 200)
                self.assertIn("::ffff:10.0.0.2", server.stdout)
        self.between("ibv_ud_pingpong", "-g", 0, "-n", 200, "-s", 1024)

    def test_pingpong_ipv6(self):
        """The GIDs are IPv6. The programs' own exchange over TCP goes over IPv4, which is all they listen on."""
        for program in ("rc", "uc", "srq"):
            with self.subTest(program=program):
                server, _ = self.between(f"ibv_{program}_pingpong", "-g", 1, "-n", 200)
                self.assertIn("fd00::2", server.stdout)
        self.between("ibv_ud_pingpong", "-g", 1, "-n", 200, "-s", 1024)

    def test_perftest_ipv4(self):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat"):
            with self.subTest(program=program):
                _, client = self.between(program, "-F", "-n", 100, "-s", 4096)
                self.assertTrue(table_rows(client.stdout), client.describe())
        self.between("ib_atomic_bw", "-F", "-n", 100)

    def test_perftest_ipv6(self):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_lat"):
            with self.subTest(program=program):
                self.between(program, "-F", "-n", 100, "-s", 4096, "-x", 1, "--ipv6")

    def test_all_sizes(self):
        _, client = self.between("ib_write_bw", "-F", "-a", "-n", 10, limit=120)
        self.assertEqual(23, len(table_rows(client.stdout)), client.describe())

    def test_mtu(self):
        """1500 bytes of Ethernet carry a path MTU of 1024. The program asks the port, and refuses more."""
        _, client = self.between("ib_write_bw", "-F", "-n", 20)
        self.assertRegex(client.stdout, r"Mtu\s*:\s*1024\[B\]")

    def test_jumbo(self):
        self.first, self.second = self.joined_namespaces(mtu=9000)
        _, client = self.between("ib_write_bw", "-F", "-n", 100)
        self.assertRegex(client.stdout, r"Mtu\s*:\s*4096\[B\]")


class OneAddress(ClientTest):
    def test_eight_pairs_at_once(self):
        programs = [["ib_write_bw", "-F", "-n", "500", "-s", "16384"],
                    ["ib_read_bw", "-F", "-n", "500", "-s", "16384"],
                    ["ib_send_bw", "-F", "-n", "500", "-s", "16384", "-e"],
                    ["ib_atomic_bw", "-F", "-n", "200"],
                    ["ibv_rc_pingpong", "-g", "0", "-n", "200", "-c", "-e"],
                    ["ibv_ud_pingpong", "-g", "0", "-n", "100", "-s", "1024", "-e"],
                    ["ibv_srq_pingpong", "-g", "0", "-n", "100", "-e"],
                    ["ib_send_bw", "-F", "-n", "500", "-s", "16384", "-e", "-q", "4"]]
        argvs = [[*argv, "-p", str(19000 + i)] for i, argv in enumerate(programs)]
        servers = [self.start_server(argv, 19000 + i) for i, argv in enumerate(argvs)]
        wait_until(lambda: len(self.status()["processes"]) == 8, "eight processes with the agent")
        clients = [self.start(*self.over_tulle([*argv, "127.0.0.1"])) for argv in argvs]
        for server, client in zip(servers, clients):
            self.finish(server, client, limit=180)

    def test_more_processes_than_pairs(self):
        """Twelve pairs run one after the other while a server lives: places are taken and given back."""
        keeper = self.start_server(["ib_write_bw", "-F", "-p", "19100"], 19100)
        for _ in range(12):
            self.pair(["ibv_rc_pingpong", "-g", "0", "-n", "10"])
        self.assertTrue(keeper.running)
        processes = self.status()["processes"]
        self.assertEqual([keeper.pid], [process["pid"] for process in processes])
