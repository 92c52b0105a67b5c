#!/usr/bin/env python3
"""Attacks Tulle, and measures what that does to others.

    hostile.py user [OPTIONS]       a user of the host attacks the host agent and other users' programs
    hostile.py network [OPTIONS]    hosts of the network do

Each measure is a module beside this file with a function main(arguments), which returns the exit status.
"""

import importlib
import pathlib
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
MEASURES = ("user", "network")


def main(arguments):
    if arguments[:1] in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    if not arguments or arguments[0] not in MEASURES:
        print(f"hostile: which measure? Choose one of: {', '.join(MEASURES)}", file=sys.stderr)
        return 2
    # What was started is ended, also if somebody ends this.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]
    return importlib.import_module(arguments[0]).main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
