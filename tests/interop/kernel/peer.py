"""The Linux kernel's own RDMA (Soft-RoCE, rdma_rxe) at the other end of a cable.

The kernel is Debian's, built as a User-Mode-Linux program (build.sh): an ordinary process that boots in a second,
with one CPU, whose network interface is a tap in a network namespace of the test. Its programs are the machine's own,
seen through its root file system; nothing of Tulle's is preloaded there.

    peer.py build     makes it, where it is missing (about five minutes, once)
"""

import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = pathlib.Path(os.environ.get("TULLE_PEER_FOLDER",
                                     pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
                                     / "tulle-peer"))
KERNEL = FOLDER / "linux"
BOOT_SECONDS = 60
MEMORY_MIB = 512


def build():
    if not KERNEL.exists():
        print(f"building the kernel's RDMA in {FOLDER} (about five minutes, once) ...", file=sys.stderr, flush=True)
        subprocess.run([HERE / "build.sh", FOLDER], check=True)


def clock_rate():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("cpu MHz"):
            return line + "\n"
    return "cpu MHz : 1000\n"


class GuestProcess:
    """A program in the peer, with the interface of harness.Process."""

    def __init__(self, peer, number, argv):
        self.peer, self.number, self.argv, self.status = peer, number, argv, None

    def _text(self, suffix):
        try:
            return (self.peer.folder / f"{self.number}.{suffix}").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    @property
    def stdout(self):
        return self._text("out")

    @property
    def stderr(self):
        return self._text("err")

    @property
    def running(self):
        self.peer.listen(0)
        return self.status is None and self.peer.running

    def wait(self, limit):
        deadline = time.monotonic() + limit
        while self.running:
            left = deadline - time.monotonic()
            if left <= 0:
                self.end()
                raise AssertionError(f"still running after {limit} s\n{self.describe()}")
            self.peer.listen(min(left, 1))
        if self.status is None:
            raise AssertionError(f"the peer's kernel ended\n{self.describe()}\n{self.peer.console_tail()}")
        return self.status

    def end(self):
        if self.running:
            self.peer.ask({"kill": self.number})
            deadline = time.monotonic() + 10
            while self.running and time.monotonic() < deadline:
                self.peer.listen(0.1)

    close = end

    def describe(self):
        def tail(text):
            return "\n".join("    " + line for line in text.splitlines()[-40:])

        status = "running" if self.status is None else f"exit status {self.status}"
        return (f"(kernel) $ {' '.join(self.argv)}  [{status}]\n  stdout:\n{tail(self.stdout)}\n"
                f"  stderr:\n{tail(self.stderr)}")


class KernelPeer:
    """A running kernel. `host` numbers its addresses: 10.0.0.HOST and fd00::HOST."""

    def __init__(self, enter, interface, host=2, mtu=1500, pass_fds=()):
        """The child calls `enter` before it becomes the kernel, to join a network namespace. `interface` is what
        User-Mode Linux calls a transport: "tap,ifname=NAME" or "fd,fd=NUMBER"."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tulle-peer-"))
        self.ipv4, self.ipv6 = f"10.0.0.{host}", f"fd00::{host}"
        self.processes, self.answers, self.next_number = {}, {}, 1
        self.ready, self.pending, self.noise = None, b"", []
        (self.folder / "cpu").write_text(clock_rate())
        self.console, theirs = socket.socketpair()
        arguments = [
            str(KERNEL), f"umid=tulle-peer-{os.getpid()}-{host}", f"uml_dir={self.folder}/", f"mem={MEMORY_MIB}M",
            "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={sys.executable}",
            f"con0=fd:{theirs.fileno()},fd:{theirs.fileno()}", "con=null", "ssl=null", "quiet", "loglevel=2", "panic=-1",
            f"vec0:transport={interface},depth=128,gro=0,mtu={mtu}",
            f"peer_folder={self.folder}", f"peer_addresses={self.ipv4}/24,{self.ipv6}/64", f"peer_mtu={mtu}",
            f"peer_mac=52:54:01:00:00:{host:02x}",
            "--", str(HERE / "guest.py"),
        ]
        self.popen = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, pass_fds=(theirs.fileno(), *pass_fds),
                                      start_new_session=True, preexec_fn=enter)
        theirs.close()
        self._await(lambda: self.ready, BOOT_SECONDS, "the peer's kernel to boot")

    @property
    def running(self):
        return self.popen.poll() is None

    def console_tail(self):
        return "  console:\n" + "\n".join("    " + line for line in self.noise[-40:])

    def ask(self, message):
        self.console.sendall((json.dumps(message) + "\n").encode())

    def listen(self, seconds):
        """Handles what the peer says. Waits for it at most that long."""
        readable, _, _ = select.select([self.console], [], [], seconds)
        if not readable:
            return
        try:
            received = self.console.recv(65536)
        except ConnectionResetError:
            received = b""
        if not received:
            time.sleep(min(seconds, 0.05))  # the kernel has ended, or is about to
            return
        self.pending += received
        *lines, self.pending = self.pending.split(b"\n")
        for line in lines:
            self._hear(line.decode(errors="replace").strip())

    def _hear(self, line):
        try:
            said = json.loads(line)
        except ValueError:
            self.noise.append(line)
            return
        if "ended" in said:
            self.processes[said["ended"]].status = said["status"]
        elif "request" in said:
            self.answers[said["request"]] = said["value"]
        elif "ready" in said:
            self.ready = said["ready"]
        else:
            self.noise.append(line)

    def _await(self, condition, limit, what):
        deadline = time.monotonic() + limit
        while not condition():
            if not self.running or time.monotonic() > deadline:
                tail = self.console_tail()
                self.close()
                raise AssertionError(f"waited for {what}\n{tail}")
            self.listen(0.1)

    def start(self, *argv, env=None):
        number = self.next_number
        self.next_number += 1
        process = GuestProcess(self, number, [str(a) for a in argv])
        self.processes[number] = process
        self.ask({"run": number, "argv": process.argv, "environment": env or {}})
        return process

    def run(self, *argv, limit=60):
        """Runs a helper program that must succeed, and returns its standard output."""
        process = self.start(*argv)
        if process.wait(limit) != 0:
            raise AssertionError(process.describe())
        return process.stdout

    def listens(self, port):
        number = self.next_number
        self.next_number += 1
        self.ask({"listens": port, "request": number})
        self._await(lambda: number in self.answers, 60, "the peer's answer")
        return self.answers.pop(number)

    def gid_index(self, address_gid):
        """Returns the index of that GID in rxe0's table."""
        listing = self.run("sh", "-c", "cd /sys/class/infiniband/rxe0/ports/1/gids; grep . * 2>/dev/null")
        for line in listing.splitlines():
            index, _, gid = line.partition(":")
            if gid == address_gid:
                return int(index)
        raise AssertionError(f"rxe0 has no GID {address_gid}:\n{listing}")

    def end_programs(self):
        for process in self.processes.values():
            process.end()
        self.processes.clear()
        for file in self.folder.glob("*.*"):
            if file.suffix in (".out", ".err"):
                file.unlink()

    def close(self):
        # User-Mode Linux is many processes (one for each address space), all in one session. The whole group is killed
        # at once.
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait()
        self.console.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def open_tap(name):
    """Opens a tap that carries frames as they are on a cable, in the caller's network namespace. The tap lives as
    long as the descriptor that is returned."""
    TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit(__doc__)
    build()
