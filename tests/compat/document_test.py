#!/usr/bin/env python3
"""Tests that docs/compatibility.md agrees with its records, that it shows two releases side by side, and that the
form of a test goes by the release."""

import json
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]

import compat  # noqa: E402
import document  # noqa: E402
import frame  # noqa: E402
import records  # noqa: E402

SUITE = types.SimpleNamespace(NAME="Ping", PACKAGES=["ping"], WHAT="pings | pongs")


def release(name, tests, version="1"):
    suite = {"date": "2026-01-02", "packages": {"ping": version}, "tests": tests}
    return {"name": name, "codename": name.lower(), "suites": {"ping": suite}}


def passed():
    return {"outcome": "pass"}


def skipped(reason):
    return {"outcome": "skip", "reason": reason}


class Committed(unittest.TestCase):
    def test_the_page_equals_its_records(self):
        self.assertEqual(compat.page(), compat.PAGE.read_text(), "make it again: tests/compat/compat.py --render")
        self.assertEqual(compat.every_test(), compat.TESTS.read_text(), "make it again: tests/compat/compat.py --render")

    def test_records_are_whole(self):
        for record in records.read_all():
            self.assertEqual(record, records.read(records.path_of(record["codename"])))
            self.assertEqual(records.text_of(record), records.path_of(record["codename"]).read_text())
            for name, suite in record["suites"].items():
                self.assertIn(name, compat.available())
                for test, told in suite["tests"].items():
                    self.assertIn(told["outcome"], frame.OUTCOMES, test)
                    self.assertEqual(told["outcome"] != "pass", bool(told.get("reason")), f"{name}.{test}")


class Page(unittest.TestCase):
    def page(self, *releases):
        return document.write({"ping": SUITE}, list(releases))

    def test_a_column_a_release(self):
        page = self.page(release("Old", {"a": passed()}), release("New", {"a": passed(), "b": passed()}, "2"))
        self.assertIn("| program | Old | New | what is run |\n", page)
        self.assertIn("| Ping | 1: 1 pass | 2: 2 pass | pings \\| pongs |\n", page)

    def test_a_test_of_one_release_alone(self):
        releases = [release("Old", {"a": passed()}), release("New", {"a": passed(), "b": passed()})]
        self.assertEqual(document.every_test({"ping": SUITE}, releases),
                         "program,test,Old,New\nPing,a,pass,pass\nPing,b,–,pass\n")

    def test_reasons(self):
        page = self.page(release("Old", {"a": skipped("x"), "b": skipped("x"), "c": passed()}),
                         release("New", {"a": skipped("x"), "b": skipped("y"), "c": skipped("z")}))
        self.assertIn("| `a` | skip | skip | x |\n", page)
        self.assertIn("| `b` | skip | skip | Old: x; New: y |\n", page)
        self.assertIn("| `c` | pass | skip | z |\n", page)

    def test_a_suite_that_did_not_run(self):
        other = release("New", {})
        other["suites"] = {"pong": other["suites"]["ping"]}
        self.assertIn("| Ping | 1: 1 pass | not run |", self.page(release("Old", {"a": passed()}), other))

    def test_order(self):
        self.assertEqual(list("abxcd"), document.in_one_order([list("abc"), list("abxcd")]))
        self.assertEqual(list("nabc"), document.in_one_order([list("abc"), list("nc")]))


class Update(unittest.TestCase):
    def test_suites_that_did_not_run_stay(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        result = frame.Result("Ping", "a", "fail", f"cannot open {records.harness.BUILD}/bin/tulle")
        records.update([("ping", SUITE, [result])], ["ping", "pong"], folder)
        records.update([("pong", SUITE, [frame.Result("Pong", "b", "pass")])], ["ping", "pong"], folder)
        (path,) = folder.iterdir()
        suites = json.loads(path.read_text())["suites"]
        self.assertEqual(["ping", "pong"], list(suites))
        self.assertEqual({"a": {"outcome": "fail", "reason": "cannot open build/bin/tulle"}}, suites["ping"]["tests"])


class Forms(unittest.TestCase):
    def test_the_last_form_that_is_not_newer_holds(self):
        forms = {"1.0": "old", "1.18": "new"}
        for version, expected in (("1.9.3-1", "old"), ("1.17.9", "old"), ("1.18.1+ds-2+b1", "new"), ("2:1.2-3", "old"),
                                  ("25.01.0", "new")):
            with unittest.mock.patch.object(frame, "version", return_value=version):
                self.assertEqual(expected, frame.form(forms, "any"), version)


if __name__ == "__main__":
    unittest.main()
