#!/usr/bin/env python3
"""./dev mutate: changes a room's sources a little, one change at a time, and lists the changes that no test notices.

    ./dev mutate ROOM                  tries 40 mutants of a room, drawn at random
    ./dev mutate ROOM --sample 100     tries that many; --sample all tries every one
    ./dev mutate ROOM --seed 7         draws others
    ./dev mutate ROOM --files 'src/rdma/transport/rc/*'
                                       draws from these files alone
    ./dev mutate ROOM --record         also writes the result to docs/reliability/mutation.json
    ./dev mutate ROOM --again [--record]
                                       tries only the survivors of the last run (or the recorded one) again, after
                                       tests were added

A mutant is killed if a test fails, crashes or does not end in time. One that does not compile is not counted, and neither
is one whose object file is the same as without the change. The room's own unit tests run first, then the tests of rooms
that use it, until one kills the mutant.

Everything happens in build-mutate/, on a copy of the sources: the checkout is only read. The result is in
build-mutate/ROOM.json. In docs/reliability/mutation.json, a person fills the "explanation" of each survivor; a later run
keeps what was explained.
"""

import argparse
import concurrent.futures
import dataclasses
import datetime
import fcntl
import fnmatch
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import mutants

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build-mutate"
TREE, BUILD, TRIALS = FOLDER / "tree", FOLDER / "build", FOLDER / "trials"
RECORD = ROOT / "docs" / "reliability" / "mutation.json"
CONFIGURATION = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DTULLE_TESTS=ON"]
SAMPLE = 40
# The commands that may kill a mutant of each room, in their order: those that kill most in the least time come first.
UNIT = ["--gtest_brief=1", "--gtest_break_on_failure"]
SIM_CHECK = [["sim_check", "--seeds", "60"], *(["sim_check", "--transport", kind, "--seeds", "30"] for kind in
                                               ("selective-repeat", "iwarp", "xrc", "srd", "streams"))]
KILLERS = {
    "wire": [["wire_test"], ["port_test"], ["transport_test"], ["device_test"], ["management_test"]],
    "verbs": [["verbs_test"], ["transport_test"], ["device_test"], SIM_CHECK[0]],
    "port": [["port_test"], ["fabric_test"], ["device_test"], ["sim_test"]],
    "management": [["management_test"]],
    "fabric": [["fabric_test"], ["sim_test"], ["scenario_test"], ["experiment_test"]],
    "transport": [["transport_test"], ["device_test"], *SIM_CHECK, ["sim_test"]],
    "device": [["device_test"], *SIM_CHECK, ["sim_test"]],
    "ipoib": [["ipoib_test"]],
    "management/subnet": [["management_test"], ["sim_test"]],
    "live/fabric": [["live_test", "--gtest_filter=FabricS*:DataPorts*:HostConnections*:HostNetworks*:"
                     "HostServices*:InterfaceAddresses*:IpInterfaces*:MachineSocket*:NetworkKeeper*:"
                     "OtherMachines*"]],
    "ranks": [["ranks_test"], ["experiment_test"]],
    "mpi": [["mpi_test"]],
    "traces": [["traces_test"], ["workload_test"], ["experiment_test"]],
    "tuning": [["tuning_test"], ["experiment_test"]],
    "fluid": [["fluid_test"], ["experiment_test"]],
}
MEMORY_MAX = 4 << 30  # bytes of address space for one test
COMPILE_LIMIT_S = 300
KILLED, SURVIVED, SAME, INVALID = "killed", "survived", "same object", "does not compile"


class Problem(Exception):
    """A message for the person who runs the command."""


def run(command, cwd=None, limit=None):
    """Runs a command in a process group of its own, which ends with it. Returns (exit status or None, output)."""
    def prepare():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    shell = isinstance(command, str)
    # Should this program be killed, its children end as well.
    guarded = ["setpriv", "--pdeathsig", "KILL", *(["/bin/sh", "-c", command] if shell else command)]
    process = subprocess.Popen(guarded, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True, preexec_fn=prepare)
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()


# --- the copy and its build ---

def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def lock():
    """Keeps other runs out of the folder until this program ends. Returns the open file."""
    FOLDER.mkdir(exist_ok=True)
    file = open(FOLDER / "lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Problem(f"another run works in {FOLDER.relative_to(ROOT)}; wait for it, or stop it") from None
    return file


def copy_sources():
    """Makes the copy equal to the checkout, and leaves alone what is equal, so that little is built again."""
    names = {name for name in git("ls-files", "-co", "--exclude-standard", "-z").split("\0") if name}
    for name in sorted(names):
        source, target = ROOT / name, TREE / name
        if not source.is_file():
            continue
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for path in [path for path in TREE.rglob("*") if path.is_file()]:
        if str(path.relative_to(TREE)) not in names or not (ROOT / path.relative_to(TREE)).is_file():
            path.unlink()


def build(programs):
    arguments = " ".join(CONFIGURATION)
    stamp = BUILD / ".configured"
    if not stamp.exists() or stamp.read_text() != arguments:
        status, output = run(["cmake", "-S", str(TREE), "-B", str(BUILD), *CONFIGURATION])
        if status != 0:
            raise Problem(f"CMake could not configure {BUILD}:\n{output}")
        stamp.write_text(arguments)
    ninja = ["nice", "-n", "5", "ninja", "-C", str(BUILD), *(f"bin/{name}" for name in programs)]
    if subprocess.run(ninja, stdin=subprocess.DEVNULL).returncode != 0:
        raise Problem("the unchanged sources do not build; the compiler's messages are above")


def ninja_tool(*arguments):
    return subprocess.run(["ninja", "-C", str(BUILD), *arguments], capture_output=True, text=True, check=True).stdout


class Recipe:
    """The commands that build one program, which are repeated with a changed object in place of the original."""

    def __init__(self, program):
        commands = ninja_tool("-t", "commands", f"bin/{program}").splitlines()
        link = next(line for line in reversed(commands) if f" -o bin/{program} " in line)
        self.link = next(part.strip() for part in link.split("&&") if f" -o bin/{program} " in part)
        self.output = f"bin/{program}"
        self.members = {}  # by archive: its objects
        for line in commands:
            made = re.search(r"\bar qc (\S+\.a) (.*?) &&", line)
            if made:
                self.members[made.group(1)] = made.group(2).split()

    def with_object(self, original, changed, folder):
        """Links the program with `changed` in place of `original`. Returns its path, or None if that fails."""
        link = self.link
        for archive, members in self.members.items():
            if original not in members or archive not in link:
                continue
            copy = folder / "changed.a"
            copy.unlink(missing_ok=True)
            objects = [str(changed) if member == original else member for member in members]
            if run(["ar", "qc", str(copy), *objects], cwd=BUILD)[0] != 0:
                return None
            link = link.replace(archive, str(copy))
        if link == self.link:
            return BUILD / self.output  # the program does not have this object
        program = folder / pathlib.Path(self.output).name
        status, _ = run(link.replace(f" -o {self.output} ", f" -o {program} "), cwd=BUILD, limit=COMPILE_LIMIT_S)
        return program if status == 0 else None


class Compiler:
    """Compiles a changed copy of a source as the build compiles the source."""

    def __init__(self):
        self.commands = {entry["file"]: entry for entry in json.loads((BUILD / "compile_commands.json").read_text())}
        self.originals = {}

    def object_of(self, name):
        return re.search(r" -o (\S+) -c ", self.commands[str(TREE / name)]["command"]).group(1)

    def compile(self, name, text, folder):
        """Returns the object of this text, or None if it does not compile."""
        source = folder / pathlib.Path(name).name
        source.write_text(text)
        target = folder / (source.name + ".o")
        command = self.commands[str(TREE / name)]["command"]
        command = re.sub(r" -M[DTF]\b( \S+)?", lambda match: "" if match.group().startswith(" -MD") else "", command)
        command = re.sub(r" -o \S+ -c \S+$", "", command)
        # Names of files in messages must not make two objects differ.
        command += f" -w -ffile-prefix-map={folder}=. -o {target} -c {source}"
        status, _ = run(command, cwd=BUILD, limit=COMPILE_LIMIT_S)
        return target if status == 0 else None

    def original(self, name):
        """Returns the bytes of the object of the unchanged source."""
        if name not in self.originals:
            folder = TRIALS / "original" / name.replace("/", "_")
            folder.mkdir(parents=True, exist_ok=True)
            made = self.compile(name, (TREE / name).read_text(), folder)
            if made is None:
                raise Problem(f"{name} does not compile alone, although it is built")
            self.originals[name] = made.read_bytes()
        return self.originals[name]


# --- trials ---

@dataclasses.dataclass
class Killer:
    command: list
    recipe: Recipe
    limit_s: float = 0.0

    @property
    def text(self):
        return " ".join(self.command)

    def arguments(self):
        return self.command[1:] or UNIT

    def passes(self, program):
        status, _ = run(["prlimit", f"--as={MEMORY_MAX}", str(program), *self.arguments()], cwd=TREE,
                        limit=self.limit_s or None)
        return status == 0


class Room:
    """Everything that is needed to try mutants of one room."""

    def __init__(self, name):
        self.name = name
        recipes = {}
        for command in KILLERS[name]:
            recipes.setdefault(command[0], None)
        build(recipes)
        recipes = {program: Recipe(program) for program in recipes}
        self.killers = [Killer(command, recipes[command[0]]) for command in KILLERS[name]]
        self.compiler = Compiler()

    def measure(self):
        """Runs each killer on the unchanged program. A mutant may take ten times as long, and at least ten seconds."""
        for killer in self.killers:
            began = time.monotonic()
            if not killer.passes(BUILD / killer.recipe.output):
                raise Problem(f"{killer.text} fails without any change; mend it first")
            killer.limit_s = max(10.0, 10 * (time.monotonic() - began))

    def try_text(self, name, text, folder):
        """Tries one changed source. Returns (verdict, the command that killed it or "")."""
        folder.mkdir(parents=True, exist_ok=True)
        try:
            changed = self.compiler.compile(name, text, folder)
            if changed is None:
                return INVALID, ""
            if changed.read_bytes() == self.compiler.original(name):
                return SAME, ""
            linked = {}
            for killer in self.killers:
                recipe = killer.recipe
                if recipe.output not in linked:
                    linked[recipe.output] = recipe.with_object(self.compiler.object_of(name), changed, folder)
                program = linked[recipe.output]
                if program is None:
                    return INVALID, ""
                if program != BUILD / recipe.output and not killer.passes(program):
                    return KILLED, killer.text
            return SURVIVED, ""
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def folder_of(room, tree):
    """Returns the folder of a room below a tree's src/, wherever it lies there."""
    folders = [path for path in (tree / "src").rglob(pathlib.PurePath(room).name)
               if path.is_dir() and path.as_posix().endswith("/" + room)]
    return min(folders, key=lambda path: (len(path.parts), path), default=tree / "src" / room)


def sources_of(room, pattern):
    folder = folder_of(room, TREE)
    others = {path.parent for path in folder.rglob("*/CMakeLists.txt")}  # rooms within it
    names = [str(path.relative_to(TREE)) for path in sorted(folder.rglob("*.cc"))
             if not re.search(r"_(test|fuzz|bench)\.cc$", path.name) and not others.intersection(path.parents)]
    names = [name for name in names if pattern is None or fnmatch.fnmatch(name, pattern)]
    if not names:
        raise Problem(f"no source of {room} matches {pattern}; give a pattern such as '{folder.relative_to(TREE)}/*.cc'")
    return names


def drawn(names, seed):
    """Returns all mutants of the sources as (name, source, mutant), in an order drawn from the seed."""
    found = []
    for name in names:
        source = (TREE / name).read_text()
        found += [(name, source, mutant) for mutant in mutants.mutants_of(source)]
    random.Random(seed).shuffle(found)
    return found


def survivor_of(name, source, mutant):
    return {"file": name, "line": mutant.line, "operator": mutant.operator, "diff": mutants.diff_of(name, source, mutant),
            "explanation": ""}


class Progress:
    """One line about each mutant that was counted."""

    def __init__(self, total):
        self.total = total
        self.began = time.monotonic()

    def show(self, counted, killed, name, mutant, verdict, killer):
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        by = f" by {killer}" if killer else ""
        print(f"[{counted}/{self.total} {minutes}:{seconds:02}] {name}:{mutant.line} {mutant.operator}: {verdict}{by}"
              f" ({killed} of {counted} killed)", flush=True)


def try_all(room, candidates, sample):
    """Tries candidates in their order until `sample` were counted. Returns the result as a dictionary."""
    progress = Progress(sample)
    tallies = {KILLED: 0, SURVIVED: 0, SAME: 0, INVALID: 0}
    survivors = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        waiting = []
        rest = enumerate(candidates)
        while tallies[KILLED] + tallies[SURVIVED] < sample:
            while len(waiting) < os.cpu_count():
                number, candidate = next(rest, (None, None))
                if candidate is None:
                    break
                name, source, mutant = candidate
                trial = pool.submit(room.try_text, name, mutant.apply(source), TRIALS / str(number))
                waiting.append((candidate, trial))
            if not waiting:
                break
            (name, source, mutant), trial = waiting.pop(0)  # in order, so that a seed tries the same ones anywhere
            verdict, killer = trial.result()
            tallies[verdict] += 1
            counted = tallies[KILLED] + tallies[SURVIVED]
            if verdict in (KILLED, SURVIVED):
                progress.show(counted, tallies[KILLED], name, mutant, verdict, killer)
            if verdict == SURVIVED:
                survivors.append(survivor_of(name, source, mutant))
                print("\n".join(f"    {line}" for line in survivors[-1]["diff"]), flush=True)
        for _, trial in waiting:
            trial.cancel()
    return {"counted": tallies[KILLED] + tallies[SURVIVED], "killed": tallies[KILLED],
            "same_object": tallies[SAME], "not_compiled": tallies[INVALID], "survivors": survivors}


# --- records ---

def commit():
    dirty = git("status", "--porcelain", "--", "src", "tests").strip()
    return git("rev-parse", "--short=12", "HEAD").strip() + ("+changes" if dirty else "")


def key_of(survivor):
    return survivor["file"], tuple(survivor["diff"])


def read_json(path):
    return json.loads(path.read_text()) if path.exists() else {}


DRAW = ("room", "seed", "date", "commit", "counted", "killed")  # what the record keeps of each draw


def write_record(path, result, is_fresh=False):
    """Replaces the room's entry in the record, and keeps the explanations of survivors that it had.

    A fresh draw is also added to the list of draws, which keeps what each killed at first.
    """
    record = read_json(path) or {"rooms": {}}
    before = record["rooms"].get(result["room"], {"survivors": []})
    explained = {key_of(survivor): survivor["explanation"] for survivor in before["survivors"]}
    for survivor in result["survivors"]:
        survivor["explanation"] = explained.get(key_of(survivor), survivor["explanation"])
    record["rooms"][result["room"]] = result
    if is_fresh:
        record.setdefault("draws", []).append({key: result[key] for key in DRAW})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


def last_run(room):
    """Returns the result of the last run that is known here, or else the recorded one, or None."""
    here = read_json(FOLDER / f"{room}.json").get("rooms", {})
    return here.get(room) or read_json(RECORD).get("rooms", {}).get(room)


def again(room, last):
    """Tries the survivors of the last run again. Returns the result that the last run would have had.

    A survivor whose line is no longer as it was leaves the sample: it was neither killed nor does it live.
    """
    candidates = []
    gone = 0
    for survivor in last["survivors"]:
        source = (TREE / survivor["file"]).read_text()
        same = [mutant for mutant in mutants.mutants_of(source) if mutant.operator == survivor["operator"]
                and mutants.diff_of(survivor["file"], source, mutant) == survivor["diff"]]
        if not same:
            gone += 1
            print(f"mutate: {survivor['file']}:{survivor['line']} has changed since, and leaves the sample", flush=True)
            continue
        nearest = min(same, key=lambda mutant: abs(mutant.line - survivor["line"]))
        candidates.append((survivor["file"], source, nearest))
    result = try_all(room, candidates, len(candidates))
    explained = {key_of(survivor): survivor["explanation"] for survivor in last["survivors"]}
    for survivor in result["survivors"]:
        survivor["explanation"] = explained.get(key_of(survivor), "")
    return {**last, "counted": last["counted"] - gone, "gone": last.get("gone", 0) + gone,
            "killed": last["killed"] + result["killed"], "survivors": result["survivors"]}


def arguments_of(argv):
    parser = argparse.ArgumentParser(prog="./dev mutate", description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=__doc__.split("\n\n", 1)[1])
    parser.add_argument("room", choices=sorted(KILLERS), metavar="ROOM", help="one of " + ", ".join(sorted(KILLERS)))
    parser.add_argument("--sample", default=str(SAMPLE), metavar="N", help="number of mutants, or all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the draw (default: %(default)s)")
    parser.add_argument("--files", metavar="GLOB", help="only sources whose path matches")
    parser.add_argument("--again", action="store_true", help="only the survivors of the last run")
    parser.add_argument("--record", action="store_true", help=f"also write {RECORD.relative_to(ROOT)}")
    arguments = parser.parse_args(argv)
    if arguments.sample != "all" and not (arguments.sample.isdigit() and int(arguments.sample) > 0):
        parser.error("--sample needs a number from 1, or all")
    if arguments.record and arguments.files:
        parser.error("--record is for a draw from the whole room; leave --files out")
    return arguments


def mutate(arguments):
    held = lock()
    last = last_run(arguments.room)
    if arguments.again and not last:
        raise Problem(f"no run of {arguments.room} is known; run without --again first")
    print(f"mutate: building the tests of {arguments.room} in {BUILD.relative_to(ROOT)}", flush=True)
    shutil.rmtree(TRIALS, ignore_errors=True)
    copy_sources()
    tried = commit()  # the checkout may change while this runs
    room = Room(arguments.room)
    print("mutate: running the tests without a change, to see how long they take", flush=True)
    room.measure()
    if arguments.again:
        result = again(room, last)
    else:
        candidates = drawn(sources_of(arguments.room, arguments.files), arguments.seed)
        sample = len(candidates) if arguments.sample == "all" else int(arguments.sample)
        folder = folder_of(arguments.room, TREE).relative_to(TREE)
        result = {"room": arguments.room, "files": arguments.files or f"{folder}/**/*.cc",
                  "seed": arguments.seed, "sample": arguments.sample, "candidates": len(candidates),
                  **try_all(room, candidates, sample)}
        # A draw is fair once: what --again kills later was seen before its test was written.
        result["killed_at_first"] = result["killed"]
    result.update(date=datetime.date.today().isoformat(), commit=tried)
    for path in [FOLDER / f"{arguments.room}.json", *([RECORD] if arguments.record else [])]:
        write_record(path, result, not arguments.again)
    rate = 100 * result["killed"] / max(result["counted"], 1)
    print(f"{arguments.room}: {result['killed']} of {result['counted']} mutants killed ({rate:.1f} %), "
          f"{len(result['survivors'])} survived; {result['same_object']} made no difference and "
          f"{result['not_compiled']} did not compile")
    for survivor in result["survivors"]:
        print(f"  {survivor['file']}:{survivor['line']} {survivor['operator']}")
        print("\n".join(f"    {line}" for line in survivor["diff"]))
    held.close()


def stop(number, frame):
    """Ends at once. What runs ends with this program (see run)."""
    print("mutate: stopped; the sources are as they were", file=sys.stderr, flush=True)
    os._exit(128 + number)


def main(argv):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        mutate(arguments_of(argv))
        return 0
    except Problem as problem:
        print(f"mutate: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
