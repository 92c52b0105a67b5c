"""MPI jobs over Tulle: a program of our own (programs/collectives.c) that checks every byte, by each MPI's compiler and launcher.

That the network carried it, and no shared memory, is seen twice: UCX tells which transports each rank chose, and without
the device the same job cannot start.
"""

import pathlib
import re
import shutil
import tempfile

import frame
from frame import Case

SOURCE = pathlib.Path(__file__).resolve().parent / "programs" / "collectives.c"
RANKS = 4
LIMIT = 120
TRANSPORTS = {"rc": ("rc_v,self", "rc_verbs"), "ud": ("ud_v,self", "ud_verbs")}


class Mpi:
    """One implementation: its compiler, launcher and what its launcher needs to be told."""

    def __init__(self, compiler, launcher, options=(), env=None):
        self.compiler, self.launcher, self.options, self.env = compiler, launcher, list(options), env or {}

    def build(self, stage):
        """The program, in a folder that an ordinary user may read and that goes with the stage."""
        folder = tempfile.mkdtemp(prefix="tulle-mpi-")
        stage.addCleanup(shutil.rmtree, folder)
        pathlib.Path(folder).chmod(0o755)
        program = pathlib.Path(folder) / "collectives"
        stage.run_program(self.compiler, "-std=gnu11", "-O1", "-o", program, SOURCE)
        return program

    def job(self, program, transports, prefix=()):
        """(arguments, environment)"""
        env = {"UCX_TLS": transports, "UCX_NET_DEVICES": "tulle0:1", "UCX_LOG_LEVEL": "info", **self.env}
        return [*prefix, self.launcher, "-n", str(RANKS), *self.options, program], env

    def collectives(self, stage, transport, prefix=()):
        wanted, name = TRANSPORTS[transport]
        argv, env = self.job(self.build(stage), wanted, prefix)
        # Before `tulle run`: the launcher hands its environment on to the ranks.
        before = prefix and argv[:len(prefix)]
        process = stage.run_program(*before, *stage.over_tulle(argv[len(prefix):]), env=env, limit=LIMIT)
        stage.assertRegex(process.stdout, rf"(?m)^ok: {RANKS} ranks", process.describe())
        chosen = re.findall(r"ep_cfg\[.*", process.stdout + process.stderr)
        used = set(re.findall(r"(\w+)/\w+", " ".join(chosen)))
        stage.assertEqual({name}, used - {"self"}, f"the transports that UCX chose\n{process.describe()}")

    def without_the_device(self, stage):
        argv, env = self.job(self.build(stage), TRANSPORTS["rc"][0])
        process = stage.run_program(*argv, env=env, limit=LIMIT, expect=None)
        stage.assertNotEqual(0, process.wait(), process.describe())
        stage.assertRegex(process.stdout + process.stderr, "tulle0:1.* is not available", process.describe())

    def cases(self):
        for transport in TRANSPORTS:
            yield Case(f"{transport}.collectives",
                       lambda stage, transport=transport: self.collectives(stage, transport))
            yield Case(f"{transport}.ordinary_user", lambda stage, transport=transport: self.collectives(
                stage, transport, frame.ordinary_user(stage).prefix))
        yield Case("not_without_the_device", self.without_the_device)


OPEN_MPI = Mpi(
    "mpicc.openmpi", "mpirun.openmpi",
    ["--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "^openib",
     "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"],
    {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})

# NOLOCAL: all messages go to the network below, none through MPICH's own shared memory.
MPICH = Mpi("mpicc.mpich", "mpirun.mpich", env={"MPIR_CVAR_NOLOCAL": "1"})
