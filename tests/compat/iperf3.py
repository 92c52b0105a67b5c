"""iperf3 with its sockets replaced by rsockets."""

import json

import frame
import rdma_cm
from frame import Case
from harness import BUILD

NAME = "iperf3"
PACKAGES = ["iperf3"]
WHAT = "One stream and four streams at once, in both directions. `librspreload` replaces iperf3's sockets with rsockets."
NOTES = """iperf3 asks for TCP's counters (`TCP_INFO`), which an rsocket does not have. It prints an error about that and
continues, so the retransmissions and the congestion window that it reports mean nothing here."""

RSPRELOAD = BUILD / "lib" / "shim" / "rsocket" / "librspreload.so"
SENT_BYTES = 8 << 20
OPTIONS = {"one_stream": [], "four_streams": ["-P", "4"], "other_direction": ["-R"]}


def iperf3(*options):
    # LD_PRELOAD has the library's path and not its name, since `tulle run` has its own way to preload.
    return ["env", f"LD_PRELOAD={RSPRELOAD}", "iperf3", "-J", *options]


def transfer(stage, place, options):
    _, client = rdma_cm.pair(stage, iperf3("-s", "-1"), iperf3("-c", place.host, "-n", str(SENT_BYTES), *options),
                             place.server, place.client, prefix=place.prefix)
    received = json.loads(client.stdout)["end"]["sum_received"]["bytes"]
    # The sender's last block may be cut off: the sender stops at a number of bytes, and the receiver at the end of the
    # test.
    stage.assertGreaterEqual(received, SENT_BYTES // 2, client.describe())


def cases():
    for place in ("one_host", "two_hosts", "ordinary_user"):
        for name, options in OPTIONS.items():
            yield Case(f"{place}.{name}", lambda stage, place=place, options=options: transfer(
                stage, frame.PLACES[place](stage), options), bytes_min=SENT_BYTES // 2)
