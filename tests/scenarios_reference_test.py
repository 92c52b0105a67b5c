#!/usr/bin/env python3
"""Checks that the scenario `reference` names every key of a scenario, with its default as its value."""

import json
import pathlib
import re
import tempfile
import tomllib
import unittest

from shipped import ROOT, SCENARIOS, Case, results, simulate

# Keys that decide which other keys there are, or that are required. Their values in the reference are not defaults.
CHOICES = {("topology", "kind"), ("topology", "file"), ("topology", "hosts"), ("traffic", "pattern"),
           ("traffic", "file"), ("traffic", "step"), ("traffic", "checkpoint"), ("traffic", "serve"),
           ("traffic", "trace"), ("traffic", "sizes"), ("traffic", "sizes_file"), ("fabric", "kind"),
           ("fabric", "flow_control"), ("fabric", "ecn"), ("fabric", "congestion"), ("congestion", "control"),
           ("routing", "allow_deadlock"), ("host", "recovery"), ("host", "transport"), ("host", "kernel")}
# Keys without which a variant cannot be what it is, though their values are no defaults
NEEDED = {"rail-only": {("traffic", "distance")}, "planes": {("topology", "planes"), ("topology", "link_rate")}}
LIST_DEFAULTS = {"buffer", "placement", "arrival"}


def merged(base, change):
    both = dict(base)
    for key, value in change.items():
        both[key] = merged(base.get(key, {}), value) if isinstance(value, dict) else value
    return both


def toml_of(tables):
    """Returns the TOML text of a table of tables and lists of tables that hold strings, numbers, booleans or empty
    tables."""
    lines = []
    for name, table in tables.items():
        if isinstance(table, list):
            for entry in table:
                lines += [f"[[{name}]]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
            continue
        lines.append(f"[{name}]")
        lines += [f"{key} = {'{}' if isinstance(value, dict) else json.dumps(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def keys_in_sources():
    """Returns the keys that the reader of scenarios asks for, as its sources show them."""
    found = set()
    folder = ROOT / "src" / "study" / "scenario"
    for source in [folder / "scenario.cc", folder / "picture.cc", folder / "prices.cc", *sorted(folder.glob("build*.cc"))]:
        text = re.sub(r"\s+", " ", source.read_text())
        reads = r"(\w+)\.(?:texts?|boolean|integers?|number|time|rate|bytes|tables?|choice(?:<[^>]*>)?)\( ?\"(\w+)\""
        found |= {key for reader, key in re.findall(reads, text) if reader != "profile"}
        found |= set(re.findall(r"\b(?:count|bytes|read_weights)\(table, \"(\w+)\"", text))
        found |= set(re.findall(r"\b(?:count|size)\(\"(\w+)\"", text))
        found |= set(re.findall(r"\bbuffer_bytes\(table, \"(\w+)\"", text))
        found |= {key for pair in re.findall(r"\bread_costs\(\"(\w+)\", \"(\w+)\"", text) for key in pair}
        found |= set(re.findall(r"\benrol\(\"(\w+)\"", text))
        for prefix in re.findall(r"\blink\(table, \"(\w+)\"", text):
            found |= {prefix + "rate", prefix + "delay"}
    return found - {"send", "receive", "completion"}  # names of tables in host profiles


class Reference(Case):
    def test_names_every_key(self):
        text = (SCENARIOS / "reference.toml").read_text()
        named = set(re.findall(r"^(?:# )?(?:\w+\.)?(\w+) = ", text, re.MULTILINE))
        named |= {part for table in re.findall(r"^(?:# )?\[+([\w.]+)\]+", text, re.MULTILINE) for part in table.split(".")}
        keys = keys_in_sources()
        self.assertGreater(len(keys), 80, "sources are read otherwise now")
        self.assertEqual(set(), keys - named)

    def test_runs(self):
        self.assert_all_arrived("reference")

    def test_the_values_are_the_defaults(self):
        file = tomllib.loads((SCENARIOS / "reference.toml").read_text())
        for variant in file["variant"]:
            with self.subTest(variant=variant["name"]):
                needed = {}
                kept = CHOICES | NEEDED.get(variant["name"], set())
                for name, table in merged(file, variant).items():
                    if name in ("fault", "jobs"):
                        needed[name] = [{key: value for key, value in entry.items() if key not in LIST_DEFAULTS}
                                        for entry in table]
                    if not isinstance(table, dict):
                        continue
                    needed[name] = {key: {} if isinstance(value, dict) else value
                                    for key, value in table.items() if (name, key) in kept}
                    for key in ("file", "sizes_file", "step", "serve", "trace"):
                        if key in needed[name]:
                            needed[name][key] = str(SCENARIOS / needed[name][key])
                with tempfile.TemporaryDirectory() as folder:
                    path = pathlib.Path(folder) / "defaults.toml"
                    path.write_text(toml_of(needed).replace("step:tables", f"step:{SCENARIOS}/tables"))
                    summary = simulate(path, pathlib.Path(folder) / "results")
                expected = results("reference")[variant["name"]]
                self.assertEqual(expected, {key: summary[key] for key in expected if key != "variant"}
                                 | {"variant": variant["name"]})


if __name__ == "__main__":
    unittest.main()
