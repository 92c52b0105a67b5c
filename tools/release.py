#!/usr/bin/env python3
"""./dev release: tries every door on both releases of Debian, before a release, and writes what came of it.

    release.py [--release R] [DOOR...]   runs the doors (all without a name), and writes docs/doors.json and docs/doors.md
    release.py --check                   runs nothing: fails if the page does not say what the record says, if a door was
                                         shut or never tried, or if a door was tried more than a week ago
    release.py --page                    writes the page alone

A door is a command that the pages ask a user to type. The commands run in minimal systems that are made for them, on what
is committed. All of them take some hours on two cores.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

from minimal_debian import RELEASES

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "doors.json"
PAGE = ROOT / "docs" / "doors.md"
LOGS = ROOT / "build-release"
OLD_DAYS = 7
# What is tried, by name: the command for a release, and what it does.
DOORS = {
    "demo": ("./dev fresh --release {} demo", "builds Tulle and runs the demo in a minimal system"),
    "test": ("./dev fresh --release {} test", "builds everything and runs all tests in a minimal system"),
    "package": ("./dev package --check {}", "builds the packages, installs, uses and purges them, and follows the recipes "
                "for GitHub Actions and GitLab"),
    "pages": ("./dev pages --release {}", "runs every command of the pages, as root and as an ordinary user, in a clone "
              "and elsewhere"),
    "compat": ("./dev fresh --release {} compat", "runs every real program over Tulle in a minimal system"),
}
HEAD = """# Doors

A *door* is a command that these pages ask a new user to type. This page shows when each door was last tried from a
clean clone in a minimal system, on which commit, and how long it took on two cores. `./dev release` tries the doors
and writes this page; `.ci/run` tries some of them for each change (`./dev door`).

"""
SUMMARY = re.compile(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)


def read_record():
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def key_of(door, release):
    return f"{door} {release}"


def render(record):
    """Returns the page of a record: {"DOOR RELEASE": {date, commit, seconds, passed, summary}}."""
    lines = ["| command | what it does | outcome | time | tried | commit |", "| --- | --- | --- | --- | --- | --- |"]
    for door, (command, what) in DOORS.items():
        for release in RELEASES:
            row = record.get(key_of(door, release))
            said = "never tried"
            time_s = date = commit = "–"
            if row:
                said = ("passed" if row["passed"] else "**failed**") + (f": {row['summary']}" if row["summary"] else "")
                time_s = f"{row['seconds'] // 60} min {row['seconds'] % 60:02} s"
                date, commit = row["date"], row["commit"]
            lines.append(f"| `{command.format(release)}` | {what} | {said} | {time_s} | {date} | {commit} |")
    return HEAD + "\n".join(lines) + "\n"


def faults(record, today):
    """Returns a line for each door that is shut, was never tried, or was tried too long ago."""
    found = []
    for door, (command, _) in DOORS.items():
        for release in RELEASES:
            row = record.get(key_of(door, release))
            line = command.format(release)
            if row is None:
                found.append(f"{line} was never tried")
            elif not row["passed"]:
                found.append(f"{line} failed on {row['date']}")
            elif (today - datetime.date.fromisoformat(row["date"])).days > OLD_DAYS:
                found.append(f"{line} was last tried on {row['date']}")
    return found


def last_summary(output):
    found = SUMMARY.findall(output)
    if not found:
        return ""
    passed, failed, skipped = found[-1]
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def try_door(door, release, commit):
    command = DOORS[door][0].format(release)
    LOGS.mkdir(exist_ok=True)
    log = LOGS / f"{door}-{release}.log"
    print(f"release: {command} ...", flush=True)
    began = time.monotonic()
    with log.open("w") as file:
        status = subprocess.run(shlex.split(command), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file,
                                stderr=subprocess.STDOUT).returncode
    output = log.read_text(errors="replace")
    row = {"date": str(datetime.date.today()), "commit": commit, "seconds": round(time.monotonic() - began),
           "passed": status == 0, "summary": last_summary(output)}
    print(f"release: {command}: {'passed' if row['passed'] else 'failed'} in {row['seconds']} s {row['summary']}",
          flush=True)
    if status != 0:
        print("\n".join(output.splitlines()[-40:]) + f"\nrelease: all of its output is in {log}", flush=True)
    return row


def write(record):
    fresh = RECORD.with_suffix(".new")
    fresh.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    os.replace(fresh, RECORD)
    PAGE.write_text(render(record))


def check(record):
    found = faults(record, datetime.date.today())
    if not PAGE.exists() or PAGE.read_text() != render(record):
        found.append("docs/doors.md does not say what docs/doors.json says; run: ./dev release --page")
    for line in found:
        print(f"release: {line}", file=sys.stderr)
    return 1 if found else 0


def main():
    parser = argparse.ArgumentParser(prog="./dev release", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("doors", nargs="*", metavar="DOOR", help=f"these alone of {', '.join(DOORS)}")
    parser.add_argument("--release", choices=RELEASES, action="append", help="on this release alone")
    parser.add_argument("--check", action="store_true", help="run nothing, and say what is shut, missing or old")
    parser.add_argument("--page", action="store_true", help="write the page from the record alone")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.doors) - set(DOORS))
    if unknown:
        parser.error(f"no door {unknown[0]}; the doors are {', '.join(DOORS)}")
    record = read_record()
    if arguments.check:
        return check(record)
    if arguments.page:
        write(record)
        return 0
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode != 0:
        sys.exit("release: this tree has changes that are not committed; the doors are tried on what is")
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, check=True, capture_output=True,
                            text=True).stdout.strip()
    passed = failed = 0
    for door in arguments.doors or DOORS:
        for release in arguments.release or RELEASES:
            row = try_door(door, release, commit)
            record = read_record() | {key_of(door, release): row}
            write(record)  # at once, since the rest may take hours
            passed, failed = passed + row["passed"], failed + (not row["passed"])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
