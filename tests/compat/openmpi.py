"""Open MPI over UCX."""

import mpi_jobs
from frame import Case

NAME = "Open MPI"
PACKAGES = ["openmpi-bin", "libopenmpi-dev"]
WHAT = (f"`mpirun --mca pml ucx --mca osc ucx` with {mpi_jobs.RANKS} ranks over UCX's `rc_verbs` and `ud_verbs`: ring, "
        "all-to-all, all-reduce and one-sided access, 4 bytes to 1.2 MB, every byte checked; "
        "OpenSHMEM's put, get and atomics by `oshrun`")
NOTES = """Open MPI leaves UCX aside for devices that it does not know; `--mca opal_common_ucx_devices any` and
`--mca opal_common_ucx_tls any` make it take this one. Over UCX 1.18, one-sided access says "flush(remote) is not
supported" and goes on: the strong fence that UCX chooses by itself needs a key that it makes for mlx5 adapters alone.
`UCX_FENCE_MODE=weak` chooses the other, which is enough for messages of one connection: they keep their order."""


def cases():
    yield from mpi_jobs.OPEN_MPI.cases()
    for transport in mpi_jobs.TRANSPORTS:
        yield Case(f"{transport}.openshmem", lambda stage, transport=transport: mpi_jobs.OPEN_SHMEM.on_one_host(
            stage, transport))
