#!/usr/bin/env python3
"""Checks that each room knows only the rooms that it may know, and that the lower rooms do not touch the machine.

There are eight checks, and a fabricated violation shows that each of them can fail:
- every #include "folder/..." under src/ goes in an allowed direction, and so does every use of a room's namespace, which
  another room's header may have brought along;
- the folders of src/ itself, the wings, are few, have few directions among them, and none of these leads back;
- within a room that has rooms of its own (live), every #include "room/folder/..." goes in an allowed direction;
- folders of one room do not include one another in a circle;
- every room that a CMakeLists.txt under src/ links is an allowed one, and a room links all that it may know;
- docs/internals/architecture.md's tables of wings and rooms are the ones here;
- every direction that is allowed is used;
- no archive of a room below the drivers has an undefined symbol of a clock, a socket, a thread, the environment, a
  file or a random device (with --build; time is an argument there, see docs/internals/architecture.md).
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

DOCUMENT = SOURCE.parent / "docs" / "internals" / "architecture.md"

WINGS_MAX = 14  # folders of src/
DIRECTIONS_MAX = 50  # among them

# The rooms that each room uses. Every room may also know `base` and itself. A room is a folder with a CMakeLists.txt of
# its own, in a wing (rdma/wire) or as one (live); its name is the folder's.
MAY_KNOW = {
    "base": set(),
    "os": set(),
    "terminal": set(),
    "pcapng": set(),
    "wire": set(),
    "verbs": set(),
    "report": {"os"},
    "port": {"wire"},
    "management": {"wire"},
    "fabric": {"management", "port", "wire"},
    "config": {"fabric", "report"},
    "ipoib": {"management", "port", "wire"},
    "transport": {"verbs", "wire"},
    "device": {"port", "transport", "verbs", "wire"},
    "optional": {"device", "port", "transport", "verbs", "wire"},
    "workload": {"device", "optional", "transport", "verbs"},
    "traces": {"workload"},
    "sim": {"device", "fabric", "optional", "port", "transport", "verbs", "wire"},
    "scenario": {"config", "device", "fabric", "optional", "port", "report", "sim", "traces", "transport", "verbs", "wire",
                 "workload"},
    "fluid": set(),
    "experiment": {"device", "fabric", "fluid", "optional", "pcapng", "port", "report", "scenario", "sim", "transport",
                   "verbs", "wire", "workload"},
    "tuning": {"config", "fabric", "port", "report", "scenario", "sim", "transport"},
    "study": {"config", "experiment", "mpi", "os", "report", "scenario", "sim", "tuning", "workload"},
    "live": {"device", "fabric", "ipoib", "os", "pcapng", "port", "management", "transport", "verbs", "wire"},
    "rsockets": {"os"},
    "ranks": {"os", "report", "workload"},
    "mpi": {"sim"},
    "shim": {"device", "live", "management", "os", "rsockets", "transport", "verbs"},
}
MAY_KNOW["cli"] = set(MAY_KNOW)
# The folder of each room that does not lie in src/ itself.
FOLDERS = {
    **{room: f"rdma/{room}" for room in ("wire", "verbs", "port", "transport", "device", "optional", "pcapng")},
    **{room: f"study/{room}" for room in ("report", "config", "workload", "traces", "scenario", "fluid", "experiment",
                                          "tuning")},
    "ipoib": "management/ipoib", "mpi": "sim/mpi", "rsockets": "shim/rsockets",
}

# The rooms within a room, and which of them each one uses. Each may also know the files that lie in the outer room
# itself, which know none of them. Tests may know all.
ROOMS_WITHIN = {
    "live": {
        "message": set(),
        "security": set(),
        "path/packets": {"message", "path/memory", "security"},
        "path/memory": set(),
        "path/fabric": {"message", "path/memory"},
        "connections": {"message"},
        "agent": {"connections", "message", "path/packets", "security"},
        "fabric": {"connections", "message", "path/fabric", "path/packets", "security"},
        "process": {"fabric", "message", "path/fabric", "path/memory", "path/packets", "security"},
        "capture": {"fabric", "path/packets", "process"},
        "views": {"fabric", "message", "process"},
    },
}

# Rooms, and parts of rooms, that read no clock, socket, environment, random device or file, and start no thread.
PURE_ROOMS = ["base", "rdma/wire", "rdma/verbs", "rdma/transport", "rdma/port", "management", "management/ipoib", "fabric",
              "rdma/device", "rdma/optional", "rdma/pcapng", "sim", "study/workload", "study/traces", "shim/rsockets/protocol"]

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

FULL_INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_/]+)/[^/"]+"', re.MULTILINE)
NAMESPACE = re.compile(r"(?:(?<![\w:])|(?<=\btulle::))(" + "|".join(MAY_KNOW) + r")::")
ROW = re.compile(r"^\| `([a-z/]+)` \|[^|]*\| ([^|]*) \|$", re.MULTILINE)
TABLE_OF_WINGS = re.compile(r"^\| wing \|.*\n\|[- |]*\n((?:\|.*\n)+)", re.MULTILINE)
TABLE_WITHIN = re.compile(r"^\| folder of `src/([a-z]+)/` \|.*\n\|[- |]*\n((?:\|.*\n)+)", re.MULTILINE)
ROW_WITHIN = re.compile(r"^\| `([a-z/]+)` \|[^|]*\| ([^|]*) \|$", re.MULTILINE)


def room_of_folder(folder):
    """Returns the room of a folder of src/, such as "wire" for "rdma/wire" and "live" for "live/agent"."""
    for room, place in FOLDERS.items():
        if folder == place or folder.startswith(place + "/"):
            return room
    return folder.partition("/")[0]


def room_of(path, source):
    return room_of_folder(path.parent.relative_to(source).as_posix())


def wing_of(room):
    return FOLDERS.get(room, room).partition("/")[0]


def rooms_used(text):
    """Returns the rooms that a file includes or whose namespaces it names."""
    code = re.sub(r'//[^\n]*|/\*.*?\*/|"(\\.|[^"\\\n])*"', "", text, flags=re.DOTALL)
    included = {room_of_folder(folder) for folder in FULL_INCLUDE.findall(text)}
    return (included | set(NAMESPACE.findall(code))) & set(MAY_KNOW)


def uses(source):
    """Yields (path, room, room that it uses)."""
    for path in sorted(source.rglob("*")):
        if path.suffix in (".h", ".cc", ".c", ".inc"):
            for other in sorted(rooms_used(path.read_text()) - {room_of(path, source), "base"}):
                yield path, room_of(path, source), other


def use_violations(source):
    """Yields lines such as "src/rdma/wire/a.h: wire uses device: not allowed"."""
    places = {FOLDERS.get(room, room) for room in MAY_KNOW}
    for folder in sorted({path.parent for path in source.rglob("*") if path.suffix in (".h", ".cc", ".c")}):
        name = folder.relative_to(source).as_posix()
        if not any(name == place or name.startswith(place + "/") for place in places):
            yield f"{folder}: src/{name} is no room that tests/layers_test.py knows"
    for path, room, other in uses(source):
        if room in MAY_KNOW and other not in MAY_KNOW[room]:
            yield f"{path}: {room} uses {other}: not allowed"


def directions_of_wings(source):
    """Returns {wing: the wings that it uses}, for the folders of src/."""
    found = {path.name: set() for path in source.iterdir() if path.is_dir()}
    for _, room, other in uses(source):
        if wing_of(room) != wing_of(other):
            found[wing_of(room)].add(wing_of(other))
    return found


def circles_of_wings(directions):
    """Yields the wings that reach themselves by those that they use."""
    for wing in directions:
        reached, new = set(), {wing}
        while new:
            new = {other for each in new for other in directions.get(each, ())} - reached
            reached |= new
        if wing in reached:
            yield wing


def uses_within(source):
    """Yields (path, folder of a room, folder of that room that it includes)."""
    for room in ROOMS_WITHIN:
        for path in sorted((source / room).rglob("*")):
            if path.suffix not in (".h", ".cc") or path.stem.endswith("_test"):
                continue
            folder = path.parent.relative_to(source).as_posix()
            for other in sorted(set(FULL_INCLUDE.findall(path.read_text())) - {folder, room}):
                if other.startswith(f"{room}/"):
                    yield path, folder, other


def use_violations_within(source):
    """Yields such lines as use_violations() does."""
    known = {f"{room}/{folder}": {f"{room}/{other}" for other in may} for room, all in ROOMS_WITHIN.items()
             for folder, may in all.items()}
    for room in ROOMS_WITHIN:
        for folder in sorted({path.parent for path in (source / room).rglob("*.*") if path.suffix in (".h", ".cc")}):
            name = folder.relative_to(source).as_posix()
            if name != room and name not in known:
                yield f"{folder}: src/{name} is no room that tests/layers_test.py knows"
    for path, folder, other in uses_within(source):
        if other not in known.get(folder, set()):
            yield f"{path}: {folder} uses {other}: not allowed"


def unused_directions(source):
    used = {(room, other) for _, room, other in uses(source)}
    return sorted((room, other) for room in MAY_KNOW if room != "cli" for other in MAY_KNOW[room] if (room, other) not in used)


def table(text):
    """Returns the directions that the document's table of rooms gives, like MAY_KNOW."""
    rows = ROW.findall(TABLE_OF_WINGS.sub("", TABLE_WITHIN.sub("", text)))
    return {room_of_folder(folder): set(re.findall(r"[a-z]+", known)) for folder, known in rows}


def table_of_wings(text):
    return {wing: set(re.findall(r"[a-z]+", known)) for rows in TABLE_OF_WINGS.findall(text)
            for wing, known in ROW.findall(rows)}


def tables_within(text):
    """Returns the directions that the document gives within rooms, like ROOMS_WITHIN."""
    return {room: {folder: set(re.findall(r"[a-z/]+", known)) for folder, known in ROW_WITHIN.findall(rows)}
            for room, rows in TABLE_WITHIN.findall(text)}


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
        if re.search(r"tulle_room\(", text) and path.parent == source / FOLDERS.get(room, room):
            for other in sorted(MAY_KNOW[room] - linked):
                yield f"{path}: {room} uses {other} and does not link it"


def undefined_symbols(archive):
    output = subprocess.run(["nm", "-u", archive], capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[0] in "Uwv":
            yield fields[1].partition("@")[0]


def impure_symbols(archive):
    return sorted({s for s in undefined_symbols(archive) if IMPURE_SYMBOLS.match(s) or IMPURE_CXX_SYMBOLS.match(s)})


class Uses(unittest.TestCase):
    def test_directions(self):
        self.assertEqual([], list(use_violations(SOURCE)))

    def test_can_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            (source / "rdma" / "wire").mkdir(parents=True)
            good = '#include "base/time.h"\n#include "rdma/wire/bth.h"\nstd::sim::x; // device::Adapter\nauto s = "live::x";\n'
            (source / "rdma" / "wire" / "good.h").write_text(good)
            self.assertEqual([], list(use_violations(source)))
            (source / "rdma" / "wire" / "includes.h").write_text('#  include "rdma/device/adapter.h"\n')
            (source / "rdma" / "wire" / "names.h").write_text("tulle::transport::QueuePair* qp; verbs::Mtu mtu;\n")
            (source / "rdma" / "cellar").mkdir()
            (source / "rdma" / "cellar" / "box.h").write_text("\n")
            found = list(use_violations(source))
            self.assertEqual(4, len(found), found)
            self.assertIn("wire uses device", found[1])

    def test_wings(self):
        directions = directions_of_wings(SOURCE)
        self.assertLessEqual(len(directions), WINGS_MAX)
        self.assertLessEqual(sum(map(len, directions.values())) + len(directions) - 1, DIRECTIONS_MAX)  # all use base
        self.assertEqual([], list(circles_of_wings(directions)))
        self.assertEqual(["a", "b"], list(circles_of_wings({"a": {"b"}, "b": {"a", "c"}, "c": set()})))
        documented = table_of_wings(DOCUMENT.read_text())
        self.assertEqual({"all"}, documented.pop("cli"))
        self.assertEqual({wing: known for wing, known in directions.items() if wing != "cli"}, documented)

    def test_directions_within(self):
        self.assertEqual([], list(use_violations_within(SOURCE)))

    def test_within_can_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            live = pathlib.Path(folder) / "live"
            for name in ("agent", "process", "path/memory"):
                (live / name).mkdir(parents=True)
            (live / "settings.h").write_text('#include "base/result.h"\n')
            (live / "agent" / "core.cc").write_text('#include "live/settings.h"\n#include "live/message/socket.h"\n')
            (live / "agent" / "core_test.cc").write_text('#include "live/process/device.h"\n')
            self.assertEqual([], list(use_violations_within(live.parent)))
            (live / "settings.cc").write_text('#include "live/agent/core.h"\n')
            (live / "agent" / "ask.cc").write_text('#include "live/process/device.h"\n')
            (live / "path" / "memory" / "path.h").write_text('#include "live/path/packets/receiver.h"\n')
            (live / "cellar").mkdir()
            (live / "cellar" / "box.h").write_text("\n")
            found = list(use_violations_within(live.parent))
            self.assertEqual(4, len(found), found)
            self.assertIn("live/agent uses live/process", found[1])

    def test_every_direction_is_used(self):
        self.assertEqual([], unused_directions(SOURCE))
        used = {(folder, other) for _, folder, other in uses_within(SOURCE)}
        allowed = {(f"{room}/{folder}", f"{room}/{other}") for room, all in ROOMS_WITHIN.items()
                   for folder, may in all.items() for other in may}
        self.assertEqual(set(), allowed - used)
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn(("port", "wire"), unused_directions(pathlib.Path(folder)))

    def test_the_document_says_the_same(self):
        expected = {room: known for room, known in MAY_KNOW.items() if room != "cli"}
        found = table(DOCUMENT.read_text())
        self.assertEqual({"all"}, found.pop("cli"))
        self.assertEqual(expected, found)
        self.assertEqual(ROOMS_WITHIN, tables_within(DOCUMENT.read_text()))
        self.assertEqual({"sim": {"device", "wire"}, "base": set()}, table("| `sim` | x | device, wire |\n| `base` | y | – |\n"))


def circles_of_siblings(source):
    """Yields a line for each folder that reaches itself by the includes of the folders beside it."""
    arrows = {}
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".c", ".cc", ".h") or re.search("_(test|fuzz|bench)[.]", path.name):
            continue
        folder = path.relative_to(source).parent
        for included in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            other = pathlib.PurePath(included).parent
            if other != folder and other.parent == folder.parent and len(folder.parts) > 1:
                arrows.setdefault(folder, set()).add(other)
    for folder in arrows:
        reached, new = set(), {folder}
        while new:
            new = {to for each in new for to in arrows.get(each, ())} - reached
            reached |= new
        if folder in reached:
            yield f"{folder} includes {', '.join(sorted(map(str, arrows[folder])))}, and comes back to itself"


class Siblings(unittest.TestCase):
    def test_no_circles(self):
        self.assertEqual([], list(circles_of_siblings(SOURCE)))

    def test_can_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            for name, other in (("rc", "xrc"), ("xrc", "rc"), ("ud", "rc")):
                (source / "transport" / name).mkdir(parents=True)
                (source / "transport" / name / "engine.cc").write_text(f'#include "transport/{other}/engine.h"\n')
            self.assertEqual(2, len(list(circles_of_siblings(source))))


class Links(unittest.TestCase):
    def test_directions(self):
        self.assertEqual([], list(link_violations(SOURCE)))

    def test_can_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            (source / "rdma" / "wire").mkdir(parents=True)
            lists = source / "rdma" / "wire" / "CMakeLists.txt"
            (source / "rdma" / "port").mkdir()
            (source / "rdma" / "port" / "CMakeLists.txt").write_text("tulle_room(port DEPENDS base)\n")
            self.assertEqual(1, len(list(link_violations(source))), "it uses wire and does not link it")
            (source / "rdma" / "port" / "CMakeLists.txt").write_text("tulle_room(port DEPENDS base wire)\n")
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
            name = "rsockets_protocol" if room.endswith("rsockets/protocol") else room.rpartition("/")[2]
            archive = BUILD / "src" / room / f"libtulle_{name}.a"
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
