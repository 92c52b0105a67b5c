"""The long mode of ./dev pages: minimal Debian systems in which Tulle is built, and the commands of the pages run.

The clone is /tulle, with what is committed. Commands that download (./dev, apt-get) have this machine's network: UDP port
4791 must be free there. All others have the networks of sandbox.py. sudo asks for no password, and apt-get for no
confirmation.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import minimal_debian
from sandbox import READER, USERS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TREE, INSTALLED = "/tulle", "/opt/tulle"
PURPOSES = "build demo pages"  # of cmake/debian-packages.txt
SPACE_MIB = 6000


def _prepare(release, folder, arguments):
    """Returns a system with a clone in which Tulle is built, and with Tulle installed."""
    began = time.monotonic()
    archive = folder / "root.tar"
    minimal_debian.make_archive(release, archive, arguments.mirror)
    system = minimal_debian.System(archive, folder / "root")
    archive.unlink()
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, system.folder / TREE.lstrip("/")], check=True)
    # mmdebstrap leaves this file out, which Debian's installer writes.
    system.write("/etc/hosts", b"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 alpha beta\n")
    system.write("/etc/apt/apt.conf.d/90-pages", b'APT::Get::Assume-Yes "true";\n')
    system.run(f"cd {TREE} && ./dev install-packages {PURPOSES}")
    system.write("/etc/sudoers.d/pages", f"{READER} ALL=(ALL) NOPASSWD: ALL\n".encode())
    binds = {}
    if arguments.ccache:
        # The cache only saves time: the result of the build is the same.
        system.run("apt-get install ccache")
        binds[arguments.ccache] = "/ccache"
    system.run(f"export CCACHE_DIR=/ccache; cd {TREE} && ./dev build && cmake --install build --prefix {INSTALLED}",
               binds=binds)
    print(f"pages: Debian {release} and Tulle in it after {time.monotonic() - began:.0f} s", flush=True)
    return system


def _entering(system, scratch):
    """Returns what comes before a command to run it in the system, where `scratch` is seen at its own path."""
    return ["sh", "-c", minimal_debian.ENTER, "sh", system.folder, "shared", f"{scratch}:{scratch}", "--"]


def run(releases, folders, arguments, run_pages):
    """Calls run_pages(release, its options) for each release, in a system of its own."""
    if not shutil.which("mmdebstrap"):
        sys.exit("pages: mmdebstrap is missing; run: apt-get install mmdebstrap")
    free = shutil.disk_usage(folders).free >> 20
    if free < SPACE_MIB:
        sys.exit(f"pages: {folders} has {free} MiB free, and a system with a build in it needs {SPACE_MIB}")
    for release in releases:
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(tempfile.mkdtemp(prefix="tulle-pages-", dir=folders))
            stack.callback(minimal_debian.remove, folder)
            os.chmod(folder, 0o755)
            system = _prepare(release, folder, arguments)

            def own(user, tree=system.folder / TREE.lstrip("/")):
                # A clone belongs to the one who made it.
                subprocess.run(["chown", "-R", f"{USERS[user]}:{USERS[user]}", tree], check=True)

            run_pages(release, tree=TREE, folder=folder, etc=system.folder / "etc", installed=INSTALLED, own=own,
                      enter=lambda scratch, system=system: _entering(system, scratch))
