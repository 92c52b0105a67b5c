"""Runs programs over extended reliable connections (XRC): rdma-core's own example, and perftest's."""

from harness import ClientTest, table_rows


class Xrc(ClientTest):
    def test_pingpong(self):
        for options in ((), ("-e",), ("-m", "256", "-s", "10000")):
            with self.subTest(options=options):
                server, client = self.pair(["ibv_xsrq_pingpong", "-g", "0", "-n", "100", *options])
                for process in (server, client):
                    self.assertIn("success", process.stdout, process.describe())

    def test_perftest(self):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_send_lat", "ib_write_lat"):
            with self.subTest(program=program):
                argv = [program, "-F", "-c", "XRC", "-x", "0", "-n", "200"]
                _, client = self.pair(argv)
                self.assertEqual(1, len(table_rows(client.stdout)), client.describe())

    def test_perftest_with_several_queue_pairs(self):
        for program in ("ib_write_bw", "ib_send_bw"):
            with self.subTest(program=program):
                argv = [program, "-F", "-c", "XRC", "-x", "0", "-n", "100", "-q", "4", "-b"]
                _, client = self.pair(argv)
                self.assertEqual(1, len(table_rows(client.stdout)), client.describe())

    def test_a_lossy_network(self):
        argv = ["ib_write_bw", "-F", "-c", "XRC", "-x", "0", "-n", "200", "-s", "8192"]
        _, client = self.pair(argv, options=("--faults", "drop=0.02"))
        self.assertEqual(1, len(table_rows(client.stdout)), client.describe())
