"""Runs perftest's programs on one host: every operation, transport, size, MTU and way of completion that they offer."""

from harness import POWERS_TO_8_MIB, ClientTest, table_rows, with_the_clock

MTUS = (256, 512, 1024, 2048, 4096)


class Perftest(ClientTest):
    def perftest(self, program, *options, sizes=None, iterations=100, **keywords):
        """Runs a pair. The client must print a table with these sizes, and a rate or a latency in each row."""
        argv = [program, "-F", "-n", str(iterations), *map(str, options)]
        server, client = with_the_clock(lambda: self.pair(argv, **keywords))
        rows = table_rows(client.stdout)
        self.assertTrue(rows, f"no table\n{server.describe()}\n{client.describe()}")
        if sizes is not None:
            self.assertEqual(list(sizes), [int(row[0]) for row in rows], client.describe())
        for row in rows:
            # The columns are, for bandwidth: size, iterations, peak, average, rate; for latency: size, iterations, min,
            # max, typical, average … A few iterations of a few bytes may round to 0.00 MiB/s on a busy machine.
            self.assertGreater(row[3] + (row[0] < 1024), 0, client.describe())
        return server, client


class Bandwidth(Perftest):
    def each(self, *options, programs=("ib_write_bw", "ib_read_bw", "ib_send_bw"), **keywords):
        for program in programs:
            with self.subTest(program=program, options=options):
                self.perftest(program, *options, **keywords)

    def test_plain(self):
        self.each("-s", 65536, sizes=[65536])

    def test_all_sizes(self):
        self.each("-a", iterations=10, sizes=POWERS_TO_8_MIB, limit=120)

    def test_both_ways(self):
        self.each("-b", "-s", 16384, sizes=[16384])

    def test_eight_queue_pairs(self):
        self.each("-q", 8, "-s", 16384)

    def test_events(self):
        self.each("-e", "-s", 4096, programs=("ib_read_bw", "ib_send_bw"))  # with WRITE there is nothing to wait for

    def test_events_both_ways(self):
        self.each("-e", "-b", "-s", 4096, programs=("ib_read_bw", "ib_send_bw"))

    def test_inline(self):
        self.each("-I", 64, "-s", 64, programs=("ib_write_bw", "ib_send_bw"))

    def test_post_list(self):
        self.each("-l", 8, "-s", 1024, iterations=128)

    def test_old_post_send(self):
        self.each("--use_old_post_send", "-s", 4096)

    def test_every_mtu(self):
        for mtu in MTUS:
            self.each("-m", mtu, "-s", 10000)

    def test_unreliable_connection(self):
        for options in ([], ["-b"], ["-q", 8], ["-m", 256]):
            self.each("-c", "UC", "-s", 2048, *options, programs=("ib_write_bw", "ib_send_bw"))
        self.each("-c", "UC", "-s", 2048, "-e", programs=("ib_send_bw",))

    def test_unreliable_connection_all_sizes(self):
        self.perftest("ib_write_bw", "-c", "UC", "-a", iterations=10, sizes=POWERS_TO_8_MIB, limit=120)

    def test_unreliable_datagram(self):
        for options in ([], ["-b"], ["-q", 8], ["-e"]):
            self.each("-c", "UD", "-s", 1024, *options, programs=("ib_send_bw",))

    def test_nothing_is_lost_without_a_window(self):
        """UC and UD would wait indefinitely for a message that a full socket buffer lost."""
        self.each("-c", "UC", "-s", 65536, "-b", "-e", iterations=3000, programs=("ib_send_bw",))
        self.each("-c", "UC", "-s", 2048, iterations=20000, programs=("ib_send_bw",))
        self.each("-c", "UD", "-s", 4096, iterations=20000, programs=("ib_send_bw",))
        self.each("-c", "UD", "-s", 64, "-q", 8, iterations=3000, programs=("ib_send_bw",))

    def test_shared_receive_queue(self):
        self.each("--use-srq", "-q", 4, "-s", 4096, programs=("ib_send_bw",))

    def test_duration(self):
        _, client = self.pair(["ib_write_bw", "-F", "-D", "2", "-s", "65536"])
        rows = table_rows(client.stdout)
        self.assertEqual(1, len(rows), client.describe())
        self.assertGreater(rows[0][3], 0)


class Atomics(Perftest):
    def test_bandwidth(self):
        for kind in ("CMP_AND_SWAP", "FETCH_AND_ADD"):
            for options in ([], ["-b"], ["-q", 8], ["-e"]):
                with self.subTest(kind=kind, options=options):
                    self.perftest("ib_atomic_bw", "-A", kind, *options, sizes=[8])

    def test_latency(self):
        for kind in ("CMP_AND_SWAP", "FETCH_AND_ADD"):
            for options in ([], ["-e"]):
                with self.subTest(kind=kind, options=options):
                    self.perftest("ib_atomic_lat", "-A", kind, *options, sizes=[8])


class Latency(Perftest):
    def each(self, *options, programs=("ib_write_lat", "ib_read_lat", "ib_send_lat"), **keywords):
        for program in programs:
            with self.subTest(program=program, options=options):
                self.perftest(program, *options, **keywords)

    def test_plain(self):
        self.each("-s", 8, sizes=[8])

    def test_all_sizes(self):
        """Measuring the clock's rate, once for each size, takes these programs ten seconds. Bandwidth has all sizes of WRITE
        and READ."""
        self.each("-a", iterations=10, sizes=POWERS_TO_8_MIB, limit=120, programs=("ib_send_lat",))
        for size in POWERS_TO_8_MIB[0], 4096, POWERS_TO_8_MIB[-1]:
            self.each("-s", size, iterations=10, sizes=[size], programs=("ib_write_lat", "ib_read_lat"))

    def test_events(self):
        self.each("-e", "-s", 8, programs=("ib_read_lat", "ib_send_lat"))

    def test_inline(self):
        self.each("-I", 64, "-s", 64, programs=("ib_write_lat", "ib_send_lat"))

    def test_every_mtu(self):
        for mtu in MTUS:
            self.each("-m", mtu, "-s", 10000)

    def test_unreliable_connection(self):
        self.each("-c", "UC", "-s", 2048, programs=("ib_write_lat", "ib_send_lat"))
        self.each("-c", "UC", "-s", 64, "-e", programs=("ib_send_lat",))

    def test_unreliable_datagram(self):
        self.each("-c", "UD", "-s", 1024, programs=("ib_send_lat",))
        self.each("-c", "UD", "-s", 64, "-e", programs=("ib_send_lat",))
