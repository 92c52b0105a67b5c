"""Attacks that are made before there is a host agent, or on what root's programs start from: the agent's address, the
port, the files of `tulle run`, the environment. Each has a network namespace of its own."""

import contextlib
import dataclasses
import os
import pathlib
import shlex
import shutil
import tempfile
import time

import harness
from place import ATTACKER, PROGRAM, VICTIM, as_user

REFUSAL_SECONDS = 8  # within which a program that cannot be served must say so
OPEN_GOAL_S = 1.0


@dataclasses.dataclass
class Result:
    deeds: int = 0
    scanned: int = 0
    skipped: str = ""
    found: list = dataclasses.field(default_factory=list)

    def expect(self, holds, what):
        self.deeds += 1
        if not holds:
            self.found.append(what)


class Stage(contextlib.ExitStack):
    """A network namespace without an agent. With a private /tmp, whatever is made there is gone afterwards."""

    def __init__(self):
        super().__init__()
        self.net = harness.Namespace()
        self.callback(self.net.close)
        self.folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory(prefix="tulle-hostile-")))
        os.chmod(self.folder, 0o777 | 0o1000)  # as /tmp is

    def start(self, user, *argv, env=None):
        process = harness.Process([*as_user(user), *argv], net=self.net, env=env, cwd="/")
        self.callback(process.close)
        return process

    def attacker(self, script, *arguments):
        """Starts an attacker in Python, and returns it once it says so."""
        process = self.start(ATTACKER, "/usr/bin/python3", "-c", script, *arguments)
        harness.wait_until(lambda: "ready" in process.stdout or not process.running, "the attacker", 10)
        if not process.running:
            raise AssertionError(process.describe())
        return process

    def start_freely(self, program, env):
        """Runs a program as the attacker, who may gain rights by it."""
        user = [word for word in as_user(ATTACKER) if word != "--no-new-privs" and "bounding" not in word]
        process = harness.Process([*user, program, "settings"], net=self.net, env=env, cwd="/")
        self.callback(process.close)
        return process

    def open(self, user=0, env=None, prefix=()):
        """Runs a program that opens the device. Returns (exit status, seconds, what it said)."""
        began = time.monotonic()
        process = self.start(user, *prefix, harness.TULLE, "run", "--", VICTIM, "open", env=env)
        status = process.wait(30)
        return status, time.monotonic() - began, process.stderr.strip()


def refused_in_words(result, stage, word, env=None):
    """Root's program must not be served, and must say by whom it is not."""
    status, seconds, said = stage.open(env=env)
    result.expect(status != 0, "root's program takes an attacker's agent for its own")
    result.expect(status > 0, f"root's program dies: {said}")
    result.expect(seconds < REFUSAL_SECONDS, f"root's program waits for {seconds:.1f} s")
    result.expect(word in said, f"root's program does not say what is wrong: {said}")


def served(result, stage, what, env=None, prefix=()):
    status, seconds, said = stage.open(env=env, prefix=prefix)
    result.expect(status == 0, f"{what}: {said}")
    result.expect(seconds < OPEN_GOAL_S, f"{what}: it takes {seconds:.2f} s")
    result.expect(not said, f"{what}: root's program complains: {said}")


# Listens where root's agent would, and prints what programs say to it.
FAKE_AGENT = """
import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1].replace("@", chr(0)))
listener.listen(64)
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    connection.settimeout(0.5)
    try:
        if len(sys.argv) > 2:
            connection.send(bytes.fromhex(sys.argv[2]))
        got = connection.recv(1 << 17)
        print("got", len(got), flush=True)
    except OSError:
        pass
"""


def fake_agent(answer):
    result = Result()
    with Stage() as stage:
        fake = stage.attacker(FAKE_AGENT, "@tulle", *answer)
        refused_in_words(result, stage, str(ATTACKER))
        result.expect("got" not in fake.stdout.replace("got 0", ""), f"a program speaks to it: {fake.stdout}")
        status = stage.start(0, harness.TULLE, "status")
        result.expect(status.wait(20) != 0, "`tulle status` believes an attacker's agent")
        fake.close()
        served(result, stage, "after the fake agent's end")
    return result


def fake_agent_at_a_path():
    """The address is a path in a folder where all may make files."""
    result = Result()
    with Stage() as stage:
        path = stage.folder / "agent"
        fake = stage.attacker(FAKE_AGENT, str(path))
        refused_in_words(result, stage, str(ATTACKER), {"TULLE_AGENT": str(path)})
        fake.close()
        # The path that is left belongs to the attacker, and leads to nobody.
        served(result, stage, "beside a path that the attacker left", {"TULLE_AGENT": str(path)})
    return result


REPLACE = """
import os, socket, sys
path = sys.argv[1]
def attempt(act, *arguments):
    try:
        act(*arguments)
        print("did", act.__name__, flush=True)
    except OSError:
        pass
attempt(os.unlink, path)
attempt(os.rename, path, path + "-away")
attempt(os.chmod, path, 0)
attempt(os.chown, path, 65534, 65534)
attempt(os.symlink, "/dev/null", path)
attempt(os.link, path, path + "-again")
attempt(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind, path)
attempt(os.rename, sys.argv[2], path)
print("ready", flush=True)
input()
"""


def replaced_path():
    """A running agent's path is replaced, in a folder with the sticky bit."""
    result = Result()
    with Stage() as stage:
        env = {"TULLE_AGENT": str(stage.folder / "agent")}
        holder = stage.start(0, harness.TULLE, "agent", env=env)
        harness.wait_until(lambda: (stage.folder / "agent").exists(), "the agent", 10)
        script = REPLACE.replace("input()", "")
        attacker = stage.start(ATTACKER, "/usr/bin/python3", "-c", script, env["TULLE_AGENT"], "/etc/hostname")
        attacker.wait(20)
        result.expect("ready" in attacker.stdout and "did" not in attacker.stdout, f"it may: {attacker.stdout}")
        served(result, stage, "after attacks on the agent's path", env)
        holder.close()
    return result


LOCK = """
import fcntl, os, sys, time
folder = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(folder, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(60)
"""


def locked_folder():
    """Whoever may read a folder may lock it. The agent's start must not wait for that."""
    result = Result()
    with Stage() as stage:
        stage.attacker(LOCK, str(stage.folder))
        status, seconds, said = stage.open(env={"TULLE_AGENT": str(stage.folder / "agent")})
        result.expect(status == 0, f"no agent starts in a locked folder: {said}")
        result.expect(seconds < REFUSAL_SECONDS, f"the start takes {seconds:.1f} s")
    return result


TAKE_PORT = """
import socket, sys, time
port = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
port.bind(("::", 4791))
print("ready", flush=True)
port.settimeout(20)
try:
    print("got", len(port.recv(70000)), flush=True)
except OSError:
    pass
"""


def taken_port():
    """A program of the attacker's has the UDP port before root's agent. Root's programs say so, and lose nothing to it."""
    result = Result()
    with Stage() as stage:
        taker = stage.attacker(TAKE_PORT)
        refused_in_words(result, stage, "4791")
        result.expect("got" not in taker.stdout, "a datagram comes to the attacker")
        taker.close()
        served(result, stage, "once the port is free")
    return result


# With a private /tmp, of which the attacker has taken the folder that root's `tulle run` uses. What was built stays where
# it is, also below /tmp.
TAKEN_FOLDER = """
set -e
mount --bind {build} /mnt
mount -t tmpfs -o mode=1777 tmpfs /tmp
if [ ! -d {build} ]; then
  mkdir -p {build}
  mount --bind /mnt {build}
fi
umount /mnt
cd /tmp
{attacker} sh -c "$1"
shift
exec "$@"
"""


def taken_files(preparation):
    result = Result()
    with Stage() as stage:
        prepared = TAKEN_FOLDER.replace("{attacker}", " ".join(as_user(ATTACKER)))
        prepared = prepared.replace("{build}", shlex.quote(str(harness.BUILD)))
        prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", prepared, "sh", preparation]
        served(result, stage, "with the folder of its files taken", {"XDG_RUNTIME_DIR": ""}, prefix)
    return result


def strangers_runtime_folder():
    """`su` keeps XDG_RUNTIME_DIR. Root's programs must make nothing in a folder that another user can move or replace."""
    result = Result()
    with Stage() as stage:
        runtime = stage.folder / "runtime"
        runtime.mkdir(mode=0o700)
        os.chown(runtime, ATTACKER, ATTACKER)
        env = {"XDG_RUNTIME_DIR": str(runtime)}
        for command in (["run", "--", "true"], ["fabric", "list"], ["fabric", "status"]):
            process = stage.start(0, harness.TULLE, *command, env=env)
            process.wait(20)
            result.expect(f"XDG_RUNTIME_DIR is not used: {runtime} belongs to user {ATTACKER}" in process.stderr,
                          f"`tulle {' '.join(command)}` does not say whose folder it is: {process.stderr}")
            result.expect(not list(runtime.iterdir()), f"`tulle {' '.join(command)}` uses the attacker's folder")
    return result


def strangers_fabric():
    """TULLE_FABRIC names a socket at which another user's process answers. What it says and hands over would lead root's
    program into its namespaces."""
    result = Result()
    with Stage() as stage:
        own = stage.folder / "own"
        own.mkdir()
        os.chown(own, ATTACKER, ATTACKER)
        for path, word in ((stage.folder / "socket", f"belongs to user {ATTACKER}"), (own / "socket", f"user {ATTACKER}")):
            fake = stage.attacker(FAKE_AGENT, str(path))
            env = {"TULLE_FABRIC": str(path)}
            for command in (["run", "--host", "h0", "--", "true"], ["fabric", "status"], ["fabric", "down"]):
                process = stage.start(0, harness.TULLE, *command, env=env)
                status = process.wait(20)
                result.expect(status > 0, f"`tulle {' '.join(command)}` ends with {status}")
                result.expect(word in process.stderr, f"`tulle {' '.join(command)}` does not say whose it is: "
                                                      f"{process.stderr}")
            stage.open(env=env | {"TULLE_HOST": "h0"})
            result.expect("got" not in fake.stdout.replace("got 0", ""), f"a program speaks to it: {fake.stdout}")
            result.expect(sorted(each.name for each in own.iterdir()) in ([], ["socket"]), "root makes a folder there")
            fake.close()
    return result


def planted_recipe():
    """A file of another user's looks like one from which libtulle-paths makes an attribute. Opened by a relative path, it
    must be read as it is, and lead to no socket."""
    result = Result()
    with Stage() as stage:
        runtime, own = stage.folder / "runtime", stage.folder / "own"
        runtime.mkdir(mode=0o700)
        own.mkdir()
        os.chown(own, ATTACKER, ATTACKER)
        planted = own / "planted"
        fake = stage.attacker(FAKE_AGENT, str(stage.folder / "socket"))
        recipe = f"tulle attribute\n1\n0011\n{stage.folder}/socket\nother content\n"
        stage.start(ATTACKER, "sh", "-c", 'printf %s "$1" > "$2"', "sh", recipe.ljust(4096, "#"), planted).wait(10)
        script = f"cd {own} && wc -c < planted && head -c 15 planted && echo 1 >> planted && wc -c < planted"
        process = stage.start(0, harness.TULLE, "run", "--", "sh", "-c", script, env={"XDG_RUNTIME_DIR": str(runtime)})
        status = process.wait(20)
        result.expect(status == 0 and process.stdout == "4096\ntulle attribute4098\n",
                      f"a program sees {process.stdout!r} {process.stderr!r}")
        result.expect("got" not in fake.stdout, f"a program speaks to the attacker: {fake.stdout}")
        fake.close()
    return result


def set_uid_program():
    """The attacker starts a set-uid program of root's that uses Tulle, with an environment of his own. The environment
    must not decide which agent the program trusts, and which executable it starts."""
    result = Result()
    with Stage() as stage:
        program = stage.folder / "program"
        shutil.copy(PROGRAM, program)
        os.chmod(program, 0o755)
        env = {"TULLE_AGENT": "@attackers", "TULLE_EXECUTABLE": "/tmp/attackers"}

        def settings():
            process = stage.start_freely(program, env)
            return process.stdout.strip() if process.wait(10) == 0 else process.stderr

        result.expect(settings() == "@attackers /tmp/attackers", "an ordinary program takes no settings")
        os.chmod(program, 0o4755)
        result.expect(settings() == "@tulle", f"a set-uid program takes settings from its starter: {settings()}")
    return result


def fake_answers():
    """Returns messages of a fake agent: nothing, a refusal, garbage, and a long one."""
    return {"silent": (), "garbage": ("00" * 100,), "long": ("41" * 60000,)}


ATTACKS = {
    **{f"staged.fake_agent_{name}": (lambda answer=answer: fake_agent(answer)) for name, answer in fake_answers().items()},
    "staged.fake_agent_at_a_path": fake_agent_at_a_path,
    "staged.replaced_path": replaced_path,
    "staged.locked_folder": locked_folder,
    "staged.taken_port": taken_port,
    "staged.taken_folder": lambda: taken_files("mkdir tulle-0"),
    "staged.taken_folder_is_a_file": lambda: taken_files("touch tulle-0"),
    "staged.set_uid_program": set_uid_program,
    "staged.strangers_runtime_folder": strangers_runtime_folder,
    "staged.strangers_fabric": strangers_fabric,
    "staged.planted_recipe": planted_recipe,
    "staged.taken_folder_is_a_link": lambda: taken_files("ln -s /etc tulle-0"),
}
