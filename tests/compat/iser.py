"""iSCSI over RDMA (iSER): tgt's target and libiscsi's programs."""

import os
import re
import tempfile
import time

import frame
from frame import Case

NAME = "iser"
PACKAGES = ["tgt", "libiscsi-bin"]
WHAT = """iSER: tgt's target serves 16 MiB, and libiscsi's programs log in, ask for the disk's data and read from it for
a second."""
NOTES = """tgt 1.0.85 refuses each iSER login to a target that has no list of initiators ("Target not found"); 1.0.95 fixes
this. The tests therefore name the initiator (`tgtadm --op bind -Q`). A target made with `--lld iscsi` serves only TCP."""

PORT = 3260
TARGET = "iqn.2001-04.com.example:disk"
INITIATOR = "iqn.2007-10.com.github:sahlberg:libiscsi:{program}"
DISK_BYTES = 16 << 20


def serve(stage, place, initiator):
    folder = tempfile.mkdtemp(prefix="tulle-iser-")
    stage.addCleanup(lambda: [os.remove(os.path.join(folder, name)) for name in os.listdir(folder)] + [os.rmdir(folder)])
    disk = os.path.join(folder, "disk")
    with open(disk, "wb") as file:
        file.write(bytes(range(256)) * (DISK_BYTES // 256))
    # tgtd and tgtadm speak over this socket, whose name gets a number.
    environment = ["env", f"TGT_IPC_SOCKET={folder}/control"]
    server = stage.start(*place.prefix, *environment, *stage.over_tulle(["/usr/sbin/tgtd", "-f"]), net=place.server)

    def administer(*arguments):
        stage.run_program(*environment, "/usr/sbin/tgtadm", "--lld", "iser", *arguments, net=place.server)

    deadline = time.monotonic() + 20
    while not any(name.startswith("control") and not name.endswith("lock") for name in os.listdir(folder)):
        stage.assertLess(time.monotonic(), deadline, server.describe())
        time.sleep(0.05)
    administer("--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET)
    administer("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", disk)
    administer("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")
    administer("--op", "bind", "--mode", "target", "--tid", "1", "-Q", initiator)
    return server


def ask(stage, place, program, expected, *options):
    serve(stage, place, INITIATOR.format(program=program))
    client = stage.run_program(*place.prefix, *stage.over_tulle(
        [program, *options, f"iser://{place.host}/{TARGET}/1"]), net=place.client)
    stage.assertRegex(client.stdout, expected, client.describe())


def read(stage, place):
    """Reads for a second, and expects a rate above zero."""
    initiator = "iqn.2010-11.iscsi-perf"
    serve(stage, place, initiator)
    client = stage.run_program(*place.prefix, *stage.over_tulle(
        ["iscsi-perf", "-i", initiator, "-b", "64", "-t", "1", f"iser://{place.host}/{TARGET}/1"]), net=place.client)
    rate = re.search(r"iops average (\d+)", client.stdout)
    stage.assertTrue(rate and int(rate.group(1)) > 0, client.describe())


def cases():
    for place in ("one_host", "two_hosts"):
        at = frame.PLACES[place]
        yield Case(f"{place}.inquiry", lambda stage, at=at: ask(
            stage, at(stage), "iscsi-inq", r"Peripheral Device Type:DIRECT_ACCESS"), bytes_min=64)
        yield Case(f"{place}.capacity", lambda stage, at=at: ask(
            stage, at(stage), "iscsi-readcapacity16", rf"{DISK_BYTES}|RETURNED LOGICAL BLOCK ADDRESS:{DISK_BYTES // 512 - 1}"),
            bytes_min=32)
        yield Case(f"{place}.reads", lambda stage, at=at: read(stage, at(stage)), bytes_min=1 << 20)
