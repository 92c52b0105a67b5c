"""What the tests of real programs need to run with every program sealed, and with a look at all that leaves.

A run has a folder, which the environment names: the tests and the drivers that they start find the key file there, and put
there what they have seen. sealed_run.py makes it, and tells for each test what left and what that means.
"""

import collections
import itertools
import json
import os
import pathlib
import re
import secrets
import tempfile

import cable

# Names the folder of a sealed run.
SEALED = "TULLE_TEST_SEALED"

# What a program over Tulle says that refuses to work sealed. The rest of its test then does not apply.
REFUSALS = {
    "has no effect on a host of a software fabric": "refused: a fabric's packets stay within the machine",
    "datagrams are not sealed on a fabric's host": "refused: a fabric's packets stay within the machine",
    "cables between machines are not sealed": "refused: cables between the machines of a fabric",
    "RoCE v1's frames are not sealed": "refused: frames of RoCE v1",
}
# Tests that send plain datagrams themselves, through sockets that no process has bound or of processes that end.
STRANGERS = {
    "scapy": "Scapy's peer",
    "hostile_network": "the stranger",
    "hostile_user": "the attacker",
    "bad_input.ForgedDatagrams": "forge.py (Python)",
}

_numbers = itertools.count()


def folder():
    return pathlib.Path(os.environ[SEALED])


def make_folder():
    """Makes the folder of a run, with key files for root and, on the first demand, for other users."""
    made = tempfile.TemporaryDirectory(prefix="tulle-sealed-")
    os.chmod(made.name, 0o711)
    os.environ[SEALED] = made.name
    (folder() / "key").write_text(secrets.token_hex(32))
    return made


def key_file(user):
    """Returns a key file that this user, and nobody else, can read. All have the same key."""
    path = folder() / f"keys-{user}"
    if not path.exists():
        fresh = folder() / f"fresh-{os.getpid()}-{next(_numbers)}"
        fresh.write_text((folder() / "key").read_text() + "\n")
        fresh.chmod(0o600)
        if user != os.geteuid():
            os.chown(fresh, user, user)
        fresh.rename(path)
    return path


def environment(argv):
    """Returns what a process needs in its environment to seal what it sends, and to send it as packets."""
    user = next((int(word.partition("=")[2]) for word in map(str, argv) if re.fullmatch(r"--reuid=\d+", word)), os.geteuid())
    if any("librspreload" in str(word) for word in argv):
        keep({"preloaded": 1})
    return {"TULLE_SECURE": str(key_file(user)), SEALED: os.environ[SEALED]}


def refusal_in(text):
    return next((why for words, why in REFUSALS.items() if words in text), None)


def matching(table, test):
    """Returns the entry of a table that names the test, its class or its group."""
    return next((table[name] for name in (test, test.rpartition(".")[0], test.partition(".")[0]) if name in table), None)


def watch(net, build):
    own = matching(STRANGERS, os.environ.get("TULLE_TEST_NAME", ""))
    return cable.Watch(net.fd, net.inode, build, own)


def keep(seen):
    path = folder() / f"seen-{os.getpid()}-{next(_numbers)}.json"
    path.with_suffix(".part").write_text(json.dumps(seen))
    path.with_suffix(".part").rename(path)


def collect():
    """Returns the sum of what was seen since the last call."""
    total = {"sealed": 0, "looked": 0, "clear": 0, "missed": 0, "stream_bytes": 0, "fallbacks": 0, "failure": "",
             "preloaded": 0, "unowned": 0, "kinds": collections.Counter(), "streams": collections.Counter()}
    for path in sorted(folder().glob("seen-*.json")):
        for name, value in json.loads(path.read_text()).items():
            if name in ("kinds", "streams"):
                total[name].update(value)
            else:
                total[name] += value
        path.unlink()
    return total
