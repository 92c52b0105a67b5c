"""Runs ./dev hostile network for seconds: forged datagrams, a capture, seals and requests for connections."""

import pathlib
import sys

from harness import ClientTest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "hostile"))

import network  # noqa: E402

DATAGRAMS, REQUESTS, SEED = 20_000, 5_000, 7


class HostileNetwork(ClientTest):
    def test_nothing_is_lost_and_nobody_is_down(self):
        result = network.measure(DATAGRAMS, REQUESTS, SEED, {"captured": 0.5, "sealed": 0.5}, light=True, linger=0.5)
        self.assertEqual([], network.faults_of(result, DATAGRAMS, REQUESTS))
        phases = {phase["phase"]: phase for phase in result["phases"]}
        for name, weights in (("captured", network.WEIGHTS), ("sealed", network.SEALED_WEIGHTS),
                              ("requests", network.REQUEST_WEIGHTS)):
            kinds = phases[name]["kinds"]
            sent = {(each["kind"], each["family"]) for each in kinds if each["datagrams"]}
            self.assertEqual({(kind, family) for kind in weights for family in ("IPv4", "IPv6")}, sent)
            # Without a seal strangers are answered, so the check of answers sees some.
            self.assertEqual(name != "sealed", any(each["answered_bytes"] for each in kinds), name)
        self.assertGreater(phases["requests"]["hoard"]["accepted"], 0)
        # Datagrams of each kind of error have reached programs.
        for phase, counters in (("captured", ("truncated", "unknown_opcode", "bad_version", "bad_icrc", "unknown_queue_pair")),
                                ("sealed", ())):
            for name in [f"received_{each}" for each in counters] or ["unsealed_drops"]:
                self.assertGreater(phases[phase]["counters"][name], 0, name)


class Judgement(ClientTest):
    """What must not happen is told."""

    def result(self, **changes):
        times = {"count": 10, "p50_us": 1000, "p99_us": 2000, "max_us": 3000}
        kind = {"kind": "random bytes", "family": "IPv4", "datagrams": 5, "asked_bytes": 500, "answered_bytes": 500,
                "answered_more": 0, "answered_longer": 0}
        phase = {"phase": "plain", "processed": 1000, "faults": [], "honest": {"a": {"rounds": 1}}, "agent_peak_kib": 5000,
                 "kinds": [{**kind, **changes.pop("kind", {})}], "answers_missed": 0, "seconds": 1.0, "linger_s": 1.0,
                 "connections": {network.INWARD: {**times, **changes.pop("times", {})}, network.OUTWARD: times}}
        good = {**phase, "phase": "requests", "processed": 500, "kinds": [kind],
                "connections": {network.INWARD: times, network.OUTWARD: times}}
        return {"phases": [{**phase, **changes}, good]}

    def test_a_good_result(self):
        self.assertEqual([], network.faults_of(self.result(), 1000, 500))

    def test_each_fault(self):
        for changes in ({"faults": ["a program ended"]}, {"processed": 999}, {"honest": {"a": {"rounds": 0}}},
                        {"agent_peak_kib": 65536}, {"answers_missed": 1}, {"kind": {"answered_longer": 1}},
                        {"kind": {"answered_bytes": 501}}, {"kind": {"answered_more": 1}},
                        {"times": {"p99_us": 2_000_001}}, {"times": {"count": 0}}):
            self.assertEqual(1, len(network.faults_of(self.result(**changes), 1000, 500)), changes)
        self.assertEqual(1, len(network.faults_of(self.result(), 1000, 501)))

    def test_requests_may_be_answered_a_few_times(self):
        allowed = network.UNASKED_AT_ONCE + 3
        for more, is_right in ((allowed, True), (allowed + 1, False)):
            kind = {"kind": "requests for connections", "answered_bytes": 500 + more * network.MANAGEMENT_BYTES,
                    "answered_more": more}
            self.assertEqual(is_right, not network.faults_of(self.result(kind=kind), 1000, 500), more)
