"""Tests the deaths of peers and host agents, and what idle processes cost."""

import os
import pathlib
import re
import shutil
import signal
import tempfile
import time

from harness import INTEGRITY, PACKETS_ONLY, ClientTest, cpu_ticks, wait_until

PORT = 18600

# Opens the device, and makes a child that has all descriptors by a system call, which no handler of forks sees.
CLONES = """
import ctypes, platform, signal
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
assert verbs.ibv_open_device(ctypes.c_void_p(verbs.ibv_get_device_list(None)[0]))
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
child = ctypes.CDLL(None).syscall(clone, int(signal.SIGCHLD), 0, 0, 0, 0)
if child > 0:
    print("has a child", flush=True)
signal.pause()
"""


class PeerDeath(ClientTest):
    def running_pair(self, options=()):
        argv = [INTEGRITY, "-M", "until-error", "-p", str(PORT)]
        server = self.start_server(argv, PORT, options=options)
        client = self.start(*self.over_tulle([*argv, "127.0.0.1"], options))
        wait_until(lambda: "1000 operations" in client.stdout or not client.running, "operations")
        self.assertTrue(client.running, f"{server.describe()}\n{client.describe()}")
        return server, client

    def check_killed_server(self, options=()):
        server, client = self.running_pair(options)
        server.signal(signal.SIGKILL)
        killed = time.monotonic()
        # The program's timeout is 67 ms and it retries seven times. An engine may wait up to four times as long (IBTA
        # 9.7.6.1.3), so the error takes seconds, not minutes.
        self.assertEqual(0, client.wait(30), f"{server.describe()}\n{client.describe()}")
        self.assertLess(time.monotonic() - killed, 15)
        self.assertRegex(client.stdout, r"(?m)^status 12 \(transport retry counter exceeded\)")
        self.assertRegex(client.stdout, r"(?m)^15 flushed$")

    def test_server_killed(self):
        self.check_killed_server()

    def test_server_killed_over_sockets(self):
        """With faults, packets go through sockets even on one host."""
        self.check_killed_server(["--faults", "drop=0.001,seed=1"])

    def test_client_killed_frees_its_place(self):
        server, client = self.running_pair()
        pids = {process["pid"] for process in self.status()["processes"]}
        self.assertEqual({server.pid, client.pid}, pids)
        client.signal(signal.SIGKILL)
        client.wait(5)
        wait_until(lambda: [p["pid"] for p in self.status()["processes"]] == [server.pid], "the agent to notice")
        server.end()
        wait_until(lambda: self.status()["processes"] == [], "the agent to notice")

    def test_next_run_works(self):
        server, client = self.running_pair()
        for process in (server, client):
            process.signal(signal.SIGKILL)
            process.wait(5)
        self.pair(["ibv_rc_pingpong", "-g", "0", "-n", "100"])

    def test_killed_again_and_again(self):
        """More processes die than a small host agent has places for. No place is lost."""
        for _ in range(20):
            process = self.start_server([INTEGRITY, "-M", "idle", "-p", str(PORT)], PORT)
            process.signal(signal.SIGKILL)
            process.wait(5)
        self.pair(["ibv_rc_pingpong", "-g", "0", "-n", "100"])

    def test_the_status_tells_which_way_queue_pairs_take(self):
        def counted(processes):
            return {p["pid"]: p["counters"]["queue_pairs_by_memory"] for p in processes}

        for options, count in ([], 0 if PACKETS_ONLY in os.environ else 1), (["--no-direct"], 0):
            with self.subTest(options=options):
                argv = [INTEGRITY, "-M", "idle", "-p", str(PORT)]
                server = self.start_server(argv, PORT, options=options)
                client = self.start(*self.over_tulle([*argv, "127.0.0.1"], options))
                wait_until(lambda: "idle" in client.stdout, "the connection")
                wait_until(lambda: counted(self.status()["processes"]) == {server.pid: count, client.pid: count},
                           "what the status tells")
                for process in client, server:
                    process.close()

    def test_perftest_notices(self):
        argv = ["ib_write_bw", "-F", "-D", "30", "-p", "18515"]
        server = self.start_server(argv, 18515)
        client = self.start(*self.over_tulle([*argv, "127.0.0.1"]))
        wait_until(lambda: any(p["counters"]["queue_pairs"] > 0 and p["pid"] == client.pid
                               for p in self.status()["processes"]), "the client's queue pair")
        time.sleep(1)
        server.signal(signal.SIGKILL)
        self.assertNotEqual(0, client.wait(60), client.describe())


class Names(ClientTest):
    def test_that_the_kernel_cuts_inside_a_character(self):
        """The kernel keeps 15 bytes of a program's name, and what it cuts off may be half a character."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        program = folder / ("ü" * 12)
        shutil.copy(shutil.which("ibv_rc_pingpong"), program)
        process = self.start_server([program, "-g", "0", "-p", str(PORT)], PORT)
        kept = pathlib.Path(f"/proc/{process.pid}/comm").read_bytes().strip()
        with self.assertRaises(UnicodeDecodeError, msg="the kernel kept a whole number of characters"):
            kept.decode()
        wait_until(lambda: self.status()["processes"], "the host agent to know the process")
        self.assertEqual("ü" * 7 + "?", self.status()["processes"][0]["command"])


class AgentStart(ClientTest):
    def test_from_a_batch_job(self):
        """The agent serves all programs, whatever the schedule of the one that started it."""
        everywhere = os.sched_getaffinity(0)
        starter = ["chrt", "--batch", "0", "nice", "-n", "7", "taskset", "-c", str(min(everywhere))]
        process = self.start_server(["ibv_rc_pingpong", "-g", "0", "-p", str(PORT)], PORT, prefix=starter)
        agent = self.status()["agent"]["pid"]
        self.assertEqual({min(everywhere)}, os.sched_getaffinity(process.pid))
        self.assertEqual(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7), os.getpriority(os.PRIO_PROCESS, process.pid))
        self.assertEqual(everywhere, os.sched_getaffinity(agent))
        self.assertEqual(os.SCHED_OTHER, os.sched_getscheduler(agent))
        # A user without privileges may not raise a priority again.
        self.assertEqual(0 if self.may_raise_priorities() else 7, os.getpriority(os.PRIO_PROCESS, agent))

    def may_raise_priorities(self):
        return self.run_program("nice", "-n", "1", "nice", "-n", "-1", "true", expect=None).stderr == ""


    def test_it_keeps_the_privileges_that_it_needs(self):
        """Root's agent is root without root's capabilities. What an ordinary user's could gain, it may not."""
        self.run_program(*self.over_tulle(["ibv_devices"]))
        fields = dict(line.split(":\t") for line in
                      pathlib.Path(f"/proc/{self.status()['agent']['pid']}/status").read_text().splitlines()
                      if line.startswith(("Cap", "NoNew", "Seccomp:")))
        net_admin, net_raw = 1 << 12, 1 << 13
        self.assertEqual("1", fields["NoNewPrivs"])
        self.assertEqual("2", fields["Seccomp"])  # a filter
        for name in ("CapEff", "CapPrm"):
            self.assertEqual(0, int(fields[name], 16) & ~(net_admin | net_raw), fields)
        self.assertEqual((0, 0), (int(fields["CapInh"], 16), int(fields["CapAmb"], 16)), fields)
        self.assertEqual(0, int(fields["CapBnd"], 16) & ~(net_admin | net_raw), fields)

    def test_from_a_program_with_low_limits(self):
        """Its own limits do not end the agent, which serves other programs. Those that stay are named."""
        low = ["prlimit", "--cpu=600:", "--fsize=20480000:", f"--as={4 << 30}:", f"--data={2 << 30}:"]
        self.run_program(*low, *self.over_tulle(["ibv_devices"]))
        agent = self.status()["agent"]["pid"]
        limits = pathlib.Path(f"/proc/{agent}/limits").read_text()
        for name in ("cpu time", "file size", "address space", "data size"):
            soft, hard = re.search(rf"Max {name} +(\w+) +(\w+)", limits).groups()
            self.assertEqual(hard, soft, limits)
        os.kill(agent, signal.SIGKILL)
        process = self.run_program("prlimit", "--cpu=600:600", *self.over_tulle(["ibv_devices"]))
        if self.limit_of_cpu() != "unlimited":
            self.assertIn("it has limits of the program that started it (prlimit: cpu)", process.stderr)

    def limit_of_cpu(self):
        limits = pathlib.Path(f"/proc/{self.status()['agent']['pid']}/limits").read_text()
        return re.search(r"Max cpu time +(\w+)", limits)[1]

    def test_a_program_with_short_files(self):
        """Without memory that it may share, the program's packets go by sockets, and SIGXFSZ does not end it."""
        argv = ["ibv_rc_pingpong", "-g", "0", "-n", "100", "-p", str(PORT)]
        server = self.start_server(argv, PORT, prefix=["prlimit", "--fsize=20480000"])
        client = self.run_program(*self.over_tulle([*argv, "127.0.0.1"]))
        self.assertEqual(0, server.wait(10), f"{server.describe()}\n{client.describe()}")

    def test_from_a_program_with_few_descriptors(self):
        """It serves all programs of the host. Whoever may not raise the limit starts none, and says what to do."""
        few = self.run_program("prlimit", "--nofile=24:24", *self.over_tulle(["ibv_devices"]), expect=None)
        if few.wait() == 0:
            agent = self.status()["agent"]["pid"]
            limit = re.search(r"Max open files +(\d+)", pathlib.Path(f"/proc/{agent}/limits").read_text())
            self.assertGreaterEqual(int(limit[1]), 1 << 20)
        else:
            self.assertIn("the limit of open files is 24 here, and an agent needs 64: raise it", few.stderr)
        self.run_program(*self.over_tulle(["ibv_devices"]))

    def test_its_log_is_nobody_elses(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        os.chmod(folder, 0o777)
        log = pathlib.Path(folder) / "agent.log"
        refused = self.run_program(*self.over_tulle(["ibv_devices"]), env={"TULLE_AGENT_LOG": str(log)}, expect=None)
        self.assertIn(f"the log TULLE_AGENT_LOG is not used: other users may write to {folder}", refused.stderr)
        self.assertFalse(log.exists())
        os.chmod(folder, 0o700)
        self.run_program(*self.over_tulle(["ibv_devices"]), env={"TULLE_AGENT_LOG": str(log)})
        self.assertEqual(0o100600, log.stat().st_mode)

    def test_its_log_is_no_other_kind_of_file(self):
        """su keeps the variable: a file's mere presence, such as nologin's, or a device's opening may do harm."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        pipe = folder / "pipe.log"
        os.mkfifo(pipe)
        for log, reason in ((folder / "nologin", "does not end in .log"), (pipe, "is no regular file")):
            refused = self.run_program(*self.over_tulle(["ibv_devices"]), env={"TULLE_AGENT_LOG": str(log)}, expect=None)
            self.assertIn(f"the log TULLE_AGENT_LOG is not used: {log} {reason}", refused.stderr)
        self.assertEqual([pipe], list(folder.iterdir()))


class AgentDeath(ClientTest):
    def test_killed(self):
        """Running processes keep their data path, the next program starts a new host agent, and all work together."""
        argv = [INTEGRITY, "-M", "until-error", "-p", str(PORT)]
        server = self.start_server(argv, PORT)
        client = self.start(*self.over_tulle([*argv, "127.0.0.1"]))
        wait_until(lambda: "1000 operations" in client.stdout, "operations")
        agent = self.status()["agent"]["pid"]
        self.assertIn(agent, self.net.pids())
        os.kill(agent, signal.SIGKILL)
        time.sleep(1)
        self.assertTrue(server.running and client.running, f"{server.describe()}\n{client.describe()}")
        # New processes run beside the old ones, on the same port.
        self.pair(["ibv_rc_pingpong", "-g", "0", "-n", "200"])
        status = self.status()
        self.assertNotEqual(agent, status["agent"]["pid"])
        wait_until(lambda: {server.pid, client.pid} <= {p["pid"] for p in self.status()["processes"]},
                   "the old processes to join the new agent")
        server.signal(signal.SIGKILL)
        self.assertEqual(0, client.wait(30), client.describe())
        self.assertRegex(client.stdout, r"(?m)^status 12 ")

    def test_killed_between_idle_processes(self):
        """The same with connected processes that are silent when the host agent dies."""
        server = self.start_server([INTEGRITY, "-M", "idle", "-p", str(PORT)], PORT)
        client = self.start(*self.over_tulle([INTEGRITY, "-M", "idle", "-p", str(PORT), "127.0.0.1"]))
        wait_until(lambda: "idle" in client.stdout, "the connection")
        os.kill(self.status()["agent"]["pid"], signal.SIGKILL)
        self.pair([INTEGRITY, "-M", "mix"], port=PORT + 1)
        wait_until(lambda: len(self.status()["processes"]) == 2, "both to join the new agent")
        self.assertTrue(server.running and client.running)

    def test_killed_while_a_child_has_the_descriptors(self):
        """The program waits without using the processor, and joins the next agent."""
        process = self.start(*self.over_tulle(["/usr/bin/python3", "-c", CLONES]))
        wait_until(lambda: "has a child" in process.stdout, "the child")
        os.kill(self.status()["agent"]["pid"], signal.SIGKILL)
        time.sleep(1)
        before = cpu_ticks(process.pid)
        time.sleep(2)
        self.assertLess(cpu_ticks(process.pid) - before, os.sysconf("SC_CLK_TCK") / 5)
        self.run_program(*self.over_tulle(["ibv_devices"]))
        wait_until(lambda: process.pid in {p["pid"] for p in self.status()["processes"]}, "it to join the new agent")

    def test_leaves_when_idle(self):
        self.run_program(*self.over_tulle(["ibv_devices"]), env={"TULLE_IDLE_EXIT": "1"})
        self.assertTrue(self.net.pids())
        wait_until(lambda: not self.net.pids(), "the agent to leave", limit=10)

    def test_terminated_politely(self):
        self.run_program(*self.over_tulle(["ibv_devices"]))
        agent = self.status()["agent"]["pid"]
        os.kill(agent, signal.SIGTERM)
        wait_until(lambda: agent not in self.net.pids(), "the agent to leave", limit=10)
        self.pair(["ibv_rc_pingpong", "-g", "0", "-n", "10"])

    def check_one_agent_for_many(self, options=()):
        """Ten programs at once find no host agent. One agent then serves them all."""
        processes = [self.start(*self.over_tulle(["ibv_devinfo"], options)) for _ in range(10)]
        for process in processes:
            self.assertEqual(0, process.wait(), process.describe())
            self.assertIn("PORT_ACTIVE", process.stdout)
        wait_until(lambda: len(self.net.pids()) == 1, "one agent to be left")

    def test_many_programs_start_one_agent(self):
        self.check_one_agent_for_many()

    def test_many_programs_start_one_agent_at_a_path(self):
        """The same at a path where a killed host agent has left its socket."""
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "agent")
        for _ in range(3):
            self.check_one_agent_for_many(["--agent", path])
            os.kill(self.net.pids()[0], signal.SIGKILL)
            wait_until(lambda: not self.net.pids(), "the agent's end")
            self.assertTrue(path.exists())


class Idle(ClientTest):
    def test_no_cpu(self):
        server = self.start_server([INTEGRITY, "-M", "idle", "-p", str(PORT)], PORT)
        client = self.start(*self.over_tulle([INTEGRITY, "-M", "idle", "-p", str(PORT), "127.0.0.1"]))
        wait_until(lambda: "idle" in client.stdout, "the connection")
        agent = self.status()["agent"]["pid"]
        time.sleep(1)
        pids = (server.pid, client.pid, agent)
        before = [cpu_ticks(pid) for pid in pids]
        time.sleep(2)
        self.assertEqual(before, [cpu_ticks(pid) for pid in pids])

    def test_descriptors_come_back(self):
        """Opening and closing the device does not leak descriptors (rdma-core's asyncwatch keeps it open)."""
        process = self.start(*self.over_tulle(["ibv_asyncwatch"]))
        wait_until(lambda: any(p["pid"] == process.pid for p in self.status()["processes"]), "ibv_asyncwatch to open it")
        self.assertLess(len(os.listdir(f"/proc/{process.pid}/fd")), 64)
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        self.assertLess(int(re.search(r"VmRSS:\s+(\d+)", status).group(1)), 64 * 1024)  # kB

    def test_no_later_growth_of_the_descriptor_table(self):
        """The kernel enlarges the table of a process with threads in tens of milliseconds. Opening the device does it,
        so that no work request waits for it."""
        server = self.start_server([INTEGRITY, "-M", "idle", "-p", str(PORT)], PORT)
        client = self.start(*self.over_tulle([INTEGRITY, "-M", "idle", "-p", str(PORT), "127.0.0.1"]))
        wait_until(lambda: "idle" in client.stdout, "the connection")
        for process in (server, client):
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            self.assertGreaterEqual(int(re.search(r"FDSize:\s+(\d+)", status).group(1)), 512)
