"""Makes single measurements: perftest over Tulle, iperf3, sockets. Figures are in SI units: GB/s, microseconds,
messages/s."""

import functools
import json
import pathlib
import re
import resource
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))

import harness  # noqa: E402

LIMIT = 60
ROCE_PORT, IPERF3_PORT = 4791, 18700


class Failed(Exception):
    pass


def _finish(process, limit=LIMIT):
    try:
        if process.wait(limit) != 0:
            raise Failed(process.describe())
        return process.stdout
    except AssertionError as error:
        raise Failed(str(error)) from None


@functools.cache
def ucx_options():
    """Returns what ucx_perftest needs so that its two sides do not meet by MPI. Only versions that know MPI know it."""
    helped = harness.Process(["ucx_perftest", "-h"])
    try:
        helped.wait(LIMIT)
        return ["-P", "0"] if re.search(r"(?m)^ *-P ", helped.stdout + helped.stderr) else []
    finally:
        helped.close()


class Place:
    """The place where both sides run: this host (over loopback), or two namespaces with a cable between."""

    def __init__(self, server_net=None, client_net=None, host="127.0.0.1", interface="lo", options=()):
        self.server_net, self.client_net, self.host = server_net, client_net, host
        self.options = ["--interface", interface, *map(str, options)]

    def over_tulle(self, argv, port):
        """Runs a server and its client over Tulle and returns the client's standard output."""
        command = [harness.TULLE, "run", *self.options, "--", *argv, "-p", str(port)]
        return self.pair(command, [*command, self.host], port)

    def losing(self, share, measure):
        """Returns what `measure` returns while that share of the packets of RoCE and of iperf3 is lost, each way. The
        kernel cuts what it sends into packets first: otherwise it would lose 64 KiB at once. With a
        share of 0, packets pass the same rules and none is lost."""
        nets = self.server_net, self.client_net
        match = f"numgen random mod 1000 < {round(1000 * share) or 1}"
        verdict = "drop" if share > 0 else "accept"
        ports = f"udp dport {ROCE_PORT}", f"tcp dport {IPERF3_PORT}", f"tcp sport {IPERF3_PORT}"
        rules = "".join(f"add rule inet loss in {each} {match} {verdict};" for each in ports)
        for net in nets:
            net.run("ip", "link", "set", "dev", "veth0", "gso_max_segs", "1")
            net.run("nft", f"add table inet loss; add chain inet loss in {{ type filter hook input priority 0; }}; {rules}")
        try:
            return measure()
        finally:
            for net in nets:
                net.run("nft", "delete table inet loss")
                net.run("ip", "link", "set", "dev", "veth0", "gso_max_segs", "65535")

    def iperf3(self, *amount, port=IPERF3_PORT):
        """Returns GB/s of one stream over TCP, in two seconds or for that amount (options of iperf3)."""
        output = self.pair(["iperf3", "-s", "-1", "-p", str(port)],
                            ["iperf3", "-c", self.host, "-p", str(port), "-J", *(amount or ("-t", "2"))], port)
        return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8e9

    def tls(self, folder, port=18800):
        """Returns GB/s of one stream over TLS over TCP. Puts a certificate into the folder."""
        keys = pathlib.Path(folder) / "tls.pem"
        if not keys.exists():
            _finish(harness.Process(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                     "-nodes", "-subj", "/CN=tulle", "-keyout", keys, "-out", keys.with_suffix(".crt")]))
            keys.write_text(keys.read_text() + keys.with_suffix(".crt").read_text())
        command = [sys.executable, pathlib.Path(__file__).parent / "live" / "tls_stream.py", keys, "-p", str(port)]
        return json.loads(self.pair(command, [*command, self.host], port))["gb_per_second"]

    def udp_pingpong(self, port=18900):
        """Returns half a round trip of 8 bytes over UDP, both sides polling, the median, in microseconds."""
        command = [harness.BUILD / "bin" / "socket_pingpong", "--udp", "--poll", "-p", str(port)]
        return json.loads(self.pair(command, [*command, self.host], port, "udp"))["median_us"]

    def segmented_udp(self, segment_bytes, port=18900):
        """Returns GB/s of plain UDP that hands the kernel many datagrams a call."""
        command = [harness.BUILD / "bin" / "segmented_udp", "-p", str(port), "--segment", str(segment_bytes)]
        return json.loads(self.pair(command, [*command, self.host], port, "udp"))["gb_per_second"]

    def processor_seconds(self, measure):
        """Returns the processor time that both sides of a measurement take, with that of the kernel on their behalf."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        measure()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def pair(self, server_command, client_command, port, protocol="tcp", env=None):
        server = harness.Process(server_command, net=self.server_net, env=env)
        client = None
        try:
            harness.wait_until(lambda: harness.listens(server, port, protocol) or not server.running, f"port {port}", 20)
            if not server.running:
                raise Failed(server.describe())
            client = harness.Process(client_command, net=self.client_net, env=env)
            output = _finish(client)
            _finish(server)
            return output
        finally:
            for process in (client, server):
                if process is not None:
                    process.close()

    def cmtime(self, connections, port=7471):
        """Returns {step: microseconds} of that many connections at once, all of a step before the next."""
        command = [harness.TULLE, "run", *self.options, "--", "cmtime", "-c", str(connections), "-p", str(port)]
        server = harness.Process([*command, "-b", self.host], net=self.server_net)
        client = None
        try:
            harness.wait_until(lambda: self._listeners() or not server.running, "cmtime to listen", 20, pause=0.1)
            client = harness.Process([*command, "-s", self.host], net=self.client_net)
            output = _finish(client)
            if re.search("error|fail", output):
                raise Failed(client.describe())
            return {step: 1000 * float(total) for step, total in re.findall(r"(?m)^(\w+(?: \w+)?) *: *([\d.]+)", output)}
        finally:
            for process in (client, server):
                if process is not None:
                    process.close()

    def _listeners(self):
        """Returns how many listeners the connection manager has."""
        status = harness.Process([harness.TULLE, "status", "--json"], net=self.server_net)
        try:
            agent = json.loads(_finish(status))["agent"]
            return agent["listeners"] if agent else 0
        finally:
            status.close()

    def connection_rate(self, connections):
        """Returns the queue pairs connected a second, from nothing to the last that is established."""
        steps = self.cmtime(connections)
        until = ("create id", "resolve addr", "resolve route", "create qp", "connect")
        return connections / sum(steps[step] for step in until) * 1e6

    def perftest(self, program, *options, port=18515):
        rows = harness.table_rows(self.over_tulle([program, "-F", *map(str, options)], port))
        if len(rows) != 1:
            raise Failed(f"{program}: no result")
        return rows[0]

    def ucx(self, test, size, iterations, over_tulle, port=13336):
        """Returns what a test of ucx_perftest prints: (median of the microseconds of a message, GB/s). UCX uses Tulle's
        device, or its own shared memory and process_vm calls."""
        transports = "rc_v,self" if over_tulle else "posix,cma,self"
        environment = {"UCX_TLS": transports, "UCX_WARN_UNUSED_ENV_VARS": "n"}
        argv = ["ucx_perftest", *ucx_options(), "-t", test, "-s", str(size), "-n", str(iterations), "-w", "100", "-p", str(port)]
        command = [harness.TULLE, "run", *self.options, "--", *argv] if over_tulle else argv
        output = self.pair(command, [*command, self.host], port, env=environment)
        found = re.search(r"(?m)^Final: +\d+ +([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)", output)
        if not found:
            raise Failed(f"ucx_perftest -t {test} -s {size}: no result\n{output}")
        return float(found.group(1)), float(found.group(2)) * (1 << 20) / 1e9

    def bandwidth(self, program, size, iterations, *options):
        """Returns GB/s."""
        return self.perftest(program, "-s", size, "-n", iterations, "--report_gbits", *options)[3] / 8

    def message_rate(self, program, size, iterations, *options):
        """Returns messages a second."""
        return self.perftest(program, "-s", size, "-n", iterations, *options)[4] * 1e6

    def latency(self, program, size, iterations, *options):
        """Returns half a round trip, the median, in microseconds."""
        return self.perftest(program, "-s", size, "-n", iterations, *options)[4]

    def slow_latency(self, program, size, iterations, *options):
        """Returns the 99th percentile of half a round trip, in microseconds."""
        return self.perftest(program, "-s", size, "-n", iterations, *options)[7]

    def beside_bulk(self, measure, port=18516):
        """Returns what `measure` returns while one process writes to another without end, 1 MiB at a time."""
        command = [harness.TULLE, "run", *self.options, "--", "ib_write_bw", "-F", "-s", str(1 << 20), "-D", "60", "-p",
                   str(port)]
        processes = [harness.Process(command, net=self.server_net)]
        try:
            harness.wait_until(lambda: harness.listens(processes[0], port) or not processes[0].running, f"port {port}", 20)
            processes.append(harness.Process([*command, self.host], net=self.client_net))
            before = harness.cpu_ticks(processes[1].pid)
            harness.wait_until(lambda: harness.cpu_ticks(processes[1].pid) > before + 20 or not processes[1].running,
                               "the transfer", 20)
            result = measure()
            if not all(process.running for process in processes):
                raise Failed("".join(process.describe() for process in processes))
            return result
        finally:
            for process in reversed(processes):
                process.close()


def program(*argv, over_tulle=False):
    """Runs one of our own programs and returns the JSON that it prints."""
    command = [harness.BUILD / "bin" / argv[0], *argv[1:]]
    if over_tulle:
        command = [harness.TULLE, "run", "--interface", "lo", "--", *command]
    process = harness.Process(command)
    try:
        return json.loads(_finish(process))
    finally:
        process.close()
