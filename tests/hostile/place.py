"""The places where a user attacks others: a network namespace with root's host agent and two pairs of victims."""

import contextlib
import json
import mmap
import os
import pathlib
import secrets
import subprocess
import tempfile
import time

import harness
import unprivileged_test

PROGRAM = harness.BUILD / "bin" / "hostile_user"
VICTIM = harness.BUILD / "bin" / "hostile_victim"
ATTACKER, OTHER_USER = 65534, 65533
SKIPPED = 77
PAGE_BYTES, SECRET_OFFSET = 4096, 2048  # as in tests/clients/hostile/victim.h
PROGRESS_SECONDS = 5
OPEN_SECONDS = 20


class Fault(Exception):
    """Something that must hold under attack does not."""


def as_user(user):
    """Returns what to put before a command, so that it runs as that user. Root's programs stay as they are."""
    if user == 0:
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]


def may_run():
    """Returns why attacks cannot be made here, or nothing."""
    if os.geteuid() != 0 or not unprivileged_test.maps_all_users():
        return "only root has other users to attack as"
    for program in (PROGRAM, VICTIM, harness.TULLE):
        if not program.exists():
            return f"{program} was not built"
        if subprocess.run([*as_user(ATTACKER), "test", "-x", program], check=False).returncode != 0:
            return f"an ordinary user cannot reach {program}"
    return ""


def fields():
    return subprocess.run([VICTIM, "fields"], capture_output=True, text=True, check=True).stdout.split()


class Page:
    def __init__(self, path, user, secret, names):
        self.path = path
        self.names = names
        path.write_bytes(bytes(SECRET_OFFSET) + secret + bytes(PAGE_BYTES - SECRET_OFFSET - len(secret)))
        os.chmod(path, 0o600)
        os.chown(path, user, user)
        with open(path, "r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), PAGE_BYTES)).cast("Q")

    def __getitem__(self, name):
        return self.words[self.names.index(name)]

    def __setitem__(self, name, value):
        self.words[self.names.index(name)] = value


class Pair:
    """A server and a client of one user."""

    def __init__(self, arena, name, user, port):
        self.name, self.user, self.port = name, user, port
        self.secret = secrets.token_bytes(8)
        names = fields()
        self.pages = [Page(arena.folder / f"{user}-{role}", user, self.secret, names) for role in ("server", "client")]
        self.processes = []
        for role, page in zip(("server", "client"), self.pages):
            self.processes.append(arena.start(user, VICTIM, role, port, page.path))
            harness.wait_until(lambda: page["ready"] or not self.processes[-1].running,  # noqa: B023
                               f"the {role} of {name}")

    def counts(self):
        """Returns the client's counts, and what went wrong at either side."""
        server, client = self.pages
        counts = {name: client[name] for name in client.names}
        for name in ("wrong", "unexpected"):
            counts[name] += server[name]
        return counts

    def pause(self, is_paused):
        self.pages[1]["paused"] = is_paused

    @property
    def is_paused(self):
        return bool(self.pages[1]["paused"])

    def dead(self):
        return [process for process in self.processes if not process.running]


class Arena(contextlib.ExitStack):
    def __init__(self, paused=False):
        super().__init__()
        self.other_user = OTHER_USER
        try:
            self.build(paused)
        except BaseException:
            self.close()
            raise

    def build(self, paused):
        self.net = harness.Namespace()
        self.callback(self.net.close)
        self.folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory(prefix="tulle-hostile-")))
        os.chmod(self.folder, 0o711)
        self.pairs = []
        for name, user, port in (("root", 0, 18801), ("another user", OTHER_USER, 18802)):
            self.pairs.append(Pair(self, name, user, port))
            self.pairs[-1].pause(paused)
        self.agent = self.status()["agent"]["pid"]
        for pair in self.pairs:
            if pair.dead():
                raise Fault(pair.dead()[0].describe())

    def start(self, user, *argv):
        process = harness.Process([*as_user(user), harness.TULLE, "run", "--", *argv], net=self.net, cwd="/")
        self.callback(process.close)
        return process

    @property
    def secrets(self):
        return [pair.secret.hex() for pair in self.pairs]

    @property
    def ports(self):
        return [pair.port for pair in self.pairs]

    @property
    def pids(self):
        return [process.pid for pair in self.pairs for process in pair.processes]

    def status(self):
        """Returns the parsed `tulle status --json`. The text for people must not steer their terminal."""
        texts = []
        for options in (["--json"], []):
            process = harness.Process([harness.TULLE, "status", *options], net=self.net)
            try:
                if process.wait(10) != 0:
                    raise Fault(process.describe())
                texts.append(process.stdout)
            except AssertionError as error:
                raise Fault(str(error)) from None
            finally:
                process.close()
        if any(not letter.isprintable() and letter != "\n" for letter in texts[1]):
            raise Fault("`tulle status` prints what steers a terminal")
        try:
            return json.loads(texts[0])
        except ValueError as error:
            raise Fault(f"`tulle status --json`: {error}") from None

    def open_device(self, user):
        """Starts a program that opens the device, and returns after how many seconds it had done so and ended."""
        began = time.monotonic()
        process = harness.Process([*as_user(user), harness.TULLE, "run", "--", VICTIM, "open"], net=self.net, cwd="/")
        try:
            if process.wait(OPEN_SECONDS) != 0:
                raise Fault(f"user {user} cannot open the device: {process.stderr.strip()}")
        except AssertionError:
            raise Fault(f"user {user} opens the device for {OPEN_SECONDS} s and more") from None
        finally:
            process.close()
        return time.monotonic() - began

    def counts(self):
        return [pair.counts() for pair in self.pairs]

    def pause_all_but(self, chosen):
        for pair in self.pairs:
            pair.pause(pair is not chosen)

    def harm(self, before):
        """Returns what has come of an attack, in words. `before` are the counts before it; None means from the start."""
        found = []
        if not pathlib.Path(f"/proc/{self.agent}/stat").exists():
            found.append("the host agent is dead")
        for number, pair in enumerate(self.pairs):
            for process in pair.dead():
                found.append(f"a victim is dead ({pair.name}): {process.stderr.strip()[-300:]}")
            now, then = pair.counts(), before[number] if before else {}
            for name, what in (("wrong", "wrong messages"), ("unexpected", "unexpected events or errors"),
                               ("failed_connections", "failed connections")):
                if now[name] > then.get(name, 0):
                    said = " ".join(process.stderr.strip()[-200:] for process in pair.processes)
                    found.append(f"{now[name] - then.get(name, 0)} {what} of {pair.name}: {said}")
            if not found and not pair.is_paused and not self.goes_on(pair):
                found.append(f"the victims of {pair.name} stand still, or connect no more")
        return found

    @staticmethod
    def goes_on(pair):
        start = pair.counts()
        try:
            harness.wait_until(lambda: pair.counts()["messages"] > start["messages"]
                               and pair.counts()["connections"] > start["connections"], "progress", PROGRESS_SECONDS, 0.002)
        except AssertionError:
            return False
        return True

    def is_ruined(self):
        """Returns whether what is found in this arena from now on would say nothing."""
        return not pathlib.Path(f"/proc/{self.agent}/stat").exists() or any(pair.dead() for pair in self.pairs)
