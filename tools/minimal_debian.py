"""Makes minimal Debian systems in folders: essential packages and apt, nothing else. Commands run there as on a machine
where nothing was ever installed by hand.

mmdebstrap makes an archive of a release in a quarter of a minute, and systems are unpacked from it. A command that
enters a system is process 1 of a namespace of its own, so that it and all that it started end together, and the mounts
with them. An ordinary user becomes root of a user namespace, for which /etc/subuid and /etc/subgid need a range.

A prepared system has the packages that a purpose needs. It is kept in the user's cache and never written to: a layer
above it takes what a run changes.
"""

import contextlib
import datetime
import fcntl
import hashlib
import os
import pathlib
import stat
import subprocess

RELEASES = ("bookworm", "trixie")
ENVIRONMENT = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
               "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}

# ENTER ROOT NETWORK HERE:THERE... -- COMMAND...: runs COMMAND in ROOT, where each folder HERE of this machine is THERE.
ENTER = r"""
set -e
root=$1 network=$2; shift 2
mount --make-rprivate /
if [ "$network" = loopback ]; then ip link set lo up; fi
if [ -n "${BELOW:-}" ]; then
  mount -t overlay -o "lowerdir=$BELOW,upperdir=$LAYER/upper,workdir=$LAYER/work" overlay "$root"
else
  mount --bind "$root" "$root"
fi
unset BELOW LAYER
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty net/tun; do
  if [ -e "/dev/$device" ]; then
    mkdir -p "$root/dev/net"; touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"
  fi
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"; ln -s fd/1 "$root/dev/stdout"; ln -s fd/2 "$root/dev/stderr"
while [ "$1" != -- ]; do
  mkdir -p "$root/${1#*:}"
  mount --bind "${1%%:*}" "$root/${1#*:}"
  shift
done
shift
# Below chroot the kernel makes no user namespaces, which a software fabric's hosts are.
cd "$root"
pivot_root . .
umount --lazy .
cd /
exec "$@"
"""


class Failed(RuntimeError):
    """An error whose text says to a person what went wrong."""


def as_root():
    """Returns the words in front of a command that has to run as root: none for root itself."""
    return [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--map-auto"]


def make_archive(release, path, mirror=None):
    command = ["mmdebstrap", "--variant=minbase", "--format=tar", release, str(path), *([mirror] if mirror else [])]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        complaints = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()
        raise Failed(f"mmdebstrap could not make a system of {release}: {complaints[0] if complaints else 'no reason'}")


@contextlib.contextmanager
def ended(process):
    """Ends a process that System.start() has started, and with it all that runs in its namespaces, if what is done
    meanwhile is interrupted."""
    try:
        yield process
    except BaseException:
        process.kill()
        process.wait()
        raise


class System:
    """A minimal Debian in `folder`, unpacked from an archive. As a context manager it is removed at the end."""

    def __init__(self, archive, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        # The device files are this machine's (see ENTER), since a user namespace may not make any.
        subprocess.run([*as_root(), "tar", "-C", self.folder, "--exclude=./dev/*", "-xpf", archive], check=True)
        with open("/etc/resolv.conf", "rb") as here:
            self.write("/etc/resolv.conf", here.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        remove(self.folder)

    def write(self, path, content):
        subprocess.run([*as_root(), "tee", f"{self.folder}{path}"], input=content, stdout=subprocess.DEVNULL, check=True)

    def start(self, command, *, binds=None, loopback=False, environment=None, **popen):
        """Starts a line of shell. `binds` is {folder here: where it is seen inside}. With `loopback` the command has
        a network of its own that holds nothing else."""
        pairs = [f"{here}:{there}" for here, there in (binds or {}).items()]
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *(["--net"] if loopback else [])]
        words = [*as_root(), *unshare, "sh", "-c", ENTER, "sh", self.folder, "loopback" if loopback else "shared",
                 *pairs, "--", "bash", "-c", command]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, env=ENVIRONMENT | (environment or {}), **popen)

    def run(self, command, **options):
        """Runs a line of shell to its end and returns its output. An exit status other than 0 raises an error."""
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        with ended(process):
            output, _ = process.communicate()
        if process.returncode != 0:
            raise Failed(f"exit status {process.returncode} from: {command}\n{output}")
        return output

    def packages(self):
        """Returns {package: its size in KiB} of the installed packages."""
        lines = self.run("dpkg-query -W -f='${Package}\\t${Installed-Size}\\n'").splitlines()
        return {name: int(size or 0) for name, size in (line.split("\t") for line in lines)}


class Layered(System):
    """A system above a prepared one: what commands change lies in a folder of this run's. Paths below `folder` are seen
    by the commands alone. As a context manager it is removed at the end."""

    def __init__(self, below, folder):
        self.place = pathlib.Path(folder)
        self.folder = self.place / "root"
        for name in ("root", "upper", "work"):
            (self.place / name).mkdir(parents=True)
        self._layers = {"BELOW": str(below), "LAYER": str(self.place)}

    def __exit__(self, *_):
        remove(self.place)

    def start(self, command, *, environment=None, **options):
        return super().start(command, environment=self._layers | (environment or {}), **options)


def cache_folder():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tulle"


def own_folder(path):
    """Makes a folder that nobody else may write to or put another one in the place of, or refuses it: what is in it
    will run as root."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = path.resolve()
    for folder in (path, *path.parents):
        status = folder.stat()
        is_above = folder != path
        is_trusted = status.st_uid == os.geteuid() or (is_above and status.st_uid == 0)
        is_sticky = is_above and status.st_mode & stat.S_ISVTX  # nobody moves what belongs to another user
        if not is_trusted or (status.st_mode & 0o022 and not is_sticky):
            raise Failed(f"{folder} belongs to another user, or others may write to it: set XDG_CACHE_HOME to a folder "
                         "of your own")
    return path


_held = []  # locks on prepared systems, which last as long as this process


def prepared(release, name, script, *, binds=None, inputs=(), mirror=None):
    """Returns the folder of a minimal Debian in which `script`, a line of shell, was run. The folder is made where the
    cache has none of this name for these inputs (files whose contents matter), and once a week, for new versions of
    packages. No other process replaces it while this one lives."""
    cache = own_folder(cache_folder() / "roots")
    parts = [release, script, ENTER, *(pathlib.Path(path).read_text() for path in inputs),
             str(datetime.date.today().isocalendar()[:2])]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder, note = cache / f"{release}-{name}", cache / f"{release}-{name}.key"
    lock = open(cache / f"{release}-{name}.lock", "w", encoding="ascii")
    _held.append(lock)

    def is_ready():
        return folder.is_dir() and note.exists() and note.read_text() == key

    fcntl.flock(lock, fcntl.LOCK_SH)
    while not is_ready():
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ready():
            archive = cache / f"{release}-{name}.tar"
            note.unlink(missing_ok=True)
            remove(folder)
            try:
                make_archive(release, archive, mirror)
                System(archive, folder).run(f"apt-get update --quiet && {script} && apt-get clean", binds=binds)
            except BaseException:
                remove(folder)
                raise
            finally:
                archive.unlink(missing_ok=True)
            note.write_text(key)
        fcntl.flock(lock, fcntl.LOCK_SH)
    return folder


def remove(folder):
    subprocess.run([*as_root(), "rm", "-rf", "--one-file-system", str(folder)], check=False)
