"""infiniband-diags: what its programs report about the local adapter."""

from frame import Case

NAME = "infiniband-diags"
PACKAGES = ["infiniband-diags"]
WHAT = "`ibstat`, `ibstat -l`, `ibstat -p` and `ibstatus`."
NOTES = """Most other programs of the package send management datagrams to the subnet manager, or to the management agents of
other nodes. An Ethernet port has no subnet manager. `ibaddr` and `perfquery` ask the local port. They
run too, and `tests/clients/management_test.py` covers them."""


def says(argv, *wanted):
    def run(stage):
        process = stage.run_program(*stage.over_tulle(argv))
        for text in wanted:
            stage.assertRegex(process.stdout, text, process.describe())

    return run


def cases():
    yield Case("ibstat", says(["ibstat"], "CA 'tulle0'", "State: Active", "Physical state: LinkUp", "layer: Ethernet"))
    yield Case("ibstat.list", says(["ibstat", "-l"], "^tulle0$"))
    yield Case("ibstat.ports", says(["ibstat", "-p"], "^0x[0-9a-f]{16}$"))
    yield Case("ibstatus", says(["ibstatus"], "'tulle0' port 1", "4: ACTIVE", "link_layer:\\s+Ethernet"))
