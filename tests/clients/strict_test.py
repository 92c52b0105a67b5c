"""Tests `tulle run --strict` and `--like` (docs/strict.md): each rule with a program that breaks it, and one that keeps it."""

from harness import BUILD, ClientTest, table_rows

STRICT = BUILD / "bin" / "strict"
WAYS = ((), ("--no-direct",))


class Rows(ClientTest):
    def status(self, program, options):
        process = self.run_program(*self.over_tulle([STRICT, program], options), expect=None, limit=60)
        self.assertIn(process.wait(), (0, 1), process.describe())
        return process

    def check(self, breaks, keeps, option="--strict", reason="", ways=WAYS):
        """The first program gets through without the option alone, and the second with it too."""
        for way in ways:
            with self.subTest(way=way):
                through = self.status(breaks, way)
                self.assertEqual(0, through.wait(), through.describe())
                # On a busy machine, the threads of some programs seldom run at the same time, which then shows nothing.
                for _ in range(5):
                    caught = self.status(breaks, (option, "--explain", *way))
                    if caught.wait() == 1:
                        break
                self.assertEqual(1, caught.wait(), caught.describe())
                self.assertIn(reason, caught.stderr)
                kept = self.status(keeps, (option, *way))
                self.assertEqual(0, kept.wait(), kept.describe())

    def test_entries_of_a_send_queue(self):
        self.check("never-signals", "signals-some",
                   reason="the send queue is full: it has 16 requests, until a completion of one of them is polled")

    def test_entries_of_a_receive_queue(self):
        self.check("receives-unpolled", "receives-polled",
                   reason="the receive queue is full: it has 16 requests, until a completion of one of them is polled")

    def test_locked_memory(self):
        self.check("locked-memory", "locked-in-turn", reason="the process would lock more memory than RLIMIT_MEMLOCK")

    def test_locked_memory_of_a_child(self):
        self.check("locked-twice-in-child", "locked-in-parent-and-child",
                   reason="the process would lock more memory than RLIMIT_MEMLOCK")

    def test_region_of_a_request(self):
        self.check("deregisters-early", "deregisters-late")

    def test_queue_pair_of_a_request(self):
        self.check("destroys-early", "destroys-late")

    def test_data_of_a_request(self):
        self.check("changes-early", "changes-late")

    def test_data_of_a_read_that_is_sent_on(self):
        # Packets carry the old data also without the option: the answer to the READ comes later.
        self.check("sends-on", "sends-on-fenced", ways=((),))

    def test_data_of_a_message(self):
        self.check("looks-for-message", "polls-for-message")

    def test_data_of_a_read(self):
        self.check("looks-for-read", "polls-for-read")

    def test_order_of_a_write(self):
        # The direct path copies as the C library does, which promises no order either.
        self.check("looks-at-last-byte", "takes-immediate", ways=(("--no-direct",),))

    def test_atomic_operations(self):
        self.check("adds-with-processor", "adds-with-adapter")

    def test_fields_of_a_failed_completion(self):
        self.check("opcode-of-failed", "identifier-of-failed")

    def test_fields_of_a_completion(self):
        self.check("length-of-send", "length-of-read")

    def test_header_of_a_datagram(self):
        self.check("whole-header", "ipv4-header")


class Likeness(Rows):
    def test_entries(self):
        self.check("deep-queue", "deepest-queue", "--like=e810", "cap.max_send_wr is 32768, and 8127 is the most")

    def test_pieces(self):
        self.check("many-pieces", "most-pieces", "--like=e810", "cap.max_send_sge is 16, and 13 is the most")

    def test_inline_data(self):
        self.check("much-inline", "little-inline", "--like=e810", "cap.max_inline_data is 1024, and 101 is the most")

    def test_completion_queue(self):
        self.check("large-queue", "largest-queue", "--like=e810")

    def test_identifiers(self):
        for name, device, vendor, part in (("connectx-5", "mlx5_0", "0x02c9", "4119"), ("e810", "irdma0", "0x8086", "5522")):
            shown = self.run_program(*self.over_tulle(["ibv_devinfo"], ("--like", name)))
            self.assertRegex(shown.stdout, rf"hca_id:\s+{device}\n")
            self.assertRegex(shown.stdout, rf"vendor_id:\s+{vendor}\n")
            self.assertRegex(shown.stdout, rf"vendor_part_id:\s+{part}\n")

    def test_no_atomic_operations(self):
        refused = self.run_program(*self.over_tulle([STRICT, "adds-with-adapter"], ("--like", "e810", "--explain")), expect=2)
        self.assertIn("e810 has no atomic operations", refused.stderr)

    def test_unknown_adapter(self):
        refused = self.run_program(BUILD / "bin" / "tulle", "run", "--like", "e811", "--", "true", expect=2)
        self.assertIn("e811 not in {connectx-5,connectx-3,e810,fastlinq}", refused.stderr)

    def test_shared_memory_is_refused(self):
        refused = self.run_program(BUILD / "bin" / "tulle", "run", "--strict", "--share-memory", "--", "true", expect=2)
        self.assertIn("--strict excludes --share-memory", refused.stderr)


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
