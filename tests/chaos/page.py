"""The page that the driver shares with each program under test. The lists are those of tests/clients/chaos/page.h."""

import mmap
import pathlib
import re

HEADER = pathlib.Path(__file__).resolve().parent.parent / "clients" / "chaos" / "page.h"
BYTES = 4096


def _list(macro):
    text = HEADER.read_text()
    body = re.search(rf"#define PAGE_{macro}S?\((\w+)\)(.*?[^\\])\n(?=\n|/\*)", text, re.DOTALL)
    return re.findall(rf"\b{body.group(1)}\((\w+)\)", body.group(2))


FIELDS = _list("FIELD")
STEPS = _list("STEP")
CALLS = _list("CALL")
COMMANDS = _list("COMMAND")


class Page:
    """page["rounds"] is the field of that name."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.write_bytes(bytes(BYTES))
        with open(self.path, "r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), BYTES)).cast("Q")

    def __getitem__(self, field):
        return self._words[FIELDS.index(field)]

    def __setitem__(self, field, value):
        self._words[FIELDS.index(field)] = value

    def command(self, name, argument=0, seconds=0.0):
        self["argument"] = argument
        self["microseconds"] = int(seconds * 1e6)
        self["command"] = COMMANDS.index(name)

    @property
    def step(self):
        return STEPS[self["step"]].replace("_", " ")

    @property
    def longest(self):
        """Returns the longest call as (seconds, name)."""
        return self["longest_ns"] * 1e-9, CALLS[self["longest_call"]]
