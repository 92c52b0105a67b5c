#!/usr/bin/env python3
"""Tests that sources which look at the sanitizer compile with it. CI runs no sanitizer, whose tests take half an hour.

    sanitized_compile_test.py --build BUILD [unittest arguments]
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = None
SANITIZERS = {"address": "__SANITIZE_ADDRESS__", "thread": "__SANITIZE_THREAD__"}


def sources_that_name(macro):
    """Returns the sources of src and tests/abi whose text has the macro. A header's includers are compiled elsewhere."""
    paths = [*(ROOT / "src").rglob("*.cc"), *(ROOT / "tests" / "abi").glob("*.cc")]
    return sorted(path for path in paths if macro in path.read_text())


class Compile(unittest.TestCase):
    def flags_of(self, source):
        """Returns the compiler and flags of a source, or of another C++ source of its folder, which may stand for many."""
        room = source.parent.relative_to(ROOT).parts
        for depth in range(len(room), 0, -1):
            folder = str(pathlib.Path(*room[:depth])) + "/CMakeFiles/"
            is_test = source.name.endswith("_test.cc")
            for entry in self.commands:
                is_near = folder in entry["command"] and entry["file"].endswith((".cc", ".cxx"))
                if is_near and ("_test.dir/" in entry["command"]) == is_test:
                    return re.sub(r" -M\w+( \S+\.[od]\b\S*)?| -o \S+| -c \S+", " ", entry["command"]), entry["directory"]
        self.fail(f"no source is built near {source}")

    def setUp(self):
        self.commands = json.loads((BUILD / "compile_commands.json").read_text())

    def test_sources_that_look_at_the_sanitizer_compile_with_it(self):
        for kind, macro in SANITIZERS.items():
            sources = sources_that_name(macro)
            self.assertTrue(sources, macro)
            for source in sources:
                with self.subTest(sanitizer=kind, source=source.name):
                    command, folder = self.flags_of(source)
                    flags = f"-fsanitize={kind} -Wno-tsan -Wno-invalid-pch -fsyntax-only"
                    done = subprocess.run(f"{command} {flags} {source}", shell=True, cwd=folder, capture_output=True,
                                          text=True)
                    self.assertEqual(0, done.returncode, done.stderr[-2000:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    known, rest = parser.parse_known_args()
    BUILD = known.build
    unittest.main(argv=[sys.argv[0], *rest])
