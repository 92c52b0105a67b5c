#!/usr/bin/env python3
"""Closes a test run with the line "N passed, N failed[, N skipped]", read from ctest's JUnit file."""

import sys
import xml.etree.ElementTree


def main(path):
    cases = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
    failed, skipped, passed = [], [], 0
    for case in cases:
        status = case.get("status")
        if status == "run":
            passed += 1
        elif status in ("disabled", "notrun") and case.find("skipped") is not None:
            skipped.append(case.get("name"))
        else:
            failed.append(case.get("name"))
    for name in skipped:
        print(f"skipped: {name}")
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
