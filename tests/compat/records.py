"""Keeps the outcomes of each release as data: docs/compatibility/CODENAME.json.

A file holds one release: its name, and for each suite the day of its run, the packages' versions and every test with
its outcome and, unless it passed, the reason. document.py makes the page from these files alone, so that each
release is measured where it is installed.
"""

import datetime
import json
import pathlib
import re
import tempfile

import frame
import harness

FOLDER = harness.ROOT / "docs" / "compatibility"


def this_release():
    """Returns (codename, name) of the machine's release, for example ("bookworm", "Debian 12")."""
    lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    told = {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}
    name = f"{told['ID'].capitalize()} {told.get('VERSION_ID', '')}".strip()
    return told.get("VERSION_CODENAME") or told["ID"], name


def without_paths(reason):
    """Returns the reason without the folders of the machine that ran the test."""
    for path, name in ((harness.BUILD, "build"), (harness.ROOT, ".")):
        # The pattern takes a path of its own, and not the end of another path.
        reason = re.sub(rf"(?<![\w./-]){re.escape(str(path))}(?![\w-])", name, reason)
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/tulle-\w+", "/tmp/tulle", reason)


def of_suite(suite, results):
    """Returns the record of one suite that has just run."""
    tests = {}
    for result in results:
        tests[result.test] = {"outcome": result.outcome}
        if result.outcome != "pass":
            tests[result.test]["reason"] = without_paths(result.reason)
    return {
        "date": datetime.date.today().isoformat(),
        "packages": {package: frame.version(package) for package in suite.PACKAGES},
        "tests": tests,
    }


def path_of(codename, folder=FOLDER):
    return folder / f"{codename}.json"


def read(path):
    return json.loads(path.read_text())


def read_all(folder=FOLDER):
    """Returns every release's record, in the order of the releases' names."""
    def by_name(record):
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", record["name"])]

    return sorted((read(path) for path in folder.glob("*.json")), key=by_name)


def text_of(record):
    """Returns a record as its file holds it, with one test a line."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    return re.sub(r"\{\s+(\"outcome\": .*?)\n\s+\}", lambda test: "{" + re.sub(r"\n\s+", " ", test[1]) + "}", text,
                  flags=re.DOTALL) + "\n"


def update(told, order, folder=FOLDER):
    """Writes the suites that ran into this release's file and keeps the other suites of the file. `told` is [(name,
    suite, results)]; `order` has the names of all suites."""
    codename, name = this_release()
    path = path_of(codename, folder)
    suites = read(path)["suites"] if path.exists() else {}
    suites |= {key: of_suite(suite, results) for key, suite, results in told}
    record = {"name": name, "codename": codename, "suites": {key: suites[key] for key in order if key in suites}}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(record))
