"""MPICH (ch4:ucx)."""

import mpi_jobs

NAME = "MPICH"
PACKAGES = ["mpich", "libmpich-dev"]
WHAT = (f"`mpirun` (ch4:ucx) with {mpi_jobs.RANKS} ranks over UCX's `rc_verbs` and `ud_verbs`: ring, all-to-all, "
        "all-reduce and one-sided access, 4 bytes to 1.2 MB, every byte checked")
NOTES = """`MPIR_CVAR_NOLOCAL=1` sends messages between ranks of one host over the network too; without it MPICH moves
them through shared memory of its own, which no network sees."""


def cases():
    return mpi_jobs.MPICH.cases()
