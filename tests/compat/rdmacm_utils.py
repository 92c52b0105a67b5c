"""The examples of librdmacm."""

import pathlib
import shutil
import tempfile

import frame
import rdma_cm
from frame import Case

NAME = "rdmacm-utils"
PACKAGES = ["rdmacm-utils"]
WHAT = ("`rping`, `ucmatose`, `udaddy`, `udpong`, `rstream`, `riostream`, `rcopy`, `rdma_client`, `rdma_xclient`, "
        "`cmtime`, `mckey`, on one host and between two network namespaces")

STREAM = ["-S", "65536", "-C", "50"]
PAIRS = {  # both sides' arguments; the client's go on with -s and the server's address
    "ucmatose": ["ucmatose", "-c", "4", "-C", "20", "-S", "4096"],
    "ucmatose_migrates": ["ucmatose", "-c", "2", "-C", "20", "-m"],
    "udaddy": ["udaddy", "-c", "2", "-C", "10"],
    "udpong": ["udpong", "-S", "1000", "-C", "100"],
    "rstream": ["rstream", *STREAM],
    "rstream_blocking": ["rstream", "-T", "b", *STREAM],
    "rstream_async": ["rstream", "-T", "a", *STREAM],
    "rstream_verified": ["rstream", "-T", "v", *STREAM],
    "rstream_resolved": ["rstream", "-T", "r", *STREAM],
    "riostream": ["riostream", *STREAM],
    "riostream_verified": ["riostream", "-T", "v", *STREAM],
    "rdma_client": ["rdma_client"],
    "rdma_xclient": ["rdma_xclient", "-c", "r"],
    "rdma_xclient_xrc": ["rdma_xclient", "-c", "x"],
    "cmtime": ["cmtime", "-c", "20"],
}
# The two whose server is another program.
SERVERS = {"rdma_client": "rdma_server", "rdma_xclient": "rdma_xserver"}
PINGS = {
    "rping": ["rping", "-C", "20", "-V"],
    "rping_large": ["rping", "-C", "20", "-V", "-S", "65536"],
    "rping_own_queue_pair": ["rping", "-C", "20", "-V", "-q"],
}


def pair(stage, place, argv):
    server = SERVERS.get(argv[0], argv[0])
    rdma_cm.pair(stage, place, [server, *argv[1:]], [*argv, "-s", place.host])


def ping(stage, place, argv):
    rdma_cm.pair(stage, place, [*argv, "-s", "-a", "0.0.0.0"], [*argv, "-c", "-a", place.host])


def copy(stage, place):
    """rcopy: a file, compared afterwards. Its server serves for ever."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tulle-rcopy-"))
    stage.addCleanup(shutil.rmtree, folder)
    source, target = folder / "source", folder / "target"
    source.write_bytes(bytes(range(251)) * 40000)
    server = stage.start(*stage.over_tulle(["rcopy"]), net=place.server)
    client = rdma_cm.connect(stage, server, stage.over_tulle(["rcopy", source, f"{place.host}:{target}"]),
                             net=place.client)
    both = f"{client.describe()}\n{server.describe()}"
    stage.assertEqual(0, client.wait(), both)
    stage.assertEqual(source.read_bytes(), target.read_bytes(), both)
    server.end()


def multicast(stage, place):
    """mckey: one joins a group and receives, the other sends to it."""
    receiver = stage.start(*stage.over_tulle(["mckey", "-m", "239.1.2.3", "-c", "1", "-C", "10", "-b", place.host]),
                           net=place.server)
    sender_address = "10.0.0.2" if place.server is not place.client else place.host
    sender = rdma_cm.connect(stage, receiver, stage.over_tulle(
        ["mckey", "-m", "239.1.2.3", "-s", "-c", "1", "-C", "10", "-b", sender_address]), net=place.client)
    stage.finish(receiver, sender)


def cases():
    for where in ("one_host", "two_hosts", "ordinary_user"):
        place = frame.PLACES[where]
        for name, argv in PINGS.items():
            yield Case(f"{where}.{name}", lambda stage, place=place, argv=argv: ping(stage, place(stage), argv))
        if where == "ordinary_user":
            continue
        for name, argv in PAIRS.items():
            yield Case(f"{where}.{name}", lambda stage, place=place, argv=argv: pair(stage, place(stage), argv))
        yield Case(f"{where}.rcopy", lambda stage, place=place: copy(stage, place(stage)))
        yield Case(f"{where}.mckey", lambda stage, place=place: multicast(stage, place(stage)))
