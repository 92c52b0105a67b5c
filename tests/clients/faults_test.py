"""Tests networks that lose, double, swap and damage packets: `tulle run --faults`, and nftables between namespaces."""

from harness import INTEGRITY, ClientTest, table_rows, wait_until

PORT = 18600
SELECTIVE = ["--recovery", "selective-repeat"]
ALL_FAULTS = "drop=0.01,duplicate=0.01,reorder=0.01,corrupt=0.01"


class Injected(ClientTest):
    def faulty(self, seed, faults=ALL_FAULTS):
        return ["--faults", f"{faults},seed={seed}"]

    def test_integrity(self):
        for seed in (1, 2):
            with self.subTest(seed=seed):
                server, client = self.pair([INTEGRITY, "-l", "-s", str(seed)], port=PORT, options=self.faulty(seed),
                                           limit=240)
                self.assertRegex(client.stdout, r"(?m)^ok: ", f"{server.describe()}\n{client.describe()}")

    def test_integrity_smallest_mtu(self):
        for mode in ("mix", "streams"):
            self.pair([INTEGRITY, "-l", "-m", "256", "-M", mode], port=PORT, options=self.faulty(3), limit=240)

    def test_selective_repeat(self):
        for mode in ("mix", "streams"):
            self.pair([INTEGRITY, "-l", "-M", mode], port=PORT, options=[*SELECTIVE, *self.faulty(9)], limit=240)
        self.pair([INTEGRITY, "-M", "mix", "-n", "4"], port=PORT,
                  options=[*SELECTIVE, *self.faulty(10, "drop=0.1,reorder=0.1")], limit=240)

    def test_ends_that_recover_in_different_ways(self):
        """A connection whose ends are not set alike is slow, and right."""
        for own, others in ([], SELECTIVE), (SELECTIVE, []):
            with self.subTest(client=own):
                self.pair([INTEGRITY, "-M", "mix", "-n", "4"], port=PORT, options=[*own, *self.faulty(11)],
                          server_options=[*others, *self.faulty(11)], limit=240)

    def test_heavy_loss(self):
        """One in ten packets is lost: the programs are slow, and right."""
        self.pair([INTEGRITY, "-M", "mix", "-n", "4"], port=PORT, options=self.faulty(4, "drop=0.1"), limit=240)

    def test_pingpong_checks_its_data(self):
        server, client = self.pair(["ibv_rc_pingpong", "-g", "0", "-c", "-n", "500", "-s", "5000"],
                                   options=self.faulty(5), limit=120, expect=None)
        done = [process for process in (server, client) if "500 iters" in process.stdout]
        self.assertTrue(done, f"{server.describe()}\n{client.describe()}")
        for process in (server, client):
            self.assertNotIn("invalid data", process.stdout + process.stderr)
            # A program that is done leaves. If the acknowledgement of the last message was lost, its peer waits for it
            # in vain.
            if process not in done:
                self.assertIn("transport retry counter exceeded", process.stderr)

    def test_perftest(self):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            with self.subTest(program=program):
                _, client = self.pair([program, "-F", "-n", "200", "-s", "65536"], options=self.faulty(6), limit=120)
                self.assertTrue(table_rows(client.stdout))
        self.pair(["ib_atomic_bw", "-F", "-n", "200"], options=self.faulty(7), limit=120)

    def test_counted(self):
        """Injected faults show in the counters."""
        server = self.start_server([INTEGRITY, "-M", "until-error", "-p", str(PORT)], PORT,
                                   options=self.faulty(8, "drop=0.02,corrupt=0.02"))
        client = self.start(*self.over_tulle([INTEGRITY, "-M", "until-error", "-p", str(PORT), "127.0.0.1"],
                                             self.faulty(8, "drop=0.02,corrupt=0.02")))
        wait_until(lambda: "1000 operations" in client.stdout, "a thousand operations")
        counters = {p["pid"]: p["counters"] for p in self.status()["processes"]}
        self.assertGreater(counters[client.pid]["faults_dropped"], 0)
        self.assertGreater(counters[client.pid]["faults_corrupted"], 0)
        # What is damaged has lost its seal, too.
        self.assertGreater(counters[server.pid]["received_bad_icrc"] + counters[server.pid]["unsealed_drops"], 0)
        self.assertGreater(counters[client.pid]["retransmitted_packets"], 0)

    def test_bad_setting(self):
        for setting in ("drop=2", "drop=x", "lose=0.1", "drop"):
            with self.subTest(setting=setting):
                process = self.run_program(*self.over_tulle(["true"], ["--faults", setting]), expect=None, limit=20)
                self.assertNotEqual(0, process.wait())
                self.assertEqual(1, len(process.stderr.splitlines()), process.describe())


class Nftables(ClientTest):
    """The kernel drops one RoCE packet in a hundred, in each direction. Tulle does not know of it."""

    def setUp(self):
        super().setUp()
        self.first, self.second = self.joined_namespaces()
        for net in (self.first, self.second):
            net.run("nft", "add table inet loss; add chain inet loss in { type filter hook input priority 0; };"
                           "add rule inet loss in udp dport 4791 numgen random mod 100 == 0 counter drop")

    def tearDown(self):
        dropped = self.first.run("nft", "list", "table", "inet", "loss")
        self.assertNotIn("packets 0 ", dropped, "nothing was dropped")
        super().tearDown()

    def test_selective_repeat_sends_less_again(self):
        again = {}
        for kind in "go-back-n", "selective-repeat":
            options = ["--recovery", kind]
            server = self.start_server([INTEGRITY, "-M", "until-error", "-p", str(PORT)], PORT, net=self.first,
                                       options=options)
            client = self.start(*self.over_tulle([INTEGRITY, "-M", "until-error", "-p", str(PORT), "10.0.0.1"], options),
                                net=self.second)
            wait_until(lambda: "1000 operations" in client.stdout, "a thousand operations", 240)
            counters = next(p["counters"] for p in self.status(net=self.second)["processes"] if p["pid"] == client.pid)
            again[kind] = counters["retransmitted_packets"] / counters["packets_sent"]
            for process in (server, client):
                process.close()
        self.assertGreater(again["selective-repeat"], 0)
        self.assertLess(again["selective-repeat"], again["go-back-n"])

    def test_integrity(self):
        self.pair([INTEGRITY, "-l"], port=PORT, net=self.second, server_net=self.first, host="10.0.0.1", limit=240)

    def test_perftest(self):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            with self.subTest(program=program):
                _, client = self.pair([program, "-F", "-n", "500", "-s", "16384"], net=self.second,
                                      server_net=self.first, host="10.0.0.1", limit=120)
                self.assertTrue(table_rows(client.stdout))
