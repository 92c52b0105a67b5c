"""Pairs of programs that librdmacm connects: their servers listen nowhere but with the host's connection manager."""

import pathlib

from harness import wait_until


def listeners(test, net=None, prefix=()):
    """How many the connection manager has. An agent answers only whom it belongs to: `prefix` makes that user."""
    agent = test.status(net, prefix)["agent"]
    return agent["listeners"] if agent else 0


def binds(port):
    """For servers that bind a UDP port instead: rsockets' datagrams."""
    def is_ready(process):
        tables = (pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text() for table in ("udp", "udp6"))
        return any(f":{port:04X} " in table for table in tables)

    return is_ready


def start_server(test, argv, net=None, env=None, prefix=(), is_ready=None):
    """A server over Tulle; back once it listens."""
    before = listeners(test, net, prefix)
    process = test.start(*prefix, *test.over_tulle(argv), net=net, env=env)

    def ready():
        test.assertTrue(process.running, process.describe())
        return is_ready(process) if is_ready else listeners(test, net, prefix) > before

    wait_until(ready, f"{argv[0]} to listen", pause=0.03)
    return process


def pair(test, server_argv, client_argv, server_net=None, client_net=None, server_ends=True, is_ready=None, env=None,
         prefix=(), limit=None):
    """(server, client), both over Tulle and ended well; a server that serves for ever is ended."""
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
