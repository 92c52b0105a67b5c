#!/usr/bin/env python3
"""./dev fresh: runs ./dev on a machine that has nothing.

    fresh.py [--release bookworm|trixie] demo            ./dev demo in a minimal Debian
    fresh.py [--release bookworm|trixie] COMMAND...      ./dev COMMAND there; "-- COMMAND" runs COMMAND itself

The minimal Debian is a folder that mmdebstrap makes: essential packages and apt, nothing else. The repository's HEAD is
cloned into it. The command sees its own processes and its own /tmp, and the network of this machine, since apt needs
it; UDP port 4791 must be free. An ordinary user needs user namespaces and ranges in /etc/subuid and /etc/subgid.

At the end it tells how long each part took and which packages the command installed. The folder is removed, unless
--keep is given. The exit status is the command's.
"""

import argparse
import fcntl
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASES = ("bookworm", "trixie")
SPACE_MIB = 6000  # a root with every package for the tests and their build
INSIDE = "/root/tulle"
FOLDERS, PREFIX = "/var/tmp", "tulle-fresh-"
ENVIRONMENT = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
               "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

# What runs as root, real or mapped, in mount and process namespaces of its own: it fills the folder with the archive
# where there is one, and goes into it. Its mounts end with it.
ENTER = r"""
set -e
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/sys" "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in DEVICES; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
if [ -e /dev/net/tun ]; then
  mkdir "$root/dev/net"; touch "$root/dev/net/tun"; mount --bind /dev/net/tun "$root/dev/net/tun"
fi
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"; ln -s fd/1 "$root/dev/stdout"; ln -s fd/2 "$root/dev/stderr"
cat /etc/resolv.conf >"$root/etc/resolv.conf"
exec chroot "$root" "$@"
""".replace("DEVICES", " ".join(DEVICES))


def fail(message):
    sys.exit(f"fresh: {message}")


def as_root():
    """The words before a command that has to run as root: none for root itself."""
    return [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--map-auto"]


class Fresh:
    """A minimal Debian in a folder. The folder's lock is held while its maker lives; `keep` gives it up for good."""

    def __init__(self, folder, release=None):
        self.release = release
        self.folder = pathlib.Path(folder)
        self.root = self.folder / "root"
        self._lock = open(self.folder / "lock", "w", encoding="ascii")

    def lock(self):
        """False if somebody else holds it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def keep(self):
        (self.folder / "lock").rename(self.folder / "kept")

    def make(self, mirror):
        """Makes the minimal Debian, with the clone in it."""
        archive, log = self.folder / "root.tar", self.folder / "mmdebstrap.log"
        command = ["mmdebstrap", "--variant=minbase", self.release, str(archive), *([mirror] if mirror else [])]
        with open(log, "wb") as output:
            if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode != 0:
                why = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("E:")]
                fail(f"mmdebstrap could not make a root of {self.release}: {why[0][3:] if why else log.read_text()}")
        self.root.mkdir()
        subprocess.run([*as_root(), "tar", "-C", str(self.root), "--exclude=./dev/*", "-xf", str(archive)], check=True)
        archive.unlink()
        clone = self.folder / "clone"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        target = str(self.root) + INSIDE
        subprocess.run([*as_root(), "cp", "-r", str(clone), target], check=True)
        shutil.rmtree(clone)

    def command(self, *words, folder="/"):
        """That command in the root, as a command of this machine"""
        change = ["/bin/sh", "-c", f'cd {shlex.quote(folder)} && exec "$@"', "sh", *words]
        return [*as_root(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc",
                "/bin/sh", "-c", ENTER, "sh", str(self.root), *change]

    def run(self, *words, folder="/", **keywords):
        return subprocess.run(self.command(*words, folder=folder), env=ENVIRONMENT | keywords.pop("environment", {}),
                              **keywords)

    def packages(self):
        done = self.run("dpkg-query", "-W", "-f=${Package}\t${Installed-Size}\n", capture_output=True, text=True,
                        check=True)
        return dict(line.split("\t") for line in done.stdout.splitlines())

    def remove(self):
        subprocess.run([*as_root(), "rm", "-rf", "--one-file-system", str(self.root)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def remove_what_was_left():
    """Removes the roots of runs that were killed."""
    for lock in pathlib.Path(FOLDERS).glob(f"{PREFIX}*/lock"):
        try:
            left = Fresh(lock.parent)
        except OSError:
            continue  # somebody else's
        if left.lock():
            print(f"fresh: removing {left.folder}, which a run that was killed has left", file=sys.stderr)
            left.remove()


def tell_packages(before, after):
    new = sorted(set(after) - set(before))
    size = sum(int(after[name] or 0) for name in new) / 1024
    print(f"fresh: {len(new)} packages were installed, {size:.0f} MB: {' '.join(new) or 'none'}")


def parse():
    parser = argparse.ArgumentParser(prog="./dev fresh", description="Run ./dev in a minimal Debian made for it.")
    parser.add_argument("--release", choices=RELEASES, default=RELEASES[0], help="Debian's release (%(default)s)")
    parser.add_argument("--mirror", help="take packages from this mirror instead of Debian's own")
    parser.add_argument("--keep", action="store_true", help="leave the folder there and say where it is")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND",
                        help='a command of ./dev, or "-- COMMAND" for any other command')
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("a command is missing: demo, test, compat, or another of ./dev; or -- COMMAND")
    return arguments


def main():
    arguments = parse()
    words = arguments.command[1:] if arguments.command[0] == "--" else ["./dev", *arguments.command]
    if subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", "HEAD"]).returncode != 0:
        print("fresh: the clone has what is committed; this tree has changes that are not", file=sys.stderr)
    # The end by a signal is an end like any other: the folder goes.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGINT))
    remove_what_was_left()
    free = shutil.disk_usage(FOLDERS).free >> 20
    if free < SPACE_MIB:
        fail(f"{FOLDERS} has {free} MiB free, and a root with a build in it needs {SPACE_MIB}")
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=FOLDERS)
    os.chmod(folder, 0o755)  # users inside the root pass through it
    fresh = Fresh(folder, arguments.release)
    fresh.lock()
    try:
        began = time.monotonic()
        fresh.make(arguments.mirror)
        made = time.monotonic()
        print(f"fresh: Debian {arguments.release} and a clone in {made - began:.0f} s; running {shlex.join(words)}",
              flush=True)
        before = fresh.packages()
        status = fresh.run(*words, folder=INSIDE, environment={"TERM": os.environ.get("TERM", "dumb")}).returncode
        print(f"fresh: {shlex.join(words)} ended with status {status} after {time.monotonic() - made:.0f} s")
        tell_packages(before, fresh.packages())
        return status
    except KeyboardInterrupt:
        return 130
    finally:
        if arguments.keep:
            fresh.keep()
            print(f"fresh: the root is {fresh.root}")
        else:
            fresh.remove()


if __name__ == "__main__":
    sys.exit(main())
