"""Runs a client that opens libibverbs at run time, as collective libraries do."""

import late_binding
from harness import ClientTest


class LateBinding(ClientTest):
    def test_one_host(self):
        late_binding.move_data(self)

    def test_packets(self):
        late_binding.move_data(self, ["--no-direct"])
