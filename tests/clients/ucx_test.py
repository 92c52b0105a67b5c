"""Runs UCX over the device: the kinds of messages that it makes, on each verbs transport. ./dev compat ucx runs them
all."""

import frame
import ucx
from harness import ClientTest


class Ucx(ClientTest):
    def setUp(self):
        super().setUp()
        if frame.version(ucx.PACKAGES[0]) is None:
            self.skipTest(f"not installed: {ucx.PACKAGES[0]}")

    def each(self, place, transport, *tests, size=8, iterations=100):
        for test in tests:
            with self.subTest(transport=transport, test=test):
                ucx.perftest(self, place, test, ucx.UCP_TRANSPORTS[transport], "-s", size, iterations=iterations)

    def test_info(self):
        ucx.info(self)

    def test_reliable_connections(self):
        self.each(frame.one_host(self), "rc", "tag_lat", "stream_bw", "ucp_am_lat", "ucp_put_lat", "ucp_get",
                  "ucp_fadd", "ucp_cswap")

    def test_datagrams(self):
        self.each(frame.one_host(self), "ud", "tag_lat", "stream_bw", "ucp_am_lat", "ucp_put_lat")

    def test_large_messages(self):
        for transport in ucx.UCP_TRANSPORTS:
            self.each(frame.one_host(self), transport, "tag_bw", "ucp_get", size=4 << 20, iterations=10)

    def test_two_hosts(self):
        place = frame.two_hosts(self)
        for transport in ucx.UCP_TRANSPORTS:
            self.each(place, transport, "tag_bw", "ucp_put_bw", size=65536)

    def test_ordinary_user(self):
        self.each(frame.ordinary_user(self), "rc", "tag_lat")
