"""The first process of the Linux kernel that peer.py starts. Its root is the machine's own file system, read only,
so that it has every program that the machine has. Its console is a pair of pipes to the test.

Commands come on the console, one JSON object a line, and answers go back the same way:
    {"run": ID, "argv": […], "environment": {…}}   -> {"ended": ID, "status": N}; output in FOLDER/ID.out and ID.err
    {"kill": ID}                                      ends it and what it started
    {"listens": PORT, "request": ID}                -> {"request": ID, "value": true or false}
"""

import ctypes
import json
import os
import pathlib
import select
import signal
import subprocess
import tty

PORT_STATE_LISTEN = "0A"
libc = ctypes.CDLL(None, use_errno=True)


def mount(kind, at, options=""):
    if libc.mount(kind.encode(), at.encode(), kind.encode(), 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"mount {at}")


def show_in_place_of(shown, hidden):
    MS_BIND = 4096
    if libc.mount(shown.encode(), hidden.encode(), None, MS_BIND, None) != 0:
        raise OSError(ctypes.get_errno(), f"mount --bind {hidden}")


def command(*argv):
    result = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {result.stdout}")


def mounts(folder):
    mount("proc", "/proc")
    mount("sysfs", "/sys")
    if not os.path.ismount("/dev"):  # a kernel that is configured to mounts it by itself
        mount("devtmpfs", "/dev")
    mount("tmpfs", "/run")
    os.mkdir("/dev/shm")
    mount("tmpfs", "/dev/shm")
    # The one place that the test and the guest both see and may both write. The guest sees the folder read only where
    # it lies in the machine's file system.
    os.mkdir("/run/test")
    mount("hostfs", "/run/test", folder)
    # perftest reads the CPU's clock rate in /proc/cpuinfo, where this kernel does not show it.
    shown = pathlib.Path("/proc/cpuinfo").read_text() + pathlib.Path("/run/test/cpu").read_text()
    pathlib.Path("/run/cpuinfo").write_text(shown)
    show_in_place_of("/run/cpuinfo", "/proc/cpuinfo")


def network():
    for name in ("accept_dad", "router_solicitations"):
        for where in ("all", "default", "vec0"):
            pathlib.Path(f"/proc/sys/net/ipv6/conf/{where}/{name}").write_text("0")
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "set", "vec0", "name", "eth0")
    command("ip", "link", "set", "eth0", "address", os.environ["peer_mac"], "mtu", os.environ["peer_mtu"])
    for address in os.environ["peer_addresses"].split(","):
        command("ip", "address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
    command("ip", "link", "set", "eth0", "up")
    command("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")


def listens(port):
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(f":{port:04X}") and fields[3] == PORT_STATE_LISTEN:
                return True
    return False


class Programs:
    def __init__(self, answer):
        self.answer = answer
        self.running = {}  # from process id to the test's number

    def start(self, number, argv, environment):
        with open(f"/run/test/{number}.out", "wb") as out, open(f"/run/test/{number}.err", "wb") as err:
            try:
                process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd="/run",
                                           env={**os.environ, **environment}, start_new_session=True)
            except OSError as error:
                err.write(f"{argv[0]}: {error}\n".encode())
                self.answer({"ended": number, "status": 127})
                return
        self.running[process.pid] = number

    def kill(self, number):
        for process, name in self.running.items():
            if name == number:
                try:
                    os.killpg(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def reap(self):
        """Also reaps processes that have lost their parent, as the first process must."""
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            number = self.running.pop(process, None)
            if number is not None:
                self.answer({"ended": number, "status": os.waitstatus_to_exitcode(status)})


def serve():
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    def answer(message):
        os.write(1, (json.dumps(message) + "\n").encode())

    programs = Programs(answer)
    answer({"ready": os.uname().release})
    pending = b""
    while True:
        readable, _, _ = select.select([0, wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            programs.reap()
        if 0 not in readable:
            continue
        pending += os.read(0, 65536)
        *lines, pending = pending.split(b"\n")
        for line in lines:
            asked = json.loads(line)
            if "run" in asked:
                programs.start(asked["run"], asked["argv"], asked["environment"])
            elif "kill" in asked:
                programs.kill(asked["kill"])
            elif "listens" in asked:
                answer({"request": asked["request"], "value": listens(asked["listens"])})


def main():
    tty.setraw(0)
    os.environ.update(PATH="/usr/sbin:/usr/bin:/sbin:/bin", HOME="/run", LC_ALL="C.UTF-8", TMPDIR="/dev/shm")
    mounts(os.environ["peer_folder"])
    network()
    serve()


try:
    main()
except BaseException as error:  # the kernel ends with its first process, and this line is all that shows the reason
    print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), flush=True)
    raise
