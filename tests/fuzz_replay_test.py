#!/usr/bin/env python3
"""Replays the stored inputs of all fuzzers (tests/corpora) in the build that is tested.

`./dev fuzz` replays them with clang's sanitizers and then makes new ones, and `./dev sanitize address` runs this test.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import fuzz  # noqa: E402

BIN = ROOT / os.environ.get("TULLE_BUILD", "build") / "bin"
LIMIT_S = 300


class Replay(unittest.TestCase):
    def test_stored_inputs(self):
        names = fuzz.sources()
        self.assertGreater(len(names), 25)
        with tempfile.TemporaryDirectory(prefix="tulle-replay-") as folder:
            for name in names:
                with self.subTest(fuzzer=name):
                    stored = fuzz.unpack_corpus(name, pathlib.Path(folder) / name)
                    inputs = [*sorted(stored.iterdir()), *fuzz.regressions(name)]
                    self.assertGreater(len(inputs), 0)
                    done = subprocess.run([BIN / f"{name}_replay", *inputs], cwd=folder, stdin=subprocess.DEVNULL,
                                          capture_output=True, text=True, errors="replace", timeout=LIMIT_S)
                    self.assertEqual((done.returncode, done.stdout), (0, f"{len(inputs)} inputs\n"),
                                     "\n".join(done.stderr.splitlines()[-20:]))


if __name__ == "__main__":
    unittest.main()
