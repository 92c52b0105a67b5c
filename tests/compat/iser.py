"""iSER: tgt serves a disk over RDMA, and libiscsi's conformance tests use it."""

import pathlib
import re
import shutil
import tempfile

import frame
import harness
from frame import Case

NAME = "iSER: tgt, libiscsi"
PACKAGES = ["tgt", "libiscsi-bin"]
WHAT = ("`tgtd` with a disk over iSER; libiscsi's `iscsi-inq`, `iscsi-perf` and the families of `iscsi-test-cu` that read, "
        "write and compare data, by `iser://`")

TARGET = "iqn.2026-01.example:disk"
PORT = 3260
CONTROL = "7"
FAMILIES = ("TestUnitReady", "Inquiry", "Read6", "Read10", "Read12", "Read16", "Write10", "Write12", "Write16", "Verify10",
            "Verify16", "WriteVerify10", "WriteVerify16", "WriteSame10", "WriteSame16", "OrWrite", "CompareAndWrite")


class Disk:
    """A target with one disk of 64 MiB."""

    def __init__(self, stage, net):
        self.stage, self.net = stage, net
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tulle-iser-"))
        stage.addCleanup(shutil.rmtree, folder)
        disk = folder / "disk"
        with disk.open("wb") as file:
            file.truncate(64 << 20)
        self.env = {"TGT_IPC_SOCKET": str(folder / "control")}
        self.server = stage.start(*stage.over_tulle(["tgtd", "-D", "-C", CONTROL, "--iser", f"portal=0.0.0.0:{PORT}"]),
                                  net=net, env=self.env)
        try:
            harness.wait_until(self.answers, "tgtd")
        except AssertionError as error:
            stage.fail(f"{error}\n{self.server.describe()}")
        self.admin("--mode", "target", "--op", "new", "--tid", "1", "-T", TARGET)
        self.admin("--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", disk)
        self.admin("--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL")

    def answers(self):
        if not self.server.running:
            self.stage.fail(f"tgtd ended\n{self.server.describe()}")
        asked = self.stage.start("tgtadm", "-C", CONTROL, "--lld", "iser", "--mode", "system", "--op", "show", net=self.net,
                                 env=self.env)
        return asked.wait() == 0 and "iser: ready" in asked.stdout

    def admin(self, *arguments):
        self.stage.run_program("tgtadm", "-C", CONTROL, "--lld", "iser", *arguments, net=self.net, env=self.env)

    def use(self, place, *argv, limit=None):
        """A program of libiscsi on the disk; what it printed."""
        client = self.stage.start(*self.stage.over_tulle(argv), net=place.client)
        status = client.wait(limit)
        both = f"{client.describe()}\n{self.server.describe()}"
        self.stage.assertEqual(0, status, both)
        return client.stdout + client.stderr, both


def url(place, lun="1"):
    return f"iser://{place.host}:{PORT}/{TARGET}/{lun}"


def conformance(stage, place, family):
    said, both = Disk(stage, place.server).use(
        place, "iscsi-test-cu", "-d", "-s", "-t", f"SCSI.{family}.*", url(place))
    found = re.search(r"asserts\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", said)
    stage.assertTrue(found, both)
    _, ran, passed, failed = map(int, found.groups())
    stage.assertGreater(ran, 0, both)
    stage.assertEqual((ran, 0), (passed, failed), both)


def inquiry(stage, place):
    said, both = Disk(stage, place.server).use(place, "iscsi-inq", url(place))
    stage.assertIn("Peripheral Device Type:DIRECT_ACCESS", said, both)


def speed(stage, place):
    said, both = Disk(stage, place.server).use(
        place, "iscsi-perf", "-t", "2", "-m", "16", "-b", "128", url(place))
    stage.assertRegex(said, r"iops average [1-9]", both)


def cases():
    for where in ("one_host", "two_hosts"):
        place = frame.PLACES[where]
        yield Case(f"{where}.inquiry", lambda stage, place=place: inquiry(stage, place(stage)))
        yield Case(f"{where}.perf", lambda stage, place=place: speed(stage, place(stage)))
    for family in FAMILIES:
        yield Case(f"one_host.{family}", lambda stage, family=family: conformance(stage, frame.one_host(stage), family))
