"""Tests `tulle run --strict` (docs/strict.md): each row with a program that breaks its rule, and one that keeps it."""

from harness import BUILD, ClientTest, table_rows

STRICT = BUILD / "bin" / "strict"
WAYS = ((), ("--no-direct",))


class Rows(ClientTest):
    def result(self, program, *options):
        process = self.run_program(*self.over_tulle([STRICT, program], options), expect=None, limit=60)
        self.assertIn(process.wait(), (0, 1), process.describe())
        return process

    def check(self, breaks, keeps, reason):
        for way in WAYS:
            with self.subTest(way=way):
                self.assertEqual(0, self.result(breaks, *way).wait())
                refused = self.result(breaks, "--strict", "--explain", *way)
                self.assertEqual(1, refused.wait(), refused.describe())
                self.assertIn(reason, refused.stderr)
                kept = self.result(keeps, "--strict", *way)
                self.assertEqual(0, kept.wait(), kept.describe())

    def test_entries_of_a_send_queue(self):
        self.check("never-signals", "signals-some",
                   "the send queue is full until a completion of one of its requests is polled")

    def test_locked_memory(self):
        self.check("locked-memory", "locked-in-turn", "the process would lock more memory than RLIMIT_MEMLOCK")


class Programs(ClientTest):
    """Debian's programs keep the rules."""

    def test_perftest(self):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_write_lat", "ib_send_lat"):
            with self.subTest(program=program):
                _, client = self.pair([program, "-F", "-n", "1000"], options=("--strict",))
                self.assertTrue(table_rows(client.stdout), client.describe())

    def test_pingpong(self):
        for kind in ("rc", "uc", "ud", "srq"):
            with self.subTest(kind=kind):
                self.pair([f"ibv_{kind}_pingpong", "-g", "0", "-n", "1000", "-s", "1024"], options=("--strict",))
