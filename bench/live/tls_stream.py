"""A stream of bytes over TLS over TCP, to measure beside sealed datagrams.

    tls_stream.py KEYS -p PORT          a server: takes one connection and reads it to its end
    tls_stream.py KEYS -p PORT HOST     its client: sends for two seconds and prints {"gb_per_second": ...}

KEYS is a PEM file with a certificate and its key.
"""

import argparse
import json
import socket
import ssl
import time

CHUNK_BYTES = 1 << 20
SECONDS = 2


def serve(context, port):
    with socket.create_server(("", port)) as listener:
        connection, _ = listener.accept()
    with context.wrap_socket(connection, server_side=True) as stream:
        buffer = bytearray(CHUNK_BYTES)
        total = 0
        while count := stream.recv_into(buffer):
            total += count
            if buffer[count - 1] == 1:  # the client's last byte
                break
        stream.sendall(total.to_bytes(8, "big"))


def send(context, host, port):
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    chunk = bytes(CHUNK_BYTES)
    with context.wrap_socket(socket.create_connection((host, port))) as stream:
        start = time.monotonic()
        while time.monotonic() < start + SECONDS:
            stream.sendall(chunk)
        stream.sendall(b"\1")
        total = int.from_bytes(stream.recv(8), "big")
        return total / (time.monotonic() - start) / 1e9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("keys")
    parser.add_argument("-p", type=int, required=True, dest="port")
    parser.add_argument("host", nargs="?")
    options = parser.parse_intermixed_args()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if options.host is None else ssl.PROTOCOL_TLS_CLIENT)
    if options.host is None:
        context.load_cert_chain(options.keys)
        serve(context, options.port)
    else:
        print(json.dumps({"gb_per_second": send(context, options.host, options.port)}))


if __name__ == "__main__":
    main()
