#!/usr/bin/env python3
"""Tests that the commands and scenarios of docs/simulator.md work in a folder that has nothing of Tulle's.

A command that has not failed after a second has found everything that it names, and is ended. The files of a reader's own
that the page names are made here, from the page's own blocks where it has them.
"""

import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TULLE = ROOT / os.environ.get("TULLE_BUILD", "build") / "bin" / "tulle"
PAGE = ROOT / "docs" / "simulator.md"
SECONDS = 1
WRONG = 2  # the exit status of a command that is wrong

OWN = {
    "links.csv": "a,b,gbps,delay_ns\n0,2,100,1000\n1,2,100,1000\n",
    "flows.csv": "src,dst,bytes,start_ns\n0,1,1000,0\n",
    "dragonfly.toml": '[topology]\nkind = "dragonfly"\nlink_rate = "100Gbps"\n[traffic]\npattern = "permutation"\n',
}


def blocks(text):
    """Yields the indented blocks of a page, without their indentation."""
    for block in re.findall(r"(?m)(?:^ {4}.*\n(?:\n(?= {4}))?)+", text):
        yield re.sub(r"(?m)^ {4}", "", block)


def commands(text):
    for block in blocks(text):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True) if line.startswith("build/bin/tulle ") else []
            if words[1:2] and words[1] in ("sim", "compare", "sweep", "tune") and "--gallery" not in words:
                yield words[1:]


class Page(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory(prefix="tulle-page-")
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)
        self.text = PAGE.read_text()
        for name, text in OWN.items():
            (self.folder / name).write_text(text)
        # One that is trained on few GPUs, and served as another one is.
        models = ROOT / "scenarios/models"
        model = (models / "llama-3-8b.toml").read_text().split("[serve]")[0]
        model += "[serve]" + (models / "llama-3-70b.toml").read_text().split("[serve]")[1].replace("prefill = 4", "prefill = 2")
        server = (ROOT / "scenarios/profiles/servers/dgx-h100.toml").read_text()
        (self.folder / "my-model.toml").write_text(model)
        for name in ("my-server.toml", "here.toml"):
            (self.folder / name).write_text(server.replace("gpus = 8", "gpus = 2").replace("adapters = 8", "adapters = 2"))
        found = list(blocks(self.text))
        self.block = lambda start: next(block for block in found if block.startswith(start))
        (self.folder / "points.toml").write_text(self.block("[[point]]"))
        (self.folder / "my.toml").write_text(self.block("[topology]\nkind = \"leaf-spine\"\nleaves = 4\nspines = 4"))
        goal = self.block("num_ranks").replace("num_ranks 2", "num_ranks 32")
        (self.folder / "allreduce.goal").write_text(goal + "".join(f"rank {n} {{\n}}\n" for n in range(2, 32)))

    def run_for_a_moment(self, number, words):
        """Returns what was wrong with the command, or nothing."""
        words = [f"results-{number}" if word == "results" else word for word in words]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen([TULLE, *words], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=errors)
            try:
                status = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return ""
            errors.seek(0)
            said = errors.read()
        return f"{shlex.join(words)}: {said}" if status == WRONG or status < 0 else ""

    def test_commands(self):
        # A trace of PyTorch's in protobuf is nothing that a test can write down.
        wanted = [words for words in commands(self.text) if "step.0.et" not in words]
        self.assertGreater(len(wanted), 20)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            wrong = [each for each in pool.map(self.run_for_a_moment, range(len(wanted)), wanted) if each]
        self.assertEqual(wrong, [])

    def test_several_jobs(self):
        (self.folder / "jobs.toml").write_text(self.block("[topology]\nkind = \"leaf-spine\"\nleaves = 4\nspines = 2"))
        self.assertEqual(self.run_for_a_moment(0, ["sim", "jobs.toml"]), "")


if __name__ == "__main__":
    unittest.main()
