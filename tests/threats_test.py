#!/usr/bin/env python3
"""Checks that every test named in docs/internals/threats.md exists."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/internals/threats.md"


def named(page):
    """Returns the names in the table's last column, with the attack of their line."""
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith(("| what", "| ---")):
            cells = line.strip().strip("|").split(" | ")
            yield from ((name, cells[0].strip()) for name in re.findall(r"`([^`]+)`", cells[-1]))


def googletests():
    """Returns the suites, and the tests as SUITE.TEST, in the sources."""
    found = set()
    for folder in ("src", "tests"):
        for path in (ROOT / folder).rglob("*.cc"):
            for suite, test in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", path.read_text(), re.M):
                found |= {suite, f"{suite}.{test}"}
    return found


def others():
    """Returns the names of all tests that are no GoogleTest's."""
    found = {path.stem for path in (ROOT / "src").rglob("*_fuzz.cc")}
    found |= {"clients." + path.stem.removesuffix("_test") for path in (ROOT / "tests/clients").glob("*_test.py")}
    for path in (ROOT / "tests").rglob("*_test.py"):
        found |= set(re.findall(r"^class (\w+)", path.read_text(), re.M))
    # The attacks of ./dev hostile user.
    for path in (ROOT / "tests/clients/hostile").glob("*.cc"):
        found |= set(re.findall(r'\{"([a-z_]+\.[a-z_]+)"', path.read_text()))
    found |= {"staged"} | {f"staged.{name}" for name in
                           re.findall(r"^def (\w+)\(", (ROOT / "tests/hostile/staged.py").read_text(), re.M)}
    found |= set(re.findall(r'"(staged\.\w+)"', (ROOT / "tests/hostile/staged.py").read_text()))
    for folder in ("src", "tests"):
        for path in (ROOT / folder).rglob("CMakeLists.txt"):
            found |= set(re.findall(r"NAME ([\w.]+)", path.read_text()))
    return found


def exists(name, known):
    if name.startswith("./dev "):
        return re.search(rf"^    {name.split()[1]}\)", (ROOT / "dev").read_text(), re.M) is not None
    return name in known or ("/" in name and (ROOT / "src" / name).exists())


class Threats(unittest.TestCase):
    maxDiff = None

    def test_each_test_exists(self):
        known = googletests() | others()
        names = list(named(PAGE.read_text()))
        self.assertGreater(len(names), 200)
        self.assertEqual([], [f"{name}: {attack}" for name, attack in names if not exists(name, known)])

    def test_can_fail(self):
        page = "| what | x | test |\n| --- | --- | --- |\n| Somebody does it. | Nothing. | `SealTest`, `NoSuchTest.AtAll` |\n"
        known = googletests()
        self.assertEqual(["NoSuchTest.AtAll"], [name for name, _ in named(page) if not exists(name, known)])

    def test_each_line_names_a_test(self):
        lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and " | " in line][1:]
        self.assertEqual([], [line for line in lines if "`" not in line.split(" | ")[-1] and "---" not in line])


if __name__ == "__main__":
    unittest.main()
