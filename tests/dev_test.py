#!/usr/bin/env python3
"""Tests that ./dev ends with one line that says what to do where it cannot go on, and checks its list of packages."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "cmake" / "debian-packages.txt"
RELEASES = ("bookworm", "trixie")
TOOLS = ("awk", "bash", "cat", "compgen", "df", "grep", "mktemp", "readlink", "rm", "sed", "tail")


class Machine:
    """A machine with TOOLS and with whatever else a test gives it."""

    def __init__(self, folder, release="bookworm", name="Debian GNU/Linux 12 (bookworm)"):
        self.folder = pathlib.Path(folder)
        self.tools = self.folder / "bin"
        self.tools.mkdir()
        for tool in TOOLS:
            found = next((path for path in ("/usr/bin", "/bin") if os.path.exists(f"{path}/{tool}")), None)
            if found:
                (self.tools / tool).symlink_to(f"{found}/{tool}")
        (self.folder / "os-release").write_text(f'PRETTY_NAME="{name}"\nVERSION_CODENAME={release}\n')

    def tool(self, name, script):
        path = self.tools / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def with_apt(self, installed=(), apt="exit 0"):
        lines = "".join(f"install ok installed {name}\\n" for name in installed)
        self.tool("dpkg-query", f'[[ "$2" == *Provides* ]] || printf "{lines}"')
        self.tool("apt-get", f'echo "$*" >>{self.folder}/apt.log\n{apt}')
        return self

    def run(self, command, user=0):
        """Runs a command with ./dev's own functions and returns (exit status, standard error, standard output)."""
        script = f"""
set -euo pipefail
fail() {{ echo "dev: $*" >&2; exit 1; }}
misuse() {{ echo "dev: $*" >&2; exit 2; }}
note() {{ echo "dev: $*" >&2; }}
source tools/packages.sh
os_release={self.folder}/os-release
is_root() {{ [[ {user} -eq 0 ]]; }}
{command}
"""
        done = subprocess.run(["/bin/bash", "-c", script], cwd=ROOT, env={"PATH": str(self.tools)},
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.returncode, done.stderr, done.stdout

    def apt_log(self):
        path = self.folder / "apt.log"
        return path.read_text() if path.exists() else ""


class BadGround(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check_one_line(self, result, *words):
        status, errors, _ = result
        self.assertEqual(status, 1, errors)
        last = errors.splitlines()[-1]
        self.assertTrue(last.startswith("dev: "), errors)
        for word in words:
            self.assertIn(word, last)
        others = [line for line in errors.splitlines()[:-1] if not line.startswith("dev: installing ")]
        self.assertEqual(others, [], "more was said than one line")

    def test_an_ordinary_user_is_told_what_to_run(self):
        machine = Machine(self.folder).with_apt(installed=["cmake", "g++"])
        result = machine.run("install_packages build", user=1000)
        self.check_one_line(result, "sudo apt-get install", "ninja-build", "libisal-dev")
        self.assertNotIn(" cmake ", result[1])
        self.assertEqual(machine.apt_log(), "")

    def test_nothing_is_asked_for_where_nothing_is_missing(self):
        machine = Machine(self.folder).with_apt()
        names = [name.partition("=")[0] for name in machine.run("wanted_packages build demo")[2].split()]
        self.assertGreater(len(names), 10)
        machine.with_apt(installed=names, apt="exit 1")
        self.assertEqual(machine.run("install_packages build demo", user=1000)[:2], (0, ""))

    def test_no_network(self):
        machine = Machine(self.folder).with_apt(
            apt="echo \"E: Failed to fetch http://mirror/Packages  Temporary failure resolving 'mirror'\" >&2; exit 100")
        self.check_one_line(machine.run("install_packages build"), "cannot read its package mirrors",
                            "Temporary failure resolving 'mirror'", "ninja-build")

    def test_a_package_that_is_not_there(self):
        machine = Machine(self.folder).with_apt(
            apt='[[ $1 == update ]] || { echo "E: Unable to locate package libisal-dev" >&2; exit 100; }')
        self.check_one_line(machine.run("install_packages build"), "cannot install",
                            "Unable to locate package libisal-dev")
        self.assertIn("update", machine.apt_log(), "an old index was not tried afresh")

    def test_a_distribution_without_apt(self):
        machine = Machine(self.folder, release="", name="Fedora Linux 42")
        self.check_one_line(machine.run("install_packages build demo"), "Fedora Linux 42", "cmake", "ib_write_bw")

    def test_a_distribution_without_apt_that_has_the_tools(self):
        machine = Machine(self.folder, release="", name="Fedora Linux 42")
        for tool in ("cmake", "ninja", "pkg-config", "c++"):
            machine.tool(tool, "exit 0")
        self.assertEqual(machine.run("install_packages build")[:2], (0, ""))

    def test_a_purpose_that_is_none(self):
        status, errors, _ = Machine(self.folder).with_apt().run("install_packages demoo")
        self.assertEqual(2, status, errors)
        self.assertIn('dev: no purpose "demoo"; the purposes are: build demo', errors)

    def test_another_distribution_with_apt(self):
        machine = Machine(self.folder, release="noble", name="Ubuntu 24.04 LTS").with_apt()
        status, errors, _ = machine.run("install_packages demo")
        self.assertEqual(status, 0, errors)
        self.assertIn("Ubuntu 24.04 LTS is not Debian 12 or 13", errors)
        self.assertIn(" perftest", machine.apt_log())
        self.assertNotIn("=", machine.apt_log().replace("Error-Mode=any", ""), "pins are Debian's")

    def test_a_full_disk(self):
        machine = Machine(self.folder).with_apt()
        machine.tool("df", "printf 'Avail\\n 120\\n'")
        self.check_one_line(machine.run("install_packages build"), "120 MiB free", "make room there")
        self.check_one_line(machine.run("need_space . 600 'the build'"), "120 MiB free", "the build needs 600")


class Warnings(unittest.TestCase):
    def test_they_are_errors_with_the_compilers_of_debian(self):
        for release, macros, expected in (
                ("bookworm", "#define __GNUC__ 12", "ON"), ("trixie", "#define __GNUC__ 14", "ON"),
                ("bookworm", "#define __GNUC__ 4\\n#define __clang_major__ 14", "ON"),
                ("bookworm", "#define __GNUC__ 14", "OFF"), ("trixie", "#define __GNUC__ 4\\n#define __clang_major__ 20", "OFF"),
                ("noble", "#define __GNUC__ 14", "OFF"), ("trixie", "", "OFF")):
            with self.subTest(release=release, macros=macros), tempfile.TemporaryDirectory() as folder:
                machine = Machine(folder, release=release)
                machine.tool("c++", f"printf '{macros}\\n'")
                functions = re.search(r"(?ms)^compiler\(\) \{.*?^\}.*?^warnings\(\) \{.*?^\}$", (ROOT / "dev").read_text())[0]
                self.assertEqual(machine.run(functions + "\nwarnings"), (0, "", f"-DTULLE_WERROR={expected}\n"))


class PackageList(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def purposes(self):
        return re.findall(r"(?m)^\[(\w+)\]$", LIST.read_text())

    def test_every_line_is_of_a_known_form(self):
        for line in LIST.read_text().splitlines():
            self.assertRegex(line, rf"^(#.*|\[\w+\]|[a-z0-9+.-]+(=\S+)?( ({'|'.join(RELEASES)}))*)?$")

    def test_each_purpose_has_packages_on_each_release(self):
        for release in RELEASES:
            with tempfile.TemporaryDirectory() as folder:
                machine = Machine(folder, release=release)
                for purpose in self.purposes():
                    self.assertTrue(machine.run(f"wanted_packages {purpose}")[2].split(), f"{purpose} on {release}")

    def test_a_release_takes_its_own_lines(self):
        for release, version in (("bookworm", "4.5*"), ("trixie", "25.01*")):
            with tempfile.TemporaryDirectory() as folder:
                demo = Machine(folder, release=release).run("wanted_packages demo")[2].split()
                self.assertIn(f"perftest={version}", demo)
                self.assertEqual(len([name for name in demo if name.startswith("perftest")]), 1)

    def test_what_dev_asks_for_is_in_the_list(self):
        asked = set()
        for words in re.findall(r"(?m)^ *install_packages ([a-z ]+)$", (ROOT / "dev").read_text()):
            asked.update(words.split())
        self.assertGreater(len(asked), 4)
        self.assertEqual(asked - set(self.purposes()), set())


if __name__ == "__main__":
    unittest.main()
