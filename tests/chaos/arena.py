"""The place of an episode: one host or two, the server and the client that work there, and what must not be left."""

import contextlib
import errno
import itertools
import os
import pathlib
import resource
import signal
import subprocess
import time

import harness
from page import Page

CHAOS = harness.BUILD / "bin" / "chaos"
MALLOC = harness.BUILD / "lib" / "libchaos_malloc.so"
RECOVERY_SECONDS = 5.0
IDLE_SECONDS = 1  # after which a host agent without programs ends
AGENT_ENVIRONMENT = {"TULLE_IDLE_EXIT": str(IDLE_SECONDS)}  # of all who may start a host agent
# Tulle's libraries call std::terminate when an allocation fails; a program that is being loaded cannot go on, and the
# kernel kills it if there is no room for its stack.
WANT_OF_MEMORY = (-signal.SIGABRT, 1, 2, 3, 127)
WANT_OF_MEMORY_AT_LOADING = (*WANT_OF_MEMORY, -signal.SIGSEGV, -signal.SIGKILL)
LAST_PID = pathlib.Path("/proc/sys/kernel/ns_last_pid")


class Fault(Exception):
    """Something that must not happen."""


def reap(known):
    """Collects the orphans that fell to this process, which is the first one of its process namespace."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None:
            return
        process = known.get(found.si_pid)
        if process is not None and process.returncode is None:
            process.poll()
        else:  # an orphan, which may have got the number of a process that this one knew
            with contextlib.suppress(ChildProcessError):
                os.waitpid(found.si_pid, 0)


def kill(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def waited_seconds(pid):
    """Returns for how long a process's threads were ready to run while the machine ran others."""
    total = 0
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(pathlib.Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[1])
    return total * 1e-9


class Program:
    """The server or the client: one process at a time, with a page and a log that outlive it."""

    def __init__(self, arena, role, net, folder):
        self.arena, self.role, self.net = arena, role, net
        self.page = Page(folder / f"{role}.page")
        self.log = folder / f"{role}.log"
        self.popen = None
        self.doomed = None  # the process that must end
        self.lacked_memory = None  # the process that was without memory for a while
        self.led = set()  # the sessions that processes of this program led, in which their children stay

    def start(self, role=None, pid=None):
        """Starts the program, under a number of its own or, if that is free, under the number that is wanted."""
        arguments = [CHAOS, role or self.role, self.arena.socket, self.page.path, "0", self.arena.seed]
        environment = harness.surroundings(arguments) | {
            "CHAOS_PAGE": str(self.page.path), "LD_PRELOAD": str(MALLOC), "LC_ALL": "C.UTF-8",
            "CHAOS_STALLS": str(self.arena.stalls), **AGENT_ENVIRONMENT}
        self.page["command"] = self.page["allocations_to_fail"] = self.page["pid"] = 0
        with open(self.log, "ab") as log:
            if pid is not None:
                with contextlib.suppress(OSError):  # this kernel lets nobody choose numbers
                    LAST_PID.write_text(str(pid - 1))
            self.popen = subprocess.Popen(
                [str(word) for word in [harness.TULLE, "run", *self.arena.options, "--", *arguments]],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
                preexec_fn=lambda: harness._check(harness._libc.setns(self.net.fd, harness.CLONE_NEWNET)))
        self.arena.known[self.popen.pid] = self.popen
        for program in self.arena.programs:  # one that has ended may have had this number
            program.led.discard(self.pid)
        self.led.add(self.pid)
        self.arena.reused += self.popen.pid == pid
        self.arena.introduce()

    @property
    def pid(self):
        return self.popen.pid

    @property
    def running(self):
        return self.popen.poll() is None

    def signal(self, number):
        if self.running:
            kill(self.pid, number)

    def doom(self, number):
        """Sends a signal that must end the process."""
        self.doomed = self.popen
        self.signal(number)

    def wait(self, seconds):
        """Returns whether the process ended in time."""
        try:
            self.popen.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False

    @contextlib.contextmanager
    def interrupted(self):
        """Marks the time in which the program's own calls may take long."""
        self.page["interrupted"] = self.page["interrupted"] | 1
        try:
            yield
        finally:
            self.page["interrupted"] = (self.page["interrupted"] | 1) + 1

    @contextlib.contextmanager
    def limited(self, what, soft):
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(self.pid, what)
            resource.prlimit(self.pid, what, (min(soft, hard) if hard >= 0 else soft, hard))
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                if self.running:
                    resource.prlimit(self.pid, what, (hard, hard))

    def end_children(self):
        """Ends what processes of this program forked, also those that were killed before fork(2) returned to them."""
        for pid in self.net.pids():
            with contextlib.suppress(OSError):
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
                # An agent soon leads a session of its own.
                if os.getsid(pid) in self.led - {pid} and not command.endswith(b"tulle"):
                    kill(pid)

    def describe(self):
        state = "running" if self.running else f"ended with {self.popen.returncode}"
        return f"{self.role} {self.pid}: {state}, {self.page.step}, {self.page['rounds']} rounds"


class Arena:
    """A context: entered, both programs work; left, nothing remains."""

    KINDS = {"one host": (1, []), "one host by packets": (1, ["--no-direct"]), "two hosts": (2, [])}

    def __init__(self, kind, seed, folder, stalls):
        hosts, self.options = self.KINDS[kind]
        self.kind, self.seed, self.folder = kind, seed, pathlib.Path(folder)
        self.socket = self.folder / "side-channel"
        self.stalls = stalls  # the file in which stalls of the machine are noted
        self.known = {}
        self.helpers = []  # programs beside the two, which must end by themselves
        self.during = []  # the names of the present interruptions
        self.want_of_memory = 0
        self.reused = 0  # processes that got a dead one's number
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self.nets = [harness.Namespace() for _ in range(hosts)]
            for net in self.nets:
                stack.callback(net.close)
            if hosts == 2:
                harness.join(*self.nets)
            self.stack = stack.pop_all()
        self.holders = {net.holder.pid for net in self.nets}
        for net in self.nets:
            self.known[net.holder.pid] = net.holder.popen
        self.server = Program(self, "server", self.nets[0], self.folder)
        self.client = Program(self, "client", self.nets[-1], self.folder)
        self.programs = [self.server, self.client]

    def __enter__(self):
        for program in self.programs:
            program.start()
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.end_children()
            kill(program.pid)
        for helper in self.helpers:
            kill(helper.pid)
        self.stack.close()
        reap(self.known)

    def peer_of(self, program):
        return self.client if program is self.server else self.server

    def agent(self, net):
        """Returns the process number of the host agent, if there is one."""
        for pid in net.pids():
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"tulle") and words[1:2] == [b"agent"]:
                    return pid
        return None

    def introduce(self):
        """Tells the programs on whom they may have to wait."""
        for program in self.programs:
            program.page["agent"] = self.agent(program.net) or 0
            peer = self.peer_of(program)
            program.page["peer"] = peer.pid if peer.popen else 0

    def revive(self, expected):
        """Starts programs that ended again. Endings that nobody expects are faults."""
        reap(self.known)
        for program in self.programs:
            if program.running:
                continue
            status = program.popen.returncode
            want = WANT_OF_MEMORY if program.page["pid"] == program.pid else WANT_OF_MEMORY_AT_LOADING
            if program.popen is program.lacked_memory and status in want:
                self.want_of_memory += 1
            elif status not in expected:
                raise Fault(f"the {program.role} ended with {status}")
            program.start()

    def check_counts(self):
        for program in self.programs:
            for field in ("wrong_bytes", "false_successes", "bad_completions"):
                if program.page[field]:
                    raise Fault(f"the {program.role} counts {program.page[field]} {field.replace('_', ' ')}")

    def recover(self, expected, limit=RECOVERY_SECONDS):
        """Waits until both programs have done a round. Time in which they waited for a processor does not count.

        Returns the seconds that it took.
        """
        goals = {}
        start = time.monotonic()
        before = {program: waited_seconds(program.pid) for program in self.programs}
        for looks in itertools.count():
            if looks % 10 == 0:
                self.introduce()
            self.check_counts()
            self.revive(expected)
            for program in self.programs:
                if program not in goals and program.page["command"] == 0 and program.popen is not program.doomed:
                    goals[program] = program.page["rounds"] + 1
            if len(goals) == 2 and all(program.page["rounds"] >= goal for program, goal in goals.items()):
                for program in self.programs:
                    program.page["peer_may_lose"] = 0
                return time.monotonic() - start
            waited = max(waited_seconds(program.pid) - before[program] for program in self.programs)
            elapsed = time.monotonic() - start
            if elapsed > 12 * limit or elapsed - max(waited, 0) > limit:
                raise Fault(f"no progress for {limit:.0f} s after the interruption ended: "
                            + "; ".join(program.describe() for program in self.programs))
            time.sleep(0.005)

    def photograph(self, path):
        """Writes down what all processes do, and who has which socket, for a person who looks for a fault's cause."""
        def say(*command, net=None):
            enter = ["nsenter", f"--net=/proc/{net.holder.pid}/ns/net"] if net else []
            with contextlib.suppress(OSError, subprocess.TimeoutExpired), open(path, "ab") as out:
                out.write(f"\n--- {' '.join(command)}\n".encode())
                out.flush()
                subprocess.run([*enter, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=20)

        say("ps", "-eLo", "pid,tid,ppid,stat,wchan:24,etimes,args")
        for net in self.nets:
            say("ss", "--all", "--numeric", "--processes", "--udp", "--unix", net=net)
            say("ip", "address", net=net)
            say("ip", "neighbour", net=net)
            say(str(harness.TULLE), "status", net=net)
            say(str(harness.TULLE), "devices", net=net)
            for pid in set(net.pids()) - self.holders:
                say("ls", "-l", f"/proc/{pid}/fd")
                say("gdb", "--batch", "--nx", "-p", str(pid), "-ex", "thread apply all backtrace 24")

    def check_helpers(self):
        deadline = time.monotonic() + RECOVERY_SECONDS
        for helper in self.helpers:
            while helper.running:
                if time.monotonic() > deadline:
                    raise Fault(f"still running: {helper.describe()}")
                time.sleep(0.005)
            helper.close()
        self.helpers = []

    def finish(self, politely):
        """Ends the programs, and checks that nothing is left and that a program finds all it needs again."""
        for program in self.programs:
            if politely:
                program.page.command("quit")
            else:
                program.signal(signal.SIGTERM)
        for program in self.programs:
            if not program.wait(RECOVERY_SECONDS):
                raise Fault(f"did not end within {RECOVERY_SECONDS:.0f} s: {program.describe()}")
            if program.popen.returncode != (0 if politely else -signal.SIGTERM):
                raise Fault(f"ended otherwise: {program.describe()}")
            program.end_children()
        self.check_counts()
        self._check_emptiness("after the programs ended")
        probe = self.server
        probe.start("probe")
        if not probe.wait(RECOVERY_SECONDS) or probe.popen.returncode != 0:
            raise Fault(f"a program that opens the device afterwards: {probe.describe()}")
        self._check_emptiness("after the last program ended")

    def _check_emptiness(self, when):
        deadline = time.monotonic() + IDLE_SECONDS + RECOVERY_SECONDS
        while left := self._leftovers():
            if time.monotonic() > deadline:
                raise Fault(f"left {when}: {', '.join(left)}")
            time.sleep(0.02)

    def _leftovers(self):
        reap(self.known)
        left = []
        for net in self.nets:
            for pid in net.pids():
                with contextlib.suppress(OSError):
                    name = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                    state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                    left.append(f"process {pid} in state {state} ({name})")
            for table in ("udp", "udp6", "tcp", "tcp6", "unix", "raw", "raw6"):
                try:
                    rows = pathlib.Path(f"/proc/{net.holder.pid}/net/{table}").read_text().splitlines()[1:]
                except OSError as error:
                    if error.errno != errno.ENOENT:
                        raise
                    continue
                if rows:
                    left.append(f"{len(rows)} {table} sockets, such as {rows[-1].strip()}")
        left += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")]
        return left
