"""rdma-core's own Python tests (pyverbs.py runs them)."""

import json
import pathlib
import subprocess
import sys

import frame

NAME = "rdma-core's tests"
PACKAGES = ["rdma-core", "python3-pyverbs"]
WHAT = "rdma-core's Python tests of the verbs and of librdmacm, as Debian ships them, each in a separate process."
NOTES = """Newer tests ask iproute2's program `rdma` for the interface below a port. That program asks the kernel, which does
not know Tulle's device. In these tests, another program named `rdma` answers from `tulle devices`. Tulle
does not implement FLUSH ([spec-exceptions.md](spec-exceptions.md))."""
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
