#!/usr/bin/env python3
"""Checks that each room knows only the rooms that it may know, and that the lower rooms do not touch the machine.

There are three checks, and a fabricated violation shows that each of them can fail:
- every #include "room/..." under src/ goes in an allowed direction;
- every room that a CMakeLists.txt under src/ links is an allowed one;
- no archive of a room below the drivers has an undefined symbol of a clock, a socket, a thread, the environment, a
  file or a random device (with --build; time is an argument there, see docs/architecture.md).
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"
BUILD = None  # the build folder, from --build

# Rooms that each room may include and link. Every room may also know `base` and itself. The drivers move frames, so
# they know what a frame and an IP header are (link, wire); they know no transport.
MAY_KNOW = {
    "base": set(),
    "wire": set(),
    "verbs": set(),
    "report": set(),
    "link": {"wire"},
    "management": {"wire"},
    "transport": {"wire", "verbs"},
    "device": {"transport", "link", "management", "verbs", "wire"},
    "fabric": {"link", "wire"},
    "workload": {"device", "verbs"},
    "sim": {"device", "fabric", "link", "report", "wire"},
    "scenario": {"device", "fabric", "link", "report", "sim", "transport", "verbs", "wire", "workload"},
    "live": {"device", "fabric", "link", "management", "report", "wire"},
    "shim": {"live", "device", "management", "verbs"},
}
MAY_KNOW["cli"] = set(MAY_KNOW)

# Rooms that read no clock, socket, environment, random device or file, and start no thread.
PURE_ROOMS = ["base", "wire", "verbs", "transport", "link", "management", "fabric", "device", "sim", "workload"]

IMPURE_SYMBOLS = re.compile(
    r"""^(__)?(
        clock | clock_(gettime|nanosleep|getres) | gettimeofday | time | timespec_get | localtime(_r)? | gmtime(_r)?
      | (nano|u)?sleep | timer(fd)?_(create|settime) | setitimer | alarm
      | socket(pair)? | bind | connect | listen | accept4? | send(to|msg|mmsg|file)? | recv(from|msg|mmsg)?
      | poll | ppoll | p?select | epoll_\w+ | eventfd | pipe2?
      | getifaddrs | getaddrinfo | gethostbyname | gethostname | if_nametoindex
      | (secure_)?getenv | setenv | putenv | environ
      | open(at)?(64)? | creat(64)? | p?(read|write)v?(64)? | f?open(64)? | freopen(64)? | fdopen | tmpfile(64)?
      | opendir | readdir(64)? | stat(64)? | fstat(at)?(64)? | access | unlink | mmap(64)? | shm_open | memfd_create
      | s?rand(om)?(_r)? | [dlmnje]rand48(_r)? | getrandom | getentropy | arc4random\w*
      | pthread_(create|join|detach|mutex_lock|cond_\w+) | thrd_create | fork | vfork | exec\w+ | posix_spawnp? | system
      | syscall | ioctl | fcntl(64)? | signal | sigaction | getpid | gettid
    )(_chk)?$""",
    re.VERBOSE,
)
# C++ symbols with the same meaning: std::chrono's clocks, std::random_device, std::thread, file streams and
# std::filesystem.
IMPURE_CXX_SYMBOLS = re.compile(
    r"^_ZNSt6chrono3_V2\d+\w+_clock3nowEv|^_ZNSt13random_device|^_ZNSt6thread"
    r"|^_ZN[KS]*t?\d*basic_[io]?f(stream|ilebuf)|^_ZNSt\d+basic_(filebuf|[io]?fstream)|^_ZNSt10filesystem"
)

INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_]+)/', re.MULTILINE)


def room_of(path, source):
    return path.relative_to(source).parts[0]


def include_violations(source):
    """Yields lines such as "src/wire/a.h: wire includes device: not allowed"."""
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cc", ".c", ".inc"):
            continue
        room = room_of(path, source)
        if room not in MAY_KNOW:
            yield f"{path}: src/{room} is no room that tests/layers_test.py knows"
            continue
        for other in INCLUDE.findall(path.read_text()):
            if other in MAY_KNOW and other not in MAY_KNOW[room] | {room, "base"}:
                yield f"{path}: {room} includes {other}: not allowed"


def link_violations(source):
    """Yields such lines for what CMake links by tulle_room(NAME DEPENDS ...) and target_link_libraries(...
    tulle_NAME)."""
    for path in sorted(source.rglob("CMakeLists.txt")):
        if path.parent == source:
            continue
        room = room_of(path, source)
        text = re.sub(r"#.*", "", path.read_text())
        linked = set()
        for arguments in re.findall(r"tulle_room\(([^)]*)\)", text):
            depends = re.search(r"DEPENDS\s+([a-z_\s]+?)(?:\s+LIBRARIES|$)", arguments.strip())
            linked.update(depends.group(1).split() if depends else [])
        for arguments in re.findall(r"target_link_libraries\(([^)]*)\)", text):
            linked.update(re.findall(r"\btulle_([a-z_]+)", arguments.partition(" ")[2]))
        for other in sorted(linked):
            if other in MAY_KNOW and other not in MAY_KNOW.get(room, set()) | {room, "base"}:
                yield f"{path}: {room} links {other}: not allowed"


def undefined_symbols(archive):
    output = subprocess.run(["nm", "-u", archive], capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[0] in "Uwv":
            yield fields[1].partition("@")[0]


def impure_symbols(archive):
    return sorted({s for s in undefined_symbols(archive) if IMPURE_SYMBOLS.match(s) or IMPURE_CXX_SYMBOLS.match(s)})


class Includes(unittest.TestCase):
    def test_directions(self):
        self.assertEqual([], list(include_violations(SOURCE)))

    def test_can_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            (source / "wire").mkdir()
            (source / "wire" / "good.h").write_text('#include "base/time.h"\n#include "wire/bth.h"\n')
            self.assertEqual([], list(include_violations(source)))
            (source / "wire" / "bad.h").write_text('#  include "device/adapter.h"\n')
            (source / "cellar").mkdir()
            (source / "cellar" / "new.cc").write_text("")
            found = list(include_violations(source))
            self.assertEqual(2, len(found), found)
            self.assertIn("wire includes device", found[1])


class Links(unittest.TestCase):
    def test_directions(self):
        self.assertEqual([], list(link_violations(SOURCE)))

    def test_can_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            (source / "wire").mkdir()
            lists = source / "wire" / "CMakeLists.txt"
            lists.write_text("tulle_room(wire DEPENDS base LIBRARIES PkgConfig::ISAL)\n")
            self.assertEqual([], list(link_violations(source)))
            lists.write_text("tulle_room(wire DEPENDS base\n  device LIBRARIES fmt::fmt)\n")
            self.assertEqual(1, len(list(link_violations(source))))
            lists.write_text("target_link_libraries(x PRIVATE tulle_wire tulle_live)\n")
            self.assertEqual(1, len(list(link_violations(source))))


class Archives(unittest.TestCase):
    def setUp(self):
        if BUILD is None:
            self.skipTest("no --build folder")

    def test_pure(self):
        seen = 0
        for room in PURE_ROOMS:
            archive = BUILD / "src" / room / f"libtulle_{room}.a"
            has_sources = any(not re.search(r"_(test|fuzz|bench)$", p.stem) for p in (SOURCE / room).rglob("*.cc"))
            if not has_sources:
                continue
            with self.subTest(room=room):
                self.assertTrue(archive.exists(), f"{archive} was not built")
                self.assertEqual([], impure_symbols(archive), f"{archive} reaches for the machine")
                seen += 1
        self.assertGreater(seen, 0)

    def test_can_fail(self):
        code = """
            #include <chrono>
            #include <cstdlib>
            #include <fstream>
            #include <random>
            #include <thread>
            #include <ctime>
            #include <sys/socket.h>
            #include <unistd.h>
            long f(char* p) {
              std::thread([] {}).detach();
              std::ifstream file("x");
              return std::chrono::steady_clock::now().time_since_epoch().count() + std::random_device{}() + time(nullptr)
                   + rand() + (getenv("X") != nullptr) + socket(1, 2, 3) + read(0, p, 1) + file.get();
            }"""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "impure.cc").write_text(code)
            subprocess.run(["c++", "-O2", "-c", "impure.cc", "-o", "impure.o"], cwd=folder, check=True)
            subprocess.run(["ar", "rc", "impure.a", "impure.o"], cwd=folder, check=True)
            found = impure_symbols(folder / "impure.a")
        for symbol in ["getenv", "rand", "read", "socket", "time"]:
            self.assertIn(symbol, found)
        for part in ["steady_clock3now", "random_device", "St6thread", "ifstream"]:
            self.assertTrue(any(part in symbol for symbol in found), (part, found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path)
    options, rest = parser.parse_known_args()
    BUILD = options.build.resolve() if options.build else None
    unittest.main(argv=[sys.argv[0], *rest])
