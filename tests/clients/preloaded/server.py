"""Echoes what connections send, and waits with epoll: server.py level|edge|one_shot|asyncio CONNECTIONS

Ends with the last of so many connections, and prints how often it woke.
"""

import asyncio
import os
import select
import socket
import sys
import threading
import time

MODE, CONNECTIONS = sys.argv[1], int(sys.argv[2])
ADDRESS = ("127.0.0.1", 7000)
HOW = {"level": 0, "edge": select.EPOLLET, "one_shot": select.EPOLLONESHOT}


class Peer:
    def __init__(self, connection):
        self.connection = connection
        self.waiting = b""  # to be sent
        self.has_ended = False

    def receive(self):
        try:
            while data := self.connection.recv(20_000):
                self.waiting += data
            self.has_ended = True
        except BlockingIOError:
            pass

    def send(self):
        try:
            while self.waiting:
                self.waiting = self.waiting[self.connection.send(self.waiting):]
        except BlockingIOError:
            pass

    def events(self):
        # With edges, both are asked for once, as nginx does. A level of EPOLLOUT would never let the server sleep.
        return select.EPOLLIN | (select.EPOLLOUT if self.waiting or MODE == "edge" else 0) | HOW[MODE]


def serve():
    listener = socket.create_server(ADDRESS)
    listener.setblocking(False)
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN | (HOW[MODE] & select.EPOLLET))
    # An ordinary descriptor in the same set.
    ticks, tick = os.pipe()
    poller.register(ticks, select.EPOLLIN)
    threading.Thread(target=lambda: [os.write(tick, b"x") or time.sleep(0.01) for _ in range(10)], daemon=True).start()
    peers, wakes, ticked, ended = {}, 0, 0, 0
    while ended < CONNECTIONS or ticked < 10:
        for fd, _ in poller.poll():
            wakes += 1
            if fd == ticks:
                ticked += len(os.read(ticks, 100))
            elif fd == listener.fileno():
                try:
                    while True:
                        connection, _ = listener.accept()
                        connection.setblocking(False)
                        peers[connection.fileno()] = Peer(connection)
                        poller.register(connection, peers[connection.fileno()].events())
                except BlockingIOError:
                    pass
            else:
                peer = peers[fd]
                peer.receive()
                peer.send()
                if peer.has_ended and not peer.waiting:
                    peer.connection.close()  # which takes it out of the set
                    ended += 1
                elif MODE != "edge":
                    poller.modify(fd, peer.events())
    print("wakes", wakes, flush=True)


async def serve_by_asyncio():
    ended = 0
    done = asyncio.Event()

    async def echo(reader, writer):
        nonlocal ended
        while data := await reader.read(20_000):
            writer.write(data)
            await writer.drain()
        writer.close()
        ended += 1
        if ended == CONNECTIONS:
            done.set()

    server = await asyncio.start_server(echo, *ADDRESS)
    async with server:
        await done.wait()
    print("wakes", 0, flush=True)


if MODE == "asyncio":
    asyncio.run(serve_by_asyncio())
else:
    serve()
