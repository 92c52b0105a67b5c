"""Runs pairs of programs that librdmacm connects. Their servers listen nowhere but with the host's connection
manager."""

import pathlib

from harness import wait_until


def listeners(test, net=None, prefix=()):
    """Returns how many listeners the connection manager has. A host agent answers only the user that it belongs to:
    `prefix` runs the question as that user."""
    agent = test.status(net, prefix)["agent"]
    return agent["listeners"] if agent else 0


def binds(port):
    """Returns the check for servers that bind a UDP port instead: those of rsockets' datagrams."""
    def is_ready(process):
        tables = (pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text() for table in ("udp", "udp6"))
        return any(f":{port:04X} " in table for table in tables)

    return is_ready


def start_server(test, argv, net=None, env=None, prefix=(), is_ready=None, options=()):
    """Starts a server over Tulle, and returns once it listens."""
    before = listeners(test, net, prefix)
    process = test.start(*prefix, *test.over_tulle(argv, options), net=net, env=env)

    def ready():
        test.assertTrue(process.running, process.describe())
        return is_ready(process) if is_ready else listeners(test, net, prefix) > before

    wait_until(ready, f"{argv[0]} to listen", pause=0.03)
    return process


def pair(test, server_argv, client_argv, server_net=None, client_net=None, server_ends=True, is_ready=None, env=None,
         prefix=(), limit=None):
    """Runs both programs over Tulle and returns (server, client). Both must end well; a server that serves without
    end is ended."""
    server = start_server(test, server_argv, server_net, env, prefix, is_ready)
    client = test.start(*prefix, *test.over_tulle(client_argv), net=client_net, env=env)
    if server_ends:
        test.finish(server, client, limit=limit)
    else:
        status = client.wait(limit)
        both = f"{client.describe()}\n{server.describe()}"
        test.assertEqual(0, status, both)
        test.assertTrue(server.running, both)
        server.end()
    return server, client
