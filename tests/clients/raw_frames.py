"""A raw packet queue pair for raw_test.py, made with pyverbs. It prints "ready", sends the frames that it is given
as hexadecimal digits, and prints the frames that come to it until enough have come or it has waited long enough."""

import argparse
import sys
import time

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.flow import Flow, FlowAttr
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.spec import EthSpec
from pyverbs.wr import SGE, RecvWR, SendWR

ROOM, DEPTH = 4096, 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mac", help="the rule: this destination")
    parser.add_argument("--kind", default="NORMAL", help="NORMAL, ALL_DEFAULT, MC_DEFAULT or SNIFFER")
    parser.add_argument("--expect", type=int, default=0, help="frames to wait for")
    parser.add_argument("--wait", type=float, default=10, help="seconds")
    parser.add_argument("--send", nargs="*", default=[])
    options = parser.parse_args()
    context = Context(name=get_device_list()[0].name.decode())
    raw_queue_pairs = context.query_device().max_raw_ethy_qp
    print("queue pairs", "some" if raw_queue_pairs else "none", flush=True)
    domain, completions = PD(context), CQ(context, 2 * DEPTH)
    init = QPInitAttr(qp_type=e.IBV_QPT_RAW_PACKET, scq=completions, rcq=completions,
                      cap=QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH), sq_sig_all=1)
    try:
        pair = QP(domain, init, QPAttr(port_num=1))
    except PyverbsRDMAError as error:
        sys.exit(f"refused {error.error_code}")
    memory = MR(domain, ROOM * DEPTH, e.IBV_ACCESS_LOCAL_WRITE)
    for i in range(DEPTH):
        pair.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[SGE(memory.buf + i * ROOM, ROOM, memory.lkey)]))
    flows = []
    if options.mac or options.kind != "NORMAL":
        attributes = FlowAttr(num_of_specs=1 if options.mac else 0, port=1,
                              flow_type=getattr(e, f"IBV_FLOW_ATTR_{options.kind}"))
        if options.mac:
            attributes.specs.append(EthSpec(dst_mac=options.mac))
        flows.append(Flow(pair, attributes))
    print("ready", flush=True)
    for text in options.send:
        out = MR(domain, ROOM, e.IBV_ACCESS_LOCAL_WRITE)
        frame = bytes.fromhex(text)
        out.write(frame, len(frame))
        pair.post_send(SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(out.buf, len(frame), out.lkey)]))
        while not (done := completions.poll()[1]):
            pass
        print("sent", done[0].status, flush=True)
        out.close()
    deadline = time.monotonic() + options.wait
    received = 0
    while received < options.expect and time.monotonic() < deadline:
        for done in completions.poll(DEPTH)[1]:
            print("received", done.status, memory.read(done.byte_len, done.wr_id * ROOM).hex(), flush=True)
            received += 1
    for flow in flows:
        flow.close()


main()
