"""A world for the tests: a namespace with Tulle, a Linux kernel with Soft-RoCE at the other end of a cable, and
pairs of programs with one on each side."""

import atexit
import pathlib
import socket

import harness
from harness import CLONE_NEWNET, ClientTest, Namespace, Process, wait_until
from peer import KernelPeer

HERE = pathlib.Path(__file__).resolve().parent
TULLE_HOST, KERNEL_HOST = 1, 2
ADDRESS = {"ipv4": {"tulle": f"10.0.0.{TULLE_HOST}", "kernel": f"10.0.0.{KERNEL_HOST}"},
           "ipv6": {"tulle": f"fd00::{TULLE_HOST}", "kernel": f"fd00::{KERNEL_HOST}"}}
TULLE_GID = {"ipv4": 0, "ipv6": 1}
KERNEL_GID = {"ipv4": f"0000:0000:0000:0000:0000:ffff:0a00:{KERNEL_HOST:04x}",
              "ipv6": f"fd00:0000:0000:0000:0000:0000:0000:{KERNEL_HOST:04x}"}
# No program listens on port 1, and the refusal shows that the other end is reached.
MEET = ("import errno, socket, sys\n"
        "try: socket.create_connection((sys.argv[1], 1), 10)\n"
        "except ConnectionRefusedError: pass\n")
OTHER = {"tulle": "kernel", "kernel": "tulle"}


def enter(net):
    def join():
        harness._check(harness._libc.setns(net.fd, CLONE_NEWNET))

    return join


# The peer, which is a kernel as a program, at times misses the signal for a frame while a program of its own polls. A
# frame then lies there until another one comes, which for an unreliable service may be never: seen as a SEND by UD that
# was answered 5 s later, behind the host's own neighbour discovery. A datagram to the discard port is such a frame.
NUDGE = """
import socket, sys, time
nudges = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    time.sleep(0.05)
    try:
        nudges.sendto(b"", (sys.argv[1], 9))
    except OSError:
        pass  # the peer says that nobody listens, or the interface is down for a moment
"""


class World:
    """A namespace, a kernel and the cable between. `faults` says what relay.py does to RoCE v2 frames on the cable;
    None means a plain cable."""

    def __init__(self, mtu=1500, faults=None, seed=1):
        self.net, self.peer, self.relay, self.tap = Namespace(), None, None, "wire0"
        self.nudges = None
        atexit.register(self.close)  # an interrupted run ends without its classes' cleanups
        try:
            self._connect(mtu, faults, seed)
        except BaseException:
            self.close()
            raise
        self.gid = {("tulle", family): index for family, index in TULLE_GID.items()}
        for family, gid in KERNEL_GID.items():
            self.gid["kernel", family] = self.peer.gid_index(gid)

    def _connect(self, mtu, faults, seed):
        run = self.net.run
        run("sh", "-c", "for each in all default; do echo 0 > /proc/sys/net/ipv6/conf/$each/accept_dad; done")
        if faults is None:
            run("ip", "tuntap", "add", "dev", self.tap, "mode", "tap")
            interface, descriptors = f"tap,ifname={self.tap}", ()
        else:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            self.relay = Process(["/usr/bin/python3", HERE / "relay.py", self.tap, ours.fileno(), seed, faults],
                                 net=self.net, pass_fds=(ours.fileno(),))
            ours.close()
            wait_until(lambda: "up" in self.relay.stdout or not self.relay.running, "the relay")
            interface, descriptors = f"fd,fd={theirs.fileno()}", (theirs.fileno(),)
        run("ip", "link", "set", self.tap, "mtu", str(mtu), "address", f"52:54:01:00:00:{TULLE_HOST:02x}")
        run("ip", "address", "add", f"10.0.0.{TULLE_HOST}/24", "dev", self.tap)
        run("ip", "-6", "address", "add", f"fd00::{TULLE_HOST}/64", "dev", self.tap, "nodad")
        run("ip", "link", "set", self.tap, "up")
        self.peer = KernelPeer(enter(self.net), interface, KERNEL_HOST, mtu, descriptors)
        if faults is not None:
            theirs.close()
        wait_until(lambda: "tentative" not in run("ip", "-6", "address", "show", "dev", self.tap), "IPv6 addresses")
        # With this, the first packet of a connection need not wait for the neighbour's address.
        for host in (f"10.0.0.{KERNEL_HOST}", f"fd00::{KERNEL_HOST}"):
            run("/usr/bin/python3", "-c", MEET, host)
        self.nudges = Process(["/usr/bin/python3", "-c", NUDGE, f"10.0.0.{KERNEL_HOST}"], net=self.net)

    def close(self):
        atexit.unregister(self.close)
        if self.nudges is not None:
            self.nudges.close()
        if self.peer is not None:
            self.peer.close()
        if self.relay is not None:
            self.relay.close()
        self.net.close()


class KernelTest(ClientTest):
    """A test with one world for the whole class. Programs that a test starts in the world end with the test."""

    MTU, FAULTS, SEED = 1500, None, 1

    @classmethod
    def setUpClass(cls):
        cls.world = World(cls.MTU, cls.FAULTS, cls.SEED)
        cls.addClassCleanup(cls.world.close)

    def setUp(self):
        self.net, self.peer = self.world.net, self.world.peer
        self.addCleanup(self.peer.end_programs)

    def address_of(self, side, family="ipv4"):
        return ADDRESS[family][side]

    def launch(self, side, argv, options=(), env=None):
        """Starts a program over Tulle here, or over Soft-RoCE in the kernel there."""
        if side == "kernel":
            return self.peer.start(*argv, env=env)
        return self.start(*self.over_tulle(argv, options), env=env)

    def await_port(self, side, process, port):
        def ready():
            if not process.running:
                self.fail(f"ended instead of listening\n{process.describe()}")
            return self.peer.listens(port) if side == "kernel" else harness.listens(process, port)

        wait_until(ready, f"port {port} to listen", pause=0.05)

    def across(self, argv, serves, family="ipv4", gid_option="-g", port=18515, server_argv=None, tulle_options=(),
               limit=60, expect=0, kernel_argv=(), tulle_argv=()):
        """Runs `argv` as a server on the side `serves`, and with the server's address as a client on the other side.
        Both exit statuses are checked. Returns (server, client)."""
        extra = {"kernel": kernel_argv, "tulle": tulle_argv}

        def complete(side, base):
            return [str(a) for a in (*base, gid_option, self.world.gid[side, family], "-p", port, *extra[side])]

        server = self.launch(serves, complete(serves, server_argv or argv), tulle_options)
        self.await_port(serves, server, port)
        calls = OTHER[serves]
        client = self.launch(calls, [*complete(calls, argv), self.address_of(serves)], tulle_options)
        self.finish(server, client, limit=limit, expect=expect)
        return server, client


def every_way(*families):
    """Makes one test of the decorated function for each side that may serve and each address family. The function
    gets both as arguments."""

    def decorate(function):
        function.ways = [(serves, family) for family in families or ("ipv4",) for serves in OTHER]
        return function

    return decorate


def spread(cls):
    """Class decorator that adds the tests that @every_way asks for."""
    for name, function in list(vars(cls).items()):
        for serves, family in getattr(function, "ways", ()):

            def test(self, function=function, serves=serves, family=family):
                function(self, serves, family)

            test.__doc__ = None
            setattr(cls, f"test_{name}_{family}_{serves}_serves", test)
    return cls
