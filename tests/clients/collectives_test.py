"""Tests collectives among live ranks: their results, ranks that die or stop, hosts that meet, and bad input."""

import json
import os
import pathlib
import random
import signal
import socket
import struct
import time
import tomllib

from harness import TULLE, ClientTest, wait_until

FAST = ("--iterations", "3", "--warm-up", "1")
# A rank that is stopped is noticed after this long.
SILENCE_SECONDS = 2


# The algorithms that use the options --per-server, --channels and --chunk.
CHUNKS = ("tree",)
CHANNELS = ("ring", "tree")
SERVERS = ("ring", "tree", "hierarchical")


def children(pid):
    """Returns the processes that a process has started."""
    try:
        return [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


class Collectives(ClientTest):
    def bench(self, *arguments, **options):
        return self.run_program(TULLE, "bench", *arguments, **options)

    def assert_right(self, *arguments):
        result = json.loads(self.bench(*arguments, *FAST, "--json").stdout)
        self.assertEqual(0, result["wrong"])
        self.assertGreater(result["time_us"], 0)
        self.assertGreater(result["algbw_gb_per_s"], 0)
        return result

    def assert_line(self, process, pattern, status=1):
        """The program failed, and says why in one line."""
        self.assertEqual(status, process.wait(), process.describe())
        self.assertRegex(process.stderr, rf"\Atulle: {pattern}\n\Z")


class Results(Collectives):
    def test_every_collective(self):
        for name in ("allreduce", "reducescatter", "allgather", "broadcast", "alltoall"):
            for ranks in ("2", "3", "5"):
                with self.subTest(name=name, ranks=ranks):
                    self.assert_right(f"{name}:300KB", "--ranks", ranks)

    def test_every_algorithm(self):
        for algorithm in ("ring", "tree", "hierarchical", "halving-doubling", "direct"):
            for per_server in ("1", "2", "4"):
                with self.subTest(algorithm=algorithm, per_server=per_server):
                    more = [*(["--per-server", per_server] if algorithm in SERVERS else []),
                            *(["--channels", "2"] if algorithm in CHANNELS else []),
                            *(["--chunk", "100KB"] if algorithm in CHUNKS else [])]
                    result = self.assert_right("allreduce:1MiB", "--algorithm", algorithm, *more)
                    self.assertEqual(algorithm, result["algorithm"])

    def test_one_value_for_each_rank(self):
        result = self.assert_right("allreduce:4B", "--ranks", "7")
        self.assertEqual(2 * 7 * 4, result["bytes"])

    def test_many_ranks(self):
        self.assert_right("allreduce:64KiB", "--ranks", "24", "--algorithm", "ring")

    def test_messages_of_many_chunks(self):
        self.assert_right("allreduce:32MiB", "--ranks", "2")

    def test_by_packets(self):
        process = self.run_program(*self.over_tulle([TULLE, "bench", "allreduce:1MiB", *FAST], ("--no-direct",)))
        self.assertRegex(process.stdout, r" 0\n\Z")

    def test_with_shared_memory(self):
        process = self.run_program(*self.over_tulle([TULLE, "bench", "allreduce:1MiB", *FAST], ("--share-memory",)))
        self.assertRegex(process.stdout, r" 0\n\Z")

    def test_the_table_is_nccl_tests(self):
        lines = self.bench("allgather:1MiB", *FAST).stdout.splitlines()
        self.assertEqual("# size count type time algbw busbw #wrong".split(), [lines[1][0], *lines[1][1:].split()])
        row = lines[3].split()
        self.assertEqual(["1048576", "262144", "float", "0"], [*row[:3], row[6]])
        self.assertAlmostEqual(float(row[5]), float(row[4]) * 3 / 4, delta=0.02)


class Ends(Collectives):
    """However a run ends, it says why in one line and leaves no process."""

    def begin(self, *arguments):
        """Starts a run that would last, and returns it with the processes of its ranks when they work."""
        process = self.start(TULLE, "bench", "allreduce:4MiB", "--iterations", "1000000", *arguments)
        wait_until(lambda: len(children(process.pid)) == 4, "four ranks")
        ranks = children(process.pid)
        # A rank that works has an RDMA device: the host agent counts its packets.
        wait_until(lambda: len(self.status()["processes"]) >= 4, "four devices")
        time.sleep(random.random() / 2)
        return process, ranks

    def assert_gone(self, ranks):
        for pid in ranks:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), pid)

    def test_a_killed_rank(self):
        process, ranks = self.begin()
        os.kill(ranks[2], signal.SIGKILL)
        self.assert_line(process, rf"rank 2 \(process {ranks[2]}\) was killed by signal 9 \(Killed\)")
        self.assert_gone(ranks)

    def test_a_stopped_rank(self):
        process, ranks = self.begin("--timeout", str(SILENCE_SECONDS))
        os.kill(ranks[1], signal.SIGSTOP)
        began = time.monotonic()
        self.assert_line(process, rf"rank 1 \(process {ranks[1]}\) is stopped and was silent for {SILENCE_SECONDS} s")
        self.assertGreater(time.monotonic() - began, SILENCE_SECONDS / 2)
        self.assert_gone(ranks)

    def test_a_rank_that_stops_for_a_moment(self):
        process = self.start(TULLE, "bench", "allreduce:4MiB", "--iterations", "30")
        wait_until(lambda: len(children(process.pid)) == 4, "four ranks")
        rank = children(process.pid)[3]
        os.kill(rank, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(rank, signal.SIGCONT)
        self.assertEqual(0, process.wait(), process.describe())

    def test_interrupts(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                process, ranks = self.begin()
                process.signal(number)  # to the group, as a terminal does
                self.assert_line(process, "interrupted", status=128 + number)
                self.assert_gone(ranks)

    def test_a_killed_parent(self):
        process, ranks = self.begin()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ranks), "the ranks' end")


class Hosts(Collectives):
    """Ranks in different network namespaces, which meet at an address."""

    def setUp(self):
        super().setUp()
        self.hosts = self.joined_namespaces()

    def rank(self, number, *arguments, ranks=4, meet="10.0.0.1:7000", collective="allreduce:1MiB", env=None):
        return self.start(TULLE, "bench", collective, "--ranks", str(ranks), "--rank", str(number), "--meet", meet,
                          *arguments, net=self.hosts[number % 2], env=env)

    def test_results(self):
        for collective, meet in (("allreduce:1MiB", "10.0.0.1:7000"), ("alltoall:400KB", "[fd00::1]:7001")):
            with self.subTest(collective=collective):
                ranks = [self.rank(n, *FAST, collective=collective, meet=meet) for n in (3, 1, 0, 2)]
                for process in ranks:
                    self.assertEqual(0, process.wait(), process.describe())
                self.assertRegex(ranks[2].stdout, r" 0\n\Z")
                self.assertEqual("", ranks[0].stdout + ranks[1].stdout + ranks[3].stdout)

    def test_a_killed_rank(self):
        ranks = [self.rank(n, "--iterations", "1000000") for n in range(4)]
        wait_until(lambda: len(self.status(net=self.hosts[1])["processes"]) == 2, "two devices")
        time.sleep(0.3)
        ranks[3].signal(signal.SIGKILL)
        for n in (0, 1, 2):
            self.assert_line(ranks[n], r"(rank 0: )?(rank 3 has ended|.*connection to rank 3 broke.*)")

    def test_a_rank_that_does_not_come(self):
        ranks = [self.rank(n, "--timeout", "1", ranks=3) for n in range(2)]
        for process in ranks:
            self.assert_line(process, r"rank 2 did not come to 10\.0\.0\.1:7000 within 1 s")

    def test_nobody_listens(self):
        self.assert_line(self.rank(1, "--timeout", "1"), r"nobody listens at 10\.0\.0\.1:7000: Connection refused")

    def test_other_arguments(self):
        leader = self.rank(0, "--timeout", "3", ranks=2)
        self.assert_line(self.rank(1, "--channels", "2", ranks=2), "rank 0 was started with other arguments")
        self.assert_line(leader, "rank 1 did not come .*")

    def test_another_token(self):
        leader = self.rank(0, *FAST, ranks=2, env={"TULLE_BENCH_TOKEN": "right"})
        self.assert_line(self.rank(1, *FAST, ranks=2, env={"TULLE_BENCH_TOKEN": "wrong"}), "rank 0 has another token")
        self.assert_line(self.rank(1, *FAST, ranks=2), "rank 0 has another token")
        friend = self.rank(1, *FAST, ranks=2, env={"TULLE_BENCH_TOKEN": "right"})
        self.assertEqual([0, 0], [friend.wait(), leader.wait()], leader.describe())

    def test_strangers(self):
        """Whoever connects and says nothing or nonsense holds up nobody."""
        leader = self.rank(0, *FAST, ranks=2)
        stranger = self.start("/usr/bin/python3", "-c", STRANGER, net=self.hosts[1])
        wait_until(lambda: "said" in stranger.stdout, "strangers")
        friend = self.rank(1, *FAST, ranks=2)
        self.assertEqual([0, 0], [friend.wait(), leader.wait()], leader.describe() + friend.describe())


STRANGER = """
import os, socket, struct, time
held = []
for i in range(100):
    while True:
        try:
            each = socket.create_connection(("10.0.0.1", 7000), timeout=5)
            break
        except OSError:
            time.sleep(0.05)
    try:
        if i % 4 == 1: each.sendall(os.urandom(4096))
        if i % 4 == 2: each.sendall(struct.pack("II", 0xFFFFFFFF, 1))
        if i % 4 == 3: each.sendall(struct.pack("II", 96, 1) + os.urandom(96))
    except OSError:
        pass
    held.append(each)
print("said", flush=True)
time.sleep(60)
"""


class BadInput(Collectives):
    def refused(self, *arguments):
        process = self.start(TULLE, "bench", *arguments)
        self.assertIn(process.wait(20), (1, 2), process.describe())
        self.assertRegex(process.stderr, r"\Atulle: .*\n\Z")
        self.assertEqual("", process.stdout)
        return process.stderr.removeprefix("tulle: ").rstrip("\n")

    def test_ranks(self):
        for ranks in ("0", "1", "65", "10000"):
            self.assertEqual("--ranks: must be 2 to 64", self.refused("allreduce:1MiB", "--ranks", ranks))
        self.assertEqual("--per-server: 4 ranks do not fill servers of 3",
                         self.refused("allreduce:1MiB", "--per-server", "3"))
        self.assertEqual("--rank: must be below 4", self.refused("allreduce", "--rank", "4", "--meet", "localhost:1"))
        self.assertIn("--rank requires --meet", self.refused("allreduce", "--rank", "1"))
        self.assertIn("is no HOST:PORT", self.refused("allreduce", "--rank", "1", "--meet", "localhost"))

    def test_bytes(self):
        for size in ("0B", "-1B", "", "much", "5TiB", "99999999999999999999999GB"):
            self.assertIn("is no amount of 1 B to 4.29 GB", self.refused(f"allreduce:{size}"))

    def test_chunks(self):
        self.assertEqual("--chunk: must be a multiple of 4 B", self.refused("allreduce:1MiB", "--chunk", "10B"))

    def test_names(self):
        self.assertEqual('no collective "allshare"; the collectives are allreduce, reducescatter, allgather, broadcast, '
                         "alltoall", self.refused("allshare:1MiB"))
        self.assertIn('--algorithm: no algorithm "star"', self.refused("allreduce:1MiB", "--algorithm", "star"))
        self.assertEqual("all-to-all is not done by tree", self.refused("alltoall:1MiB", "--algorithm", "tree"))
        self.assertIn("needs a power of two", self.refused("allreduce:1MiB", "-n", "3", "--algorithm", "halving-doubling"))

    def test_no_device(self):
        line = self.run_program(TULLE, "bench", "allreduce:1MiB", env={"TULLE_INTERFACE": "none0"}, expect=1)
        self.assertRegex(line.stderr, r"rank \d: there is no RDMA device")


class Calibration(Collectives):
    def test_the_profile_foretells(self):
        """The profile is one that tulle compare takes. What it foretells is in docs/performance.md."""
        path = pathlib.Path(f"/tmp/tulle-calibrate-{os.getpid()}.toml")
        self.addCleanup(path.unlink, missing_ok=True)
        self.run_program(TULLE, "calibrate", "-o", path, "--ranks", "3", limit=360)
        profile = tomllib.loads(path.read_text())
        self.assertEqual([3, 1, len(os.sched_getaffinity(0))],
                         [profile[key] for key in ("gpus", "adapters", "cores")])
        told = self.run_program(TULLE, "compare", "--workload", "allreduce:8MiB", "--gpus", "3", "--servers", path,
                                "--fabrics", "roce-pfc", "--json")
        self.assertRegex(told.stdout, r'"job_us": *[1-9]')

    def test_a_file_that_cannot_be_written(self):
        process = self.start(TULLE, "calibrate", "-o", "/nowhere/profile.toml")
        self.assert_line(process, "cannot write /nowhere/profile.toml")
