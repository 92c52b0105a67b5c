#!/usr/bin/env python3
"""Compares simulated rings with SimAI's nic_ratio.csv: the bus bandwidth that all-gathers and reduce-scatters reach, as
a share of the adapters' rate (docs/fidelity.md, "SimAI's ratios").

The table is from github.com/aliyun/SimAI, commit 26b4574b, astra-sim-alibabacloud/inputs/ratio/nic_ratio.csv
(Apache-2.0), without its first column, which is one server, and its last four, which are other operations.
calbusbw.cc divides by 48.5 GB/s for each of eight adapters (CX7_BW).

One half of the cells calibrates the profile's message_delay, and the other half is foretold. A cell calibrates if the
numbers of its row and column, both from 0, have an even sum. A step's bytes are a cell's bytes over its GPUs, so that
each of the sizes of steps is in one half alone.

Usage: simai.py [--tulle build/bin/tulle] [--calibrate] [--largest BYTES] [--most-servers N]
"""

import argparse
import json
import subprocess
import sys

NODES = [2, 4, 8, 16, 32, 64, 128]
RATIOS = {
    16 << 20: [0.32, 0.24, 0.13, 0.05, 0.044, 0.021, 0.0087],
    32 << 20: [0.47, 0.38, 0.24, 0.11, 0.052, 0.042, 0.021225],
    64 << 20: [0.5, 0.53, 0.39, 0.21, 0.106, 0.051, 0.04405],
    128 << 20: [0.67, 0.67, 0.54, 0.38, 0.205, 0.107, 0.0533],
    256 << 20: [0.85, 0.77, 0.69, 0.57, 0.387, 0.209, 0.1027],
    512 << 20: [0.89, 0.85, 0.78, 0.73, 0.562, 0.384, 0.1902],
    1 << 30: [0.92, 0.93, 0.9, 0.76, 0.74, 0.563, 0.314575],
    2 << 30: [0.94, 0.94, 0.94, 0.92, 0.758, 0.745, 0.553525],
    4 << 30: [0.95, 0.95, 0.95, 0.95, 0.923, 0.755, 0.740175],
    8 << 30: [0.95, 0.96, 0.96, 0.96, 0.953, 0.914, 0.7648],
    16 << 30: [0.96, 0.96, 0.96, 0.96, 0.957, 0.958, 0.919175],
}
ADAPTERS_GBYTES = 8 * 48.5
TRAINS_FROM = 128 << 10  # longer messages go in frames that stand for 15 packets (docs/decisions/032)
DELAYS_US = range(0, 13, 2)


def cells(calibrating, largest, most_servers):
    for row, (size, ratios) in enumerate(RATIOS.items()):
        for column, ratio in enumerate(ratios):
            is_asked = size <= largest and NODES[column] <= most_servers
            if is_asked and ((row + column) % 2 == 0) == calibrating:
                yield size, NODES[column], ratio


def simulated(tulle, size, nodes, delay_us=None):
    is_long = size / (8 * nodes) / 8 >= TRAINS_FROM  # a ring of eight has an eighth of a step's bytes
    command = [tulle, "compare", "--json", "--workload", f"allgather:{size}B", "--gpus", str(8 * nodes), "--servers",
               "hgx-h100-rings", "--fabrics", "roce-pfc", "--set", f"host.train={15 if is_long else 1}",
               "--set", "topology.servers_per_group=128"]
    if delay_us is not None:
        command += ["--set", f'traffic.servers.message_delay="{delay_us}us"']
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["busbw_gbytes"] / ADAPTERS_GBYTES


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def calibrate(tulle, **bounds):
    for delay_us in DELAYS_US:
        errors = [abs(simulated(tulle, size, nodes, delay_us) / ratio - 1)
                  for size, nodes, ratio in cells(True, **bounds)]
        print(f"message_delay {delay_us} us: mean error {mean(errors):.2%} of {len(errors)} cells", flush=True)


def compare(tulle, **bounds):
    for calibrating in True, False:
        errors = {}
        for size, nodes, ratio in cells(calibrating, **bounds):
            ours = simulated(tulle, size, nodes)
            errors[size, nodes] = ours / ratio - 1
            print(f"{'calibrates' if calibrating else 'foretold'}: {size >> 20} MiB, {nodes} servers: SimAI "
                  f"{ratio:.4g}, ours {ours:.4f} ({errors[size, nodes]:+.1%})", flush=True)
        absolute = sorted(abs(error) for error in errors.values())
        print(f"{'calibrating' if calibrating else 'foretold'} half: mean error {mean(absolute):.2%}, median "
              f"{absolute[len(absolute) // 2]:.1%}, largest {absolute[-1]:.1%}, {len(absolute)} cells", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tulle", default="build/bin/tulle")
    parser.add_argument("--calibrate", action="store_true", help="try message delays on the calibrating half")
    parser.add_argument("--largest", type=int, default=max(RATIOS), help="leave longer buffers out")
    parser.add_argument("--most-servers", type=int, default=max(NODES), help="leave more servers out")
    options = parser.parse_args()
    (calibrate if options.calibrate else compare)(options.tulle, largest=options.largest,
                                                  most_servers=options.most_servers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
