"""Programs whose registered memory their peers map (tulle run --share-memory)."""

import re

from harness import BUILD, INTEGRITY, ClientTest, wait_until

PORT = 18650
# These tests choose the way themselves, also where all others are forced to one.
OWN_WAY = {"TULLE_SHARE_MEMORY": "off", "TULLE_DIRECT": "on"}
PROGRAM = BUILD / "bin" / "shared_memory"
TYPICAL = re.compile(r"^\s*8\s+\d+\s+\S+\s+\S+\s+(\S+)", re.MULTILINE)


class SharedMemory(ClientTest):
    def test_a_program_notices_nothing(self):
        """It gives up pages, forks, and writes from a thread while it registers."""
        shared = self.run_program(*self.over_tulle([PROGRAM], ["--share-memory"]), env=OWN_WAY)
        self.assertRegex(shared.stdout, r"^ok: shared, (shared|private) beside a thread$", shared.describe())
        private = self.run_program(*self.over_tulle([PROGRAM]), env=OWN_WAY)
        self.assertEqual(private.stdout, "ok: private, private beside a thread\n", private.describe())

    def test_the_status_tells_what_is_shared(self):
        argv = [INTEGRITY, "-M", "idle", "-p", str(PORT)]
        for options in ["--share-memory"], []:
            with self.subTest(options=options):
                server = self.start_server(argv, PORT, options=options, env=OWN_WAY)
                client = self.start(*self.over_tulle([*argv, "127.0.0.1"], options), env=OWN_WAY)
                wait_until(lambda: "idle" in client.stdout, "the connection")
                counters = [process["counters"] for process in self.status()["processes"]]
                self.assertEqual(2, len(counters), client.describe())
                for each in counters:
                    self.assertEqual(bool(options), each["shared_files"] > 0, each)
                    self.assertEqual(bool(options), each["shared_bytes"] >= 4096, each)
                for process in client, server:
                    process.close()

    def test_every_byte_arrives(self):
        for options in ([], ["-e"], ["-M", "mix", "-n", 40, "-s", 21]):
            with self.subTest(options=options):
                argv = [INTEGRITY, *map(str, options)]
                for process in self.pair(argv, port=PORT, limit=180, options=["--share-memory"],
                                         env=OWN_WAY):
                    self.assertRegex(process.stdout, r"(?m)^ok: \d+ operations", process.describe())

    def test_small_writes_take_no_system_call(self):
        """A system call alone takes longer than a whole WRITE does here."""
        typical = {}
        for options in (["--share-memory"], []):
            argv = ["ib_write_lat", "-s", "8", "-n", "20000"]
            _, client = self.pair(argv, port=PORT, limit=60, options=options, env=OWN_WAY)
            found = TYPICAL.search(client.stdout)
            self.assertIsNotNone(found, client.describe())
            typical[bool(options)] = float(found.group(1))
        self.assertLess(typical[True], 0.7 * typical[False], typical)
