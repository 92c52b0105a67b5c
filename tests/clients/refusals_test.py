"""Tests what Tulle tells of programs that go wrong: why a verb was refused, and where datagrams were lost."""

import re

from harness import BUILD, ClientTest, wait_until

DATAGRAMS = BUILD / "bin" / "datagrams"
# Where a datagram may be lost, by the names of `tulle status --json`.
LOSSES = ("kernel_drops", "memory_packets_dropped", "received_truncated", "received_unknown_opcode", "received_bad_version",
          "received_bad_icrc", "received_unknown_queue_pair", "send_errors")
SENT = 100_000
# Asks for a path MTU that an interface with 1500 bytes does not carry.
ASK = ["ibv_rc_pingpong", "-g", "0", "-m", "4096"]


class Losses(ClientTest):
    """Between a program's sends and its receives, each datagram is counted."""

    def check(self, *options):
        program = self.start(*self.over_tulle([DATAGRAMS, SENT], options))
        wait_until(lambda: "arrived" in program.stdout or not program.running, "the datagrams", limit=60)
        sent, arrived = map(int, re.findall(r"\d+", program.stdout))
        counters = self.status()["processes"][0]["counters"]
        self.assertEqual(SENT, sent)
        self.assertEqual(SENT, counters["packets_sent"], counters)
        lost = sum(counters[name] for name in LOSSES)
        self.assertEqual(SENT, counters["packets_received"] + lost, counters)
        self.assertEqual(counters["packets_received"], arrived + counters["dropped_messages"], counters)
        program.end()
        return counters

    def test_by_memory(self):
        counters = self.check()
        self.assertEqual(0, counters["kernel_drops"])

    def test_by_packets(self):
        self.check("--no-direct")


class Refusals(ClientTest):
    """The program says "Failed to modify QP to RTR", and nothing more."""

    def setUp(self):
        super().setUp()
        self.first, self.second = self.joined_namespaces()

    def fails(self, *options):
        server = self.start_server([*ASK, "-p", "18515"], 18515, net=self.first, options=options)
        client = self.run_program(*self.over_tulle([*ASK, "-p", "18515", "10.0.0.1"], options), net=self.second, expect=None,
                                  limit=30)
        self.assertNotEqual(0, client.wait())
        server.end()
        return server.stderr + client.stderr

    def test_the_reason_is_told(self):
        why = "ibv_modify_qp: Invalid argument: path_mtu is 4096 and the port's active_mtu 1024"
        self.assertIn("tulle: " + why, self.fails("--explain"))
        self.assertNotIn("tulle:", self.fails())

    def test_the_status_keeps_it(self):
        """The refusal of a program that continues is shown."""
        script = ("import ctypes, time; verbs = ctypes.CDLL('libibverbs.so.1', use_errno=True); "
                  "verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p); "
                  "verbs.ibv_open_device.restype = verbs.ibv_alloc_pd.restype = verbs.ibv_reg_mr.restype = ctypes.c_void_p; "
                  "device = verbs.ibv_get_device_list(None)[0]; "
                  "context = verbs.ibv_open_device(ctypes.c_void_p(device)); "
                  "domain = verbs.ibv_alloc_pd(ctypes.c_void_p(context)); "
                  "verbs.ibv_reg_mr(ctypes.c_void_p(domain), ctypes.c_void_p(4096), ctypes.c_size_t(8), 0); "
                  "print('refused', flush=True); time.sleep(60)")
        program = self.start(*self.over_tulle(["/usr/bin/python3", "-c", script]), net=self.first)
        wait_until(lambda: "refused" in program.stdout or not program.running, "the program")
        status = self.status(self.first)["processes"][0]
        self.assertIn("ibv_reg_mr: Bad address: the memory is not mapped", status["last_refusal"], program.describe())
