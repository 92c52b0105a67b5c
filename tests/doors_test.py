#!/usr/bin/env python3
"""Tests the record of the doors (./dev release): the page says what the record says, and what is old is noticed. Warns of
doors that were last tried more than a week ago, or failed."""

import datetime
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import door  # noqa: E402
import minimal_debian  # noqa: E402
import release  # noqa: E402

TODAY = datetime.date(2026, 11, 28)


def row(date="2026-11-28", passed=True, summary="3 passed, 0 failed"):
    return {"date": date, "commit": "0123456789ab", "seconds": 125, "passed": passed, "summary": summary}


def all_rows(**changes):
    return {release.key_of(name, each): row(**changes) for name in release.DOORS for each in release.RELEASES}


class Doors(unittest.TestCase):
    def test_the_page_says_what_the_record_says(self):
        record = release.read_record()
        self.assertEqual(release.PAGE.read_text(), release.render(record), "run: ./dev release --page")
        for line in release.faults(record, datetime.date.today()):
            print(f"WARNING: {line} (./dev release)", file=sys.stderr)

    def test_what_is_open_is_no_fault(self):
        self.assertEqual(release.faults(all_rows(), TODAY), [])
        self.assertEqual(release.faults(all_rows(date="2026-11-21"), TODAY), [])

    def test_what_is_old_shut_or_missing_is_named(self):
        record = all_rows()
        record["demo bookworm"] = row(date="2026-11-20")
        record["test trixie"] = row(passed=False)
        del record["pages trixie"]
        self.assertEqual(release.faults(record, TODAY),
                         ["./dev fresh --release bookworm demo was last tried on 2026-11-20",
                          "./dev fresh --release trixie test failed on 2026-11-28",
                          "./dev pages --release trixie was never tried"])

    def test_rows(self):
        page = release.render({"demo bookworm": row(), "demo trixie": row(passed=False, summary="")})
        self.assertIn("| passed: 3 passed, 0 failed | 2 min 05 s | 2026-11-28 | 0123456789ab |", page)
        self.assertIn("| **failed** | 2 min 05 s |", page)
        self.assertIn("| never tried | – | – | – |", page)

    def test_the_last_summary_counts(self):
        self.assertEqual(release.last_summary("a\n1 passed, 2 failed\nb\ndoor: 9 passed, 0 failed, 1 skipped\n"),
                         "9 passed, 0 failed, 1 skipped")
        self.assertEqual(release.last_summary("nothing"), "")


class Door(unittest.TestCase):
    def test_the_other_release_is_another(self):
        self.assertIn(door.other_release(), door.minimal_debian.RELEASES)
        self.assertNotEqual(door.other_release(), door.this_release())

    def test_the_lines_that_an_installed_package_runs_are_the_readmes(self):
        readme = (ROOT / "README.md").read_text()
        for command in ("ibv_devinfo", "ib_write_bw", "compare --workload incast"):
            self.assertIn(command, readme)
            self.assertTrue(any(command in line for line, _ in door.FIRST_LINES))


class Cache(unittest.TestCase):
    """What is in a prepared system runs as root. Nobody else may have put it there."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def refused(self, path):
        with self.assertRaisesRegex(minimal_debian.Failed, "XDG_CACHE_HOME"):
            minimal_debian.own_folder(path)

    def test_a_new_folder_is_its_makers(self):
        made = minimal_debian.own_folder(self.folder / "tulle" / "roots")
        self.assertEqual(0o700, made.stat().st_mode & 0o777)
        self.assertEqual(made, minimal_debian.own_folder(made))

    def test_others_may_write_to_it(self):
        for mode in (0o777, 0o757, 0o770, 0o1777):
            (self.folder / "roots").mkdir(exist_ok=True)
            (self.folder / "roots").chmod(mode)
            self.refused(self.folder / "roots")

    def test_others_may_write_above_it(self):
        (self.folder / "open").mkdir()
        (self.folder / "open").chmod(0o777)
        self.refused(self.folder / "open" / "tulle" / "roots")

    @unittest.skipIf(os.geteuid() != 0, "only root gives folders away")
    def test_another_user_owns_it(self):
        for owned in ("roots", "above"):
            (self.folder / owned).mkdir()
            os.chown(self.folder / owned, 65534, 65534)
        self.refused(self.folder / "roots")
        self.refused(self.folder / "above" / "roots")

    def test_a_link_leads_where_others_write(self):
        (self.folder / "theirs").mkdir()
        (self.folder / "theirs").chmod(0o777)
        (self.folder / "roots").symlink_to(self.folder / "theirs")
        self.refused(self.folder / "roots")


class WhatThePackageSays(unittest.TestCase):
    def test_the_packages_own_test_expects_the_message_as_it_is(self):
        """That test runs in a minimal system, where few changes are tried."""
        source = (ROOT / "src/cli/simulator.cc").read_text()
        literals = re.findall(r'"([^"]*)"', source[source.index("if (*package != 0)"):].split(";\n", 1)[0])
        message = "tulle: " + "".join(literals).replace("{}", "sim", 1).replace("{}", "tulle-simulator")
        patterns = re.findall(r"says without '(.*)'", (ROOT / "debian/tests/live").read_text())
        self.assertEqual(1, len(patterns))
        self.assertRegex(message, patterns[0])


if __name__ == "__main__":
    unittest.main()
