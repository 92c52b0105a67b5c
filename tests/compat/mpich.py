"""MPICH (ch4:ucx)."""

import mpi_jobs

NAME = "MPICH"
PACKAGES = ["mpich", "libmpich-dev"]
WHAT = (f"`mpirun` (ch4:ucx) with {mpi_jobs.RANKS} ranks over UCX's `rc_verbs` and `ud_verbs`: ring, all-to-all, "
        "all-reduce and one-sided access, with 4 bytes to 1.2 MB. The job checks every byte.")
NOTES = """`MPIR_CVAR_NOLOCAL=1` makes ranks of one host use the network too. Without it, MPICH moves their messages
through its own shared memory. `tulle run` sets it (case `as_it_stands`)."""


def cases():
    return mpi_jobs.MPICH.cases()
