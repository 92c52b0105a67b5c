"""A server whose children close what they inherit, as those of redis do when they write a file: forks.py"""

import errno
import os
import socket

listener = socket.create_server(("127.0.0.1", 7000))
first, _ = listener.accept()
assert first.recv(1) == b"a"
child = os.fork()
if child == 0:
    for call in (lambda: first.recv(1), lambda: first.send(b"x")):
        try:
            call()
            os._exit(1)
        except OSError as problem:
            if problem.errno not in (errno.ENOTCONN, errno.EPIPE):
                os._exit(2)
    first.close()
    listener.close()
    os._exit(0)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), flush=True)
copy = socket.socket(fileno=os.dup(first.fileno()))
first.close()
copy.sendall(b"b")
second, _ = listener.accept()
second.sendall(b"c")
copy.close()
second.close()
