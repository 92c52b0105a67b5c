"""qperf's RDMA tests."""

import re
import unittest

import frame
import harness
from frame import Case

NAME = "qperf"
PACKAGES = ["qperf"]
WHAT = "Every RDMA test of qperf, for one second each. librdmacm connects them (`-cm1`)."
NOTES = """Without `-cm1`, qperf addresses its peer only by a LID, which an Ethernet port does not have. qperf's manual asks
for `-cm1` on Ethernet. Its UC and UD tests ignore `-cm1` and use the LID anyway, so they are skipped."""

PORT = 19765
# A test may move one byte a message, and few messages if both ends spin on their memory and there are fewer cores than
# programs.
MOVED_BYTES_MIN = 20
CONNECTED = ("rc_bi_bw", "rc_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_read_lat", "rc_rdma_write_bw",
             "rc_rdma_write_lat", "rc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap",
             "ver_rc_fetch_add")
BY_LID = ("uc_bi_bw", "uc_bw", "uc_lat", "uc_rdma_write_bw", "uc_rdma_write_lat", "uc_rdma_write_poll_lat", "ud_bi_bw",
          "ud_bw", "ud_lat")


def measure(stage, place, test, *options):
    server = stage.start_server(["qperf"], PORT, net=place.server, prefix=place.prefix)
    client = stage.start(*place.prefix, *stage.over_tulle(["qperf", place.host, "-t", "1", *options, test]),
                         net=place.client)
    client.wait()
    both = f"{client.describe()}\n{server.describe()}"
    # qperf's exit status is 0 whatever happened.
    stage.assertNotRegex(client.stderr + server.stderr, r"failed|error|timed out", both)
    found = re.search(r"=\s+([\d.]+) (\S+)", client.stdout)
    stage.assertTrue(found, both)
    stage.assertGreater(float(found.group(1)), 0, both)
    server.end()


def by_lid(stage, test):
    """Runs a test that works only where a LID is enough to reach a peer. Elsewhere qperf reports its own limit, and
    the test is skipped."""
    try:
        measure(stage, frame.one_host(stage), test, "-cm1")
    except AssertionError as error:
        if re.search("failed to modify QP to RTR|failed to create address handle", str(error)):
            raise unittest.SkipTest("qperf ignores -cm1 in this test and addresses its peer only by a LID, which an "
                                    "Ethernet port does not have") from None
        raise


def cases():
    for test in CONNECTED:
        for place in ("one_host", "two_hosts"):
            yield Case(f"{place}.{test}", lambda stage, place=place, test=test: measure(
                stage, frame.PLACES[place](stage), test, "-cm1"), bytes_min=MOVED_BYTES_MIN)
    for test in BY_LID:
        yield Case(f"one_host.{test}", lambda stage, test=test: by_lid(stage, test))
