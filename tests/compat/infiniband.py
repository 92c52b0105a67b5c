"""Programs of InfiniBand on the hosts of a software fabric, under OpenSM and under the fabric's own subnet manager."""

NAME = "InfiniBand fabric"
PACKAGES = ["infiniband-diags", "opensm"]
WHAT = ("On the hosts of `tulle fabric up`, once under OpenSM and once under the fabric's own subnet manager: the programs of "
        "infiniband-diags, `opensm`, `ibacm` and `ib_acme`, `ibdiagnet` of ibutils, `srp_daemon -o`, verbs programs by LID, "
        "libfabric, librdmacm's programs, and `ping` over IP over InfiniBand.")
NOTES = """`ibdiagnet` warns that the group of IP over InfiniBand is slower than the links, because subnet managers make it for
10 Gb/s. Debian 13 has no package ibutils. `srp_daemon` finds no target, and reports this by its exit status 0. The
groups `fabric`, `infiniband`, `fabric_connections` and `ipoib` of `tests/clients` test more of each program."""
GROUPS = ("fabric_tools",)
