"""A client that opens libibverbs at run time, as collective libraries do."""

import loader
from harness import ClientTest


class LateBinding(ClientTest):
    def test_one_host(self):
        loader.move_data(self)

    def test_packets(self):
        loader.move_data(self, ["--no-direct"])
