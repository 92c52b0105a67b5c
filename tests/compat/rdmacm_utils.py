"""The examples of librdmacm."""

import pathlib
import shutil
import tempfile

import frame
import rdma_cm
from frame import Case

NAME = "rdmacm-utils"
PACKAGES = ["rdmacm-utils"]
WHAT = ("`rping`, `ucmatose`, `udaddy`, `udpong`, `rstream`, `riostream`, `rcopy`, `rdma_client`, `rdma_xclient`, `cmtime`, "
        "`mckey`, on one host and between two network namespaces")

PORT = "7471"
PAIRS = {
    # name: (server's arguments, client's), the server's address last in the client's
    "rping": (["rping", "-s", "-C", "20", "-V", "-a", "0.0.0.0"], ["rping", "-c", "-C", "20", "-V", "-a"]),
    "rping_sizes": (["rping", "-s", "-C", "20", "-V", "-S", "65536", "-a", "0.0.0.0"],
                    ["rping", "-c", "-C", "20", "-V", "-S", "65536", "-a"]),
    "ucmatose": (["ucmatose", "-c", "4", "-C", "20", "-S", "4096"], ["ucmatose", "-c", "4", "-C", "20", "-S", "4096", "-s"]),
    "udaddy": (["udaddy", "-c", "2", "-C", "10"], ["udaddy", "-c", "2", "-C", "10", "-s"]),
    "udpong": (["udpong"], ["udpong", "-S", "1000", "-C", "100", "-s"]),
    "rstream": (["rstream", "-S", "65536", "-C", "50"], ["rstream", "-S", "65536", "-C", "50", "-s"]),
    "rstream_blocking": (["rstream", "-T", "b", "-S", "65536", "-C", "50"], ["rstream", "-T", "b", "-S", "65536", "-C", "50", "-s"]),
    "rstream_async": (["rstream", "-T", "a", "-S", "65536", "-C", "50"], ["rstream", "-T", "a", "-S", "65536", "-C", "50", "-s"]),
    "rstream_verified": (["rstream", "-T", "v", "-S", "65536", "-C", "50"], ["rstream", "-T", "v", "-S", "65536", "-C", "50", "-s"]),
    "riostream": (["riostream", "-S", "65536", "-C", "50"], ["riostream", "-S", "65536", "-C", "50", "-s"]),
    "riostream_verified": (["riostream", "-T", "v", "-S", "65536", "-C", "50"], ["riostream", "-T", "v", "-S", "65536", "-C", "50", "-s"]),
    "rdma_client": (["rdma_server", "-p", PORT], ["rdma_client", "-p", PORT, "-s"]),
    "rdma_xclient": (["rdma_xserver", "-p", PORT, "-c", "r"], ["rdma_xclient", "-p", PORT, "-c", "r", "-s"]),
    "cmtime": (["cmtime", "-c", "20"], ["cmtime", "-c", "20", "-s"]),
}


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
    for where in ("one_host", "two_hosts"):
        place = frame.PLACES[where]
        for name, (server, client) in PAIRS.items():
            yield Case(f"{where}.{name}", lambda stage, place=place, server=server, client=client: run(
                stage, place(stage), server, client))
        yield Case(f"{where}.rcopy", lambda stage, place=place: copy(stage, place(stage)))
        yield Case(f"{where}.mckey", lambda stage, place=place: multicast(stage, place(stage)))


def run(stage, place, server, client):
    rdma_cm.pair(stage, place, server, [*client, place.host])
