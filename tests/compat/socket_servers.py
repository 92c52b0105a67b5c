"""Servers that know sockets and epoll alone, with their sockets replaced by rsockets."""

import pathlib
import shutil
import tempfile

import frame
import rdma_cm
from frame import Case
from harness import wait_until

NAME = "redis, memcached, nginx"
PACKAGES = ["redis-server", "redis-tools", "memcached", "nginx-light", "curl"]
WHAT = ("A megabyte in redis, `redis-benchmark` with 20 connections, and a save in the background; memcached with four "
        "threads; a file of nginx. `librspreload` replaces the sockets of servers and clients.")
NOTES = """The sockets of `librspreload` belong to the process that made them. nginx therefore runs as one process
(`master_process off`): a worker cannot use the listening socket of its parent. redis saves in the background, since the
child that writes the file uses no socket."""

OPTIONS = ("--rsockets",)
PORT = "6400"
VALUE_BYTES = 1_000_000
MEMCACHED_CLIENT = pathlib.Path(__file__).resolve().parent / "programs" / "memcached_client.py"


def folder_of(stage):
    """Returns a folder for all users, which the test removes."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tulle-servers-"))
    stage.addCleanup(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o777)
    return folder


def serve(stage, place, *argv):
    return rdma_cm.start_server(stage, argv, place.server, prefix=place.prefix, options=OPTIONS)


def ask(stage, place, *argv):
    return stage.run_program(*place.prefix, *stage.over_tulle(argv, OPTIONS), net=place.client).stdout


def redis(stage, place):
    folder = folder_of(stage)
    server = serve(stage, place, "redis-server", "--port", PORT, "--bind", "0.0.0.0", "--protected-mode", "no",
                   "--dir", str(folder), "--save", "")
    cli = ("redis-cli", "-h", place.host, "-p", PORT)
    value = "0123456789" * (VALUE_BYTES // 10)
    (folder / "value").write_text(value)
    stage.assertIn("OK", ask(stage, place, "sh", "-c", f"{' '.join(cli)} -x set key < {folder}/value"))
    stage.assertEqual(value, ask(stage, place, *cli, "get", "key").strip())
    figures = ask(stage, place, "redis-benchmark", "-h", place.host, "-p", PORT, "-n", "5000", "-c", "20", "-t", "set,get", "-q")
    stage.assertEqual(2, figures.count("requests per second"), figures)
    # A child writes the file, and closes the sockets that it inherits.
    stage.assertIn("started", ask(stage, place, *cli, "bgsave"))
    wait_until(lambda: (folder / "dump.rdb").exists(), "the file")
    stage.assertEqual(value, ask(stage, place, *cli, "get", "key").strip())
    ask(stage, place, *cli, "shutdown", "nosave")
    stage.assertEqual(0, server.wait(), server.describe())


def memcached(stage, place):
    server = serve(stage, place, "memcached", "-u", "nobody", "-l", "0.0.0.0", "-p", PORT, "-U", "0", "-t", "4")
    stage.assertIn("ok", ask(stage, place, "/usr/bin/python3", str(MEMCACHED_CLIENT), place.host, PORT, str(VALUE_BYTES)))
    server.end()


def nginx(stage, place):
    folder = folder_of(stage)
    data = bytes(i * 7 % 251 for i in range(VALUE_BYTES))
    (folder / "file").write_bytes(data)
    # Folders that the server of an ordinary user may write.
    kinds = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "conf").write_text(f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\n"
                                 "events { use epoll; }\n"
                                 f"http {{ access_log off; {kinds}\n"
                                 f"  server {{ listen {PORT}; root {folder}; }} }}\n")
    server = serve(stage, place, "nginx", "-c", f"{folder}/conf", "-p", str(folder), "-e", "stderr")
    url = f"http://{place.host}:{PORT}/file"
    ask(stage, place, "curl", "-s", "-f", "-o", str(folder / "first"), url, "-o", str(folder / "second"), url)
    for name in ("first", "second"):
        stage.assertTrue((folder / name).read_bytes() == data, name)
    server.end()


def cases():
    for place in ("one_host", "two_hosts", "ordinary_user"):
        for server in (redis, memcached, nginx):
            yield Case(f"{place}.{server.__name__}", lambda stage, place=place, server=server: server(
                stage, frame.PLACES[place](stage)), bytes_min=VALUE_BYTES)
