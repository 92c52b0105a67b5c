#!/usr/bin/env python3
"""./dev pages: runs every block of commands in README.md, CONTRIBUTING.md, docs/*.md and the
guides and reference pages below docs as it is written.

    pages.py --quick [--user root|ordinary] [--place clone|elsewhere] [PAGE[:LINE]...]
    pages.py [--release bookworm|trixie] ... [PAGE[:LINE]...]

With --quick, this machine and its build run what takes seconds; a test of ./dev test does that. Without it, minimal
Debian systems of both releases are made, Tulle is built in them, and they run the long commands, too. The commands are
run by root and by an ordinary user, in a clone and, with Tulle installed, in another folder. --load N adds N processes
that keep a processor busy.

Each fault is one line with the page and line. The last line is "N passed, N failed, N skipped", and the exit status is 0
if nothing failed. --json FILE writes all results. CONTRIBUTING.md says how a page marks what cannot run.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(pathlib.Path(__file__).resolve().parent)]

import blocks  # noqa: E402
import minimal_debian  # noqa: E402
import systems  # noqa: E402
from compare import difference  # noqa: E402
from sandbox import USERS, Sandbox, Unavailable, write_users  # noqa: E402

FOLDERS = "/var/tmp"  # where ordinary users can reach what is made
PLACES = ("clone", "elsewhere")
UNAVAILABLE = 77  # ctest counts this exit status as skipped
IN_CLONE = "build/bin/tulle"
# The results of simulations do not depend on the user: one is enough in each place, and for the long ones one place is.
SIMULATION = re.compile(r"\btulle (sim|compare|sweep|tune)\b")
DOWNLOADS = ("./dev", "sudo apt-get")  # commands that need packages
QUICK_S = float(os.environ.get("TULLE_TEST_LIMIT", "60"))  # limits of a command
LONG_S = 3600
OUTPUT_MAX = 4000  # characters
READY_S, END_S, INTERRUPT_S = 15, 10, 3
TYPING_S = 2  # that a person takes to go to another terminal


@dataclasses.dataclass
class Result:
    page: str
    line: int
    command: str
    setting: str  # where and by whom it was run
    outcome: str  # passed, failed or skipped
    message: str = ""
    seconds: float = 0.0
    output: str = ""  # the end of what a command that failed printed

    def __str__(self):
        return f"{self.page}:{self.line}: {self.outcome} ({self.setting}): {self.command}: {self.message}"


def pages():
    """Returns {name: its path} of the pages whose commands are run."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
             *sorted((ROOT / "docs/guide").glob("*.md")), *sorted((ROOT / "docs/reference").glob("*.md")),
             *sorted((ROOT / "docs/reference/simulator").glob("*.md"))]
    return {str(path.relative_to(ROOT)): path for path in found}


class Run:
    """The commands of one page by one user in one place."""

    def __init__(self, name, sandbox, place, setting, limit_s, patience=1.0, long=False, done=None):
        self.name, self.sandbox, self.place, self.setting = name, sandbox, place, setting
        self.limit_s, self.patience, self.long = limit_s, patience, long
        self.folder = sandbox.tree if place == "clone" else sandbox.scratch / "elsewhere"
        self.done = set() if done is None else done  # simulations that another run has shown to work
        self.others = []  # (command, terminal) that were started and not waited for

    def blocks(self, found, line=None):
        """Yields the Results of a page's blocks, or of the one block at that line and what it needs."""
        # A page may show a file below the commands that use it.
        for block in found:
            if block.file:
                self._write(block)
        for block in found:
            if not block.file and (line is None or block.hidden or self._has(block, line)):
                yield from self._block(block)

    @staticmethod
    def _has(block, line):
        last = block.commands[-1]
        return block.line <= line <= max([last.line + last.text.count("\n"), *(number for number, _ in last.output)])

    def _write(self, block):
        path = self._outside(self.folder) / block.file
        made = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        if block.source:
            if path.resolve() == self._outside(self.sandbox.tree / block.source).resolve():
                return
            shutil.copy(ROOT / block.source, path)
        else:
            path.write_text(block.text)
        for each in [path, *made]:
            os.chown(each, USERS[self.sandbox.user], USERS[self.sandbox.user])

    def _outside(self, folder):
        """The path of a folder of the sandbox for this process."""
        return pathlib.Path(f"/proc/{self.sandbox.pids['alpha']}/root{folder}")

    def _block(self, block):
        commands = [command for command in block.commands
                    if not self._leaves_out(command) and self._key(command) not in self.done]
        for command in block.commands:
            if reason := self._leaves_out(command):
                yield self._result(command, "skipped", reason)
        for command in commands:
            is_last = command is commands[-1]
            if block.terminals and command is not commands[0]:
                time.sleep(TYPING_S * self.patience)
            if command.in_background or (block.terminals and not is_last):
                began = time.monotonic()
                listeners = self.sandbox.listeners()
                terminal = self._start(command, keeps=False)
                self._await_ready(terminal, listeners)
                if terminal.running:
                    self.others.append((command, terminal))
                else:
                    yield self._verdict(command, terminal, began)
            else:
                yield from self._foreground(command, block.terminals)
        for command, terminal in self.others:
            if not terminal.wait(END_S * self.patience):
                terminal.interrupt()
                terminal.wait(END_S * self.patience)
            yield self._verdict(command, terminal)
        self.others = []

    def _foreground(self, command, in_terminals):
        began = time.monotonic()
        terminal = self._start(command)
        if command.interrupted:
            terminal.wait(INTERRUPT_S * self.patience)
            if terminal.running:
                terminal.interrupt()
                terminal.wait(END_S * self.patience)
        else:
            terminal.wait(self.limit_s * self.patience)
            missing = re.search(r"packages are missing; run: (sudo .*)", terminal.text)
            if self.long and terminal.status and missing:
                # An ordinary user does what ./dev says, and gives the command again.
                self.sandbox.start(missing[1], self.folder, downloads=True).wait(self.limit_s)
                terminal = self._start(command)
                terminal.wait(self.limit_s * self.patience)
        yield self._verdict(command, terminal, began)
        # A server usually ends with its client, before the next command is typed.
        if not in_terminals:
            for other in list(self.others):
                if other[1].wait(END_S / 2 * self.patience):
                    self.others.remove(other)
                    yield self._verdict(*other)

    def _leaves_out(self, command):
        """Returns the reason, or an empty text."""
        if command.skip:
            return command.skip
        if command.long and not self.long:
            return f"only without --quick: {command.long}"
        if self.place == "elsewhere" and re.search(r"\./(dev|build-package)\b", command.plain):
            return "works in a clone only"
        return ""

    def _start(self, command, keeps=True):
        text = command.text
        if command.in_background:
            # The terminal runs it in the background, where Ctrl-C reaches it.
            text = command.plain[:-1]
        if self.place == "elsewhere":
            text = text.replace(IN_CLONE, "tulle")
        downloads = self.long and command.plain.startswith(DOWNLOADS)
        return self.sandbox.start(text, self.folder, machine=command.machine, keeps=keeps, downloads=downloads)

    def _await_ready(self, terminal, before):
        """Returns when the command has ended, or something listens that did not before, or neither happens for long."""
        deadline = time.monotonic() + READY_S * self.patience
        while terminal.running and time.monotonic() < deadline:
            if self.sandbox.listeners() - before:
                terminal.wait(0.3 * self.patience)
                return
            time.sleep(0.05)

    def _verdict(self, command, terminal, began=None):
        seconds = time.monotonic() - began if began else 0.0
        if terminal.running:
            terminal.kill()
            return self._result(command, "failed", f"still running after {seconds:.0f} s", seconds, output=terminal.text)
        if not terminal.succeeded:
            lines = [line for line in terminal.text.splitlines() if re.search(r"\w", line)]
            last = f": {lines[-1].strip()}" if lines else ""
            return self._result(command, "failed", f"exit status {terminal.status}{last}", seconds, output=terminal.text)
        if command.output and (found := difference(command.output, terminal.text)):
            return self._result(command, "failed", found[1], seconds, found[0], terminal.text)
        if SIMULATION.search(command.plain):
            self.done.add(self._key(command))
        return self._result(command, "passed", "", seconds)

    def _key(self, command):
        return self.name, command.line, "" if command.long else self.place

    def _result(self, command, outcome, message, seconds=0.0, line=None, output=""):
        return Result(self.name, line or command.line, command.plain, self.setting, outcome, message, round(seconds, 2),
                      output[-OUTPUT_MAX:])


class Report:
    """Prints faults as they come and skipped commands once, and counts."""

    def __init__(self):
        self.results, self.told = [], set()

    def add(self, result):
        key = (result.page, result.line, result.command, result.message)
        if result.outcome == "skipped":
            if key in self.told:
                return
            self.told.add(key)
        self.results.append(result)
        if result.outcome == "skipped":
            print(f"{result.page}:{result.line}: skipped: {result.command}: {result.message}", flush=True)
        elif result.outcome == "failed":
            print(result, flush=True)

    def count(self, outcome):
        return sum(result.outcome == outcome for result in self.results)

    def finish(self, path):
        """Writes the results, prints the last line and returns the exit status."""
        if path:
            counts = {outcome: self.count(outcome) for outcome in ("passed", "failed", "skipped")}
            path.write_text(json.dumps(counts | {"results": list(map(dataclasses.asdict, self.results))}, indent=1) + "\n")
        print(f"{self.count('passed')} passed, {self.count('failed')} failed, {self.count('skipped')} skipped")
        return 1 if self.count("failed") or not self.count("passed") else 0


def read_all(names, report):
    """Returns [(name, its blocks, line or None)] of the pages. What cannot be read is reported."""
    known, chosen = pages(), []
    for name in names or known:
        page, _, line = name.partition(":")
        if page not in known or (line and not line.isdigit()):
            sys.exit(f"pages: no page {name}; there are: {', '.join(known)}")
        try:
            chosen.append((page, blocks.read(known[page].read_text()), int(line) if line else None))
        except blocks.Wrong as wrong:
            report.add(Result(page, wrong.line, "the block", "reading", "failed", wrong.message))
    return chosen


def settings(arguments, long):
    """Yields (place, user). The quick mode leaves one out, which the other three cover together."""
    for place in arguments.place or PLACES:
        for user in arguments.user or USERS:
            if long or arguments.place or arguments.user or (place, user) != ("elsewhere", "root"):
                yield place, user


def run_pages(chosen, arguments, report, label, *, tree, folder, etc, installed, build=None, enter=None, own=None):
    """Runs the pages in a system by each user in each place. `enter(scratch)` is what comes before a command to run it
    in another system than this, where the long commands run, too; `own(user)` gives the clone to the user."""
    done = set()
    for place, user in settings(arguments, long=bool(enter)):
        if own:
            own(user)
        setting = ", ".join(filter(None, (label, place, user, arguments.load and f"load {arguments.load}")))
        for name, found, line in chosen:
            if not any(block.commands for block in found):
                continue
            with tempfile.TemporaryDirectory(prefix="page-", dir=folder) as scratch:
                os.chmod(scratch, 0o755)
                write_users(scratch, etc)
                path = [f"{installed}/bin"] if place == "elsewhere" else [f"{tree}/build/bin"]
                sandbox = Sandbox(tree, scratch, user, build, enter(scratch) if enter else (), path)
                try:
                    sandbox.load(arguments.load)
                    patience = 1.0 + arguments.load
                    run = Run(name, sandbox, place, setting, LONG_S if enter else QUICK_S, patience, bool(enter), done)
                    for result in run.blocks(found, line):
                        report.add(result)
                finally:
                    sandbox.close()


def quick(chosen, arguments, report):
    build = ROOT / os.environ.get("TULLE_BUILD", "build")
    if not (build / "bin/tulle").exists():
        sys.exit(f"pages: {build}/bin/tulle was not built; run: ./dev build")
    with tempfile.TemporaryDirectory(prefix="tulle-pages-", dir=FOLDERS) as folder:
        os.chmod(folder, 0o755)
        installed = pathlib.Path(folder) / "installed"
        subprocess.run(["cmake", "--install", build, "--prefix", installed], check=True, stdout=subprocess.DEVNULL)
        run_pages(chosen, arguments, report, "", tree=ROOT, folder=folder, etc="/etc", installed=installed, build=build)


def parse():
    parser = argparse.ArgumentParser(prog="./dev pages", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE[:LINE]", help="these pages or blocks alone")
    parser.add_argument("--quick", action="store_true", help="on this machine, without what takes minutes")
    parser.add_argument("--release", action="append", choices=minimal_debian.RELEASES, help="this release of Debian alone")
    parser.add_argument("--user", action="append", choices=USERS, help="by this user alone")
    parser.add_argument("--place", action="append", choices=PLACES, help="in this place alone")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="beside N processes that keep a processor busy")
    parser.add_argument("--mirror", help="take packages from this mirror instead of Debian's own")
    parser.add_argument("--ccache", metavar="DIR", help="a folder of ccache's for the builds")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results to this file")
    return parser.parse_args()


def main():
    arguments = parse()
    if os.geteuid() != 0:
        # root of a user namespace may make the machines, if it has other users for the ordinary one.
        inside = [*minimal_debian.as_root(), sys.executable, *sys.argv]
        if subprocess.run([*minimal_debian.as_root(), "true"], capture_output=True).returncode != 0:
            print("pages: skipped: an ordinary user here may not make namespaces with several users")
            return UNAVAILABLE
        os.execvp(inside[0], inside)
    report = Report()
    chosen = read_all(arguments.pages, report)
    try:
        if arguments.quick:
            quick(chosen, arguments, report)
        else:
            systems.run(arguments.release or minimal_debian.RELEASES, FOLDERS, arguments,
                        functools.partial(run_pages, chosen, arguments, report))
    except minimal_debian.Failed as failure:
        report.finish(arguments.json)
        sys.exit(f"pages: {failure}")
    except Unavailable as reason:
        print(f"pages: skipped: {reason}")
        return UNAVAILABLE
    return report.finish(arguments.json)


if __name__ == "__main__":
    sys.exit(main())
