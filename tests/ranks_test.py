#!/usr/bin/env python3
"""Tests `tulle sim` and `tulle compare` under mpirun, of Open MPI and of MPICH.

All results must be those of one process, byte for byte; what goes wrong must be one line, of one rank. The classes are
skipped where an MPI is missing, on this machine or in this build.
"""

import filecmp
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("TULLE_BUILD", "build")
TULLE = BUILD / "bin" / "tulle"
# `tulle` finds it by the way from its own folder, which is the same in the build folder and in an installation.
SIMULATOR = next(path for path in BUILD.glob("*/tulle/tulle-simulator"))
LIMIT_S = 60


def copy_programs(folder):
    """Copies both programs to a folder, as an installation has them. Returns the copy of the simulator."""
    simulator = folder / SIMULATOR.relative_to(BUILD)
    for program, copy in ((TULLE, folder / "bin" / "tulle"), (SIMULATOR, simulator)):
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program, copy)
    return simulator


# The name says what is special in each.
SCENARIOS = {
    "roce-samples": """
[topology]
kind = "leaf-spine"
leaves = 3
hosts_per_leaf = 3
link_rate = "100Gbps"
link_delay = "500ns"
[fabric]
ecn = { kmin = "20KB", kmax = "80KB", pmax = 0.2 }
[congestion]
control = "dcqcn"
[traffic]
pattern = "poisson"
load = 0.6
duration = "40us"
sizes = "fixed"
bytes = "20KB"
[report]
sample = "5us"
[[variant]]
name = "a"
[[variant]]
name = "b"
fabric.path = "packet"
""",
    "infiniband-lmc-faults": """
[topology]
kind = "fat-tree"
k = 4
link_rate = "200Gbps"
[fabric]
kind = "infiniband"
bit_error_rate = 1e-8
[routing]
lmc = 1
[traffic]
pattern = "permutation"
bytes = "100KB"
queue_pairs = 2
""",
    "tcp": """
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 3
link_rate = "25Gbps"
[fabric]
flow_control = "none"
[host]
transport = "tcp"
[host.kernel]
cores = 1
[traffic]
pattern = "shift"
bytes = "100KB"
""",
    "jobs-alone": """
[topology]
kind = "leaf-spine"
leaves = 2
spines = 1
hosts_per_leaf = 4
link_rate = "400Gbps"
[report]
alone = true
[[jobs]]
name = "a"
workload = "allreduce:256KiB"
servers = "0, 1, 4, 5"
[[jobs]]
name = "b"
workload = "alltoall:256KiB"
servers = "2, 3, 6, 7"
""",
    # Some hundred frames cross in each round, which MPI sends from where they lie.
    "many-frames": """
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 16
link_rate = "400Gbps"
link_delay = "4us"
[traffic]
pattern = "permutation"
bytes = "500KB"
""",
}
TWO_HOSTS = """
[topology]
kind = "single-switch"
hosts = 2
[traffic]
pattern = "incast"
bytes = "50KB"
"""
# The second variant takes longer than the first one.
TWO_VARIANTS = """
[topology]
kind = "single-switch"
hosts = 5
[traffic]
pattern = "incast"
bytes = "50KB"
[[variant]]
name = "short"
[[variant]]
name = "longer"
traffic.bytes = "{}"
"""
SLOW = TWO_VARIANTS.format("300MB")  # a second or so
LONG = TWO_VARIANTS.format("200GB")  # without an end


def environment(**more):
    # MPI's libraries keep memory until the process ends, which the address sanitizer would call leaks of ours.
    more = {"LSAN_OPTIONS": "detect_leaks=0", **more}
    kept = {name: value for name, value in os.environ.items() if not re.match("OMPI_|PRTE_|PMIX?_|MPI|TULLE_MPI", name)}
    # Tests of one machine may run as root in a container, where Open MPI wants to be told that this is meant.
    # It may start more ranks than there are processors: Open MPI 4 and 5 have a name for this each.
    kept.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", **more)
    return kept


def run(argv, folder, **more):
    return subprocess.run([str(word) for word in argv], cwd=folder, env=environment(**more), capture_output=True, text=True,
                          timeout=LIMIT_S)


# On a loaded machine, ranks may take longer to start than the time after which this line comes.
LATE = "tulle: not all ranks of mpirun have come yet"


def said_by_tulle(text):
    """Returns Tulle's lines, without what mpirun says, and without what it says of ranks that start late."""
    return [line for line in text.splitlines() if line.startswith("tulle: ") and not line.startswith(LATE)]


def differences(one, other):
    """Returns the names of the files that differ between two folders, or are in one of them alone."""
    found = []
    compared = filecmp.dircmp(one, other)
    pending = [compared]
    while pending:
        each = pending.pop()
        found += each.left_only + each.right_only
        found += [name for name in each.common_files
                  if not filecmp.cmp(f"{each.left}/{name}", f"{each.right}/{name}", shallow=False)]
        pending += each.subdirs.values()
    return found


class Ranks:
    mpirun, library = None, None

    def setUp(self):
        if shutil.which(self.mpirun) is None:
            self.skipTest(f"{self.mpirun} is not installed")
        if not (BUILD / "lib" / "shim" / self.library).exists():
            self.skipTest(f"Tulle was built without {self.library}")
        kept = tempfile.TemporaryDirectory(prefix="tulle-ranks-")
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def ranks(self, count, *arguments, **more):
        return run([self.mpirun, "-n", count, TULLE, *arguments], self.folder, **more)

    def two_commands(self, first, second, folder):
        """Runs rank 0 and rank 1 with a command each. (Debian 13's mpirun of Open MPI ends with a segmentation fault if it
        is given two commands itself.)"""
        lines = [shlex.join(map(str, command)) for command in (first, second)]
        script = 'case "$OMPI_COMM_WORLD_RANK$PMI_RANK" in 0) exec {} ;; *) exec {} ;; esac'.format(*lines)
        return run([self.mpirun, "-n", "2", "sh", "-c", script], folder)

    def refused(self, count, line, *arguments, status=None, **more):
        done = self.ranks(count, *arguments, **more)
        self.assertNotEqual(0, done.returncode)
        if status is not None:
            self.assertEqual(status, done.returncode)
        lines = said_by_tulle(done.stderr)
        self.assertEqual(1, len(lines), done.stderr)
        self.assertIn(line, lines[0])
        return done

    def test_ranks_with_other_files_are_refused(self):
        """One host may have another copy of a scenario, or of a table that it names."""
        flows = "src,dst,bytes,start_ns\n0,1,{}\n"
        for name, number in (("a", 1000), ("b", 2000)):
            for kind in ("scenario", "table"):
                (self.folder / kind / name).mkdir(parents=True)
            (self.folder / "scenario" / name / "x.toml").write_text(TWO_HOSTS.replace("50KB", f"{number}B"))
            (self.folder / "table" / name / "x.toml").write_text(
                '[topology]\nhosts = 2\n[traffic]\npattern = "file"\nfile = "f.csv"\n')
            (self.folder / "table" / name / "f.csv").write_text(flows.format(f"{number},0"))
        for kind, what in (("scenario", "another scenario"), ("table", "another traffic or topology")):
            command = lambda name: ["sh", "-c", f"cd {name} && exec '{TULLE}' sim x.toml"]  # noqa: E731
            done = self.two_commands(command("a"), command("b"), self.folder / kind)
            self.assertNotEqual(0, done.returncode)
            self.assertEqual(1, len(said_by_tulle(done.stderr)), done.stderr)
            self.assertIn(f"rank 1 has {what} than rank 0", done.stderr)

    def test_results_are_those_of_one_process(self):
        for number, (name, text) in enumerate(SCENARIOS.items()):
            self.write(f"{name}.toml", text)
            one = run([TULLE, "sim", f"{name}.toml", "-o", f"{name}-1"], self.folder)
            self.assertEqual((0, ""), (one.returncode, one.stderr))
            # Two ranks simulate some of them, and other numbers of ranks and threads the others. The tests of
            # src/study/experiment have more scenarios, in processes that are threads.
            for count, threads in [[(2, 1), (4, 1)], [(3, 1)], [(2, 2)], [(2, 1)], [(2, 1), (2, 2)]][number]:
                with self.subTest(scenario=name, ranks=count, threads=threads):
                    out = f"{name}-{count}-{threads}"
                    many = self.ranks(count, "sim", f"{name}.toml", "-o", out, "--threads", threads)
                    self.assertEqual((0, []), (many.returncode, said_by_tulle(many.stderr)))
                    self.assertEqual(one.stdout, many.stdout)
                    self.assertEqual([], differences(self.folder / f"{name}-1", self.folder / out))

    def test_every_byte_of_every_piece_arrives(self):
        """Messages of no, short and long pieces, between three ranks."""
        done = run([self.mpirun, "-n", "3", BUILD / "bin" / "mpi_pieces", BUILD / "lib" / "shim"], self.folder)
        self.assertEqual((0, 3), (done.returncode, done.stdout.count("ok")), done.stderr)

    def test_compare(self):
        arguments = ("compare", "--workload", "incast", "--hosts", "6", "--bytes", "20KB", "--fabrics", "infiniband,roce-pfc")
        one = run([TULLE, *arguments, "-o", "one"], self.folder)
        two = self.ranks(2, *arguments, "-o", "two")
        self.assertEqual((0, 0), (one.returncode, two.returncode), one.stderr + two.stderr)
        self.assertEqual(one.stdout, two.stdout)
        self.assertEqual([], differences(self.folder / "one", self.folder / "two"))

    def test_one_rank_is_one_process(self):
        name = self.write("two.toml", TWO_HOSTS)
        one, alone = run([TULLE, "sim", name], self.folder), self.ranks(1, "sim", name)
        self.assertEqual((0, one.stdout, []), (alone.returncode, alone.stdout, said_by_tulle(alone.stderr)))

    def test_what_cannot_be_divided_is_simulated_by_rank_0(self):
        name = self.write("two.toml", TWO_HOSTS)
        one = run([TULLE, "sim", name], self.folder)
        cases = {"the bytes of a message": ("--set", 'traffic.payload="bytes"'),
                 "a capture has all frames": ("--capture", "trace.pcapng"),
                 "a link without delay": ("--set", 'topology.link_delay="0ns"')}
        for reason, more in cases.items():
            with self.subTest(reason=reason):
                done = self.ranks(3, "sim", name, *more)
                self.assertEqual(0, done.returncode, done.stderr)
                self.assertEqual(1, len(said_by_tulle(done.stderr)), done.stderr)
                self.assertIn(f"two is simulated by rank 0 alone, because {reason}", done.stderr)
                self.assertEqual(len(one.stdout.splitlines()), len(done.stdout.splitlines()))

    def test_bad_input_is_one_line(self):
        name = self.write("two.toml", TWO_HOSTS)
        for command in (("sim", name), ("compare", "--workload", "incast")):
            self.refused(2, "the flow level is simulated by one process", *command, "--level", "flow", status=2)
        self.refused(2, 'no scenario "nosuch"; ', "sim", "nosuch", status=2)
        self.refused(3, "two has 2 hosts, and at most 2 ranks can simulate it: there are 3", "sim", name, status=2)
        self.refused(2, "cannot write to the folder /proc/no", "sim", name, "-o", "/proc/no", status=1)

    def test_ranks_must_have_one_command_line_and_one_build(self):
        name = self.write("two.toml", TWO_HOSTS)
        mixed = self.two_commands([TULLE, "sim", name], [TULLE, "sim", name, "--json"], self.folder)
        self.assertNotEqual(0, mixed.returncode)
        self.assertEqual(["tulle: rank 1 was given another command line than rank 0: all ranks simulate one scenario together; "
                          "for separate simulations, set TULLE_MPI=none"], said_by_tulle(mixed.stderr))
        # Another build of the same version differs in the bytes of its file.
        other = self.folder / "other"
        with copy_programs(other).open("ab") as file:
            file.write(b"another build")
        for place in (BUILD / "bin").resolve().parent.iterdir():
            if place.name in ("lib", "share"):
                (other / place.name).symlink_to(place)
        mixed = self.two_commands([TULLE, "sim", name], [other / "bin" / "tulle", "sim", name], self.folder)
        self.assertNotEqual(0, mixed.returncode)
        lines = said_by_tulle(mixed.stderr)
        self.assertEqual(1, len(lines), mixed.stderr)
        self.assertRegex(lines[0], r"tulle: rank 1 runs another build of Tulle \(\S+ \w{16}\) than rank 0 ")

    def test_processes_by_themselves(self):
        name = self.write("two.toml", TWO_HOSTS)
        one = run([TULLE, "sim", name], self.folder)
        both = self.ranks(2, "sim", name, TULLE_MPI="none")
        self.assertEqual((0, sorted(2 * one.stdout.splitlines())), (both.returncode, sorted(both.stdout.splitlines())))

    def test_a_rank_that_stops_for_a_while_is_named(self):
        """Rank 0 says for which one it waits, once, and goes on when that one does."""
        name = self.write("slow.toml", SLOW)
        one = run([TULLE, "sim", name, "-o", "one"], self.folder)
        self.assertEqual(0, one.returncode, one.stderr)
        script = f"echo $$ > pid.${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}; exec {TULLE} sim {name} -o out"
        stopped, later = None, None
        with subprocess.Popen([self.mpirun, "-n", "3", "sh", "-c", script], cwd=self.folder, env=environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
            try:
                done, end = self.folder / "out" / "report.html", time.monotonic() + LIMIT_S
                while not done.exists():
                    self.assertLess(time.monotonic(), end)
                    self.assertIsNone(job.poll())
                    time.sleep(0.02)
                stopped = int((self.folder / "pid.2").read_text())
                os.kill(stopped, signal.SIGSTOP)
                later = threading.Timer(LIMIT_S, os.kill, (stopped, signal.SIGCONT))  # if there is no line
                later.start()
                began = time.monotonic()
                line = next((line for line in job.stderr if said_by_tulle(line)), "")
                # Rank 1 is silent, too, if it waits for rank 2's part of a round that rank 0 has done.
                self.assertRegex(line, r"^tulle: (rank 2 has|ranks 1, 2 have) sent nothing for 10 s; still waiting$")
                self.assertGreater(time.monotonic() - began, 8)
                os.kill(stopped, signal.SIGCONT)
                # On a busy machine, each round waits until all three ranks have had a processor.
                stdout, stderr = job.communicate(timeout=5 * LIMIT_S)
            except BaseException:
                if stopped is not None:
                    os.kill(stopped, signal.SIGCONT)
                job.kill()
                raise
            finally:
                if later is not None:
                    later.cancel()
        self.assertEqual((0, one.stdout, []), (job.returncode, stdout, said_by_tulle(stderr)))
        self.assertEqual([], differences(self.folder / "one", self.folder / "out"))

    # Waits until the first variant has its files, and kills a rank then.
    def test_a_rank_that_dies_ends_the_run_and_leaves_what_was_done(self):
        name = self.write("long.toml", LONG)
        script = f"echo $$ > pid.${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}; exec {TULLE} sim {name} -o out"
        with subprocess.Popen([self.mpirun, "-n", "2", "sh", "-c", script], cwd=self.folder, env=environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
            done, end = self.folder / "out" / "report.html", time.monotonic() + LIMIT_S
            while not done.exists():
                self.assertLess(time.monotonic(), end)
                self.assertIsNone(job.poll())
                time.sleep(0.02)
            time.sleep(0.3)  # rank 0 then knows that the files are there
            os.kill(int((self.folder / "pid.1").read_text()), signal.SIGKILL)
            _, stderr = job.communicate(timeout=LIMIT_S)
        # MPICH 4.2's mpirun ends with 0 in a quarter of such cases, also for a program of ten lines, and says nothing.
        if job.returncode != 0 or stderr != "":
            self.assertNotEqual(0, job.returncode, stderr)
        else:
            self.assertIn("mpich", self.mpirun)
        # mpirun ends rank 0 by SIGTERM, or at once by SIGKILL.
        self.assertIn(said_by_tulle(stderr), [[], [
            "tulle: ended by SIGTERM, as mpirun does when another rank has died; 1 of 2 variants were simulated, and are in "
            "out"]])
        self.assertEqual({"flows.csv", "links.csv"}, {path.name for path in (self.folder / "out" / "short").iterdir()})
        one = run([TULLE, "sim", name, "--variant", "short", "-o", "one"], self.folder)
        self.assertEqual(0, one.returncode)
        for csv in ("flows.csv", "links.csv"):
            self.assertEqual((self.folder / "one" / csv).read_text(), (self.folder / "out" / "short" / csv).read_text())

        def is_running(rank):
            pid = int((self.folder / f"pid.{rank}").read_text())
            try:
                return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
            except OSError:
                return False

        end = time.monotonic() + 10
        while is_running(0) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse(is_running(0))


class OpenMpi(Ranks, unittest.TestCase):
    mpirun, library = "mpirun.openmpi", "libtulle_openmpi.so"


class Mpich(Ranks, unittest.TestCase):
    mpirun, library = "mpirun.mpich", "libtulle_mpich.so"

    def test_a_rank_that_never_comes_is_missed(self):
        """A rank that waits says so after a while, and what to do."""
        self.write("two.toml", TWO_HOSTS)
        argv = [self.mpirun, "-n", "1", str(TULLE), "sim", "two.toml", ":", "-n", "1", "sleep", "30"]
        process = subprocess.Popen(argv, cwd=self.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        try:
            line = next((line for line in process.stderr if line.startswith("tulle: ")), "")
            self.assertIn("not all ranks of mpirun have come yet", line)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


class Environment(unittest.TestCase):
    """An environment is anybody's: it may make no sense, and cannot choose a file that is loaded."""

    def setUp(self):
        kept = tempfile.TemporaryDirectory(prefix="tulle-ranks-")
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)
        (self.folder / "two.toml").write_text(TWO_HOSTS)
        # For root, a launcher must be above: a shell of that name is.
        shutil.copy("/bin/sh", self.folder / "mpirun")

    def refused(self, line, tulle=TULLE, arguments=("sim", "two.toml"), status=1, below_launcher=True, **more):
        launcher = [self.folder / "mpirun", "-c", '"$@"; exit $?', "mpirun"] if below_launcher else []
        done = run([*launcher, tulle, *arguments], self.folder, **more)
        self.assertEqual((status, ""), (done.returncode, done.stdout))
        self.assertEqual(1, len(done.stderr.splitlines()), done.stderr)
        self.assertIn(line, done.stderr)

    def test_nonsense(self):
        self.refused('tulle: TULLE_MPI is "abc": it may be openmpi, mpich or none', status=2, TULLE_MPI="abc")
        self.refused('tulle: OMPI_COMM_WORLD_RANK is "x"', status=2, OMPI_COMM_WORLD_RANK="x", OMPI_COMM_WORLD_SIZE="2")
        self.refused("tulle: 100000 ranks are too many: at most 256", status=2, PMI_RANK="0", PMI_SIZE="100000")

    @unittest.skipUnless(os.geteuid() == 0, "it is root's environment that su keeps")
    def test_root_needs_a_launcher(self):
        self.refused("no launcher of root's has", below_launcher=False, PMI_RANK="0", PMI_SIZE="2")

    def test_what_ranks_do_not_do(self):
        for line, status, *arguments in (
                ("a sweep does not run under mpirun", 2, "sweep", "two.toml", "-k", "seed=1,2", "-o", "x"),
                ("a gallery is not made under mpirun", 2, "sim", "--gallery", "-o", "x"),
                ("--jobs: the ranks of mpirun simulate one after the other", 2, "sim", "two.toml", "-j", "2"),
                ("--nonsense", 2, "sim", "two.toml", "--nonsense")):
            with self.subTest(line=line):
                self.refused(line, arguments=arguments, status=status, PMI_RANK="0", PMI_SIZE="2")
                # The other rank leaves it to rank 0 to say so.
                other = run([TULLE, *arguments], self.folder, PMI_RANK="1", PMI_SIZE="2")
                self.assertEqual((status, "", ""), (other.returncode, other.stdout, other.stderr))

    def test_the_library_is_the_program_s_own(self):
        """It is found from the program's place, and not from the environment or the current folder."""
        copy_programs(self.folder)
        bin = self.folder / "bin"
        for name in ("libtulle_openmpi.so", "libtulle_mpich.so"):
            shutil.copy("/bin/true", self.folder / name)
        self.refused("cannot find Tulle's libraries", bin / "tulle", PMI_RANK="0", PMI_SIZE="2",
                     LD_LIBRARY_PATH=str(self.folder))
        # Its own is not loaded where others may write to it.
        libraries = next(path for path in (BUILD / "lib").rglob("tulle") if path.is_symlink())
        own = self.folder / libraries.relative_to(BUILD)
        own.mkdir(parents=True)
        self.refused("is missing: install MPICH's headers, run cmake again", bin / "tulle", PMI_RANK="0", PMI_SIZE="2",
                     LD_LIBRARY_PATH=str(self.folder))
        shutil.copy("/bin/true", own / "libtulle_mpich.so")
        (own / "libtulle_mpich.so").chmod(0o777)
        self.refused("is not loaded, because other users may have changed it", bin / "tulle", PMI_RANK="0", PMI_SIZE="2")
        (own / "libtulle_mpich.so").chmod(0o755)
        self.refused("cannot load", bin / "tulle", PMI_RANK="0", PMI_SIZE="2")

    def test_one_process_loads_no_mpi(self):
        done = run(["strace", "-f", "-e", "trace=openat", TULLE, "sim", "two.toml"], self.folder) if shutil.which(
            "strace") else run(["ldd", SIMULATOR], self.folder)
        self.assertEqual(0, done.returncode)
        self.assertNotRegex(done.stdout + done.stderr, "libmpi|libtulle_")

    def test_no_library_is_looked_for_in_the_current_folder(self):
        """An empty entry of a search path means the current folder, in which anybody's library may lie."""
        files = [TULLE, SIMULATOR, *(BUILD / "lib" / "shim").rglob("*.so*")]
        self.assertGreater(len(files), 3)
        for file in files:
            said = subprocess.run(["readelf", "-d", str(file)], capture_output=True, text=True, check=True).stdout
            for path in re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", said):
                self.assertNotIn("", path.split(":"), f"{file}: {path}")


if __name__ == "__main__":
    unittest.main()
