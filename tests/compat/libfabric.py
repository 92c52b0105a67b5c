"""libfabric's verbs provider: fi_pingpong, with its data checked."""

import tempfile

import frame
from frame import Case

NAME = "libfabric"
PACKAGES = ["libfabric-bin"]
WHAT = ("`fi_info -p verbs`, and `fi_pingpong -c` over the verbs provider with all sizes up to 6 MiB: connected "
        "endpoints (`msg`), reliable datagrams over them (`ofi_rxm`), and datagrams (UD).")
NOTES = """The provider ignores loopback interfaces, so the tests on one host also use an interface with its
own address. The provider's server listens on the address of `localhost`, whatever address `fi_pingpong` is given. In
these tests, `/etc/hosts` therefore gives `localhost` the interface's address."""

PORT = 47592
ITERATIONS = 20
ENDPOINTS = {
    "msg": ["-p", "verbs", "-e", "msg"],
    "rxm": ["-p", "verbs;ofi_rxm", "-e", "rdm"],
    "dgram": ["-p", "verbs", "-e", "dgram"],
}


def place_for(stage, where):
    """Returns a place with a cable, since the provider takes no loopback interface. On one host both programs are at
    one end of it."""
    place = frame.two_hosts(stage)
    return place if where == "two_hosts" else place._replace(client=place.server)


def named(stage, address):
    """Returns a command prefix that makes `localhost` that address. The provider's server listens on what it
    resolves to."""
    hosts = tempfile.NamedTemporaryFile("w", prefix="tulle-hosts-")
    stage.addCleanup(hosts.close)
    hosts.write(f"{address} localhost\n")
    hosts.flush()
    return ["unshare", "--mount", "sh", "-c", f'mount --bind {hosts.name} /etc/hosts && exec "$@"', "sh"]


def pingpong(stage, where, endpoint, *options):
    place = place_for(stage, where)
    argv = ["fi_pingpong", *ENDPOINTS[endpoint], "-I", str(ITERATIONS), *options]
    server = stage.start_server(argv, PORT, net=place.server, prefix=named(stage, place.host))
    own_address = place.host if where == "one_host" else "10.0.0.2"
    client = stage.start(*named(stage, own_address), *stage.over_tulle([*argv, place.host]), net=place.client)
    stage.finish(server, client)
    stage.assertRegex(client.stdout, rf"(?m)^\d+\S*\s+{ITERATIONS}\b", client.describe())


def info(stage):
    """Checks that all three kinds of endpoints are offered."""
    place = frame.two_hosts(stage)
    process = stage.run_program(*stage.over_tulle(["fi_info", "-p", "verbs"]), net=place.server)
    for kind in ("FI_EP_MSG", "FI_EP_DGRAM", "FI_EP_RDM"):
        stage.assertIn(kind, process.stdout, process.describe())


def cases():
    yield Case("info", info)
    for endpoint in ENDPOINTS:
        for where in ("one_host", "two_hosts"):
            # A datagram is at most as long as the MTU, 1024 bytes here.
            largest = 1024 if endpoint == "dgram" else 6 << 20
            for name, size, bytes_once in (("small", "64", 64), ("all_sizes", "all", largest)):
                yield Case(f"{where}.{endpoint}.{name}",
                           lambda stage, where=where, endpoint=endpoint, size=size: pingpong(
                               stage, where, endpoint, "-S", size, "-c"),
                           bytes_min=2 * ITERATIONS * bytes_once)
