"""fio's rdma engine."""

import json

import frame
import rdma_cm
from frame import Case

NAME = "fio"
PACKAGES = ["fio"]
WHAT = ("`ioengine=rdma` with each verb: write, read, send and recv, 64 KiB blocks; with send, the "
        "receiver verifies each block's checksum")

PORT = 8888
SIZE_MIB = 64
BLOCK_BYTES = 65536
VERBS = ("write", "read", "send")


# To the engine, a job that writes is a client and one that reads a server, whichever the verb.
def job(*options):
    return ["fio", "--name=job", "--ioengine=rdma", f"--port={PORT}", f"--bs={BLOCK_BYTES}", f"--size={SIZE_MIB}m",
            "--output-format=json", *options]


# A sender as deep as its receiver would outrun it: fio asks for no retry when the receiver is not ready.
def transfer(stage, place, verb, verify=False):
    checked = ["--verify=crc32c", "--do_verify=1"] if verify else []
    sender = ["--verify=crc32c", "--do_verify=0"] if verify else []
    server = job("--rw=read", "--iodepth=16", *checked)
    client = job(f"--hostname={place.host}", f"--verb={verb}", "--rw=write",
                 f"--iodepth={1 if verb == 'send' else 16}", "--iodepth_batch_complete=1", *sender)
    _, ended = rdma_cm.pair(stage, server, client, place.server, place.client, prefix=place.prefix)
    said = json.loads(ended.stdout[ended.stdout.index("{"):])["jobs"][0]
    moved = said["write"]["io_bytes"]
    stage.assertEqual(SIZE_MIB << 20, moved, ended.describe())


def cases():
    for place in ("one_host", "two_hosts", "ordinary_user"):
        for verb in VERBS:
            yield Case(f"{place}.{verb}", lambda stage, place=place, verb=verb: transfer(
                stage, frame.PLACES[place](stage), verb))
        yield Case(f"{place}.send_verified", lambda stage, place=place: transfer(
            stage, frame.PLACES[place](stage), "send", verify=True))
