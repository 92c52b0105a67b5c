#!/usr/bin/env python3
"""./dev fresh: runs ./dev on a machine that has nothing.

    fresh.py [--release bookworm|trixie] demo            ./dev demo in a minimal Debian
    fresh.py [--release bookworm|trixie] COMMAND...      ./dev COMMAND there; "-- COMMAND" runs COMMAND itself

The repository's HEAD is cloned into a minimal Debian (minimal_debian.py), in a folder below /var/tmp. The command sees
its own processes and its own devices, and the network of this machine, since apt needs it: UDP port 4791 must be free.

At the end the script reports how long each part took and which packages the command installed. --record appends that to
bench/history.jsonl if the command succeeds. Pages and records in docs/ that the command changed, such as those of
"compat --record", are copied into this tree where it has no changes in them. The folder is removed unless --keep is given;
the next run removes what a killed run left. The exit status is the command's.
"""

import argparse
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

import minimal_debian
from minimal_debian import Failed, ended
from workplace import workplace

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import history  # noqa: E402

SPACE_MIB = 6000  # MiB for a system with every package for the tests, and their build
INSIDE = "/tulle"  # ordinary users can reach it, as the tests need
PREFIX = "tulle-fresh-"


def make(folder, release, mirror):
    """Makes a minimal Debian with the clone in it."""
    archive, clone = folder / "root.tar", folder / "clone"
    minimal_debian.make_archive(release, archive, mirror)
    system = minimal_debian.System(archive, folder / "root")
    archive.unlink()
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    subprocess.run([*minimal_debian.as_root(), "cp", "-r", str(clone), f"{system.folder}{INSIDE}"], check=True)
    shutil.rmtree(clone)
    return system


def bring_back(system):
    """Copies the pages and records that the command changed, which would end with the system."""
    clone = f"{system.folder}{INSIDE}"
    git = [*minimal_debian.as_root(), "git", "-c", "safe.directory=*", "-C", clone]
    question = [*git, "diff", "--name-only", "-z", "HEAD", "--", "docs"]
    changed = subprocess.run(question, check=True, capture_output=True, text=True)
    for name in filter(None, changed.stdout.split("\0")):
        changes = subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", "HEAD", "--", name])
        if changes.returncode != 0:
            print(f"fresh: the command wrote {name}, which is not copied: this tree has changes in it", file=sys.stderr)
            continue
        text = subprocess.run([*minimal_debian.as_root(), "cat", f"{clone}/{name}"], check=True, capture_output=True).stdout
        (ROOT / name).write_bytes(text)
        print(f"fresh: the command wrote {name}, which is copied into this tree")


def run(arguments, words, place):
    began = time.monotonic()
    system = make(place.folder, arguments.release, arguments.mirror)
    before = system.packages()
    made = time.monotonic()
    print(f"fresh: Debian {arguments.release} and a clone in {made - began:.0f} s; running {shlex.join(words)}", flush=True)
    terminal = {"TERM": os.environ.get("TERM", "dumb")}
    with ended(system.start(f"cd {INSIDE} && exec {shlex.join(words)}", environment=terminal)) as process:
        status = process.wait()
    seconds = time.monotonic() - made
    bring_back(system)
    after = system.packages()
    new = sorted(set(after) - set(before))
    size_mib = round(sum(after[name] for name in new) / 1024)
    print(f"fresh: {shlex.join(words)} ended with status {status} after {seconds:.0f} s")
    print(f"fresh: {len(new)} packages were installed, {size_mib} MiB: {' '.join(new) or 'none'}")
    if arguments.record and status == 0:
        history.append({"fresh": shlex.join(words), "release": arguments.release, "system_s": round(made - began),
                        "command_s": round(seconds), "packages": len(new), "packages_mib": size_mib})
    return status


def parse():
    parser = argparse.ArgumentParser(prog="./dev fresh", description="Run ./dev in a minimal Debian made for it.")
    parser.add_argument("--release", choices=minimal_debian.RELEASES, default=minimal_debian.RELEASES[0],
                        help="Debian's release (%(default)s)")
    parser.add_argument("--mirror", help="take packages from this mirror instead of Debian's own")
    parser.add_argument("--record", action="store_true", help="append the times to bench/history.jsonl")
    parser.add_argument("--keep", action="store_true", help="leave the system there and say where it is")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND",
                        help='a command of ./dev, or "-- COMMAND" for any other command')
    arguments = parser.parse_args()
    if arguments.command in ([], ["--"]):
        parser.error("a command is missing: demo, test, compat, or another of ./dev; or -- COMMAND")
    return arguments


def main():
    arguments = parse()
    words = arguments.command[1:] if arguments.command[0] == "--" else ["./dev", *arguments.command]
    if subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", "HEAD"]).returncode != 0:
        print("fresh: the clone has what is committed; this tree has changes that are not", file=sys.stderr)
    try:
        with workplace(PREFIX, SPACE_MIB) as place:
            try:
                return run(arguments, words, place)
            finally:
                if arguments.keep:
                    place.keep()
                    print(f"fresh: the system is {place.folder / 'root'}")
    except Failed as failure:
        sys.exit(f"fresh: {failure}")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
