"""infiniband-diags: what its programs report about the local adapter."""

from frame import Case

NAME = "infiniband-diags"
PACKAGES = ["infiniband-diags"]
WHAT = "`ibstat`, `ibstatus`, `ibstat -l`, `ibstat -p`"
NOTES = """The other programs of the package ask a subnet's manager and agents over InfiniBand's management datagrams; a port
on Ethernet has no subnet manager."""


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
