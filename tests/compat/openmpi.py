"""Open MPI over UCX."""

import mpi_jobs
from frame import Case

NAME = "Open MPI"
PACKAGES = ["openmpi-bin", "libopenmpi-dev"]
WHAT = (f"`mpirun --mca pml ucx --mca osc ucx` with {mpi_jobs.RANKS} ranks over UCX's `rc_verbs` and `ud_verbs`: ring, "
        "all-to-all, all-reduce and one-sided access, with 4 bytes to 1.2 MB. The job checks every byte. `oshrun` runs "
        "OpenSHMEM's put, get and atomics.")
NOTES = """Open MPI does not use UCX on a device that it does not know. `--mca opal_common_ucx_devices any` and
`--mca opal_common_ucx_tls any` make it use Tulle's, and `tulle run` sets both (case `as_it_stands`).
With UCX 1.18, one-sided access prints "flush(remote) is not supported" and continues:
UCX's default fence, the strong one, needs a key that UCX makes only for mlx5 adapters.
`UCX_FENCE_MODE=weak` selects the weak fence. It is sufficient for the messages of one connection, which stay in order."""


def cases():
    yield from mpi_jobs.OPEN_MPI.cases()
    for transport in mpi_jobs.TRANSPORTS:
        yield Case(f"{transport}.openshmem", lambda stage, transport=transport: mpi_jobs.OPEN_SHMEM.on_one_host(
            stage, transport))
