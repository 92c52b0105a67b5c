"""The examples of librdmacm."""

import dataclasses
import pathlib
import shutil
import tempfile
import unittest

import frame
import rdma_cm
from frame import Case
from harness import wait_until

NAME = "rdmacm-utils"
PACKAGES = ["rdmacm-utils"]
WHAT = ("`rping`, `ucmatose`, `udaddy`, `udpong`, `rstream`, `riostream`, `rcopy`, `rdma_client`, `rdma_xclient`, "
        "`cmtime` and `mckey`, on one host and between two network namespaces, over IPv4 and IPv6.")
NOTES = """`rdma_xserver` listens only on IPv4 addresses, whatever address it is given. The servers of `udpong`, `rcopy`,
`rping -P` and older releases' `cmtime` never end by themselves, so the tests end them. The two sides of a newer `cmtime`
synchronise over a socket that supports only IPv4, so its IPv6 tests are skipped."""

STREAM = ["-S", "65536", "-C", "50"]
# Arguments of both sides. The server's go on with -b and its address, the client's with -s and the same address.
PAIRS = {
    "ucmatose": ["ucmatose", "-c", "100", "-C", "5", "-S", "4096"],
    "ucmatose_migrates": ["ucmatose", "-c", "2", "-C", "20", "-m"],
    "udaddy": ["udaddy", "-c", "10", "-C", "10"],
    "udpong": ["udpong", "-S", "1000", "-C", "100"],
    "udpong_echo": ["udpong", "-S", "1000", "-C", "100", "-T", "e"],
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
}
# Programs whose server is another program, with the option before that server's address (None: it takes no address).
SERVERS = {"rdma_client": ["rdma_server", "-s"], "rdma_xclient": ["rdma_xserver", None]}
FOR_EVER = {"udpong", "rcopy"}


@dataclasses.dataclass(frozen=True)
class Cmtime:
    """Says how one form of cmtime is started and what it prints."""

    families: tuple
    server_options: tuple
    client_options: tuple
    server_ends: bool
    row: str  # pattern of a row of its table


# From release 52 on, both sides also meet at an IPv4 socket and make a second round of connections without queue pairs,
# under numbers of their own invention. Each side would begin with the same number. The connection manager of one host,
# the kernel's too, would then take one side for a peer that has forgotten its connections.
CMTIME = {
    "1": Cmtime(("IPv4", "IPv6"), (), (), False, r"(?m)^disconnect\s*:"),
    "52": Cmtime(("IPv4",), ("-q", "1000"), ("-q", "100000"), True, r"(?m)^disconnect\s+\d+"),
}

UDPONG_PORT = 7174
PINGS = {
    "rping": ["rping", "-C", "20", "-V"],
    "rping_large": ["rping", "-C", "20", "-V", "-S", "65536"],
    "rping_own_queue_pair": ["rping", "-C", "20", "-V", "-q"],
}
CLIENTS = 10  # clients of one server
GROUPS_OF = {"IPv4": "239.1.2.3", "IPv6": "ff0e::123"}


def pair(stage, place, argv):
    program, *options = argv
    server, at = SERVERS.get(program, [program, "-b"])
    address = [at, place.host] if at else []
    is_ready = rdma_cm.binds(UDPONG_PORT) if program == "udpong" else None
    rdma_cm.pair(stage, [server, *options, *address], [*argv, "-s", place.host], place.server, place.client,
                 prefix=place.prefix, is_ready=is_ready, server_ends=program not in FOR_EVER)


def cmtime(stage, place, family="IPv4"):
    """Makes a hundred connections."""
    form = frame.form(CMTIME, PACKAGES[0])
    if family not in form.families:
        raise unittest.SkipTest("the two sides of this cmtime synchronise over a socket that supports only IPv4")
    argv = ["cmtime", "-c", "100"]
    _, client = rdma_cm.pair(stage, [*argv, *form.server_options, "-b", place.host],
                             [*argv, *form.client_options, "-s", place.host], place.server, place.client,
                             prefix=place.prefix, server_ends=form.server_ends)
    stage.assertRegex(client.stdout, form.row, client.describe())


def ping(stage, place, argv):
    rdma_cm.pair(stage, [*argv, "-s", "-a", place.host], [*argv, "-c", "-a", place.host], place.server, place.client,
                 prefix=place.prefix)


def pings_at_once(stage, place):
    """Runs rping -P: one server and many clients at the same time. The clients begin one after the other, since this
    rping forgets a request that another follows at once (mended in rdma-core's 6f8e0056e)."""
    server = rdma_cm.start_server(stage, ["rping", "-s", "-P", "-a", place.host], place.server, prefix=place.prefix)
    clients = []
    for _ in range(CLIENTS):
        argv = ["rping", "-c", "-v", "-V", "-C", "500", "-a", place.host]
        clients.append(stage.start(*place.prefix, *stage.over_tulle(argv), net=place.client))
        wait_until(lambda client=clients[-1]: "ping data" in client.stdout or not client.running, "the first ping")
    for client in clients:
        stage.assertEqual(0, client.wait(), f"{client.describe()}\n{server.describe()}")
    stage.assertTrue(server.running, server.describe())


def copy(stage, place):
    """Copies a file with rcopy and compares it afterwards."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tulle-rcopy-"))
    stage.addCleanup(shutil.rmtree, folder)
    source, target = folder / "source", folder / "target"
    source.write_bytes(bytes(range(251)) * 40000)
    rdma_cm.pair(stage, ["rcopy"], ["rcopy", source, f"{place.host}:{target}"], place.server, place.client,
                 server_ends=False)
    stage.assertEqual(source.read_bytes(), target.read_bytes())


def multicast(stage, place, group, sender_address):
    """Runs mckey: one side joins a group and receives, the other sends to it. The sender sends three seconds after
    it has joined."""
    argv = ["stdbuf", "-oL", "mckey", "-m", group, "-c", "1", "-C", "10"]
    receiver = stage.start(*stage.over_tulle([*argv, "-b", place.host]), net=place.server)
    wait_until(lambda: "joined" in receiver.stdout or not receiver.running, "mckey to join")
    sender = stage.start(*stage.over_tulle([*argv, "-s", "-b", sender_address]), net=place.client)
    stage.finish(receiver, sender)


def hosts(stage, where, family, has_routes):
    """Returns (place, the client's own address). Loopback has no routes to groups of IPv6."""
    if where == "one_host" and has_routes:
        place = frame.two_hosts(stage)
        place = place._replace(client=place.server)
        return (place, place.host) if family == "IPv4" else (place._replace(host="fd00::1"), "fd00::1")
    place = frame.PLACES[where](stage)
    if family == "IPv4":
        return place, "10.0.0.2" if where == "two_hosts" else place.host
    server, client = ("fd00::1", "fd00::2") if where == "two_hosts" else ("::1", "::1")
    return place._replace(host=server), client


def cases():
    for where in ("one_host", "two_hosts", "ordinary_user"):
        for family in ("IPv4", "IPv6"):
            def case(name, run, where=where, family=family):
                has_routes = name == "mckey"
                return Case(f"{where}.{family}.{name}", lambda stage: run(stage, *hosts(stage, where, family, has_routes)))

            for name, argv in PINGS.items():
                yield case(name, lambda stage, place, _, argv=argv: ping(stage, place, argv))
            if where == "ordinary_user":
                continue
            yield case("rping_persistent", lambda stage, place, _: pings_at_once(stage, place))
            for name, argv in PAIRS.items():
                if family == "IPv4" or argv[0] != "rdma_xclient":
                    yield case(name, lambda stage, place, _, argv=argv: pair(stage, place, argv))
            yield case("cmtime", lambda stage, place, _, family=family: cmtime(stage, place, family))
            if family == "IPv4":  # rcopy takes what follows the first colon for the file
                yield case("rcopy", lambda stage, place, _: copy(stage, place))
            yield case("mckey", lambda stage, place, own, group=GROUPS_OF[family]: multicast(stage, place, group, own))
