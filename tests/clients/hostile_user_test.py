"""Attacks by another user of the host (tests/hostile/user.py): each kind for a moment, and that the driver notices what
must not happen. ./dev hostile user does all of it."""

import argparse
import os
import signal
import sys

from harness import ROOT, ClientTest

sys.path.append(str(ROOT / "tests" / "hostile"))

import place  # noqa: E402
import user  # noqa: E402

SEED = 7
ATTACKS_MIN = 100  # what ./dev hostile user promises
# Some of each table that take little time.
BRIEF = ("message.hello_out_of_place", "message.rejoin_at_random", "message.false_list_length", "message.hello_twice",
         "hello.odd_names", "hello.foreign_peers", "hello.groups_of_others", "attached.rejoin", "attached.expose_odd_counts",
         "option.attach_reuseport_cbpf", "option.detach_reuseport_bpf", "memory.resize", "memory.reopen",
         "handed.pass_on", "command.destroy_foreign", "command.migrate_foreign", "command.give_back_invented",
         "command.take_over_ports", "quota.slots", "port.one_address", "datagram.rc_send", "management.disconnect_request",
         "process.memory", "process.descriptors", "process.user_and_pid_namespace", "attached.lingers_exposed")


def new_run(*names):
    return user.Run(argparse.Namespace(names=list(names), rounds=1, windows=0, seed=SEED))


class Attacks(ClientTest):
    def setUp(self):
        super().setUp()
        if reason := place.may_run():
            self.skipTest(reason)

    def test_there_are_as_many_as_promised(self):
        known = user.known_attacks()
        self.assertGreater(len(known), ATTACKS_MIN)
        self.assertLess(set(BRIEF), set(known))

    def test_some_of_each_table(self):
        run = new_run(*BRIEF)
        run.attack(BRIEF, SEED)
        self.assertEqual([], run.faults)
        self.assertEqual(set(BRIEF), set(run.outcomes))
        for name, outcome in run.outcomes.items():
            self.assertTrue(outcome["deeds"] > 0 or "not possible" in outcome["outcome"], (name, outcome))
        self.assertGreater(run.record()["bytes_searched"], 0)
        self.assertEqual(64, run.slots[place.ATTACKER])
        self.assertGreater(len(run.opens), 0)

    def test_what_is_prepared_for_others(self):
        run = new_run("staged.fake_agent_silent", "staged.replaced_path", "staged.set_uid_program")
        run.staged(SEED)
        self.assertEqual([], run.faults)
        self.assertEqual(3, len(run.outcomes))

    def faults_of(self, name):
        run = new_run(name)
        run.attack([name], SEED)
        return run.faults

    def test_the_judge_notices_what_an_attack_reports(self):
        self.assertIn("bytes of the victims' came", self.faults_of("control.foreign_bytes")[0]["what"])
        self.assertIn("it did nothing", self.faults_of("control.nothing")[0]["what"])
        self.assertIn("wait status", self.faults_of("control.death")[0]["what"])

    def test_the_judge_notices_what_becomes_of_the_victims(self):
        with place.Arena() as arena:
            before = arena.counts()
            self.assertEqual([], arena.harm(before))
            server = arena.pairs[1].pages[0]
            server["wrong"] += 1
            self.assertIn("1 wrong messages of another user", arena.harm(before)[0])
            self.assertEqual([], arena.harm(arena.counts()))
            arena.pairs[1].processes[0].signal(signal.SIGKILL)
            arena.pairs[1].processes[0].wait(10)
            self.assertTrue(any("a victim is dead (another user)" in what for what in arena.harm(before)))
            os.kill(arena.agent, signal.SIGKILL)
            self.assertTrue(any("the host agent is dead" in what for what in self.after_death(arena)))
            self.assertTrue(arena.is_ruined())

    @staticmethod
    def after_death(arena):
        place.harness.wait_until(lambda: not os.path.exists(f"/proc/{arena.agent}/stat"), "the agent's end", 10)
        return arena.harm(None)

    def test_victims_that_stand_still_are_noticed(self):
        with place.Arena() as arena:
            arena.pairs[0].processes[0].signal(signal.SIGSTOP)
            before = place.PROGRESS_SECONDS
            place.PROGRESS_SECONDS = 0.3
            try:
                self.assertIn("stand still", arena.harm(arena.counts())[0])
            finally:
                place.PROGRESS_SECONDS = before
                arena.pairs[0].processes[0].signal(signal.SIGCONT)


class Figures(ClientTest):
    def test_rates(self):
        figures = {"quiet": [100.0, 200.0, 300.0], "attacked": [50.0, 190.0, 290.0],
                   "attacked_elsewhere": [60.0, 200.0, 290.0]}
        self.assertEqual({"windows": 3, "quiet": 200, "attacked": 190, "attacked_elsewhere": 200, "attacked_to_quiet": 0.95,
                          "attacked_to_elsewhere": 0.95}, user.summary(figures))

    def test_an_outcome_that_was_bad_once_stays_bad(self):
        run = new_run()
        for found in ([], ["bad"], []):
            run.note("a", 1, 2, 0, 3.0, "", found)
        self.assertEqual({"deeds": 3, "bytes_searched": 6, "foreign_bytes": 0, "milliseconds": 3.0, "outcome": "bad"},
                         run.outcomes["a"])
