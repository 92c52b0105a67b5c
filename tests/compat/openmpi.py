"""Open MPI over UCX."""

import mpi_jobs

NAME = "Open MPI"
PACKAGES = ["openmpi-bin", "libopenmpi-dev"]
WHAT = (f"`mpirun --mca pml ucx --mca osc ucx` with {mpi_jobs.RANKS} ranks over UCX's `rc_verbs` and `ud_verbs`: ring, "
        "all-to-all, all-reduce and one-sided access, 4 bytes to 1.2 MB, every byte checked")
NOTES = """Open MPI leaves UCX aside for devices that it does not know; `--mca opal_common_ucx_devices any` and
`--mca opal_common_ucx_tls any` make it take this one."""


def cases():
    return mpi_jobs.OPEN_MPI.cases()
