"""Tests without privileges, RDMA kernel modules or device nodes: ordinary users, and containers with next to nothing
in /dev."""

import os
import pathlib
import shlex

import harness
from harness import INTEGRITY, TULLE, ClientTest

ORDINARY = 1  # daemon, who is on every Debian. In a user namespace, 65534 may be any user (src/os/users.h).


def maps_all_users():
    """Returns true outside user namespaces. Inside one, other users may not exist."""
    return pathlib.Path("/proc/self/uid_map").read_text().split()[2] == str(2**32 - 1)


def as_ordinary_user():
    """Returns what to put before a command, so that it runs without root and without capabilities."""
    if maps_all_users():
        command = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "--no-new-privs"]
        if harness.STRICTLY in os.environ:
            # Where there are adapters, users may lock memory.
            return command + [f"--{which}=-all,+ipc_lock" for which in ("inh-caps", "ambient-caps", "bounding-set")]
        return [*command, "--bounding-set=-all"]
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000", "setpriv", "--no-new-privs"]


def skip_out_of_reach(test, prefix):
    """Skips the test if the user that `prefix` stands for may not enter the clone's folder, as in root's home."""
    if test.start(*prefix, "test", "-x", TULLE).wait() != 0:
        test.skipTest(f"an ordinary user cannot reach {TULLE}")


class Basics:
    """Tests of what must work in each of these surroundings. `prefix` goes before each program."""

    prefix = ()

    def setUp(self):
        super().setUp()
        skip_out_of_reach(self, self.prefix)

    def test_without_privileges(self):
        process = self.run_program(*self.prefix, "sh", "-c", "id -u; grep CapEff /proc/self/status")
        user, capabilities = process.stdout.split("\n")[:2]
        self.assertNotEqual("0", user)
        self.assertEqual(0, int(capabilities.split()[1], 16))

    def test_devinfo(self):
        process = self.run_program(*self.prefix, *self.over_tulle(["ibv_devinfo"]))
        self.assertIn("PORT_ACTIVE", process.stdout)

    def test_pingpong(self):
        for program in ("rc", "uc", "srq"):
            self.pair([f"ibv_{program}_pingpong", "-g", "0", "-n", "100"], prefix=self.prefix)
        self.pair(["ibv_ud_pingpong", "-g", "0", "-n", "100", "-s", "1024"], prefix=self.prefix)

    def test_perftest(self):
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat"):
            self.pair([program, "-F", "-n", "100", "-s", "4096"], prefix=self.prefix)

    def test_integrity(self):
        self.pair([INTEGRITY], port=18600, prefix=self.prefix, limit=180)

    def test_faults(self):
        self.pair([INTEGRITY, "-l", "-n", "5"], port=18600, prefix=self.prefix, limit=180,
                  options=["--faults", "drop=0.01,duplicate=0.01,reorder=0.01,corrupt=0.01,seed=5"])


class OrdinaryUser(Basics, ClientTest):
    def setUp(self):
        self.prefix = as_ordinary_user()
        super().setUp()

    def test_a_program_with_few_descriptors_starts_no_agent(self):
        """The agent would serve nobody else."""
        few = self.run_program("prlimit", "--nofile=24:24", *self.prefix, *self.over_tulle(["ibv_devinfo"]), expect=None)
        self.assertIn("the limit of open files is 24 here, and an agent needs 64: raise it", few.stderr, few.describe())
        self.run_program(*self.prefix, *self.over_tulle(["ibv_devinfo"]))


class Container(Basics, ClientTest):
    """A container whose /dev has null alone, without a shared memory folder and with an empty /sys."""

    def setUp(self):
        hide = """
            set -e
            mount --make-rprivate /
            keep=$(mktemp -d)
            touch "$keep/null"
            mount --bind /dev/null "$keep/null"
            mount -t tmpfs tmpfs /dev
            touch /dev/null
            mount --bind "$keep/null" /dev/null
            umount "$keep/null"
            rm -r "$keep"
            mount -t tmpfs tmpfs /sys
            exec "$@"
        """
        self.prefix = ["unshare", "--mount", "sh", "-c", hide, "sh", *as_ordinary_user()]
        super().setUp()

    def test_nothing_in_dev(self):
        process = self.run_program(*self.prefix, "ls", "/dev", "/sys")
        self.assertEqual(["/dev:", "null", "", "/sys:"], process.stdout.splitlines())


class TwoUsers(ClientTest):
    """A user's host agent serves that user. Another user's program that finds it says so in one line."""

    def test_foreign_agent(self):
        if not maps_all_users():
            self.skipTest("needs two users")
        prefix = as_ordinary_user()
        skip_out_of_reach(self, prefix)
        self.run_program(*prefix, *self.over_tulle(["ibv_devices"]))
        agent = self.net.pids()
        self.assertEqual(1, len(agent))
        self.assertEqual(ORDINARY, os.stat(f"/proc/{agent[0]}").st_uid)
        process = self.run_program(TULLE, "devices", expect=None, limit=20)
        self.assertGreater(process.wait(), 0, process.describe())
        self.assertEqual(1, len(process.stderr.splitlines()), process.describe())
        self.assertIn(f"user {ORDINARY}", process.stderr + shlex.join(process.argv), process.describe())

    def test_root_agent_serves_others(self):
        if not maps_all_users():
            self.skipTest("needs two users")
        prefix = as_ordinary_user()
        skip_out_of_reach(self, prefix)
        self.run_program(*self.over_tulle(["ibv_devices"]))
        self.pair([INTEGRITY, "-M", "mix"], port=18600, prefix=prefix)
