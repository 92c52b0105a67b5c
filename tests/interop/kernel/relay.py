"""relay.py TAP SOCKET SEED FAULT=PERCENT,…: carries frames between a new tap of that name and a packet socket (a
descriptor), and spoils some RoCE v2 frames in both directions. The faults are drop, double, swap (with the next
frame), delay (by DELAY_SECONDS) and damage (one bit, anywhere behind the IP header). All other frames pass. The
relay prints "up", and at its end (SIGTERM) a JSON object with the number of frames that it carried and the number
with each fault. SIGUSR1 cuts the cable for RoCE v2, SIGUSR2 mends it.
"""

import json
import os
import random
import select
import signal
import socket
import sys
import time

from peer import open_tap

ROCE = 4791
DELAY_SECONDS = 0.005
FRAME_BYTES = 65536
FAULTS = ("drop", "double", "swap", "delay", "damage")


def roce_offset(frame):
    """Returns where the UDP header of a RoCE v2 frame starts, or 0 for every other frame."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and frame[23] == socket.IPPROTO_UDP:
        offset = 14 + 4 * (frame[14] & 15)
    elif kind == b"\x86\xdd" and frame[20] == socket.IPPROTO_UDP:
        offset = 54
    else:
        return 0
    return offset if int.from_bytes(frame[offset + 2 : offset + 4], "big") == ROCE else 0


class Relay:
    def __init__(self, ends, seed, percent):
        self.ends = ends
        self.random = random.Random(seed)
        self.percent = percent
        self.counts = {name: 0 for name in ("frames", "cut", *FAULTS)}
        self.held = {}  # by destination: a frame that leaves after the next one
        self.late = []  # (when, destination, frame)
        self.cut = False

    def fault(self):
        draw = self.random.uniform(0, 100)
        for name, percent in self.percent.items():
            if draw < percent:
                return name
            draw -= percent
        return None

    def send(self, to, frame):
        try:
            os.write(to, frame)
        except BlockingIOError:
            pass  # a full queue loses the frame, as everywhere
        except OSError:
            pass  # the interface is down, or the peer is gone

    def carry(self, to, frame):
        offset = roce_offset(frame)
        if not offset:
            self.send(to, frame)
            return
        self.counts["frames"] += 1
        if self.cut:
            self.counts["cut"] += 1
            return
        fault = self.fault()
        if fault:
            self.counts[fault] += 1
        if fault == "damage":
            place = self.random.randrange(offset, len(frame))
            frame = frame[:place] + bytes([frame[place] ^ 1 << self.random.randrange(8)]) + frame[place + 1 :]
        if fault == "swap" and to not in self.held:
            self.held[to] = frame
            return
        if fault == "delay":
            self.late.append((time.monotonic() + DELAY_SECONDS, to, frame))
        elif fault != "drop":
            self.send(to, frame)
            if fault == "double":
                self.send(to, frame)
        if to in self.held:
            self.send(to, self.held.pop(to))

    def run(self):
        while True:
            # A held frame whose successor does not come leaves after a while, and so do late frames.
            wait = 0.02 if self.held or self.late else None
            readable, _, _ = select.select(self.ends, [], [], wait)
            for end in readable:
                to = self.ends[1 - self.ends.index(end)]
                for _ in range(64):
                    try:
                        frame = os.read(end, FRAME_BYTES)
                    except BlockingIOError:
                        break
                    if not frame:
                        return
                    self.carry(to, frame)
            now = time.monotonic()
            for entry in [entry for entry in self.late if entry[0] <= now]:
                self.late.remove(entry)
                self.send(*entry[1:])
            if not readable:
                for to in list(self.held):
                    self.send(to, self.held.pop(to))


def main():
    name, descriptor, seed, faults = sys.argv[1:]
    ends = [open_tap(name), int(descriptor)]
    for end in ends:
        os.set_blocking(end, False)
    percent = {fault: float(value) for fault, _, value in (part.partition("=") for part in faults.split(",") if part)}
    assert set(percent) <= set(FAULTS), faults
    relay = Relay(ends, int(seed), percent)
    signal.signal(signal.SIGUSR1, lambda *_: setattr(relay, "cut", True))
    signal.signal(signal.SIGUSR2, lambda *_: setattr(relay, "cut", False))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("up", flush=True)
    try:
        relay.run()
    finally:
        print(json.dumps(relay.counts), flush=True)


if __name__ == "__main__":
    main()
