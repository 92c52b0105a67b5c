"""fio's rdma engine."""

import json

import frame
import rdma_cm
from frame import Case

NAME = "fio"
PACKAGES = ["fio"]
WHAT = ("`ioengine=rdma` with every verb (write, read, send and recv), 64 KiB blocks, 1 to 32 in flight. With send, "
        "the receiver verifies the checksum of each block.")
NOTES = """The engine's server accepts connections with an RNR retry count of 0. The first message that finds no receive
request therefore ends the connection, on any adapter. fio's source recommends a receive queue deeper than the sender's.
In these tests, the queue holds the whole transfer. The engine supports only IPv4, and it verifies only data
that it receives."""

PORT = 8888
BLOCK_BYTES = 65536
BLOCKS = 512  # the most that the engine has in flight
VERBS = ("write", "read", "send")
DEPTHS = (1, 32)  # besides DEPTH
DEPTH = 16


# To the engine, a job that writes is a client and one that reads is a server, whatever the verb.
def job(*options):
    return ["fio", "--name=job", "--ioengine=rdma", f"--port={PORT}", f"--bs={BLOCK_BYTES}",
            f"--size={BLOCKS * BLOCK_BYTES}", "--output-format=json", "--verify_state_save=0", *options]


def server(*options, depth):
    return job("--rw=read", f"--iodepth={depth}", *options)


def client(place, verb, *options, depth):
    return job(f"--hostname={place.host}", f"--verb={verb}", "--rw=write", f"--iodepth={depth}",
               "--iodepth_batch_complete=1", *options)


def transfer(stage, place, verb, depth=DEPTH, verify=False):
    checked = ["--verify=crc32c", "--do_verify=1"] if verify else []
    sums = ["--verify=crc32c", "--do_verify=0"] if verify else []
    server_depth = BLOCKS if verb == "send" else max(DEPTHS)
    _, ended = rdma_cm.pair(stage, server(*checked, depth=server_depth), client(place, verb, *sums, depth=depth),
                            place.server, place.client, prefix=place.prefix)
    said = json.loads(ended.stdout[ended.stdout.index("{"):])["jobs"][0]
    stage.assertEqual(BLOCKS * BLOCK_BYTES, said["write"]["io_bytes"], ended.describe())


def wrong_data(stage):
    """Checks that a receiver that looks for checksums complains of blocks that have none."""
    place = frame.one_host(stage)
    receiver = rdma_cm.start_server(stage, server("--verify=crc32c", "--do_verify=1", depth=BLOCKS))
    stage.run_program(*stage.over_tulle(client(place, "send", depth=DEPTH)), expect=None)
    stage.assertNotEqual(0, receiver.wait(), receiver.describe())
    stage.assertIn("verify", receiver.stdout + receiver.stderr, receiver.describe())


def case(name, place, verb, **options):
    return Case(name, lambda stage: transfer(stage, frame.PLACES[place](stage), verb, **options),
                # A server may end without closing anything, and its counters are then 10 ms old.
                bytes_min=BLOCKS * BLOCK_BYTES // 2)


def cases():
    for place in ("one_host", "two_hosts", "ordinary_user"):
        for verb in VERBS:
            yield case(f"{place}.{verb}", place, verb)
        yield case(f"{place}.send_verified", place, "send", verify=True)
    for verb in VERBS:
        for depth in DEPTHS:
            yield case(f"one_host.{verb}_{depth}_deep", "one_host", verb, depth=depth)
    yield Case("one_host.wrong_data", wrong_data)
