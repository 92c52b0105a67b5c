#!/usr/bin/env python3
"""./dev door: what a new user of either Debian does first, from a clean clone, in minimal systems that are made for it.

    door.py                     tries all of this
    door.py [--release R] test|demo|package...
                                these alone; --release: on that release, where CI would take another

test     the other release than this machine's: builds everything with that release's compiler, and runs the quick tests
demo     ./dev demo there, in the same clone
package  this machine's release: ./dev package with what debian/control names and nothing else, in a system that has no
         other packages; then the package is installed in a minimal system, and runs the README's first lines

The systems with their packages are kept in the cache folder (XDG_CACHE_HOME or ~/.cache, below tulle/roots) and made
again each week. The last line is "N passed, N failed".
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import minimal_debian
from minimal_debian import Failed, Layered, ended, prepared
from workplace import workplace

ROOT = pathlib.Path(__file__).resolve().parent.parent
INSTALL = "apt-get install --yes --quiet --no-install-recommends"
INSIDE = "/tulle"  # ordinary users can reach it, as the tests need
LOGS = ROOT / "build-door"
SPACE_MIB = 6000  # MiB for the build of everything, and prepared systems with all packages
PARTS = ("test", "demo", "package")
SHOWN_LINES = 60  # of the output of a part that failed
# The first lines of README.md that an installed package runs, with what each must print.
FIRST_LINES = (("tulle run -- ibv_devinfo", "PORT_ACTIVE"), ("tulle compare --workload incast", "roce-pfc"),
               ("(tulle run -- ib_write_bw & s=$!; sleep 1; tulle run -- ib_write_bw 127.0.0.1; wait $s)", "65536"))


def this_release():
    text = pathlib.Path("/etc/os-release").read_text()
    names = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name = names.get("VERSION_CODENAME", "").strip('"')
    return name if name in minimal_debian.RELEASES else None


def other_release():
    return next(name for name in reversed(minimal_debian.RELEASES) if name != this_release())


class Door:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.clone = self.folder / "clone"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(self.clone)], check=True)
        self.passed = self.failed = 0
        LOGS.mkdir(exist_ok=True)

    def binds(self, clone):
        """The clone, and ccache's folder, which saves time and changes no result."""
        found = {str(clone): INSIDE}
        cache = pathlib.Path(os.environ.get("CCACHE_DIR") or pathlib.Path.home() / ".cache/ccache")
        cache.mkdir(parents=True, exist_ok=True)
        return found | {str(cache): "/ccache"}

    def try_out(self, what, work):
        """Runs work(log), which raises an error where the door is shut."""
        log = LOGS / (re.sub("[^a-z0-9]+", "-", what) + ".log")
        began = time.monotonic()
        print(f"door: {what} ...", flush=True)
        try:
            with log.open("w") as file:
                work(file)
        except (Failed, subprocess.CalledProcessError, OSError) as error:
            self.failed += 1
            tail = log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
            print("\n".join([*tail, f"door: {what}: {error}", f"door: all of its output is in {log}"]), flush=True)
            return False
        self.passed += 1
        print(f"door: {what}: passed in {time.monotonic() - began:.0f} s", flush=True)
        return True

    def run(self, system, command, log, **options):
        """Runs a line of shell in a system, in the clone. Its output goes to the log and is returned."""
        start = log.tell()
        environment = {"CCACHE_DIR": "/ccache", "CCACHE_COMPILERCHECK": "content", "CCACHE_BASEDIR": "/tmp",
                       "CCACHE_NOHASHDIR": "1"}
        process = system.start(command, stdout=log, stderr=subprocess.STDOUT, environment=environment, **options)
        with ended(process):
            status = process.wait()
        log.flush()
        output = pathlib.Path(log.name).read_text(errors="replace")[start:]
        if status != 0:
            raise Failed(f"exit status {status} from: {command}")
        return output

    def developers_system(self, release):
        """A system with what ./dev installs for the build, the demo and the tests, and the clone."""
        sources = [ROOT / name for name in ("cmake/debian-packages.txt", "tools/packages.sh")]
        below = prepared(release, "tests", f"cd {INSIDE} && ./dev install-packages build demo test pictures",
                         binds={str(self.clone): INSIDE}, inputs=sources)
        return Layered(below, self.folder / f"tests-{release}")

    def test_and_demo(self, release, parts):
        clone = self.folder / f"clone-{release}"
        shutil.copytree(self.clone, clone, symlinks=True)
        with self.developers_system(release) as system:
            if "test" in parts:
                self.try_out(f"{release}: ./dev test --quick", lambda log: self.run(
                    system, f"cd {INSIDE} && ./dev test --quick", log, binds=self.binds(clone), loopback=True))
            if "demo" in parts:
                self.try_out(f"{release}: ./dev demo", lambda log: self.run(
                    system, f"cd {INSIDE} && ./dev demo", log, binds=self.binds(clone), loopback=True))

    def package(self, release):
        packages = self.folder / "packages"
        packages.mkdir()

        def build(log):
            below = prepared(release, "package", f"{INSTALL} build-essential ccache && cd {INSIDE} && apt-get build-dep "
                             "--yes --quiet --no-install-recommends .", binds={str(self.clone): INSIDE},
                             inputs=[ROOT / "debian/control"])
            clone = self.folder / "clone-package"
            shutil.copytree(self.clone, clone, symlinks=True)
            binds = self.binds(clone) | {str(packages): "/packages"}
            with Layered(below, self.folder / "package") as system:
                self.run(system, f"WARNINGS_ARE_ERRORS=ON {INSIDE}/dev package --output /packages", log, binds=binds,
                         loopback=True)

        def use(log):
            below = prepared(release, "use", f"{INSTALL} perftest ibverbs-utils iproute2")
            with Layered(below, self.folder / "use") as system:
                self.run(system, f"apt-get update --quiet && {INSTALL} $(ls /packages/*.deb | grep -v dbgsym)", log,
                         binds={str(packages): "/packages"})
                for command, expected in FIRST_LINES:
                    if expected not in self.run(system, command, log, loopback=True):
                        raise Failed(f"{command} does not print {expected}")

        if self.try_out(f"{release}: ./dev package", build):
            self.try_out(f"{release}: the package is installed and used", use)


def main():
    parser = argparse.ArgumentParser(prog="./dev door", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"these alone of {', '.join(PARTS)}")
    parser.add_argument("--release", choices=minimal_debian.RELEASES, help="the release for all parts")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.parts) - set(PARTS))
    if unknown:
        parser.error(f"no part {unknown[0]}; the parts are {', '.join(PARTS)}")
    parts = arguments.parts or PARTS
    if subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", "HEAD"]).returncode != 0:
        print("door: the clone has what is committed; this tree has changes that are not", file=sys.stderr)
    try:
        with workplace("tulle-door-", SPACE_MIB) as place:
            door = Door(place.folder)
            if {"test", "demo"} & set(parts):
                door.test_and_demo(arguments.release or other_release(), parts)
            if "package" in parts:
                door.package(arguments.release or this_release() or minimal_debian.RELEASES[-1])
    except (Failed, subprocess.CalledProcessError) as failure:
        sys.exit(f"door: {failure}")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    print(f"{door.passed} passed, {door.failed} failed")
    return 1 if door.failed else 0


if __name__ == "__main__":
    sys.exit(main())
