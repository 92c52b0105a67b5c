#!/usr/bin/env python3
"""Tests the completion of tulle's command line, driven as bash drives it."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TULLE = ROOT / os.environ.get("TULLE_BUILD", "build") / "bin" / "tulle"
SCRIPT = ROOT / "src" / "cli" / "tulle.bash"
GENERAL = pathlib.Path("/usr/share/bash-completion/bash_completion")

# bash hands a completion function COMP_WORDS and COMP_CWORD, and takes COMPREPLY from it. _command_offset also reads
# COMP_LINE and COMP_POINT. compopt works only in a completion that a key started, so the driver replaces it.
DRIVER = """
general=$1 script=$2
shift 2
[[ $general = - ]] || source "$general"
source "$script"
compopt() { :; }
complete -W 'first second' program-with-words
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_LINE=$*
COMP_POINT=${#COMP_LINE}
_tulle "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Completion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tulle-completion-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("mine.toml", "links.csv", "notes"):
            (self.folder / name).touch()
        (self.folder / "results").mkdir()

    def complete(self, *words, general="-"):
        """Returns the completions of a line that bash splits into `words`. The last word is the one being typed."""
        done = subprocess.run(["bash", "--norc", "-c", DRIVER, "bash", general, SCRIPT, TULLE, *words], cwd=self.folder,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return sorted(filter(None, done.stdout.split("\n")))

    def test_commands(self):
        self.assertEqual(self.complete(""),
                         ["agent", "bench", "calibrate", "capture", "compare", "devices", "fabric", "run", "sim",
                          "status", "sweep", "tune"])
        self.assertEqual(self.complete("s"), ["sim", "status", "sweep"])
        self.assertEqual(self.complete("--"), ["--help", "--version"])
        self.assertEqual(self.complete("fly", ""), [])

    def test_options(self):
        self.assertEqual(self.complete("run", "--no"), ["--no-direct", "--no-mpi-defaults", "--no-offload"])
        self.assertEqual(self.complete("capture", "--o"), ["--output"])
        self.assertEqual(self.complete("sim", "--list", "--lis"), [], "an option that is given already")
        self.assertEqual(self.complete("sim", "--gallery", "--flo"), [], "an option that another one excludes")

    def test_every_option_of_the_help_is_offered(self):
        for command in ("run", "devices", "status", "capture", "agent", "sim", "sweep", "tune", "compare", "bench",
                        "calibrate"):
            text = subprocess.run([TULLE, command, "--help"], capture_output=True, text=True, check=True).stdout
            named = set(re.findall(r"^  (?:-\w, |    )(--[\w-]+)", text, re.MULTILINE))
            self.assertEqual(set(self.complete(command, "--")), named, command)

    def test_scenarios_are_those_that_are_listed(self):
        listed = subprocess.run([TULLE, "sim", "--list"], capture_output=True, text=True, check=True).stdout
        names = sorted(line.split()[0] for line in listed.splitlines())
        self.assertEqual(self.complete("sim", ""), sorted([*names, "mine.toml", "results"]))
        self.assertEqual(self.complete("sim", "inc"), ["incast"])
        self.assertEqual(self.complete("sim", "mi"), ["mine.toml"])

    def test_fabrics_and_workloads_are_those_that_are_listed(self):
        listed = subprocess.run([TULLE, "compare", "--list"], capture_output=True, text=True, check=True).stdout
        sections = {}  # the lines under each heading
        for line in listed.splitlines():
            if line[0] in " *":
                sections[heading].append(line[2:].split()[0])
            else:
                heading = line.split()[0]
                sections[heading] = []
        fabrics = sections["fabrics"]
        workloads = sections["workloads"] + sections["collectives"] + sections["layers"]
        self.assertIn("roce-pfc", fabrics)
        self.assertEqual(self.complete("compare", "--fabrics", ""), sorted([*fabrics, "all"]))
        self.assertEqual(self.complete("compare", "--fabrics", "tcp,roce-irn,iw"), ["tcp,roce-irn,iwarp"])
        for server in sections["servers"]:
            alike = [each for each in sections["servers"] if each.startswith(server[:3])]
            self.assertEqual(self.complete("compare", "--servers", server[:3]), sorted(alike))
        self.assertEqual(self.complete("compare", "--algorithm", "ri"), ["ring"])
        self.assertEqual(self.complete("compare", "--prices", "ex"), ["example"])
        self.assertEqual(self.complete("tune", "my.toml", "--knobs", "dc"), ["dcqcn"])
        self.assertEqual(self.complete("compare", "--protocol", "l"), ["ll", "ll128"])
        self.assertEqual(self.complete("compare", "--workload", ""),
                         sorted([*workloads, "links.csv", "mine.toml", "notes", "results"]))

    def test_values(self):
        self.assertEqual(self.complete("capture", "--direction", ""), ["both", "in", "out"])
        self.assertEqual(self.complete("sim", "--fabric", "=", "inf"), ["infiniband"])
        self.assertEqual(self.complete("sim", "--fabric", "="), ["infiniband", "roce"])
        self.assertIn("lo", self.complete("run", "-i", ""))
        self.assertEqual(self.complete("run", "--agent", ""), [])

    def test_files_where_files_are_due(self):
        self.assertEqual(self.complete("sim", "--topology", ""), ["links.csv", "results"])
        self.assertEqual(self.complete("sim", "--topology", "=", "li"), ["links.csv"])
        self.assertEqual(self.complete("capture", "-o", "no"), ["notes"])
        self.assertEqual(self.complete("sim", "-o", ""), ["results"])

    def test_programs_and_their_arguments(self):
        self.assertIn("bash", self.complete("run", "--", "bas"))
        self.assertIn("bash", self.complete("run", "bas"))
        self.assertEqual(self.complete("run", "--", "cat", "no"), ["notes"])
        self.assertEqual(self.complete("run", "--", "cat", "--no"), [], "the program's option, none of run's")

    @unittest.skipUnless(GENERAL.exists(), "the package bash-completion is not installed")
    def test_programs_with_completions_of_their_own(self):
        for before in (["--"], [], ["--device", "=", "x", "--"], ["-i", "lo", "--no-direct"]):
            words = ["run", *before, "program-with-words"]
            self.assertEqual(self.complete(*words, "s", general=GENERAL), ["second"], words)
        self.assertIn("bash", self.complete("run", "--", "bas", general=GENERAL))


if __name__ == "__main__":
    unittest.main()
