"""Which commit a working tree is of, for records of what was measured."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def commit():
    """Returns the first 12 digits of HEAD, with "-dirty" if a file differs from it, or nothing where git or its folder is
    not there."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"], cwd=ROOT,
                              capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()
