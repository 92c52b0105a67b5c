"""QEMU moves a running guest over RDMA. The guest itself checks its memory all the time (programs/guest.S)."""

import json
import pathlib
import shutil
import socket
import tempfile

import frame
import harness
from frame import Case

NAME = "QEMU"
PACKAGES = ["qemu-system-x86"]
WHAT = ("`migrate rdma:` moves a running guest of 64 MiB (TCG) that keeps changing 16 MiB and checks every word. The "
        "test then compares the memory of both sides, and the guest continues on the target.")

SOURCE = pathlib.Path(__file__).resolve().parent / "programs" / "guest.S"
PORT = 4444
MEMORY_MIB = 64
CHANGED_BYTES = 16 << 20  # size of the memory that the guest writes, from 1 MiB on
LIMIT = 120
PROGRAM = "qemu-system-x86_64"


def build(stage, folder):
    """Builds the guest's disk, which holds its boot sector alone."""
    guest = folder / "guest.o"
    disk = folder / "guest.img"
    stage.run_program("as", "--32", "-o", guest, SOURCE)
    stage.run_program("ld", "-m", "elf_i386", "--oformat", "binary", "-Ttext", "0x7c00", "-e", "_start", "-o", disk,
                      guest)
    return disk


class Machine:
    """A virtual machine and its monitor."""

    def __init__(self, stage, net, folder, name, disk, options=()):
        self.stage, self.folder, self.name = stage, folder, name
        self.serial_path = folder / f"{name}.serial"
        monitor = folder / f"{name}.qmp"
        self.process = stage.start(*stage.over_tulle([
            PROGRAM, "-machine", "pc,accel=tcg", "-m", str(MEMORY_MIB), "-nodefaults", "-display", "none",
            "-serial", f"file:{self.serial_path}", "-qmp", f"unix:{monitor},server=on,wait=off",
            "-drive", f"if=ide,format=raw,file.locking=off,readonly=off,file={disk}", *options]), net=net)
        harness.wait_until(lambda: monitor.exists() or self.ended(), f"{name}'s monitor")
        self.socket = socket.socket(socket.AF_UNIX)
        stage.addCleanup(self.socket.close)
        self.socket.settimeout(harness.LIMIT)
        harness.wait_until(self._connect, f"{name}'s monitor")
        self.stream = self.socket.makefile("r")
        json.loads(self.stream.readline())  # the monitor's greeting
        self.ask("qmp_capabilities")

    def _connect(self):
        try:
            self.socket.connect(str(self.folder / f"{self.name}.qmp"))
            return True
        except OSError:
            return self.ended()

    def ended(self):
        if not self.process.running:
            self.stage.fail(f"{self.name} ended\n{self.process.describe()}")
        return False

    def ask(self, command, **arguments):
        self.socket.sendall((json.dumps({"execute": command, "arguments": arguments}) + "\n").encode())
        while True:
            line = self.stream.readline()
            if not line:
                self.stage.fail(f"{self.name} closed its monitor\n{self.process.describe()}")
            answer = json.loads(line)
            if "error" in answer:
                self.stage.fail(f"{self.name}: {command}: {answer['error']['desc']}\n{self.process.describe()}")
            if "return" in answer:
                return answer["return"]

    def serial(self):
        return self.serial_path.read_text() if self.serial_path.exists() else ""

    def memory(self):
        dump = self.folder / f"{self.name}.memory"
        self.ask("pmemsave", val=0, size=MEMORY_MIB << 20, filename=str(dump))
        return dump.read_bytes()


def migrated(source):
    """Returns the state of the migration if it is complete, and None before that."""
    said = source.ask("query-migrate")
    if said.get("status") == "failed":
        source.stage.fail(f"migration failed: {said.get('error-desc', 'no reason given')}\n{source.process.describe()}")
    return said if said.get("status") == "completed" else None


def migrate(stage, place, pinned):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tulle-qemu-"))
    stage.addCleanup(shutil.rmtree, folder)
    disk = build(stage, folder)
    capabilities = [{"capability": "rdma-pin-all", "state": pinned}]
    source = Machine(stage, place.client, folder, "source", disk)
    target = Machine(stage, place.server, folder, "target", disk, ["-incoming", "defer", "-S"])
    for machine in (source, target):
        machine.ask("migrate-set-capabilities", capabilities=capabilities)
    harness.wait_until(lambda: source.serial().count("v") > 3 or source.ended(), "the guest to start")
    target.ask("migrate-incoming", uri=f"rdma:{place.host}:{PORT}")
    # The guest writes faster than a network would copy, so it may stand still for the last part.
    source.ask("migrate-set-parameters", **{"downtime-limit": 5000, "max-bandwidth": 1 << 33})
    source.ask("migrate", uri=f"rdma:{place.host}:{PORT}")
    said = harness.wait_until(lambda: migrated(source), "the migration", limit=LIMIT, pause=0.05)
    stage.assertGreater(said["ram"]["transferred"], CHANGED_BYTES, said)
    harness.wait_until(lambda: target.ask("query-status")["status"] == "paused", "the guest to arrive")
    before, after = source.memory(), target.memory()
    stage.assertNotEqual(bytes(CHANGED_BYTES), before[1 << 20:17 << 20])
    stage.assertTrue(before == after, "the guest's memory is not what it was")
    target.ask("cont")
    harness.wait_until(lambda: target.serial().count("v") > 3 or target.ended(), "the guest to go on")
    stage.assertNotIn("X", source.serial() + target.serial(), "the guest found a word that is not what it should be")


def cases():
    for place in ("one_host", "two_hosts"):
        for pinned in (False, True):
            name = f"{place}.{'pinned' if pinned else 'by_chunk'}"
            yield Case(name, lambda stage, place=place, pinned=pinned: migrate(
                stage, frame.PLACES[place](stage), pinned), bytes_min=CHANGED_BYTES)
