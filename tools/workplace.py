"""Folders below /var/tmp for minimal systems and what runs in them. They are removed at the end, also by a signal; the
next run removes what a killed one left."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import minimal_debian
from minimal_debian import Failed

FOLDERS = pathlib.Path("/var/tmp")


class Workplace:
    """A folder below FOLDERS. Its maker holds the lock while it lives. A folder without the lock file is kept for
    good."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._lock = open(self.folder / "lock", "r+" if (self.folder / "lock").exists() else "w", encoding="ascii")

    def lock(self):
        """Returns False if another process holds the lock."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def keep(self):
        (self.folder / "lock").unlink()

    @property
    def is_kept(self):
        return not (self.folder / "lock").exists()

    def remove(self):
        minimal_debian.remove(self.folder)


def remove_what_was_left(prefix):
    for lock in FOLDERS.glob(f"{prefix}*/lock"):
        try:
            left = Workplace(lock.parent)
        except OSError:
            continue  # another user's folder
        if left.lock():
            print(f"{prefix.rstrip('-')}: removing {left.folder}, which a killed run left", file=sys.stderr)
            left.remove()


@contextlib.contextmanager
def workplace(prefix, space_mib):
    """Makes a folder with this prefix for a run that needs so much space, and removes it unless it is kept."""
    # A signal ends the program like any other end.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.getsignal(signal.SIGINT))
    remove_what_was_left(prefix)
    free = shutil.disk_usage(FOLDERS).free >> 20
    if free < space_mib:
        raise Failed(f"{FOLDERS} has {free} MiB free, and a system with a build in it needs {space_mib}")
    place = Workplace(tempfile.mkdtemp(prefix=prefix, dir=FOLDERS))
    place.lock()
    os.chmod(place.folder, 0o755)  # users inside the system pass through it
    try:
        yield place
    finally:
        if not place.is_kept:
            place.remove()
