"""Tests asynchronous events: those of queues, and those of the port as interfaces and addresses change."""

import os
import re
import signal

from harness import BUILD, INTEGRITY, TULLE, ClientTest, wait_until

EVENTS = BUILD / "bin" / "events"
# The tests take it that a program has seen everything once it saw nothing more for this long.
QUIET_SECONDS = 0.2


def make_interface(net, name):
    """Makes an interface that is down and has no address, with its cable plugged in."""
    net.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
    net.run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-peer")
    net.run("ip", "link", "set", f"{name}-peer", "up")


class Queues(ClientTest):
    """Each event is raised once, for the right element, to the context that owns it."""

    def provoked(self, name):
        return self.run_program(*self.over_tulle([EVENTS, "provoke", name])).stdout.splitlines()

    def test_remote_access_error(self):
        self.assertEqual(["local access violation work queue error, B"], self.provoked("access"))

    def test_invalid_request(self):
        self.assertEqual(["invalid request local work queue error, B"], self.provoked("unsupported"))

    def test_errors_of_a_receive_request_are_its_completions(self):
        """An error that a completion reports raises no event besides."""
        self.assertEqual([], self.provoked("too_long"))
        self.assertEqual([], self.provoked("bad_key"))

    def test_cq_overrun(self):
        self.assertEqual(["CQ error, own cq", "local work queue catastrophic error, B"], self.provoked("cq"))

    def test_communication_established(self):
        self.assertEqual(["communication established, B"], self.provoked("established"))

    def test_send_queue_drained(self):
        self.assertEqual(["send queue drained, B"], self.provoked("drained"))

    def test_srq_limit(self):
        self.assertEqual(["SRQ limit reached, srq"], self.provoked("srq_limit"))

    def test_last_wqe_of_a_shared_queue(self):
        self.assertEqual(["last WQE reached, B"], self.provoked("last_wqe"))


class Port(ClientTest):
    """A port over interfaces whose addresses come and go."""

    def setUp(self):
        super().setUp()
        self.make("d0")
        self.ip("link", "set", "d0", "up")
        self.add("10.0.0.1")
        self.add("10.0.0.2")

    def make(self, interface):
        make_interface(self.net, interface)

    def ip(self, *arguments):
        self.net.run("ip", *arguments)

    def add(self, address, interface="d0"):
        self.ip("address", "add", f"{address}/32", "dev", interface)

    def remove(self, address, interface="d0"):
        self.ip("address", "delete", f"{address}/32", "dev", interface)

    def watch(self, *arguments):
        process = self.start(*self.over_tulle([EVENTS, "watch", *arguments]))
        self.seen = getattr(self, "seen", {})
        self.seen[process] = 0
        self.expect(process, "ready", "10.0.0.1 10.0.0.2", of=3)
        return process

    def expect(self, process, event, addresses, state="ACTIVE", of=3):
        """Checks the next event, and that calls and files then say the same."""
        port = f"{state} {addresses}".strip()
        expected = [event if event == "ready" else f"event {event} 1", f"asked {port}", f"files {port}"]
        first = self.seen[process]

        def lines():
            if not process.running:
                self.fail(process.describe())
            return process.stdout.splitlines()[first:]

        wait_until(lambda: len(lines()) >= of, f"{event}\n{process.describe()}", limit=10)
        self.assertEqual(expected, lines()[:of])
        self.seen[process] += of

    def expect_both(self, process, events, last):
        """Checks the events, in any order, since the host agent may see the changes at once or apart. Then checks
        the last line."""

        def lines():
            return process.stdout.splitlines()[self.seen[process]:]

        wait_until(lambda: len(lines()) == 3 * len(events), f"{events}\n{process.describe()}", limit=10)
        self.assertEqual(sorted(events), sorted(lines()[::3]))
        self.assertEqual(last, lines()[-1])
        self.seen[process] += 3 * len(events)

    def expect_no_more(self, *processes):
        self.net.run("sleep", str(QUIET_SECONDS))
        for process in processes:
            self.assertEqual([], process.stdout.splitlines()[self.seen[process]:], process.describe())

    def test_an_address_is_added(self):
        first, second = self.watch(), self.watch()
        self.add("10.0.0.3")
        for process in (first, second):
            self.expect(process, "GID table change", "10.0.0.1 10.0.0.2 10.0.0.3")
        self.expect_no_more(first, second)

    def test_a_removed_address_leaves_a_hole_that_the_next_takes(self):
        process = self.watch()
        self.remove("10.0.0.1")
        self.expect(process, "GID table change", "- 10.0.0.2")
        self.expect_no_more(process)
        self.add("10.0.0.3")
        self.expect(process, "GID table change", "10.0.0.3 10.0.0.2")
        self.expect_no_more(process)

    def test_a_hole_waits_for_who_still_has_its_address(self):
        holder, other = self.watch("1"), self.watch()
        both = (holder, other)
        self.remove("10.0.0.2")
        for process in both:
            self.expect(process, "GID table change", "10.0.0.1")
        self.add("10.0.0.3")
        for process in both:
            self.expect(process, "GID table change", "10.0.0.1 - 10.0.0.3")
        os.kill(holder.pid, signal.SIGUSR1)
        wait_until(lambda: "let go" in holder.stdout, "the holder to let go")
        self.seen[holder] += 1
        self.net.run("sleep", "0.5")  # until the holder's device has looked
        self.add("10.0.0.4")
        for process in both:
            self.expect(process, "GID table change", "10.0.0.1 10.0.0.4 10.0.0.3")
        self.expect_no_more(*both)

    def test_an_address_returns_to_who_has_it(self):
        process = self.watch("1")
        self.remove("10.0.0.2")
        self.expect(process, "GID table change", "10.0.0.1")
        self.add("10.0.0.2")
        self.expect(process, "GID table change", "10.0.0.1 10.0.0.2")
        self.expect_no_more(process)

    def test_interface_down_and_up(self):
        process = self.watch()
        self.ip("link", "set", "d0", "down")
        self.expect(process, "port error", "10.0.0.1 10.0.0.2", state="DOWN")
        self.expect_no_more(process)
        self.ip("link", "set", "d0", "up")
        self.expect(process, "port active", "10.0.0.1 10.0.0.2")
        self.expect_no_more(process)

    def test_cable_out_and_in(self):
        first, second = self.joined_namespaces()
        self.net = first
        process = self.start(*self.over_tulle([EVENTS, "watch"]), net=first)
        wait_until(lambda: "files" in process.stdout, "the program")
        self.seen = {process: 3}
        second.run("ip", "link", "set", "veth0", "down")
        wait_until(lambda: "event port error 1" in process.stdout, "the cable to be out", limit=10)
        second.run("ip", "link", "set", "veth0", "up")
        wait_until(lambda: "event port active 1" in process.stdout, "the cable to be in", limit=10)
        names = [line for line in process.stdout.splitlines() if line.startswith("event port")]
        self.assertEqual(["event port error 1", "event port active 1"], names)

    def test_interface_goes_and_another_comes(self):
        process = self.watch()
        self.ip("link", "delete", "d0")
        self.expect_both(process, ["event port error 1", "event GID table change 1"], "files DOWN")
        self.make("d1")
        self.add("10.0.7.1", "d1")
        self.expect_no_more(process)  # no event before it is up
        self.ip("link", "set", "d1", "up")
        self.expect_both(process, ["event port active 1", "event GID table change 1"], "files ACTIVE 10.0.7.1")
        self.expect_no_more(process)

    def test_ipv6(self):
        process = self.watch()
        self.net.run("sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/d0/accept_dad")
        self.net.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/d0/addr_gen_mode")
        self.net.run("sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/d0/disable_ipv6")
        self.expect_no_more(process)
        self.ip("-6", "address", "add", "fd00::1/64", "dev", "d0", "nodad")
        self.expect(process, "GID table change", "10.0.0.1 10.0.0.2 fd00::1")
        self.ip("-6", "address", "delete", "fd00::1/64", "dev", "d0")
        self.expect(process, "GID table change", "10.0.0.1 10.0.0.2")
        self.expect_no_more(process)

    def test_only_the_interfaces_of_the_device(self):
        process = self.start(*self.over_tulle([EVENTS, "watch"], ["--interface", "d0"]))
        wait_until(lambda: "files" in process.stdout, "the program")
        self.seen = {process: 3}
        self.make("d1")
        self.ip("link", "set", "d1", "up")
        self.add("10.0.7.1", "d1")
        self.expect_no_more(process)

    def test_what_changed_while_there_was_no_agent(self):
        process = self.watch()
        agent = self.status()["agent"]["pid"]
        os.kill(agent, signal.SIGSTOP)
        self.remove("10.0.0.2")
        self.add("10.0.0.3")
        os.kill(agent, signal.SIGKILL)
        self.status_of_a_new_agent()
        # The next agent reports what the last one did not. The hole stays until the process has been asked.
        self.expect(process, "GID table change", "10.0.0.1 - 10.0.0.3")
        self.expect_no_more(process)
        self.add("10.0.0.4")
        self.expect(process, "GID table change", "10.0.0.1 10.0.0.4 10.0.0.3")

    def status_of_a_new_agent(self):
        self.run_program(*self.over_tulle(["ibv_devices"]))


class Loopback(ClientTest):
    """Loopback stands in while there is no other interface, and gives way to the first one."""

    def gids(self):
        return re.findall(r"(?m)^  GID (\d+)  \S*?([\d.]+)\s+RoCE v2  (\w+)$", self.run_program(TULLE, "devices").stdout)

    def make(self):
        make_interface(self.net, "d0")
        self.net.run("ip", "link", "set", "d0", "up")
        self.net.run("ip", "address", "add", "10.0.0.1/24", "dev", "d0")

    def test_its_place_is_the_next_address_s(self):
        process = self.start(*self.over_tulle([EVENTS, "watch"]))
        wait_until(lambda: "files" in process.stdout, "the program")
        self.assertIn(("0", "127.0.0.1", "lo"), self.gids())
        self.make()
        wait_until(lambda: self.gids() == [("0", "10.0.0.1", "d0")], "the new address")

    def test_connections_over_it_go_on(self):
        argv = [INTEGRITY, "-M", "until-error", "-p", "18620"]
        server = self.start_server(argv, 18620, options=["--no-direct"])
        client = self.start(*self.over_tulle([*argv, "127.0.0.1"], ["--no-direct"]))
        wait_until(lambda: "1000 operations" in client.stdout, "operations")

        def packets():
            return {p["pid"]: p["counters"]["packets_sent"] for p in self.status()["processes"]}[client.pid]

        self.make()
        # Their queue pairs hold its place, so that the new address gets another one.
        wait_until(lambda: [gid[1:] for gid in self.gids()] == [("10.0.0.1", "d0")], "the new address")
        self.assertNotEqual("0", self.gids()[0][0])
        before = packets()
        wait_until(lambda: packets() > before + 1000, "more operations", limit=10)
        self.assertTrue(server.running and client.running, f"{server.describe()}\n{client.describe()}")


class Connections(ClientTest):
    def test_go_on_while_other_addresses_change(self):
        first, second = self.joined_namespaces()
        server = self.start_server(["ib_send_bw", "-F", "-D", "2", "-x", "0"], 18515, net=second)
        client = self.start(*self.over_tulle(["ib_send_bw", "-F", "-D", "2", "-x", "0", "10.0.0.2"]), net=first)
        for i in range(8):
            for net in (first, second):
                net.run("ip", "address", "add", f"10.0.9.{i}/24", "dev", "veth0")
                net.run("ip", "address", "delete", f"10.0.9.{i}/24", "dev", "veth0")
        self.finish(server, client)

    def test_go_on_when_their_address_returns(self):
        first, second = self.joined_namespaces()
        server = self.start_server(["ib_send_bw", "-F", "-D", "3", "-x", "0"], 18515, net=second)
        client = self.start(*self.over_tulle(["ib_send_bw", "-F", "-D", "3", "-x", "0", "10.0.0.2"]), net=first)
        # By then perftest's own conversation over TCP, which ends with the address, is over a path of its own.
        wait_until(lambda: "remote address" in client.stdout, "the connection")
        first.run("sleep", "0.5")
        first.run("ip", "address", "add", "10.0.0.9/24", "dev", "veth0")
        for _ in range(3):
            first.run("ip", "address", "delete", "10.0.0.1/24", "dev", "veth0")
            first.run("ip", "address", "add", "10.0.0.1/24", "dev", "veth0")
        self.finish(server, client)

    def test_listing_sees_changes_at_once(self):
        make_interface(self.net, "d0")
        self.net.run("ip", "link", "set", "d0", "up")
        self.net.run("ip", "address", "add", "10.0.0.1/24", "dev", "d0")
        watching = self.start(*self.over_tulle([EVENTS, "watch"]))
        wait_until(lambda: "files" in watching.stdout, "the program")
        for i in range(20):
            self.net.run("ip", "address", "add", f"10.0.9.{i}/24", "dev", "d0")
            self.assertIn(f"10.0.9.{i}", self.run_program(TULLE, "devices").stdout)
