"""Tests multicast groups: every attached program gets a copy, wherever it runs, and no other program does."""

import re

from harness import BUILD, ClientTest, wait_until

MEMBER = BUILD / "bin" / "multicast_group"
IPV4, IPV6, LINK_LOCAL = "224.1.2.3", "ff0e::77", "ff02::77"


class Multicast(ClientTest):
    def member(self, group, *options, net=None, wait=5000):
        process = self.start(*self.over_tulle([MEMBER, group, "--wait", wait, *options]), net=net)
        if "--attach" in options:
            wait_until(lambda: "ready" in process.stdout or not process.running, "a member to attach")
            self.assertIn("ready", process.stdout, process.describe())
        return process

    def received(self, process, group, own=False):
        """Returns (queue pair's place, text) of each message. All messages must have come to the group."""
        self.assertEqual(0, process.wait(), process.describe())
        found = re.findall(r"^received (\d+) (.*) to (\S+?)( from itself)?$", process.stdout, re.MULTILINE)
        self.assertEqual({group} if found else set(), {to for _, _, to, _ in found}, process.describe())
        self.assertEqual([own] * len(found), [bool(itself) for *_, itself in found], process.describe())
        return sorted((int(place), text) for place, text, _, _ in found)

    def test_processes_of_one_host(self):
        two = self.member(IPV4, "--attach", 2, "--expect", 4)
        one = self.member(IPV4, "--attach", 1, "--expect", 2)
        other = self.member("224.1.2.4", "--attach", 1, wait=1500)
        self.assertEqual(0, self.member(IPV4, "--send", 2, wait=100).wait())
        messages = ["message 0", "message 1"]
        self.assertEqual([(place, text) for place in (0, 1) for text in messages], self.received(two, IPV4))
        self.assertEqual([(0, text) for text in messages], self.received(one, IPV4))
        self.assertEqual([], self.received(other, "224.1.2.4"))

    def test_two_hosts(self):
        first, second = self.joined_namespaces()
        for group, gid in ((IPV4, 0), (IPV6, 1), (LINK_LOCAL, 1)):
            with self.subTest(group=group):
                members = [self.member(group, "--attach", 1, "--expect", 3, "--gid", gid, net=second) for _ in range(2)]
                self.assertEqual(0, self.member(group, "--send", 3, "--gid", gid, net=first, wait=100).wait())
                for member in members:
                    self.assertEqual([(0, f"message {i}") for i in range(3)], self.received(member, group))

    def test_who_sends_hears_himself(self):
        """An attached sender gets its own message, as with adapters."""
        sender = self.member(IPV4, "--attach", 1, "--send", 1, "--expect", 1)
        self.assertEqual([(0, "message 0")], self.received(sender, IPV4, own=True))

    def test_keys_are_checked(self):
        member = self.member(IPV4, "--attach", 1, wait=1500)
        self.assertEqual(0, self.member(IPV4, "--send", 1, "--qkey", 0x77, wait=100).wait())
        self.assertEqual([], self.received(member, IPV4))

    def test_a_member_that_is_killed(self):
        """The next owner of its slot joins the group anew, and gets each message once."""
        self.member(IPV4, "--attach", 1, wait=60000).end()
        member = self.member(IPV4, "--attach", 1, wait=1500)
        self.assertEqual(0, self.member(IPV4, "--send", 1, wait=100).wait())
        self.assertEqual([(0, "message 0")], self.received(member, IPV4))
