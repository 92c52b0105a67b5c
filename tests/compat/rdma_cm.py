"""Pairs whose server listens with librdmacm: nothing outside tells when it does, so the client asks again."""

import re
import time

# What the programs print when nobody listens yet.
REFUSED = re.compile(r"reject|unreachable|refused|unexpected (cm )?event|error: -?(8|111)\b", re.I)
PATIENCE_S = 20


def connect(stage, server, argv, net=None, env=None, limit=None):
    """The client, run to its end; again while it is refused and the server still waits."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client = stage.start(*argv, net=net, env=env)
        status = client.wait(limit)
        said = client.stdout + client.stderr
        if status == 0 or not server.running or not REFUSED.search(said) or time.monotonic() > deadline:
            return client
        time.sleep(0.1)


def pair(stage, place, server_argv, client_argv, env=None, limit=None, head_start_s=0.0):
    """(server, client), both ended well; both run over Tulle. `head_start_s` is for clients that do not end when they
    are refused."""
    server = stage.start(*place.prefix, *stage.over_tulle(server_argv), net=place.server, env=env)
    time.sleep(head_start_s)
    client = connect(stage, server, [*place.prefix, *stage.over_tulle(client_argv)], net=place.client, env=env,
                     limit=limit)
    stage.finish(server, client, limit=limit)
    return server, client
