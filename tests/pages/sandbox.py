"""Two machines for the commands of a page: namespaces of Linux with a cable between them.

alpha is 192.0.2.1 and beta is 192.0.2.2, the addresses that the pages use. They share processes and files, among them a
copy of the clone that takes changes and keeps them off the real one (overlayfs). Each has a network, /run, /tmp and
/dev/shm of its own. The ordinary user is `reader`, whom only this place knows. All of it ends with the processes.
"""

import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import time

ADDRESSES = {"alpha": "192.0.2.1", "beta": "192.0.2.2"}
USERS = {"root": 0, "ordinary": 1000}
READER = "reader"

# SETUP TREE BUILD SCRATCH UID: makes the first machine. The folder "upper" receives what commands write to the clone.
SETUP = r"""
set -e
tree=$1 build=$2 scratch=$3 user=$4
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs "$scratch/layer"
mkdir "$scratch/layer/upper" "$scratch/layer/work"
chown "$user:$user" "$scratch/layer/upper"
mount -t overlay -o "lowerdir=$tree,upperdir=$scratch/layer/upper,workdir=$scratch/layer/work" overlay "$tree"
if [ "$build" != "$tree/build" ]; then mkdir -p "$tree/build"; mount --bind "$build" "$tree/build"; fi
for file in passwd group shadow; do mount --bind "$scratch/$file" "/etc/$file"; done
"""
# Both machines need this. An IPv6 address is usable at once without the search for duplicates.
MACHINE = r"""
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t sysfs sysfs /sys
for each in all default; do echo 0 >"/proc/sys/net/ipv6/conf/$each/accept_dad" || true; done
ip link set lo up
echo ready
exec sleep infinity
"""


class Unavailable(Exception):
    """This machine does not allow what the test needs."""


class Terminal:
    """A command in a process group of its own, with its output in a file."""

    def __init__(self, argv, output):
        self.output = pathlib.Path(output)
        with open(output, "wb") as file:
            self.popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                          start_new_session=True)
        self.interrupted = False

    @property
    def running(self):
        return self.popen.poll() is None

    @property
    def text(self):
        return self.output.read_bytes().decode(errors="replace")

    @property
    def status(self):
        """The exit status as a shell has it."""
        return 128 - self.popen.returncode if self.popen.returncode < 0 else self.popen.returncode

    @property
    def succeeded(self):
        return self.status == 0 or (self.interrupted and self.status == 128 + signal.SIGINT)

    def wait(self, limit):
        """Returns whether it has ended within the limit."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(limit)
        return not self.running

    def interrupt(self):
        """Presses Ctrl-C."""
        if self.running:
            self.interrupted = True
            os.killpg(self.popen.pid, signal.SIGINT)

    def kill(self):
        if self.running:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


class Sandbox:
    """`enter` is what comes before a command to run it in another system, and `tree` the clone there, with the build in
    `build`. `scratch` is an empty folder, at the same path in both."""

    def __init__(self, tree, scratch, user, build=None, enter=(), path=()):
        self.tree, self.scratch, self.user = pathlib.Path(tree), pathlib.Path(scratch), user
        self.path = [*path, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        self.holders, self.pids, self.busy, self.count = {}, {}, [], 0
        uid = USERS[user]
        for name in ("layer", "home", "elsewhere", "output"):
            (self.scratch / name).mkdir()
        for name in ("home", "elsewhere"):
            os.chown(self.scratch / name, uid, uid)
        try:
            self._hold("alpha", ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
                                 *enter, "sh", "-c", SETUP + MACHINE, "sh", tree, build or f"{tree}/build", scratch, uid])
            self._hold("beta", [*self._nsenter("alpha", net=False), "unshare", "--mount", "--net", "--uts", "sh", "-c",
                                MACHINE])
            self._join()
        except BaseException:
            self.close()
            raise

    def _hold(self, machine, argv):
        """Starts the process that keeps a machine's namespaces."""
        holder = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.holders[machine] = holder
        if holder.stdout.readline() != "ready\n":
            holder.kill()
            raise Unavailable(f"no machine of namespaces here: {' '.join(holder.communicate()[1].split())}")
        pid = holder.pid
        while children := pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[0])
        self.pids[machine] = pid

    def _nsenter(self, machine, net=True):
        return ["nsenter", f"--target={self.pids[machine]}", "--mount", "--pid", *(["--net", "--uts"] if net else []), "--"]

    def _join(self):
        def run(machine, line):
            subprocess.run([*self._nsenter(machine), "sh", "-c", line], check=True, stdin=subprocess.DEVNULL)

        # The names of the machines' processes differ between here and there.
        inner = [line.split()[-1] for line in pathlib.Path(f"/proc/{self.pids['beta']}/status").read_text().splitlines()
                 if line.startswith("NSpid:")][0]
        run("alpha", f"ip link add eth0 type veth peer name eth0 netns {inner}")
        for machine, address in ADDRESSES.items():
            run(machine, f"hostname {machine}; ip address add {address}/24 dev eth0; ip link set eth0 up")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if all("state UP" in subprocess.run([*self._nsenter(machine), "ip", "link", "show", "dev", "eth0"],
                                                capture_output=True, text=True).stdout for machine in ADDRESSES):
                return
            time.sleep(0.02)
        raise Unavailable("the cable between the machines stays down")

    def load(self, number):
        """Starts processes that keep a processor busy."""
        for _ in range(number):
            self.busy.append(Terminal([*self._nsenter("alpha"), "sh", "-c", "while :; do :; done"], os.devnull))

    def start(self, command, folder, machine="alpha", keeps=True, downloads=False):
        """Starts a line of shell in a terminal. With `keeps`, its variables and folder are there for the next. With
        `downloads` it has the network of this process."""
        self.count += 1
        state = self.scratch / "home" / "state"
        after = f'status=$?; {{ export -p; printf "cd %q\\n" "$PWD"; }} >{state}; exit $status' if keeps else ""
        script = f"cd {shlex.quote(str(folder))}\n[ ! -f {state} ] || . {state}\n{command}\n{after}"
        uid = USERS[self.user]
        environment = {"HOME": self.scratch / "home", "PATH": ":".join(map(str, self.path)), "LC_ALL": "C.UTF-8",
                       "USER": READER if uid else "root", "LOGNAME": READER if uid else "root", "SHELL": "/bin/bash",
                       "TERM": "dumb"}
        if not uid:
            # Open MPI does not start jobs of root's unless told to, as README.md says.
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        words = [f"{name}={value}" for name, value in environment.items()]
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        return Terminal([*self._nsenter(machine, net=not downloads), "env", "-i", *words, *become, "bash", "-c", script],
                        self.scratch / "output" / str(self.count))

    def listeners(self):
        """Returns {(network, port)} of the programs that wait for TCP connections on these machines."""
        found, namespace = set(), self._inode(self.pids["alpha"], "pid")
        networks = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and self._inode(name, "pid") == namespace:
                networks.setdefault(self._inode(name, "net"), name)
        for network, pid in networks.items():
            for table in ("tcp", "tcp6"):
                with contextlib.suppress(OSError):
                    for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                        fields = line.split()
                        if fields[3] == "0A":
                            found.add((network, fields[1].rpartition(":")[2]))
        return found

    @staticmethod
    def _inode(pid, kind):
        try:
            return os.stat(f"/proc/{pid}/ns/{kind}").st_ino
        except OSError:
            return None

    def close(self):
        # Process 1 of the processes' namespace ends them all.
        for machine in ("alpha", "beta"):
            if machine in self.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pids[machine], signal.SIGKILL)
        for holder in self.holders.values():
            holder.kill()
            holder.communicate()
        for terminal in self.busy:
            terminal.kill()


def write_users(scratch, etc):
    """Writes the lists of users and groups that the machines have: those of `etc`, and the reader."""
    uid = USERS["ordinary"]
    lines = {"passwd": f"{READER}:x:{uid}:{uid}::{scratch}/home:/bin/bash\n", "group": f"{READER}:x:{uid}:\n",
             "shadow": f"{READER}:*:1::::::\n"}  # without a password, and with an account that sudo takes as valid
    for name, line in lines.items():
        path = pathlib.Path(scratch) / name
        path.touch(mode=0o600 if name == "shadow" else 0o644)
        path.write_text((pathlib.Path(etc) / name).read_text() + line)
