"""Makes the page for people, docs/compatibility.md, and its table of tests, docs/compatibility/tests.csv, from the outcomes
in every release's record (records.py)."""

import collections
import csv
import dataclasses
import io

import frame

ABSENT = "–"

HEAD = """# Compatibility

This page lists the programs that run over Tulle, unmodified, from the packages of two Debian releases. `./dev compat`
runs those of the machine's release, writes their outcomes into [compatibility/](compatibility/) and makes this page
from the files there. After the summary, the page lists what did not pass, with the test's reason.
[tests.csv](compatibility/tests.csv) lists every test. A dash (–) means that the release's packages do not have the
test.
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """One test: for each release its outcome and reason, or None if the release does not have it."""

    test: str
    cells: tuple


def counts(outcomes):
    counted = collections.Counter(outcomes)
    return ", ".join(f"{counted[outcome]} {outcome}" for outcome in frame.OUTCOMES if counted[outcome])


def cell(text):
    return " ".join(text.replace("|", "\\|").split())


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def in_one_order(lists):
    """Returns the names of all lists. A name that the earlier lists lack follows the name before it in its own list."""
    merged = []
    for names in lists:
        at = 0
        for name in names:
            if name in merged:
                at = merged.index(name) + 1
            else:
                merged.insert(at, name)
                at += 1
    return merged


def rows_of(records):
    """Returns the rows of one suite, from each release's record of it (None if the suite did not run)."""
    tests = [record["tests"] if record else {} for record in records]

    def cell_of(each, name):
        return (each[name]["outcome"], each[name].get("reason", "")) if name in each else None

    return [Row(name, tuple(cell_of(each, name) for each in tests)) for name in in_one_order(tests)]


def outcome_of(told):
    return told[0] if told else ABSENT


def summary_cell(suite, record):
    if not record:
        return "not run"
    version = record["packages"].get(suite.PACKAGES[0]) or "not installed"
    return f"{version}: {counts(test['outcome'] for test in record['tests'].values())}"


def has_not_passed(row):
    return any(told and told[0] != "pass" for told in row.cells)


def reasons(row, names):
    """Returns why the test did not pass. The text names the releases if their reasons differ."""
    given = {}
    for name, told in zip(names, row.cells):
        if told and told[0] != "pass":
            given.setdefault(told[1] or "none given", []).append(name)
    if len(given) == 1:
        return next(iter(given))
    return "; ".join(f"{', '.join(releases)}: {reason}" for reason, releases in given.items())


def details(rows, names):
    """Returns a table of everything that did not pass. Tests with equal outcomes and reasons share a line."""
    groups = {}
    for row in rows:
        if has_not_passed(row):
            groups.setdefault(row.cells, []).append(row)
    lines = []
    for cells, group in groups.items():
        tests = ", ".join(f"`{row.test}`" for row in group)
        lines.append([tests, *map(outcome_of, cells), cell(reasons(group[0], names))])
    return table(["tests", *names, "reason"], lines)


def measured(records):
    """Returns a sentence that names the days on which the releases' suites ran."""
    def days(record):
        dates = sorted({suite["date"] for suite in record["suites"].values()})
        return " to ".join(dict.fromkeys((dates[0], dates[-1])))

    told = ", ".join(f"{days(record)} ({record['name']})" for record in records)
    return f"\nThe suites ran on {told}.\n"


def all_rows(suites, records):
    """Returns {name of the suite: its rows}."""
    return {key: rows_of([record["suites"].get(key) for record in records]) for key in suites}


def write(suites, records):
    """Returns the whole page. `suites` is {name: module}; `records` has one record a release."""
    names = [record["name"] for record in records]
    rows = all_rows(suites, records)
    text = HEAD + "\n" + table(["program", *names, "what is run"], [
        [suite.NAME, *(summary_cell(suite, record["suites"].get(key)) for record in records), cell(suite.WHAT)]
        for key, suite in suites.items()])
    text += measured(records)
    for key, suite in suites.items():
        notes = getattr(suite, "NOTES", "")
        has_details = any(map(has_not_passed, rows[key]))
        if notes or has_details:
            text += f"\n## {suite.NAME}\n"
        if notes:
            text += f"\n{notes.strip()}\n"
        if has_details:
            text += "\n" + details(rows[key], names)
    return text


def every_test(suites, records):
    """Returns a row for each test, as CSV: the program, the test, and its outcome in each release."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["program", "test", *(record["name"] for record in records)])
    for key, rows in all_rows(suites, records).items():
        out.writerows([suites[key].NAME, row.test, *map(outcome_of, row.cells)] for row in rows)
    return text.getvalue()
