"""Calls of the C library that programs make on sockets, each by a function of its own: calls.py"""

import array
import errno
import fcntl
import os
import select
import socket
import subprocess
import sys
import termios
import threading
import time


def pair():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    listener.close()
    return client, server


def waiting_bytes_are_counted():
    client, server = pair()
    client.sendall(b"x" * 1500)
    count = array.array("i", [-1])
    while count[0] != 1500:
        fcntl.ioctl(server.fileno(), termios.FIONREAD, count)
    assert server.recv(4000) == b"x" * 1500
    fcntl.ioctl(server.fileno(), termios.FIONREAD, count)
    assert count[0] == 0


def a_half_that_ends_is_told():
    client, server = pair()
    poller = select.epoll()
    poller.register(server, select.EPOLLRDHUP)
    assert poller.poll(0.05) == []
    client.shutdown(socket.SHUT_WR)
    assert poller.poll(5) == [(server.fileno(), select.EPOLLRDHUP)]
    server.sendall(b"late")
    assert client.recv(10) == b"late"


def more_data_is_an_edge():
    """A program that peeks waits for the rest of a header."""
    client, server = pair()
    poller = select.epoll()
    poller.register(server, select.EPOLLIN | select.EPOLLET)
    client.sendall(b"he")
    assert poller.poll(5) == [(server.fileno(), select.EPOLLIN)]
    assert poller.poll(0.05) == []
    client.sendall(b"ader")
    assert poller.poll(5) == [(server.fileno(), select.EPOLLIN)]
    client.shutdown(socket.SHUT_WR)
    assert poller.poll(5) == [(server.fileno(), select.EPOLLIN)]
    assert server.recv(10) == b"header"


def a_listener_that_is_shut_down_wakes_accept():
    listener = socket.create_server(("127.0.0.1", 0))
    errors = []

    def accept():
        try:
            listener.accept()
        except OSError as problem:
            errors.append(problem.errno)

    thread = threading.Thread(target=accept)
    thread.start()
    time.sleep(0.1)
    listener.shutdown(socket.SHUT_RD)
    thread.join(5)
    assert errors == [errno.EINVAL], errors


def copies_of_a_set_are_one_set():
    client, server = pair()
    first = select.epoll()
    copy = select.epoll.fromfd(os.dup(first.fileno()))
    copy.register(server, select.EPOLLIN)
    client.sendall(b"x")
    assert first.poll(5) == [(server.fileno(), select.EPOLLIN)]
    first.close()
    assert copy.poll(5) == [(server.fileno(), select.EPOLLIN)]


def a_number_that_is_closed_unseen_is_free():
    """A file that gets the number of a socket is a file."""
    client, server = pair()
    number = os.dup(server.fileno())
    os.closerange(number, number + 1)
    file = os.open("/dev/null", os.O_RDONLY)
    assert file == number
    client.sendall(b"for the socket")
    assert os.read(file, 100) == b""
    assert server.recv(100) == b"for the socket"


def a_copy_that_fails_changes_nothing():
    client, server = pair()
    try:
        os.dup2(1 << 20, server.fileno())
    except OSError:
        pass
    client.sendall(b"x")
    assert server.recv(1) == b"x"


def children_of_vfork_leave_the_table_alone():
    """subprocess starts programs by vfork(), with the descriptors that it is given."""
    client, server = pair()
    subprocess.run(["true"], stdin=server, stdout=server, close_fds=True)
    print("of the parent", flush=True)
    server.sendall(b"of the socket")
    assert client.recv(100) == b"of the socket"


def children_of_a_program_with_threads_start():
    """Each thread is in a call on a socket as the process forks."""
    client, server = pair()

    def echo():
        while data := server.recv(100):
            server.sendall(data)

    def ask():
        while True:
            client.sendall(b"x")
            client.recv(1)

    for function in (echo, ask):
        threading.Thread(target=function, daemon=True).start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            with socket.socket() as own:
                own.bind(("127.0.0.1", 0))
                own.listen(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def a_child_is_not_kept_awake_by_its_parents_listener():
    """A worker that polls its master's listener would otherwise wake without end."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        poller, own = select.poll(), select.epoll()
        poller.register(listener, select.POLLIN)
        own.register(listener, select.EPOLLIN)
        os._exit(len(poller.poll(50)) + 2 * len(own.poll(0.05)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def more_clients_than_the_backlog_are_served():
    listener = socket.create_server(("127.0.0.1", 0), backlog=2)
    clients = []
    for _ in range(12):
        client = socket.socket()
        client.setblocking(False)
        try:
            client.connect(listener.getsockname())
        except BlockingIOError:
            pass
        clients.append(client)
    time.sleep(0.3)
    for _ in clients:
        listener.accept()[0].sendall(b"x")
    for client in clients:
        client.setblocking(True)
        assert client.recv(1) == b"x"


TESTS = (waiting_bytes_are_counted, a_half_that_ends_is_told, more_data_is_an_edge, a_listener_that_is_shut_down_wakes_accept,
         copies_of_a_set_are_one_set, a_number_that_is_closed_unseen_is_free, a_copy_that_fails_changes_nothing,
         children_of_vfork_leave_the_table_alone, more_clients_than_the_backlog_are_served,
         a_child_is_not_kept_awake_by_its_parents_listener, children_of_a_program_with_threads_start)
for test in TESTS:
    test()
    print("ok", test.__name__, flush=True)
os._exit(0)
