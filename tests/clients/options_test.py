"""Tests that each option of a live command has an effect, or is refused in one line: tests/options_test.py has the
commands that simulate."""

import os
import pathlib
import pwd
import re
import subprocess
import tempfile
import unittest

from harness import ROOT, TULLE, ClientTest, wait_until

# Variables by which the run of the tests has programs behave otherwise.
CLEAN = ("env", "-u", "TULLE_DIRECT", "-u", "TULLE_SHARE_MEMORY", "-u", "TULLE_STRICT", "-u", "TULLE_SECURE")
VALUES = {"--device": "mine0", "--interface": "lo", "--faults": "drop=0.1", "--agent": "@other", "--like": "e810",
          "--gid-order": "ip", "--recovery": "selective-repeat", "--roce": "v2", "--busy-poll": "10",
          "--fabric": "default"}
# What a host of a fabric does not use: its packets go through the fabric's switches, and no host agent serves it.
NOT_ON_FABRICS = {"--faults", "--secure", "--agent", "--interface", "--gid-order", "--no-offload", "--no-direct",
                  "--share-memory", "--roce"}


class Options(ClientTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="tulle-options-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "key").write_text("ab" * 32 + "\n")
        (self.folder / "key").chmod(0o600)

    def refused(self, *words):
        process = self.start(*CLEAN, TULLE, *words)
        self.assertEqual(2, process.wait(20), process.describe())
        self.assertRegex(process.stderr, r"\Atulle: [^\n]+\n\Z", process.describe())
        return process.stderr

    def given_to_programs(self, *options):
        """Returns the variables that `tulle run` sets for a program."""
        process = self.run_program(*CLEAN, TULLE, "run", *options, "--", "env")
        return sorted(line for line in process.stdout.splitlines()
                      if re.match(r"TULLE_|LD_|UCX_|OMPI_|MPIR_", line) and not line.startswith("TULLE_SYSFS"))

    def run_options(self):
        text = subprocess.run([TULLE, "run", "--help"], capture_output=True, text=True, check=True).stdout
        names = set(re.findall(r"^  (?:-\w, |    )(--[\w-]+)", text, re.MULTILINE)) - {"--help", "--host"}
        values = {**VALUES, "--secure": str(self.folder / "key")}
        return {name: [name, values[name]] if name in values else [name] for name in names}

    def test_of_run(self):
        base = self.given_to_programs()
        for name, given in sorted(self.run_options().items()):
            with self.subTest(name=name):
                if name == "--fabric":
                    self.refused("run", *given, "--", "env")
                else:
                    self.assertNotEqual(base, self.given_to_programs(*given))

    def test_of_run_on_a_fabric(self):
        up = self.start(*CLEAN, TULLE, "fabric", "up", "--foreground", "--shared-network")
        wait_until(lambda: "default" in self.run_program(TULLE, "fabric", "list").stdout, "the fabric")
        base = self.given_to_programs("--host", "h0")
        for name, given in sorted(self.run_options().items()):
            with self.subTest(name=name):
                if name in NOT_ON_FABRICS:
                    self.refused("run", "--host", "h0", *given, "--", "env")
                elif name == "--fabric":
                    self.assertEqual(base, self.given_to_programs("--host", "h0", *given))
                    self.assertIn("other", self.run_program(*CLEAN, TULLE, "run", "--host", "h0", "--fabric", "other",
                                                            "--", "env", expect=1).stderr)
                else:
                    self.assertNotEqual(base, self.given_to_programs("--host", "h0", *given))
        up.end()

    def test_of_other_commands(self):
        out = str(self.folder / "out")
        for words in (["agent", "--foreground", "--on-demand"],
                      ["capture", "-o", out, "--flow-control"],
                      ["capture", "-o", out, "--fabric", "default", "--agent", "@x"],
                      ["capture", "-o", out, "--fabric", "default", "--direction", "in"],
                      ["fabric", "up", "--machine", "a"],
                      ["fabric", "up", "--secure", str(self.folder / "key")],
                      ["fabric", "up", "--no-manager", "--manager-key", "none"],
                      ["bench", "allreduce:1MiB", "--algorithm", "direct", "--chunk", "4KB"],
                      ["bench", "allreduce:1MiB", "--meet", "127.0.0.1:7000"]):
            with self.subTest(words=words):
                self.refused(*words)
        self.assertFalse((self.folder / "out").exists())


class RemoteShell(unittest.TestCase):
    """tulle-rsh takes the command lines by which launchers start ssh and rsh."""

    def run_shell(self, *words):
        with tempfile.TemporaryDirectory(prefix="tulle-options-") as folder:
            program = pathlib.Path(folder, "tulle")
            program.write_text("#!/bin/sh\nprintf '%s,' \"$@\"\n")
            program.chmod(0o700)
            return subprocess.run(["/bin/sh", ROOT / "src/cli/tulle-rsh", *words], capture_output=True, text=True,
                                  env={**os.environ, "TULLE_EXECUTABLE": str(program)}, timeout=20)

    def test_a_host_and_a_command_remain(self):
        user = pwd.getpwuid(os.geteuid()).pw_name
        for options, more in ((["-x"], []), (["-l", user], []), (["-l" + user, "-q"], []), ([], ["-n"]),
                              (["-xn", "-o", "BatchMode=yes", "-oStrictHostKeyChecking=no"], ["-l", user]), (["--"], [])):
            for host in ("h3", user + "@h3"):
                done = self.run_shell(*options, host, *more, "ls", "-l", "a b")
                self.assertEqual((0, "fabric,rsh,h3,ls,-l,a b,", ""), (done.returncode, done.stdout, done.stderr), options)

    def test_others_are_refused(self):
        for words, part in ((["-l", "another", "h3", "ls"], "cannot run a program as another"),
                            (["another@h3", "ls"], "cannot run a program as another"),
                            (["-p", "22", "h3", "ls"], "no option -p"), (["h3", "-i", "key", "ls"], "no option -i"),
                            (["-l"], "-l needs a value"), (["-x"], "a host is missing"), ([], "a host is missing")):
            done = self.run_shell(*words)
            self.assertEqual((255, ""), (done.returncode, done.stdout), words)
            self.assertRegex(done.stderr, rf"\Atulle-rsh: {part}[^\n]*\n\Z")
