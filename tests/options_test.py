#!/usr/bin/env python3
"""Tests that each option of a command that simulates has an effect, or is refused. The table has the ways in which a
command works. An option that is used there changes what the command prints or writes; every other one is refused in one
line. tests/clients/options_test.py has the live commands."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TULLE = ROOT / os.environ.get("TULLE_BUILD", "build") / "bin" / "tulle"

SCENARIO = """
title = "Web search"
[topology]
kind = "fat-tree"
k = 4
link_rate = "100Gbps"
[traffic]
pattern = "poisson"
load = 0.2
duration = "100us"
[fabric]
flow_control = "none"
[host]
recovery = "selective-repeat"
[[variant]]
name = "one"
[[variant]]
name = "other"
traffic.load = 0.1
"""
JOBS = """
[topology]
hosts = 4
[traffic.servers]
gpus = 1
adapters = 1
[[jobs]]
pattern = "collective"
bytes = "16KiB"
gpus = 2
name = "a"
[[jobs]]
pattern = "collective"
bytes = "64KiB"
gpus = 2
name = "b"
"""
FILES = {"s.toml": SCENARIO, "jobs.toml": JOBS,
         "full.toml": SCENARIO.replace("load = 0.2", "load = 1"),
         "l.csv": "a,b,gbps,delay_ns\n0,3,100,100\n1,3,100,100\n2,3,100,100\n",
         "f.csv": "src,dst,bytes,start_ns\n0,1,3000000,0\n2,1,3000000,0\n",
         "points.toml": "[[point]]\nseed = 4\n"}

# How each option is given. An option without an entry takes no value.
VALUES = {"--output": "out", "--variant": "one", "--set": "traffic.load=0.15", "--seed": "9", "--topology": "l.csv",
          "--flows": "f.csv", "--fabric": "infiniband", "--congestion-control": "dcqcn-hpcc", "--capture": "c.pcapng",
          "--capture-at": "host 1", "--timings": "t.json", "--level": "flow", "--jobs": "2", "--threads": "2",
          "--knob": "seed=3", "--points": "points.toml", "--knobs": "queue-pairs", "--minimize": "slowdown.p99",
          "--maximize": "slowdown.p99", "--limit": "slowdown.p99<=1.0", "--seeds": "3", "--validation-seeds": "103",
          "--budget": "3", "--workload": "incast", "--fabrics": "infiniband", "--hosts": "6", "--gpus": "32",
          "--placement": "random", "--storage": "2", "--servers": "hgx-h800", "--algorithm": "direct",
          "--protocol": "ll128", "--bytes": "10KB", "--link-rate": "100Gbps", "--prices": "example", "--planes": "2",
          "--rate": "1", "--ranks": "2", "--timeout": "5"}
# These change how fast the results are there, and not the results.
WORK = {"--jobs", "--threads"}


class Way:
    """One way in which a command works: its words, and the options that it uses apart from those. Some need other
    values than those above, or other words than the way's to show their effect."""

    def __init__(self, words, used="", values=None, shown_by=None, only=None):
        self.words = words.split()
        self.used = {"--" + name for name in used.split()}
        self.values = {**VALUES, **(values or {})}
        self.shown_by = shown_by or {}
        self.only = only  # the options that are tried; without, all


WAYS = {
    "sim": [
        Way("--list"),
        Way("--gallery s.toml", "output set seed jobs alone"),  # which each page refuses
        Way("--gallery jobs.toml", "alone", only={"--alone"}),
        Way("s.toml", "gallery output variant set seed json timings level jobs threads"),
        Way("s.toml --variant one", "output set seed json capture timings level jobs threads"),
        Way("s.toml --variant one --capture d.pcapng", "output set seed json capture-at timings jobs threads",
            shown_by={"--threads": []}),
        Way("full.toml --level flow --unvalidated", "output variant set seed json timings jobs"),
        Way("full.toml --level flow", "unvalidated", only={"--unvalidated"}),
        Way("jobs.toml", "gallery alone output set json seed capture timings level jobs threads",
            {"--set": "topology.link_rate=10Gbps"}, {"--seed": ["--json"]}),
        Way("--topology l.csv --flows f.csv",
            "fabric congestion-control output set seed json capture timings level jobs threads",
            {"--set": "host.mtu=1024"}, {"--seed": ["--json"]}),
    ],
    "sweep": [
        Way("s.toml -o out --knob seed=1", "set variant json level jobs"),
        Way("s.toml -o out --points points.toml", "set variant json level jobs"),
    ],
    "tune": [
        Way("s.toml --variant one -o out --minimize slowdown.p99 --knob traffic.load=0.1,0.2 --budget 2",
            "set json level limit seeds validation-seeds knobs jobs"),
        Way("s.toml --variant one -o out --maximize slowdown.p99 --knob traffic.load=0.1,0.2 --budget 2 --seeds 1",
            "set json level limit validation-seeds knobs jobs"),
    ],
    "compare": [
        Way("--list"),
        Way("--workload permutation --hosts 4 --bytes 20KB",
            "fabrics link-rate prices seed set json output planes level jobs threads",
            {"--set": "host.mtu=1024"}),
        Way("--workload web-search --hosts 4 --fabrics infiniband",
            "link-rate prices seed set json output planes level jobs threads"),
        Way("--workload allreduce:64KiB --gpus 16 --fabrics infiniband",
            "servers algorithm protocol link-rate prices seed set json output topology planes level jobs threads",
            {"--topology": "rail-only", "--set": "traffic.channels=2"}, {"--seed": ["--json"]}),
        Way("--workload step:llama-3-8b --gpus 8 --fabrics infiniband --level flow --unvalidated",
            "storage servers link-rate prices seed set json output topology planes jobs",
            {"--topology": "rail-only"}, {"--seed": ["--json"]}),
        Way("--workload allreduce:64KiB --gpus 16 --workload allgather:64KiB --gpus 16 --fabrics infiniband",
            "placement alone servers link-rate prices seed set json output topology planes level jobs threads",
            {"--topology": "rail-only", "--set": "host.mtu=1024"}, 
            {"--placement": ["--output", "o"], "--seed": ["--json"]}),
        Way("--workload s.toml --fabrics infiniband", "prices seed set json output level jobs threads"),
        Way("--workload f.csv --topology l.csv --fabrics infiniband", "prices seed set json output level jobs threads",
            {"--set": "host.mtu=1024"}, {"--seed": ["--json"]}),
    ],
}


def options_of(command):
    text = subprocess.run([TULLE, command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (?:-\w, |    )(--[\w-]+)", text, re.MULTILINE)) - {"--help"}


class Options(unittest.TestCase):
    def outcome(self, *words):
        """Returns the exit status, and all that a command prints and writes, without times of the clock."""
        with tempfile.TemporaryDirectory(prefix="tulle-options-") as folder:
            for name, text in FILES.items():
                pathlib.Path(folder, name).write_text(text)
            done = subprocess.run([TULLE, *words], cwd=folder, capture_output=True, timeout=120)
            files = {path.relative_to(folder): path.read_bytes() for path in pathlib.Path(folder).rglob("*")
                     if path.is_file() and path.name not in FILES and path.suffix != ".html"}
            out = re.sub(rb" +[0-9.]+ s\b", b"", done.stdout)
            return done.returncode, out, done.stderr, files

    def check(self, command, way, option):
        value = way.values.get(option)
        given = [option] if value is None else [option, value]
        words = [command, *way.words, *way.shown_by.get(option, [])]
        status, out, error, files = self.outcome(*words, *given)
        if option not in way.used:
            self.assertEqual(status, 2, error)
            self.assertRegex(error, rb"\Atulle: [^\n]+\n\Z")
            self.assertEqual(files, {})
        elif option in WORK:
            self.assertEqual(out, self.outcome(*words)[1])
        else:
            self.assertNotEqual((status, out, error, files), self.outcome(*words))

    def test_each_option_has_an_effect_or_is_refused(self):
        for command, ways in WAYS.items():
            options = options_of(command)
            for way in ways:
                self.assertLessEqual(way.used, options)
                for option in sorted((way.only or options) - set(way.words)):
                    if option == "--output" and "-o" in way.words:
                        continue
                    with self.subTest(command=command, words=way.words, option=option):
                        self.check(command, way, option)

    def test_older_names_are_the_options(self):
        words = ("tune", "s.toml", "--variant", "one", "-o", "out", "--knob", "traffic.load=0.1,0.2", "--budget", "2")
        new = self.outcome(*words, "--minimize", "slowdown.p99", "--validation-seeds", "7")
        old = self.outcome(*words, "--least", "slowdown.p99", "--held-back", "7")
        self.assertEqual(new[:2], old[:2])
        self.assertEqual(old[2], b"")


if __name__ == "__main__":
    unittest.main()
