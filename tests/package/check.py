#!/usr/bin/env python3
"""./dev package --check: builds the packages in minimal Debian systems, and tries there what is told of them.

For each release, in systems that have nothing but Debian's essential packages and apt:
  build    ./dev package, with what debian/control names and nothing else; lintian finds neither error nor warning
  use      without a compiler: debian/tests, with the package tulle alone and with the simulator; and nothing of them is
           left when they are purged
  recipes  docs/guide/continuous-integration.md's steps for GitHub Actions and GitLab, on examples/verbs-in-ci
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TREE / "tools"))

from minimal_debian import RELEASES, System, make_archive  # noqa: E402

PAGE = TREE / "docs/guide/continuous-integration.md"
INSTALL = "apt-get install --yes --quiet --no-install-recommends"
# Places that apt, dpkg and the programs that they call write to, or that a start of the machine clears.
NOT_OURS = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/cache", "/var/lib/apt", "/var/lib/dpkg", "/var/log",
            "/packages")


def copy_source(folder):
    """Copies the files that git knows and those that it would add, as a clone with them has them."""
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=TREE,
                           check=True, capture_output=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, names)):
        if (TREE / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TREE / name, folder / name)


def build(root, packages, cache):
    copy_source(root.folder / "tulle")
    binds = {packages: "/packages"}
    if cache:
        # The cache only saves time: the result of the build is the same.
        binds[cache] = "/ccache"
        root.run(f"apt-get update --quiet && {INSTALL} ccache")
    root.run("export CCACHE_DIR=/ccache CCACHE_BASEDIR=/tmp CCACHE_NOHASHDIR=1; /tulle/dev package --output /packages",
             binds=binds)
    root.run(f"{INSTALL} lintian")
    found = root.run("lintian --fail-on none --allow-root /packages/*.changes", binds=binds)
    faults = [line for line in found.splitlines() if re.match("[EW]: ", line)]
    if faults:
        raise RuntimeError("lintian found faults\n" + "\n".join(faults))


def files_of(root):
    """Returns the status of each file, which is enough to see that a file came, went or changed."""
    found = {}
    for folder, folders, names in os.walk(root.folder):
        inside = "/" + os.path.relpath(folder, root.folder).removeprefix(".")
        folders[:] = [name for name in folders if os.path.join(inside, name) not in NOT_OURS]
        for name in folders + names:
            status = os.lstat(os.path.join(folder, name))
            is_folder = name in folders
            found[os.path.join(inside, name)] = (status.st_mode, status.st_uid, status.st_gid,
                                                 None if is_folder else (status.st_size, status.st_mtime))
    return found


def dependencies(packages):
    """Returns the names of Debian's packages that these need."""
    names = set()
    for package in packages:
        depends = subprocess.run(["dpkg-deb", "--field", package, "Depends"], check=True, capture_output=True,
                                 text=True).stdout
        names.update(re.match(r"[\w.+-]+", each.strip())[0] for each in depends.split(","))
    return sorted(name for name in names if not re.fullmatch("tulle(-.*)?", name))


def try_out(root, packages, tests):
    """Installs the packages, runs the tests of debian/tests, and checks that nothing is left after a purge."""
    binds = {packages[0].parent: "/packages"}
    root.run(f"{INSTALL} bash-completion ibverbs-utils man-db perftest systemd {' '.join(dependencies(packages))}")
    before = files_of(root)
    root.run(f"{INSTALL} {' '.join(f'/packages/{package.name}' for package in packages)}", binds=binds)
    root.run("if command -v cc gcc c++ clang; then exit 1; fi")
    for test in tests:
        shutil.copy(TREE / "debian/tests" / test, root.folder / "tmp" / test)
        print(root.run(f"/tmp/{test}", loopback=True), end="", flush=True)
    root.run(f"apt-get purge --yes {' '.join(package.name.partition('_')[0] for package in packages)}")
    after = files_of(root)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if changed:
        raise RuntimeError("purged, but these files came, went or changed:\n" + "\n".join(changed))
    # man-db keeps the pages that a user has looked at in /var/cache, until its own timer clears them.
    left = root.run("find / -xdev '(' -path /proc -o -path /tmp -o -path /run -o -path /var/cache ')' -prune -o "
                    "-iname '*tulle*' -print")
    if left:
        raise RuntimeError(f"purged, but these files are left:\n{left}")


def use(root, package, simulator):
    root.run("apt-get update --quiet")
    try_out(root, [package], ["live"])
    try_out(root, [package, simulator], ["live", "simulator"])


def recipes():
    """Returns {service: (its variables, its steps)}, as the page has them. Each step is a script for a shell of its
    own."""
    found = {}
    for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        recipe = yaml.safe_load(text)
        if "jobs" in recipe:
            (job,) = recipe["jobs"].values()
            found["GitHub Actions"] = recipe["env"], [step["run"] for step in job["steps"] if "run" in step]
        else:
            (job,) = recipe.values()
            found["GitLab CI"] = job["variables"], job["script"]
    if sorted(found) != ["GitHub Actions", "GitLab CI"]:
        raise RuntimeError(f"{PAGE} has recipes for: {', '.join(found)}")
    return found


def follow(root, package, variables, steps):
    """Runs the steps in a checkout of the example. Only the package's URL differs from the page."""
    shutil.copytree(TREE / "examples/verbs-in-ci", root.folder / "checkout")
    if sorted(variables) != ["TULLE_PACKAGE"]:
        raise RuntimeError(f"the recipe has variables that are not known here: {variables}")
    environment = f"export TULLE_PACKAGE=file:///packages/{package.name}; cd /checkout"
    for step in steps:
        # A container has a network of its own, so that UDP port 4791 is free. Here only the live step gets one, since
        # the other steps download.
        output = root.run(f"set -e; {environment}\n{step}", binds={package.parent: "/packages"},
                          loopback="tulle run" in step)
    if "100% tests passed, 0 tests failed out of 1" not in output:
        raise RuntimeError(f"the tests did not run\n{output}")


def check(release, folder, arguments):
    packages = arguments.output / release
    packages.mkdir(parents=True, exist_ok=True)
    steps = arguments.only or ("build", "use", "recipes")

    make_archive(release, folder / "root.tar")

    def root(name):
        return System(folder / "root.tar", folder / name)

    if "build" in steps:
        with root("build") as built:
            build(built, packages, arguments.ccache)
        print(f"{release}: built, and lintian has nothing to say", flush=True)
    (package,) = packages.glob("tulle_*.deb")
    (simulator,) = packages.glob("tulle-simulator_*.deb")
    if "use" in steps:
        with root("use") as used:
            use(used, package, simulator)
        print(f"{release}: used without a compiler, and purged without a trace", flush=True)
    if "recipes" in steps:
        for service, (variables, commands) in recipes().items():
            with root("recipe") as runner:
                follow(runner, package, variables, commands)
            print(f"{release}: the recipe for {service} works", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="./dev package --check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=f"these alone of {', '.join(RELEASES)}")
    parser.add_argument("--output", type=pathlib.Path, default=TREE / "build-package",
                        help="the packages go to a folder of this one for each release (build-package)")
    parser.add_argument("--only", action="append", choices=("build", "use", "recipes"),
                        help="this part, on packages that were built before")
    parser.add_argument("--ccache", metavar="DIR", help="a folder of ccache's for the builds")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("package: --check makes systems and enters them, which only root may")
    if not shutil.which("mmdebstrap"):
        sys.exit("package: --check needs mmdebstrap; run: apt-get install mmdebstrap")
    arguments.output = arguments.output.resolve()
    failed = 0
    releases = arguments.releases or RELEASES
    for release in releases:
        with tempfile.TemporaryDirectory(prefix="tulle-package-") as folder:
            try:
                check(release, pathlib.Path(folder), arguments)
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"{release}: {error}", file=sys.stderr, flush=True)
    print(f"{len(releases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
