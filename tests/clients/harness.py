"""The tools for tests of real programs: network namespaces, processes with time limits, pairs, perftest's tables.

Every test runs in network namespaces of its own. UDP port 4791 and the host agent's abstract socket belong to a
namespace, so that tests meet neither each other nor an agent that serves other programs. The tests end only
processes that they started and processes that live in their namespaces (a host agent).
"""

import contextlib
import ctypes
import errno
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import sealed

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / os.environ.get("TULLE_BUILD", "build")
TULLE = BUILD / "bin" / "tulle"
INTEGRITY = BUILD / "bin" / "integrity"

# The limit is generous, since the machine may have two cores and run other tests. A test that hangs costs this much
# once.
LIMIT = float(os.environ.get("TULLE_TEST_LIMIT", "60"))

# Set where all programs must send packets, also between processes of one host.
PACKETS_ONLY = "TULLE_TEST_PACKETS"
# Set where all programs share the memory that they register.
SHARED_MEMORY = "TULLE_TEST_SHARED_MEMORY"
# Set where all programs run as strictly as on hardware.
STRICTLY = "TULLE_TEST_STRICTLY"

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Unavailable(Exception):
    """The machine does not allow what the test needs."""


def surroundings(argv):
    """Returns the environment of a process that the tests start: this one's, with settings of Tulle as the run wants
    them."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TULLE_")}
    if PACKETS_ONLY in os.environ:
        environment["TULLE_DIRECT"] = "off"
    if SHARED_MEMORY in os.environ:
        environment["TULLE_SHARE_MEMORY"] = "on"
    if STRICTLY in os.environ:
        environment["TULLE_STRICT"] = "1"
    if sealed.SEALED in os.environ:
        environment |= sealed.environment(argv)
    return environment


class Process:
    """A child in a process group of its own, with its output in files."""

    started = set()  # those that were not closed

    def __init__(self, argv, net=None, env=None, cwd=None, unshare_net=False, pass_fds=()):
        self.argv = [str(a) for a in argv]
        self._stdout = tempfile.TemporaryFile()
        self._stderr = tempfile.TemporaryFile()

        def enter():
            if unshare_net:
                _check(_libc.unshare(CLONE_NEWNET))
            elif net is not None and net.fd is not None:
                _check(_libc.setns(net.fd, CLONE_NEWNET))

        environment = {**surroundings(self.argv), "LC_ALL": "C.UTF-8", **(env or {})}
        self.popen = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=self._stdout,
            stderr=self._stderr,
            env=environment,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=enter,
            pass_fds=pass_fds,
        )
        Process.started.add(self)

    @property
    def pid(self):
        return self.popen.pid

    @property
    def stdout(self):
        return self._text(self._stdout)

    @property
    def stderr(self):
        return self._text(self._stderr)

    @staticmethod
    def _text(file):
        # pread() does not move the file's offset, which the child shares.
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), size, 0).decode(errors="replace")

    @property
    def running(self):
        is_running = self.popen.poll() is None
        if not is_running:
            self.skip_if_refused()
        return is_running

    def wait(self, limit=None):
        """Returns the exit status, negative for a signal. Ends the child and fails if it takes too long."""
        limit = LIMIT if limit is None else limit
        deadline = time.monotonic() + limit
        while True:
            left = deadline - time.monotonic()
            # A script may wait on for a program that was refused.
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.popen.wait(min(left, 1) if sealed.SEALED in os.environ else left)
                self.skip_if_refused()
                return status
            self.skip_if_refused()
            if time.monotonic() >= deadline:
                self.end()
                raise AssertionError(f"still running after {limit} s\n{self.describe()}")

    def skip_if_refused(self):
        """Ends the test where a sealed run can go no further."""
        if sealed.SEALED in os.environ and (why := sealed.refusal_in(self.stderr)):
            raise unittest.SkipTest(why)

    def signal(self, number):
        """Sends the signal to the child and to what it started."""
        if self._is_anothers():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)

    def end(self):
        self.signal(signal.SIGKILL)
        self.popen.wait()

    def _is_anothers(self):
        """Returns whether the child's number has passed to another process. The kernel gives no number away that a
        process group still has, so the group of that number is the other process's too."""
        return self.popen.returncode is not None and os.path.exists(f"/proc/{self.popen.pid}")

    def close(self):
        Process.started.discard(self)
        self.end()
        self._stdout.close()
        self._stderr.close()

    def describe(self):
        def tail(text):
            lines = text.splitlines()
            return "\n".join("    " + line for line in lines[-40:])

        status = "running" if self.popen.returncode is None else f"exit status {self.popen.returncode}"
        return f"$ {' '.join(self.argv)}  [{status}]\n  stdout:\n{tail(self.stdout)}\n  stderr:\n{tail(self.stderr)}"


class Namespace:
    """A network namespace with lo up, held open by a sleeping child."""

    def __init__(self):
        try:
            self.holder = Process(["sleep", "infinity"], unshare_net=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(f"no network namespaces here: {error}") from None
        try:
            self.fd = os.open(f"/proc/{self.holder.pid}/ns/net", os.O_RDONLY)
            self.inode = os.fstat(self.fd).st_ino
            self.watch = sealed.watch(self, BUILD) if sealed.SEALED in os.environ else None
            self.run("ip", "link", "set", "lo", "up")
        except BaseException:
            self.holder.close()
            raise

    def run(self, *argv, limit=None):
        """Runs a helper program in the namespace that must succeed, and returns its standard output."""
        process = Process(argv, net=self)
        try:
            if process.wait(limit) != 0:
                raise AssertionError(process.describe())
            return process.stdout
        finally:
            process.close()

    def pids(self):
        """Returns the ID of every process in the namespace but the holder."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != self.holder.pid:
                try:
                    if os.stat(f"/proc/{entry}/ns/net").st_ino == self.inode:
                        found.append(int(entry))
                except OSError:
                    pass  # the process is gone, or may not be looked at
        return found

    def close(self):
        deadline = time.monotonic() + 10
        while (pids := self.pids()) and time.monotonic() < deadline:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        if self.watch is not None:
            self.watch.close()
            sealed.keep(self.watch.seen())
        os.close(self.fd)
        self.holder.close()


def join(first, second, mtu=1500):
    """Joins two namespaces by a virtual cable: 10.0.0.1/fd00::1 in the first, 10.0.0.2/fd00::2 in the second, both
    on `veth0`."""
    for net in (first, second):
        # Interfaces do not wait for a neighbour that might have the same address.
        net.run("sh", "-c", "for each in all default; do echo 0 > /proc/sys/net/ipv6/conf/$each/accept_dad; done")
    first.run("ip", "link", "add", "veth0", "mtu", str(mtu), "type", "veth",
              "peer", "name", "veth0", "mtu", str(mtu), "netns", str(second.holder.pid))
    for host, net in enumerate((first, second), start=1):
        net.run("ip", "address", "add", f"10.0.0.{host}/24", "dev", "veth0")
        net.run("ip", "-6", "address", "add", f"fd00::{host}/64", "dev", "veth0", "nodad")
        net.run("ip", "link", "set", "veth0", "up")
    # An interface counts as up, and its addresses as usable, a moment after the other end is up.
    for net in (first, second):
        wait_until(lambda: "state UP" in net.run("ip", "link", "show", "dev", "veth0"), "the cable")
        wait_until(lambda: "tentative" not in net.run("ip", "-6", "address", "show", "dev", "veth0"), "IPv6 addresses")


def tests_in(suite):
    """Yields every single test of a unittest.TestSuite."""
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from tests_in(entry)
        else:
            yield entry


def wait_until(condition, what, limit=None, pause=0.01):
    """Waits until the condition is true, and returns its value."""
    limit = LIMIT if limit is None else limit
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        for process in list(Process.started):
            process.skip_if_refused()
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {limit} s for {what}")
        time.sleep(pause)


def listens(process, port, protocol="tcp"):
    """Returns whether a program listens on that port in the process's network namespace. With UDP, whether one receives
    there from anybody."""
    state = {"tcp": "0A", "udp": "07"}[protocol]
    pattern = re.compile(rf"^\s*\d+: [0-9A-F]+:{port:04X} [0-9A-F]+:0000 {state} ", re.MULTILINE)
    for table in (protocol, protocol + "6"):
        try:
            if pattern.search(pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text()):
                return True
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL, errno.ESRCH):
                raise
    return False


def cpu_ticks(pid):
    """Returns the user and system time of a process, in clock ticks."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class ClientTest(unittest.TestCase):
    """A test with one namespace (self.net). Everything that is started in the namespace ends with the test."""

    maxDiff = None
    prefix = ()

    def run(self, result=None):
        self.namespaces = []
        try:
            return super().run(result)
        except BaseException:  # interrupted: unittest then goes without its cleanups
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            self.doCleanups()
            signal.signal(signal.SIGINT, before)
            raise

    def setUp(self):
        if not TULLE.exists():
            self.fail(f"{TULLE} was not built")
        self.net = self.namespace()

    def namespace(self):
        try:
            net = Namespace()
        except Unavailable as reason:
            self.skipTest(str(reason))
        self.addCleanup(net.close)
        self.namespaces.append(net)
        return net

    def joined_namespaces(self, mtu=1500):
        first, second = self.namespace(), self.namespace()
        join(first, second, mtu)
        return first, second

    def start(self, *argv, net=None, env=None, cwd=None):
        process = Process(argv, net=net or self.net, env=env, cwd=cwd)
        self.addCleanup(process.close)
        return process

    def run_program(self, *argv, net=None, env=None, limit=None, expect=0):
        """Runs a program to its end. `expect` is the exit status, or None for any."""
        process = self.start(*argv, net=net, env=env)
        status = process.wait(limit)
        if expect is not None:
            self.assertEqual(expect, status, process.describe())
        return process

    def over_tulle(self, argv, options=()):
        return [TULLE, "run", *options, "--", *argv]

    def start_server(self, argv, port, net=None, options=(), env=None, prefix=()):
        """Starts a program over Tulle that listens on a TCP port, and returns when it listens."""
        process = self.start(*prefix, *self.over_tulle(argv, options), net=net, env=env)

        def ready():
            if not process.running:
                self.fail(f"ended instead of listening\n{process.describe()}")
            return listens(process, port)

        try:
            wait_until(ready, f"port {port} to listen")
        except AssertionError as error:
            process.end()
            self.fail(f"{error}\n{process.describe()}")
        return process

    def pair(self, argv, server_argv=None, host="127.0.0.1", port=18515, net=None, server_net=None,
             options=(), server_options=None, env=None, prefix=(), limit=None, expect=0):
        """Runs `argv` as a server, then `argv` with `host` as its client, both over Tulle. Checks both exit statuses.

        Returns (server, client).
        """
        argv = [*argv, "-p", str(port)]
        server_argv = argv if server_argv is None else [*server_argv, "-p", str(port)]
        server_options = options if server_options is None else server_options
        server = self.start_server(server_argv, port, net=server_net or net, options=server_options, env=env,
                                   prefix=prefix)
        client = self.start(*prefix, *self.over_tulle([*argv, host], options), net=net, env=env)
        self.finish(server, client, limit=limit, expect=expect)
        return server, client

    def finish(self, server, client, limit=None, expect=0):
        both = lambda: f"{server.describe()}\n{client.describe()}"  # noqa: E731
        try:
            client_status = client.wait(limit)
            # A client that failed may leave its server waiting indefinitely.
            server_status = server.wait(limit if client_status == 0 else 5)
        except AssertionError:
            self.fail(f"still running after the time limit\n{both()}")
        if expect is not None:
            self.assertEqual((expect, expect), (server_status, client_status), both())

    def status(self, net=None, prefix=None):
        """Returns the parsed output of `tulle status --json`. With a prefix the programs, and so the host agent,
        belong to another user."""
        prefix = self.prefix if prefix is None else prefix
        process = self.run_program(*prefix, TULLE, "status", "--json", net=net, limit=20)
        return json.loads(process.stdout)


# --- perftest ------------------------------------------------------------------------------------------------------


def lost_the_clock(process):
    """Says whether perftest could not compare the processor's counter with the clock, because others had its processor
    meanwhile. It then prints 0 for each rate."""
    return "Correlation coefficient r^2" in process.stderr


def with_the_clock(run_pair):
    """Runs a pair of perftest's programs, and again where the client lost the clock. Returns (server, client)."""
    for _ in range(5):
        server, client = run_pair()
        if not lost_the_clock(client):
            break
    return server, client


def table_rows(output):
    """Returns the rows of perftest's result table: lists of numbers, the first of which is the size in bytes. Some
    numbers are inf or nan if perftest could not find out the clock's rate, or if one time is far off the others."""
    rows, inside = [], False
    for line in output.splitlines():
        if line.lstrip().startswith("#bytes"):
            inside = True
        elif inside and re.fullmatch(r"\s*\d([\s\d.e+-]|inf|nan)*", line):
            rows.append([float(field) for field in line.split()])
    return rows


POWERS_TO_8_MIB = [2**n for n in range(1, 24)]
