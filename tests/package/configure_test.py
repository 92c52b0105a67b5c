#!/usr/bin/env python3
"""Tests that CMake names all missing packages at once, and that no warning is an error of its own accord."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Configure(unittest.TestCase):
    def configure(self, *arguments):
        """Returns CMake's exit status, its messages, and the command lines of the compiler."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                                   *arguments],
                                  capture_output=True, text=True, timeout=240)
            lines = pathlib.Path(folder) / "compile_commands.json"
            return done.returncode, done.stdout + done.stderr, lines.read_text() if lines.exists() else ""

    def test_all_that_is_missing_is_named_at_once(self):
        status, said, _ = self.configure("-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON",
                                         "-DTULLE_DYGRAPHS=/nowhere/dygraph.min.js")
        self.assertNotEqual(status, 0)
        self.assertEqual(said.count("CMake Error"), 1, said)
        for words in ("fmt (Debian's libfmt-dev)", "CLI11 (Debian's libcli11-dev)", "libjs-dygraphs", "-DTULLE_CHARTS=OFF"):
            self.assertIn(words, " ".join(said.split()))
        self.assertNotIn("nlohmann", said)

    def test_a_user_s_compiler_does_not_stop_at_warnings(self):
        """Without charts, which need what may be missing; and one warning more is no error."""
        status, said, commands = self.configure("-DTULLE_DYGRAPHS=/nowhere/dygraph.min.js", "-DTULLE_CHARTS=OFF")
        self.assertEqual(status, 0, said)
        self.assertEqual([line for line in commands.splitlines() if "-Werror" in line][:3], [])
        self.assertTrue("-Wall" in commands)


if __name__ == "__main__":
    unittest.main()
