#!/usr/bin/env python3
"""./dev bench tcp: kernel TCP on this machine (iperf3 over a veth pair between two namespaces) beside the simulator's.

For each MTU and with segmentation and receive offloads on and off: throughput, and processor seconds for each GiB at
either end, as iperf3 accounts them to its two processes. Beside it the simulated hosts of a profile. Needs root, for
namespaces. On a machine that does other things the throughput means little (the load is printed); the processor's time
means more.

--calibrate derives a profile's costs from two of the four configurations and says how; the other two then judge it.
Fitted is the time of both ends together, as a line through two points: what each GiB costs (copies), and what each packet
costs that goes through the stack; with offloads such a packet is a chunk of up to 64 KiB, else a frame. Both together,
since a veth pair has no wire and no interrupts: it hands a packet on in the time of whoever sends, so that the receiver's
protocol is accounted to the sender's process, or to whichever runs when; how the sum divides changes from run to run.
"""

import argparse
import contextlib
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TULLE = pathlib.Path(os.environ.get("TULLE", ROOT / "build/bin/tulle"))
GIB = 1 << 30
HEADERS = 40  # bytes of IPv4 and TCP; the kernel's timestamps take 12 more of each frame
CHUNK = 65536
CONFIGURATIONS = [(1500, False), (1500, True), (9000, False), (9000, True)]
CALIBRATED_ON = [(1500, False), (9000, True)]

# ETHTOOL_STSO, ETHTOOL_SGSO and ETHTOOL_SGRO (linux/ethtool.h) by SIOCETHTOOL, so that no ethtool is needed.
SET_OFFLOADS = """
import ctypes, fcntl, socket, struct, sys
name, on = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for command in (0x1F, 0x24, 0x2C):
        value = ctypes.create_string_buffer(struct.pack("II", command, on))
        request = struct.pack("16sP", name.encode(), ctypes.addressof(value)).ljust(40, b"\\0")
        fcntl.ioctl(s, 0x8946, request)
"""


def run(*argv, **keywords):
    return subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True, **keywords).stdout


@contextlib.contextmanager
def veth_pair():
    names = [f"tulle-bench-{os.getpid()}-{i}" for i in range(2)]
    made = []
    try:
        for name in names:
            run("ip", "netns", "add", name)
            made.append(name)
        run("ip", "-n", names[0], "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", names[1])
        for i, name in enumerate(names):
            run("ip", "-n", name, "addr", "add", f"10.99.0.{i + 1}/24", "dev", f"v{i}")
            run("ip", "-n", name, "link", "set", f"v{i}", "up")
        yield names
    finally:
        for name in made:
            run("ip", "netns", "del", name)


def configure(names, mtu, offloads):
    for i, name in enumerate(names):
        run("ip", "-n", name, "link", "set", f"v{i}", "mtu", mtu)
        run("ip", "netns", "exec", name, sys.executable, "-c", SET_OFFLOADS, f"v{i}", int(offloads))


def iperf3(names, seconds):
    """Returns the throughput in bits a second, and processor seconds a GiB of the sender's and the receiver's
    process."""
    server = subprocess.Popen(["ip", "netns", "exec", names[1], "iperf3", "-s", "-1", "-p", "5301"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if "5301" in run("ip", "netns", "exec", names[1], "ss", "-ltn"):
                break
            time.sleep(0.05)
        told = json.loads(run("ip", "netns", "exec", names[0], "iperf3", "-c", "10.99.0.2", "-p", "5301", "-J",
                              "-t", seconds, "-O", 1, timeout=seconds + 30))
    finally:
        server.terminate()
        server.wait()
    # The utilisation covers the whole run, with the second that -O leaves out of the sum.
    intervals = [i["sum"] for i in told["intervals"]]
    moved = sum(i["bytes"] for i in intervals)
    took = sum(i["seconds"] for i in intervals)
    cpu = told["end"]["cpu_utilization_percent"]
    per_gib = [cpu[key] / 100 * took / (moved / GIB) for key in ("host_total", "remote_total")]
    return told["end"]["sum_received"]["bits_per_second"], per_gib[0], per_gib[1]


def measure(seconds, runs):
    results = {}
    with veth_pair() as names:
        for mtu, offloads in CONFIGURATIONS:
            configure(names, mtu, offloads)
            found = [iperf3(names, seconds) for _ in range(runs)]
            results[mtu, offloads] = tuple(statistics.median(values) for values in zip(*found))
    return results


def packets_per_gib(mtu, offloads):
    # The timestamps take 12 bytes.
    return GIB / (CHUNK if offloads else mtu - HEADERS - 12)


def calibrate(results):
    """Returns what both ends together cost: seconds a GiB for the bytes, and seconds a packet; from two
    configurations."""
    (a, b) = CALIBRATED_ON
    total = {key: results[key][1] + results[key][2] for key in CALIBRATED_ON}
    per_packet = (total[a] - total[b]) / (packets_per_gib(*a) - packets_per_gib(*b))
    return total[b] - per_packet * packets_per_gib(*b), per_packet


SCENARIO = """
title = "Two hosts on a pair of virtual interfaces"
[topology]
hosts = 2
link_rate = "400Gbps"  # none: more than the hosts do
link_delay = "100ns"
[fabric]
flow_control = "none"
[traffic]
pattern = "file"
file = "flows.csv"
[host]
transport = "tcp"
profile = "PROFILE"
tcp = { mtu = MTU, quick_acknowledgements = 16 }
[host.kernel]
KERNEL
"""


def simulate(profile, mtu, offloads, gigabytes=0.5):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "profiles").symlink_to(ROOT / "scenarios/profiles")
        (folder / "flows.csv").write_text(f"src,dst,bytes,start_ns\n0,1,{int(gigabytes * GIB)},0\n")
        # Where a pair of virtual interfaces keeps chunks whole, no frame costs anything by itself.
        kernel = ('chunk = "64KiB"\nmerge = true\nreceive_frame = "0ns"\ntransmit_frame = "0ns"' if offloads
                  else 'chunk = "0B"\nmerge = false')
        text = SCENARIO.replace("PROFILE", profile).replace("MTU", str(mtu)).replace("KERNEL", kernel)
        (folder / "veth.toml").write_text(text)
        run(TULLE, "sim", folder / "veth.toml", "-o", folder / "out")
        summary = json.loads((folder / "out/summary.json").read_text())
        with open(folder / "out/hosts.csv") as file:
            sender, receiver = list(csv.DictReader(file))
    seconds = [(float(host["cpu_kernel_ns"]) + float(host["cpu_application_ns"])) * 1e-9 / gigabytes
               for host in (sender, receiver)]
    return summary["goodput_gbps"] * 1e9, *seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="kernel-tcp-virtual", help="of scenarios/profiles/hosts, to set beside it")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--json", action="store_true", help="one object a line")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench tcp: needs root, to make network namespaces")
    load = os.getloadavg()[0]
    if not arguments.json:
        print(f"load {load:.1f} on {os.cpu_count()} processors")
    results = measure(arguments.seconds, arguments.runs)
    if arguments.calibrate:
        per_gib, per_packet = calibrate(results)
        print(f"from {CALIBRATED_ON}: bytes {per_gib:.3f} s a GiB, half of it at each end: copy_rate "
              f"{GIB * 8e-9 / (per_gib / 2):.1f} Gb/s; a packet {per_packet * 1e9:.0f} ns, of three equal parts (down, up, and "
              f"half of an acknowledgement's way down and up): {per_packet * 1e9 / 3:.0f} ns")
    for (mtu, offloads), theirs in results.items():
        ours = simulate(arguments.profile, mtu, offloads)
        row = {"mtu": mtu, "offloads": offloads, "calibrated_on": (mtu, offloads) in CALIBRATED_ON, "load": load,
               "iperf3_gbps": theirs[0] * 1e-9, "iperf3_sender_s_gib": theirs[1], "iperf3_receiver_s_gib": theirs[2],
               "tulle_gbps": ours[0] * 1e-9, "tulle_sender_s_gib": ours[1], "tulle_receiver_s_gib": ours[2]}
        if arguments.json:
            print(json.dumps(row))
            continue
        both = theirs[1] + theirs[2], ours[1] + ours[2]
        print(f"MTU {mtu}, offloads {'on ' if offloads else 'off'}: CPU s/GiB {both[0]:.3f} (sender {theirs[1]:.3f}, receiver "
              f"{theirs[2]:.3f}), ours {both[1]:.3f}, {both[1] / both[0] * 100 - 100:+.1f} %; Gb/s {theirs[0] * 1e-9:.1f}, ours "
              f"{ours[0] * 1e-9:.1f}{'  (calibrated on it)' if row['calibrated_on'] else ''}")


if __name__ == "__main__":
    main()
