"""The kinds of interruptions. Each is a context that takes effect when it is entered and is over when it is left."""

import contextlib
import dataclasses
import os
import pathlib
import resource
import signal
import typing

import harness
from arena import AGENT_ENVIRONMENT, kill


@dataclasses.dataclass
class Kind:
    name: str
    apply: typing.Callable  # (arena, random, seconds) -> context
    weight: int
    endings: tuple = ()  # exit statuses of programs that it explains
    hosts: int = 1  # the number of hosts that it needs
    longest: float = 60.0  # seconds


KINDS = []


def kind(weight=2, endings=(), hosts=1, longest=60.0):
    def register(function):
        name = function.__name__.replace("_", " ")
        context = contextlib.contextmanager(function)
        KINDS.append(Kind(name, context, weight, endings, hosts, longest))
        return function
    return register


def some_program(arena, random):
    return random.choice(arena.programs)


# --- signals and ends ----------------------------------------------------------------------------------------------


@kind(weight=6, endings=(-signal.SIGKILL,), longest=0.5)
def program_killed(arena, random, seconds):
    program = some_program(arena, random)
    with program.interrupted():
        program.doom(signal.SIGKILL)
        yield


@kind(weight=1, endings=(-signal.SIGKILL,), longest=0.5)
def both_programs_killed(arena, random, seconds):
    for program in arena.programs:
        program.doom(signal.SIGKILL)
    yield


@kind(weight=10)
def program_stopped(arena, random, seconds):
    program = some_program(arena, random)
    with program.interrupted():
        program.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            program.signal(signal.SIGCONT)


@kind(weight=1)
def program_continued(arena, random, seconds):
    some_program(arena, random).signal(signal.SIGCONT)
    yield


@kind(weight=3, endings=(-signal.SIGKILL,), longest=5)
def program_killed_while_stopped(arena, random, seconds):
    program = some_program(arena, random)
    with program.interrupted():
        program.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            program.doom(signal.SIGKILL)


@kind(weight=3, endings=(0, -signal.SIGUSR1), longest=0.2)
def exit_in_a_signal_handler(arena, random, seconds):
    program = some_program(arena, random)
    with program.interrupted():
        program.doom(signal.SIGUSR1)
        yield


@kind(endings=(-signal.SIGTERM,), longest=0.2)
def program_terminated(arena, random, seconds):
    program = some_program(arena, random)
    with program.interrupted():
        program.doom(signal.SIGTERM)
        yield


# --- what a program does itself ------------------------------------------------------------------------------------


def commanded(name, weight=2, endings=(), longest=0.5):
    def apply(arena, random, seconds):
        program = some_program(arena, random)
        argument = random.randrange(3)
        if program.page["command"]:  # of another interruption at the same time, or one that is yet to be obeyed
            yield
            return
        if name == "unmap":
            arena.peer_of(program).page["peer_may_lose"] = 1
        with program.interrupted():
            program.page.command(name, argument, seconds)
            if endings:
                program.doomed = program.popen
            yield
    apply.__name__ = {"fork_and_live": "fork and the child lives on", "fork_and_exit": "fork and the child exits",
                      "fork_and_close": "fork and the child closes the device",
                      "fork_and_exec": "fork and the child calls exec", "exec_itself": "exec of the program itself",
                      "exec_another": "exec of another program", "unmap": "munmap of registered memory",
                      "protect_all": "mprotect of registered memory without any access",
                      "protect_writes": "mprotect of registered memory for reading alone",
                      "close_device": "device closed and opened", "quit": "program ends in order"}[name]
    kind(weight, endings, longest=longest)(apply)


commanded("fork_and_live")
commanded("fork_and_exit")
commanded("fork_and_close")
commanded("fork_and_exec")
commanded("exec_itself")
commanded("exec_another", endings=(0,), longest=0.3)
commanded("unmap")
commanded("protect_all")
commanded("protect_writes")
commanded("close_device")
commanded("quit", weight=1, endings=(0,))


@kind(weight=1)
def children_killed(arena, random, seconds):
    some_program(arena, random).end_children()
    yield


# --- want of descriptors and memory --------------------------------------------------------------------------------


# A program that is just being started cannot be loaded without descriptors.
@kind(weight=3, endings=(127, 1, 2), longest=5)
def no_descriptors(arena, random, seconds):
    program = some_program(arena, random)
    fraction = random.random()
    try:
        limit = int(fraction * len(os.listdir(f"/proc/{program.pid}/fd")))
    except OSError:
        limit = 0
    with program.interrupted(), program.limited(resource.RLIMIT_NOFILE, limit):
        yield


@kind(weight=2, longest=0.5)
def allocations_fail(arena, random, seconds):
    program = some_program(arena, random)
    program.lacked_memory = program.popen
    first, count = random.choice([1, 10, 100, 1000]), random.choice([1, 1, 1, 5, 1000])
    with program.interrupted():
        program.page["allocations_left"] = random.randrange(first)
        program.page["allocations_to_fail"] = count
        yield
        program.page["allocations_to_fail"] = 0


@kind(weight=1, longest=0.5)
def address_space_limited(arena, random, seconds):
    program = some_program(arena, random)
    program.lacked_memory = program.popen
    more = random.choice([0, 4096, 1 << 16, 1 << 20])
    try:
        pages = int(pathlib.Path(f"/proc/{program.pid}/statm").read_text().split()[0])
    except (OSError, IndexError):
        pages = 1 << 30
    with program.interrupted(), program.limited(resource.RLIMIT_AS, pages * 4096 + more):
        yield


# --- the host agent ------------------------------------------------------------------------------------------------


@kind(weight=5, longest=2)
def agent_killed(arena, random, seconds):
    if agent := arena.agent(random.choice(arena.nets)):
        kill(agent)
    yield


@kind(weight=5)
def agent_stopped(arena, random, seconds):
    agent = arena.agent(random.choice(arena.nets))
    if agent:
        kill(agent, signal.SIGSTOP)
    try:
        yield
    finally:
        if agent:
            kill(agent, signal.SIGCONT)


@kind(weight=1, longest=1)
def agent_terminated(arena, random, seconds):
    if agent := arena.agent(random.choice(arena.nets)):
        kill(agent, signal.SIGTERM)
    yield


# --- the network ---------------------------------------------------------------------------------------------------


def flags_of(net):
    line = net.run("ip", "-o", "link", "show", "veth0")
    return line[line.index("<") + 1:line.index(">")].split(",")


@kind(weight=3, hosts=2)
def link_down(arena, random, seconds):
    net = random.choice(arena.nets)
    net.run("ip", "link", "set", "veth0", "down")
    try:
        yield
    finally:
        net.run("ip", "link", "set", "veth0", "up")
        # The kernel tells the other end of a carrier up to a second later. Another interruption may hold that end down.
        if all("UP" in flags_of(each) for each in arena.nets):
            harness.wait_until(lambda: all("LOWER_UP" in flags_of(each) for each in arena.nets), "the cable's carrier",
                               limit=10)


@kind(weight=3, hosts=2)
def address_removed(arena, random, seconds):
    host = random.randrange(2)
    net = arena.nets[host]
    address = f"10.0.0.{host + 1}/24"
    if address not in net.run("ip", "-o", "address", "show", "dev", "veth0"):
        yield  # another interruption has removed it at the same time
        return
    net.run("ip", "address", "del", address, "dev", "veth0")
    try:
        yield
    finally:
        net.run("ip", "address", "add", address, "dev", "veth0")


@kind(weight=1, hosts=2)
def address_added(arena, random, seconds):
    host = random.randrange(2)
    net = arena.nets[host]
    address = f"10.0.{1 + random.randrange(200)}.{host + 1}/24"
    net.run("ip", "address", "add", address, "dev", "veth0")
    try:
        yield
    finally:
        net.run("ip", "address", "del", address, "dev", "veth0")


# --- others --------------------------------------------------------------------------------------------------------


@kind(weight=4, endings=(-signal.SIGKILL,), longest=1)
def number_used_by_another_process(arena, random, seconds):
    """The program is killed, and its process number at once is another's, which keeps memory at the same addresses
    and checks that nobody writes there."""
    program = some_program(arena, random)
    pid = program.pid
    with program.interrupted():
        program.doom(signal.SIGKILL)
        if program.wait(5):
            program.start(f"watch-{program.role}", pid=pid)
        try:
            yield
        finally:
            program.doom(signal.SIGKILL)
            program.wait(5)


@kind(weight=3, endings=(-signal.SIGKILL,), longest=0.2)
def number_used_by_the_same_program(arena, random, seconds):
    program = some_program(arena, random)
    pid = program.pid
    with program.interrupted():
        program.doom(signal.SIGKILL)
        if program.wait(5):
            program.start(pid=pid)
        yield


def capture(arena, random, number):
    path = arena.folder / f"capture-{random.getrandbits(40):x}.pcapng"
    process = harness.Process([harness.TULLE, "capture", "-o", path], net=random.choice(arena.nets),
                              env=AGENT_ENVIRONMENT)
    arena.known[process.pid] = process.popen
    try:
        yield path
    finally:
        process.signal(number)
        arena.helpers.append(process)
        path.unlink(missing_ok=True)


@kind(weight=2, longest=1)
def capture_started_and_ended(arena, random, seconds):
    yield from capture(arena, random, signal.SIGINT)


@kind(weight=1, longest=1)
def capture_killed(arena, random, seconds):
    yield from capture(arena, random, signal.SIGKILL)


@kind(weight=1, longest=1)
def capture_stopped(arena, random, seconds):
    generator = capture(arena, random, signal.SIGKILL)
    name = str(next(generator)).encode()
    for helper in [pid for net in arena.nets for pid in net.pids()]:
        with contextlib.suppress(OSError):
            if name in pathlib.Path(f"/proc/{helper}/cmdline").read_bytes():
                kill(helper, signal.SIGSTOP)
    try:
        yield
    finally:
        next(generator, None)
