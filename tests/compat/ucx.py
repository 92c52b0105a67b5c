"""UCX: ucx_perftest over its RC and UD verbs transports, and what ucx_info reports about the device."""

import re

import frame
from frame import Case

NAME = "UCX"
PACKAGES = ["ucx-utils"]
WHAT = ("`ucx_info -d`, and every test of `ucx_perftest`, with 8 bytes to 4 MiB: UCP's tests over `rc_verbs` and "
        "`ud_verbs` (tag, stream, active messages, put, get, atomics), and UCT's tests on each transport directly.")

PORT = 13337
# UCX's names of each transport and of what it needs to set up its connections. rc_v is rc_verbs, with UD for the set-up
# alone.
UCP_TRANSPORTS = {"rc": "rc_v,self", "ud": "ud_v,self"}
UCP_TESTS = ("tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw", "stream_lat", "stream_bw", "ucp_put_lat",
             "ucp_put_bw", "ucp_get", "ucp_am_lat", "ucp_am_bw")
UCP_ATOMICS = ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap")
# Tests for which each transport has a message of its own.
UCT_TESTS = {
    "rc_verbs": ("am_lat", "am_bw", "put_lat", "put_bw", "get", "add_lat", "fadd", "cswap"),
    "ud_verbs": ("am_lat", "am_bw"),
}
# Debian builds newer releases of ucx_perftest with MPI. Where standard input is no terminal, MPI takes the place of the
# exchange between the two sides unless it is told not to.
EXCHANGE = {"1.0": [], "1.18": ["-P", "0"]}
LARGE_BYTES = 4 << 20
ITERATIONS = 1000
# Ways of working that UCX does not choose by itself: (test, size, environment, options).
WAYS = {
    "device_fadd": ("ucp_fadd", 8, {"UCX_ATOMIC_MODE": "device"}, []),
    "device_cswap": ("ucp_cswap", 8, {"UCX_ATOMIC_MODE": "device"}, []),
    "rendezvous_get": ("tag_bw", 300000, {"UCX_RNDV_SCHEME": "get_zcopy"}, []),
    "rendezvous_put": ("tag_bw", 300000, {"UCX_RNDV_SCHEME": "put_zcopy"}, []),
    "rendezvous_messages": ("tag_bw", 300000, {"UCX_RNDV_SCHEME": "am"}, []),
    "newer_protocols": ("tag_bw", 300000, {"UCX_PROTO_ENABLE": "y"}, []),
    "two_paths": ("tag_bw", 300000, {"UCX_IB_NUM_PATHS": "2"}, []),
    "one_read_at_a_time": ("ucp_get", 300000, {"UCX_RC_MAX_RD_ATOMIC": "1"}, []),
    "short_queues": ("tag_bw", 300000, {"UCX_RC_VERBS_TX_MAX_WR": "16", "UCX_RC_VERBS_RX_QUEUE_LEN": "64"}, []),
    "keepalive": ("tag_lat", 4096, {"UCX_KEEPALIVE_INTERVAL": "10ms"}, []),
    "threads": ("tag_bw", 4096, {}, ["-T", "2"]),
    "signals": ("tag_lat", 4096, {}, ["-A", "signal"]),
}


def environment(transports):
    return {"UCX_TLS": transports, "UCX_NET_DEVICES": "tulle0:1"}


def perftest(stage, place, test, transports, *options, iterations=ITERATIONS, run_options=(), env=None):
    """Runs a pair of ucx_perftest. The client must report a result."""
    argv = ["ucx_perftest", *frame.form(EXCHANGE, PACKAGES[0]), "-t", test, "-n", str(iterations), "-w", "10", *map(str, options)]
    _, client = stage.pair(argv, host=place.host, port=PORT, net=place.client, server_net=place.server,
                           env={**environment(transports), **(env or {})}, prefix=place.prefix, options=run_options)
    final = re.search(r"^Final:\s+(.*)$", client.stdout, re.MULTILINE)
    stage.assertTrue(final, f"no result\n{client.describe()}")
    # The final line has the iterations and the median, average and overall latency. A rate below one a second is
    # printed as 0.
    done, _, _, overall_us, *_ = map(float, final.group(1).split())
    stage.assertEqual(iterations, done, client.describe())
    stage.assertGreater(overall_us, 0, client.describe())


def ucp(place, transport, test, size, iterations):
    def run(stage):
        perftest(stage, frame.PLACES[place](stage), test, UCP_TRANSPORTS[transport], "-s", size, iterations=iterations)

    return Case(f"{place}.{transport}.{test}.{size}", run, bytes_min=size * iterations)


def uct(transport, test):
    def run(stage):
        layout = ["-D", "bcopy"] if test == "get" else []
        perftest(stage, frame.one_host(stage), test, transport, "-d", "tulle0:1", "-x", transport, "-s", size, *layout)

    size = 128 if test == "get" else 8
    return Case(f"one_host.{transport}.{test}", run, bytes_min=size * ITERATIONS)


def faults(transport, test):
    def run(stage):
        perftest(stage, frame.two_hosts(stage), test, UCP_TRANSPORTS[transport], "-s", 4096, iterations=300,
                 run_options=["--faults", "drop=0.01,duplicate=0.01,reorder=0.01,corrupt=0.01,seed=3"])

    return Case(f"faults.{transport}.{test}", run, bytes_min=300 * 4096)


def way(name):
    test, size, env, options = WAYS[name]
    return Case(f"ways.{name}", lambda stage: perftest(
        stage, frame.one_host(stage), test, UCP_TRANSPORTS["rc"], "-s", size, *options, iterations=200, env=env),
        bytes_min=200 * size)


def info(stage):
    """Checks that both transports are offered, with what the device can do."""
    process = stage.run_program(*stage.over_tulle(["ucx_info", "-d"]))
    offered = dict(re.findall(r"#\s+Transport: (\w+)\n#\s+Device: (tulle0:1)\n", process.stdout))
    stage.assertEqual({"rc_verbs": "tulle0:1", "ud_verbs": "tulle0:1"}, offered, process.describe())
    for capability in ("put_zcopy", "get_zcopy", "am_short", "atomic_fadd", "atomic_cswap"):
        stage.assertIn(capability, process.stdout)


def cases():
    yield Case("info", info)
    for transport in UCP_TRANSPORTS:
        for test in UCP_TESTS:
            yield ucp("one_host", transport, test, 8, 1000)
            yield ucp("one_host", transport, test, LARGE_BYTES, 10)
            yield ucp("two_hosts", transport, test, 65536, 100)
        for test in UCP_ATOMICS:
            yield ucp("one_host", transport, test, 8, 1000)
            yield ucp("two_hosts", transport, test, 8, 100)
        yield ucp("ordinary_user", transport, "tag_lat", 8, 1000)
        for test in ("tag_bw", "stream_bw", "ucp_put_bw", "ucp_get"):
            yield faults(transport, test)
    for transport, tests in UCT_TESTS.items():
        for test in tests:
            yield uct(transport, test)
    for name in WAYS:
        yield way(name)
