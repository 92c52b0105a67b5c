"""Runs MPI jobs over UCX over the device, with every byte checked."""

import frame
import mpich
import openmpi
from harness import ClientTest
from mpi_jobs import MPICH, OPEN_MPI


class Jobs:
    packages, implementation = (), None

    def setUp(self):
        super().setUp()
        missing = [package for package in self.packages if frame.version(package) is None]
        if missing:
            self.skipTest(f"not installed: {' '.join(missing)}")

    def test_reliable_connections(self):
        self.implementation.on_one_host(self, "rc")

    def test_datagrams(self):
        self.implementation.on_one_host(self, "ud")

    def test_ordinary_user(self):
        self.implementation.on_one_host(self, "rc", frame.ordinary_user(self).prefix)

    def test_two_hosts(self):
        self.implementation.two_hosts(self, "rc")

    def test_not_without_the_device(self):
        self.implementation.without_the_device(self)


class OpenMpi(Jobs, ClientTest):
    packages, implementation = openmpi.PACKAGES, OPEN_MPI


class Mpich(Jobs, ClientTest):
    packages, implementation = mpich.PACKAGES, MPICH
