#!/usr/bin/env python3
"""Runs tests of real programs over Tulle.

    run.py                      lists them
    run.py GROUP ...            all of a group, for example devices
    run.py GROUP.CLASS[.TEST]   one class, one test
    run.py all
    run.py --packets ...        the same, and processes of one host also meet by UDP alone
    run.py --share-memory ...   the same, and programs share the memory that they register
    run.py --strict ...         the same, and the device is as strict as hardware
    run.py --sealed [--record] ...
                                the same, and programs seal what they send, as packets. Looks at all that leaves, tells it
                                for each test, and fails at anything in clear; --record writes docs/reliability/sealed.json

Run by an ordinary user, it continues as root of a user namespace of its own, which may make network namespaces.
"""

import json
import os
import pathlib
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent.parent / "tools"))

import harness  # noqa: E402

FOLDERS = [HERE, HERE.parent / "interop"]
COMPAT = HERE.parent / "compat"  # modules that the tests share with ./dev compat
GROUPS = sorted(path.stem.removesuffix("_test") for folder in FOLDERS for path in folder.glob("*_test.py"))
SKIPPED = 77  # the exit status that ctest takes for "all skipped"


def expand(name):
    group, _, rest = name.partition(".")
    if group not in GROUPS:
        sys.exit(f"run.py: there is no group {group}; choose one of: {', '.join(GROUPS)}")
    return f"{group}_test" + (f".{rest}" if rest else "")


def become_root_of_a_namespace():
    """Makes an ordinary user root of a user namespace, who may make network namespaces, where the machine allows
    those."""
    if os.geteuid() == 0:
        return
    if os.spawnlp(os.P_WAIT, "unshare", "unshare", "--map-root-user", "--net", "true") == 0:
        os.execvp("unshare", ["unshare", "--map-root-user", sys.executable, *sys.argv])


def run_sealed(loader, names):
    import sealed_run

    wants_record = names[:1] == ["--record"]
    rows_path = names[1] if names[:1] == ["--rows"] else None  # of a process that another run has started
    names = names[2 if rows_path else 1 if wants_record else 0:]
    if not names or (wants_record and names != ["all"]):
        sys.exit("run.py: --sealed needs names of tests, or all; --record needs all")
    become_root_of_a_namespace()
    began = time.monotonic()
    if rows_path is None and (names == ["all"] or (len(names) > 1 and set(names) <= set(GROUPS))):
        return sealed_run.tell(sealed_run.run_apart(GROUPS if names == ["all"] else names), began, wants_record)
    rows = sealed_run.run_here(loader.loadTestsFromNames([expand(name) for name in names]))
    if rows_path is not None:
        pathlib.Path(rows_path).write_text(json.dumps(rows))
        return 0
    return sealed_run.tell(rows, began, False)


def main(names):
    sys.path[:0] = map(str, [*FOLDERS, COMPAT])
    loader = unittest.TestLoader()
    ways = {"--packets": harness.PACKETS_ONLY, "--share-memory": harness.SHARED_MEMORY, "--strict": harness.STRICTLY}
    if names and names[0] in ways:
        os.environ[ways[names[0]]] = "yes"
        names = names[1:]
    if names and names[0] == "--sealed":
        return run_sealed(loader, names[1:])
    if not names:
        for group in GROUPS:
            for test in harness.tests_in(loader.loadTestsFromName(f"{group}_test")):
                print(test.id().replace("_test.", ".", 1))
        return 0
    become_root_of_a_namespace()
    suite = loader.loadTestsFromNames([expand(name) for name in (GROUPS if names == ["all"] else names)])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    ran = result.testsRun - len(result.skipped)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    if not result.wasSuccessful():
        print(f"{max(ran - failed, 0)} passed, {failed} failed, {len(result.skipped)} skipped")
        return 1
    print(f"{ran} passed, 0 failed" + (f", {len(result.skipped)} skipped" if result.skipped else ""))
    return 0 if ran else SKIPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
