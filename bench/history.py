"""Appends to bench/history.jsonl: what was measured, on which machine and at which commit, one JSON object a line."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "bench" / "history.jsonl"


def commit():
    """Returns the commit of the working tree, with "-dirty" if a source differs from it."""
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/history.jsonl")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def machine():
    model = None
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count()}


def append(row, path=FILE):
    with path.open("a") as file:
        file.write(json.dumps({**row, "commit": commit(), "machine": machine()}) + "\n")
