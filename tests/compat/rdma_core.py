"""rdma-core's own Python tests (pyverbs.py runs them)."""

import json
import pathlib
import subprocess
import sys

import frame

NAME = "rdma-core's tests"
PACKAGES = ["rdma-core", "python3-pyverbs"]
WHAT = "its Python tests of the verbs and of librdmacm, as Debian ships them, each in a process of its own"
NOTES = """Newer tests ask iproute2's `rdma` for the interface below a port. That program asks the kernel, which knows nothing of
a device that lives in processes; here a program of that name answers from `tulle devices`. FLUSH is left out of Tulle
([spec-exceptions.md](spec-exceptions.md))."""
RUNNER = pathlib.Path(__file__).resolve().parent / "pyverbs.py"


def results(names):
    runner = subprocess.Popen([sys.executable, RUNNER, *names], stdout=subprocess.PIPE, text=True,
                              start_new_session=True)  # Ctrl-C comes to this process, which ends the runner by SIGTERM
    try:
        for line in runner.stdout:
            said = json.loads(line)
            yield frame.Result(NAME, said["test"], said["outcome"], said["reason"])
    finally:
        if runner.poll() is None:
            runner.terminate()
        runner.wait()
