"""A client of our own that opens libibverbs at run time and asks for each function by its version."""

import pathlib
import shutil
import tempfile

import frame
from frame import Case

NAME = "Late binding"
PACKAGES = ["libibverbs-dev"]
WHAT = ("A client that loads libibverbs as collective libraries do: `dlopen`, then `dlvsym` with each function's "
        "version. It sends WRITE with immediate, and a flushing READ on a separate queue pair, and checks every byte.")

MOVED_BYTES_MIN = 10_000_000  # 400 messages have 128 KiB on average
SOURCE = pathlib.Path(__file__).resolve().parent / "programs" / "late_binding.c"


def build(stage):
    folder = tempfile.mkdtemp(prefix="tulle-late-binding-")
    stage.addCleanup(shutil.rmtree, folder)
    pathlib.Path(folder).chmod(0o755)
    program = pathlib.Path(folder) / "late_binding"
    stage.run_program("cc", "-std=gnu11", "-O2", "-o", program, SOURCE, "-pthread")
    return program


def move_data(stage, options=(), prefix=()):
    process = stage.run_program(*prefix, *stage.over_tulle([build(stage)], options))
    stage.assertRegex(process.stdout, r"^ok: \d+ messages", process.describe())


def cases():
    yield Case("one_host", move_data, MOVED_BYTES_MIN)
    yield Case("packets", lambda stage: move_data(stage, ["--no-direct"]), MOVED_BYTES_MIN)
    yield Case("ordinary_user", lambda stage: move_data(stage, prefix=frame.ordinary_user(stage).prefix),
               MOVED_BYTES_MIN)
