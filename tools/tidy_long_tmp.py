#!/usr/bin/env python3
"""./dev tidy: checks how the sources look, and what clang-tidy finds in them.

    tidy.py                 every source
    tidy.py --changed       clang-tidy reads only what changed; everything else is checked whole
    tidy.py --changed=BASE  likewise, since that commit

Without BASE, the change is what HEAD adds to origin's main branch. If HEAD is that branch, as in CI, the change is what
the last day of commits before HEAD brought. clang-tidy also reads files that are changed and not committed. It begins
with the file that changed last and stops after BUDGET_S seconds. The end of the output says how many files it has not
read.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = "build-tidy"
FORMATTER_MAJOR = 14  # the version of clang-format that formats the tree
CODE_COLUMNS, OTHER_COLUMNS = 100, 130
CODE, OTHER = (".h", ".cc", ".c"), (".py", ".sh", ".cmake")
# CI has 25 minutes for everything. clang-tidy takes some five seconds a file; with the analyzer, which follows paths
# through functions, ten to sixty. The analyzer therefore runs only when ./dev tidy reads every source.
BUDGET_S = 1200
WITHOUT_ANALYZER = "--checks=-clang-analyzer-*"


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def sources():
    return sorted(str(path.relative_to(ROOT)) for folder in ("src", "tests", "bench")
                  for path in (ROOT / folder).rglob("*") if path.suffix in CODE)


def check_format(files):
    version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True, check=True).stdout
    if f"version {FORMATTER_MAJOR}." not in version:
        print(f"tidy: format not checked: it is clang-format {FORMATTER_MAJOR}'s, and here is {version.strip()}")
        return True
    if subprocess.run(["clang-format", "--dry-run", "--Werror", *files], cwd=ROOT).returncode == 0:
        return True
    print("tidy: format these with: ./dev format")
    return False


def check_line_lengths(files):
    scripts = [str(path.relative_to(ROOT)) for folder in ("src", "tests", "bench", "tools", "cmake", "scenarios")
               for path in sorted((ROOT / folder).rglob("*"))
               if path.suffix in OTHER or path.name == "CMakeLists.txt"]
    good = True
    for name in [*files, *scripts, "dev", ".ci/run"]:
        columns = CODE_COLUMNS if name.endswith(CODE) else OTHER_COLUMNS
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > columns:
                print(f"{name}:{number}: the line has {len(line)} columns; {columns} are the most")
                good = False
    return good


def base_of_change(given):
    if given:
        return given
    head = git("rev-parse", "HEAD")
    fork = git("merge-base", "HEAD", "origin/HEAD") or git("merge-base", "HEAD", "origin/main")
    if fork and fork != head:
        return fork
    day_before = int(git("log", "-1", "--format=%ct") or 0) - 24 * 3600
    return git("rev-list", "-1", f"--before={day_before}", "HEAD") or git("rev-list", "--max-parents=0", "HEAD")


def changed(given):
    """Returns the names of files that changed, the last change first, or None if git cannot tell."""
    base = base_of_change(given)
    if base is None:
        return None
    uncommitted = git("diff", "--name-only", "HEAD") or ""
    since = git("log", "--format=", "--name-only", f"{base}..HEAD")
    return None if since is None else list(dict.fromkeys([*uncommitted.splitlines(), *since.splitlines()]))


def units(given_base, only_changed):
    """Returns the .cc files for clang-tidy, and how many seconds it has for them."""
    # ./dev compat compiles some programs by itself. Their compilation is not known here.
    commands = json.loads((ROOT / BUILD / "compile_commands.json").read_text())
    compiled = {str(pathlib.Path(command["file"]).relative_to(ROOT)) for command in commands}
    every = [name for name in sources() if name in compiled and name.endswith(".cc")]
    names = changed(given_base) if only_changed else None
    if names is None:
        return every, float("inf")
    known = set(every)
    return [name for name in names if name in known], BUDGET_S


def clang_tidy(name, end, options):
    """Returns (name, exit status, output). The status is None if there was no time left to begin."""
    if time.monotonic() > end:
        return name, None, ""
    done = subprocess.run(["clang-tidy", "--quiet", *options, "-p", BUILD, name], cwd=ROOT, capture_output=True, text=True)
    return name, done.returncode, done.stdout


def check_with_clang_tidy(files, seconds):
    began = time.monotonic()
    options = [] if seconds == float("inf") else [WITHOUT_ANALYZER]
    counts = {"read": 0, "not read": 0, "faulty": 0}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, status, output in pool.map(lambda each: clang_tidy(each, began + seconds, options), files):
            counts["not read" if status is None else "read"] += 1
            if status:
                counts["faulty"] += 1
                print(output or f"{name}: clang-tidy ended with status {status}", flush=True)
            if sys.stderr.isatty():
                print(f"\r  [{counts['read']}/{len(files)}] {name}\033[K", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(f"tidy: clang-tidy read {counts['read']} files in {time.monotonic() - began:.0f} s", flush=True)
    if counts["not read"]:
        print(f"tidy: there was no time for {counts['not read']} files that changed before these; ./dev tidy reads all")
    return counts["faulty"] == 0


def main():
    parser = argparse.ArgumentParser(prog="./dev tidy", description="Check the sources.")
    parser.add_argument("--changed", nargs="?", const="", metavar="BASE", help="clang-tidy reads only what changed")
    arguments = parser.parse_args()
    files = sources()
    chosen, seconds = units(arguments.changed, arguments.changed is not None)
    layers = [sys.executable, "tests/layers_test.py", "Uses", "Links"]
    checks = [check_format(files), check_line_lengths(files),
              subprocess.run(layers, cwd=ROOT).returncode == 0, check_with_clang_tidy(chosen, seconds)]
    if not all(checks):
        sys.exit("tidy: something is to be mended; see above")
    print("tidy: nothing to mend")


if __name__ == "__main__":
    main()
