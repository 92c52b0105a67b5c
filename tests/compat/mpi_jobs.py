"""MPI jobs over Tulle: programs of our own (programs/) that check every byte, by each MPI's compiler and launcher.

Two things show that the network carried the data and not shared memory: UCX reports which transports each rank
chose, and the same job cannot start without the device.
"""

import pathlib
import re
import shutil
import tempfile

import frame
from frame import Case
from harness import TULLE

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
SOURCE = PROGRAMS / "collectives.c"
RANKS = 4
LIMIT = 120
LARGEST_BYTES = 1_200_000  # the most that collectives.c moves at once
TRANSPORTS = {"rc": ("rc_v,self", "rc_verbs"), "ud": ("ud_v,self", "ud_verbs")}

# Pattern of the line in which UCX, at its log level "info", says which transports an endpoint uses.
ENDPOINT = {
    "1.0": r"ep_cfg\[.*",
    "1.18": r"ucp_context_\d+ (?:self|intra-node|inter-node) cfg#.*",
}

# This script takes the place of a remote shell: [OPTIONS] HOST COMMAND... The host is one end of a cable, and has a
# name of its own.
REMOTE_SHELL = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in 10.0.0.1) net={first} name=first ;; *) net={second} name=second ;; esac
shift
exec nsenter --net=/proc/$net/ns/net unshare --uts sh -c "hostname $name; exec {tulle} run -- sh -c '$*'"
"""


class Mpi:
    """One implementation: its compiler, its launcher and the launcher's options. `remotely` turns a remote shell
    into the options by which the launcher reaches the two ends of a cable."""

    def __init__(self, compiler, launcher, options=(), env=None, remotely=None, source=SOURCE):
        self.compiler, self.launcher, self.options, self.env = compiler, launcher, list(options), env or {}
        self.remotely, self.source = remotely, source

    def build(self, stage):
        """Builds the program in a folder that an ordinary user may read and that is removed with the stage."""
        folder = tempfile.mkdtemp(prefix="tulle-mpi-")
        stage.addCleanup(shutil.rmtree, folder)
        pathlib.Path(folder).chmod(0o755)
        program = pathlib.Path(folder) / self.source.stem
        stage.run_program(self.compiler, "-std=gnu11", "-O1", "-o", program, self.source)
        return program

    def job(self, program, transports, options=()):
        """Returns (arguments, environment)."""
        env = {"UCX_TLS": transports, "UCX_NET_DEVICES": "tulle0:1", "UCX_LOG_LEVEL": "info", **self.env}
        return [self.launcher, "-n", str(RANKS), *self.options, *options, program], env

    def on_one_host(self, stage, transport, prefix=()):
        argv, env = self.job(self.build(stage), TRANSPORTS[transport][0])
        # The prefix goes first, since the launcher hands on the environment that `tulle run` makes.
        process = stage.run_program(*prefix, *stage.over_tulle(argv), env=env, limit=LIMIT)
        self.check(stage, process, transport, "in 1 networks" if self.source is SOURCE else "")

    def two_hosts(self, stage, transport):
        place = frame.two_hosts(stage)
        program = self.build(stage)
        shell = program.parent / "remote_shell"
        first, second = place.server.holder.pid, place.client.holder.pid
        shell.write_text(REMOTE_SHELL.format(first=first, second=second, tulle=TULLE))
        shell.chmod(0o755)
        argv, env = self.job(program, TRANSPORTS[transport][0], self.remotely(str(shell)))
        process = stage.run_program("unshare", "--uts", "sh", "-c", 'hostname first; exec "$@"', "sh",
                                    *stage.over_tulle(argv), net=place.server, env=env, limit=LIMIT)
        self.check(stage, process, transport, "in 2 networks")

    def as_it_stands(self, stage):
        """Runs `tulle run -- mpirun -n 4 program`, as a user would who knows nothing of UCX."""
        env = {name: value for name, value in self.env.items() if name.startswith("OMPI_ALLOW_RUN_AS_ROOT")}
        options = ["--oversubscribe"] if "--oversubscribe" in self.options else []
        argv = [self.launcher, "-n", str(RANKS), *options, self.build(stage)]
        process = stage.run_program(*stage.over_tulle(argv), env=env, limit=LIMIT)
        stage.assertIn(f"ok: {RANKS} ranks in 1 networks", process.stdout, process.describe())

    @staticmethod
    def check(stage, process, transport, where):
        stage.assertIn(f"ok: {RANKS} ranks {where}".rstrip(), process.stdout, process.describe())
        chosen = re.findall(frame.form(ENDPOINT, "libucx0"), process.stdout + process.stderr)
        used = set(re.findall(r"(\w+)/\w+", " ".join(chosen)))
        stage.assertEqual({TRANSPORTS[transport][1]}, used - {"self"},
                          f"not the transports that UCX was to choose\n{process.describe()}")

    def without_the_device(self, stage):
        argv, env = self.job(self.build(stage), TRANSPORTS["rc"][0])
        process = stage.run_program(*argv, env=env, limit=LIMIT, expect=None)
        stage.assertNotEqual(0, process.wait(), process.describe())
        stage.assertRegex(process.stdout + process.stderr, "tulle0:1.* is not available", process.describe())

    def cases(self):
        for transport in TRANSPORTS:
            yield Case(f"{transport}.collectives",
                       lambda stage, transport=transport: self.on_one_host(stage, transport), LARGEST_BYTES)
            yield Case(f"{transport}.ordinary_user", lambda stage, transport=transport: self.on_one_host(
                stage, transport, frame.ordinary_user(stage).prefix), LARGEST_BYTES)
            yield Case(f"{transport}.two_hosts",
                       lambda stage, transport=transport: self.two_hosts(stage, transport), LARGEST_BYTES)
        yield Case("as_it_stands", self.as_it_stands, LARGEST_BYTES)
        yield Case("not_without_the_device", self.without_the_device)


OPEN_MPI = Mpi(
    "mpicc.openmpi", "mpirun.openmpi",
    ["--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "^openib",
     "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"],
    {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    lambda shell: ["--host", "10.0.0.1:2,10.0.0.2:2", "--map-by", "ppr:2:node", "--mca", "plm_rsh_agent", shell])

OPEN_SHMEM = Mpi("oshcc", "oshrun", ["--mca", "spml", "ucx", "-x", "SHMEM_SYMMETRIC_HEAP_SIZE=16M", *OPEN_MPI.options],
                 OPEN_MPI.env, source=PROGRAMS / "symmetric.c")

# With NOLOCAL all messages go to the network below, and none through MPICH's own shared memory.
MPICH = Mpi(
    "mpicc.mpich", "mpirun.mpich", env={"MPIR_CVAR_NOLOCAL": "1"},
    remotely=lambda shell: ["-launcher", "ssh", "-launcher-exec", shell, "-hosts", "10.0.0.1,10.0.0.2", "-ppn", "2"])
