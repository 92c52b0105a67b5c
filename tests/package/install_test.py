#!/usr/bin/env python3
"""Tests that `cmake --install` installs what users run, and that it works from any folder."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / os.environ.get("TULLE_BUILD", "build")
LIBRARIES = ("libibverbs.so.1", "librdmacm.so.1", "libibumad.so.3", "libtulle-paths.so", "libtulle-advice.so",
             "rsocket/librspreload.so", "tulle-rsh")
PLUGINS = ("libtulle_openmpi.so", "libtulle_mpich.so")  # each where its MPI was installed at the build


def cached(name):
    """Returns a variable of the build's CMake cache."""
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found and found[1]


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="tulle-install-")
        folder = pathlib.Path(cls.temporary.name)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", folder / "here"], check=True,
                       stdout=subprocess.DEVNULL)
        cls.prefix = folder / "moved elsewhere"
        (folder / "here").rename(cls.prefix)
        cls.simulator = f"{cached('CMAKE_INSTALL_LIBEXECDIR')}/tulle/tulle-simulator"
        cls.libraries = cls.prefix / cached("CMAKE_INSTALL_LIBDIR") / "tulle"

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def tulle(self, *arguments, **options):
        # The command gets a network of its own, since `tulle run` starts a host agent.
        unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
        done = subprocess.run([*unshare, self.prefix / "bin/tulle", *arguments], capture_output=True, text=True,
                              timeout=120, **{"cwd": "/", **options})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_only_what_users_run(self):
        installed = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if not path.is_dir()}
        built = tuple(name for name in PLUGINS if (BUILD / "lib/shim" / name).exists())
        libraries = {str(self.libraries.relative_to(self.prefix) / name) for name in LIBRARIES + built}
        programs = {"bin/tulle", self.simulator}
        others = {path for path in installed - libraries - programs if not path.startswith("share/")}
        self.assertEqual(others, set())
        self.assertLessEqual(libraries | programs, installed)
        self.assertIn("share/bash-completion/completions/tulle", installed)

    def test_the_scenarios_are_those_of_the_source(self):
        def files(folder):
            return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        self.assertEqual(files(self.prefix / "share/tulle/scenarios"), files(ROOT / "scenarios"))

    def test_simulations_from_any_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "latency").mkdir()  # a folder is no scenario
            self.assertIn("incast ", self.tulle("sim", "--list", cwd=folder))
            self.assertIn("infiniband", self.tulle("sim", "latency", cwd=folder))
            self.assertIn("roce-pfc", self.tulle("compare", "--list", cwd=folder))
            self.assertIn("2/2", self.tulle("compare", "--workload", "permutation", "--hosts", "2", "--fabrics", "tcp",
                                            cwd=folder))

    def test_live_commands_need_no_library_of_the_simulator(self):
        """A job that only runs `tulle run` installs the program with what it needs."""
        program = self.prefix / "bin/tulle"
        said = subprocess.run(["readelf", "--dynamic", program], check=True, capture_output=True, text=True).stdout
        needed = re.findall(r"NEEDED.*\[(\S+?)\.so", said)
        self.assertIn("libtomlplusplus", needed)
        self.assertEqual([name for name in needed if re.search("protobuf|absl|nlopt|crypto|ssl", name)], [])
        with tempfile.TemporaryDirectory() as folder:
            sizes = []
            for file in (program, self.prefix / self.simulator):
                subprocess.run(["strip", "-o", f"{folder}/stripped", file], check=True)
                sizes.append((pathlib.Path(folder) / "stripped").stat().st_size)
        print(f"without symbols, tulle has {sizes[0]:,} bytes and the simulator {sizes[1]:,}", file=sys.stderr)
        if not cached("TULLE_SANITIZE"):
            self.assertLess(sizes[0], 3_500_000)

    def test_without_the_simulator(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "bin/tulle"
            program.parent.mkdir()
            shutil.copy(self.prefix / "bin/tulle", program)
            for command in ("sim", "sweep", "tune", "compare", "bench", "calibrate"):
                done = subprocess.run([program, command, "--help"], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout), (127, ""))
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertRegex(done.stderr, f"^tulle: tulle {command} .*tulle-simulator")
            # Neither the current folder nor the PATH says where the simulator is.
            decoy = pathlib.Path(folder) / "tulle-simulator"
            shutil.copy("/bin/true", decoy)
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            done = subprocess.run([program, "sim"], capture_output=True, env=environment, cwd=folder)
            self.assertEqual(done.returncode, 127)
            installed = pathlib.Path(folder) / self.simulator
            installed.parent.mkdir(parents=True)
            installed.touch(mode=0o644)
            self.assertEqual(subprocess.run([program, "sim"], capture_output=True).returncode, 126)

    def test_a_program_gets_these_libraries_and_no_others(self):
        with tempfile.TemporaryDirectory() as folder:
            # Neither the current folder nor the environment says where the libraries are.
            decoys = pathlib.Path(folder) / "lib" / "tulle"
            decoys.mkdir(parents=True)
            (decoys / "libibverbs.so.1").touch()
            environment = {**os.environ, "LD_LIBRARY_PATH": "/nowhere", "TULLE_LIBRARY_FOLDER": str(decoys),
                           "TULLE_EXECUTABLE": "/bin/false", "TULLE_IDLE_EXIT": "1"}
            show = 'printf "%s\\n" "$LD_LIBRARY_PATH" "$LD_PRELOAD" "$TULLE_EXECUTABLE"'
            said = self.tulle("run", "--", "sh", "-c", show, cwd=folder, env=environment)
            preloaded = self.tulle("run", "--rsockets", "--", "cat", "/proc/self/maps", cwd=folder, env=environment)
        # The path of this installation has a space, at which LD_PRELOAD would divide it.
        self.assertEqual(said.splitlines(), [f"{self.libraries}:/nowhere", "libtulle-paths.so",
                                             f"{self.prefix}/bin/tulle"])
        for library in ("libtulle-paths.so", "rsocket/librspreload.so"):
            self.assertIn(f"{self.libraries}/{library}\n", preloaded)

    def test_the_libraries_find_one_another_beside_themselves(self):
        for library, other in (("librdmacm.so.1", "libibverbs.so.1"), ("rsocket/librspreload.so", "librdmacm.so.1")):
            said = subprocess.run(["ldd", self.libraries / library], capture_output=True, text=True, check=True).stdout
            found = re.search(rf"{re.escape(other)} => (.*) \(", said)
            self.assertTrue(found, said)
            self.assertEqual(os.path.realpath(found[1]), os.path.realpath(self.libraries / other))

    def test_the_main_page_names_each_command(self):
        said = subprocess.run([self.prefix / "bin/tulle", "--help"], capture_output=True, text=True, check=True).stdout
        listed = re.findall(r"^  (\w+) ", said.split("Commands:")[1].split("Options:")[0], re.MULTILINE)
        page = (ROOT / "docs/man/tulle.h2m").read_text().replace("\\", "")
        named = re.findall(r"^\.BR tulle-(\w+) \(1\)", page.split("[SEE ALSO]")[1], re.MULTILINE)
        self.assertEqual(sorted(named), sorted(listed))
        made = re.search(r'foreach\(command "" ([\w ]+)\)', (ROOT / "cmake/Manual.cmake").read_text())[1].split()
        self.assertEqual(sorted(made), sorted(listed))

    def test_no_link_of_a_document_is_dead(self):
        documents = self.prefix / cached("CMAKE_INSTALL_DATAROOTDIR") / "doc/tulle"
        pages = sorted(documents.rglob("*.md"))
        self.assertLessEqual({"README.md", "SECURITY.md", "docs/reference/simulator/README.md",
                              "docs/decisions/050-tuning.md", "docs/gallery/README.md"},
                             {str(page.relative_to(documents)) for page in pages})
        dead, seen = [], set()
        for page in pages:
            for found in re.findall(r'\]\(([^)\s]+)\)|\b(?:src|href)="([^"]+)"', page.read_text()):
                link = found[0] or found[1]
                if re.match(r"[a-z]+:|#", link):
                    continue
                seen.add(link.split("/")[-1])
                if not (page.parent / link.split("#")[0]).exists():
                    dead.append(f"{page.relative_to(documents)}: {link}")
        self.assertEqual(dead, [])
        self.assertLessEqual({"reference.toml", "overview.svg", "report.png", "SECURITY.md"}, seen)

    @unittest.skipUnless(shutil.which("help2man") and not cached("TULLE_SANITIZE"), "help2man is not installed")
    def test_each_command_has_a_manual_page(self):
        said = subprocess.run([self.prefix / "bin/tulle", "--help"], capture_output=True, text=True, check=True).stdout
        listed = re.findall(r"^  (\w+) ", said.split("Commands:")[1].split("Options:")[0], re.MULTILINE)
        self.assertIn("sim", listed)
        pages = {path.name for path in (self.prefix / "share/man/man1").iterdir()}
        self.assertEqual(pages, {"tulle.1", *(f"tulle-{command}.1" for command in listed)})
        main = (self.prefix / "share/man/man1/tulle.1").read_text().replace("\\", "")
        self.assertEqual([command for command in listed if f".BR tulle-{command} (1)" not in main], [])
        self.assertIn("EXIT STATUS", main)


if __name__ == "__main__":
    unittest.main()
