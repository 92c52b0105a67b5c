"""Makes minimal roots of Debian releases, where a command finds nothing but what it installs."""

import pathlib
import shutil
import subprocess

# The commands run as process 1 of a namespace of their own, so that they and all that they started end together, and
# the mounts with them.
ENTER = """
set -e
root=$1 network=$2 command=$3
shift 3
if [ "$network" = loopback ]; then ip link set lo up; fi
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
for pair; do
  mkdir -p "$root/${pair#*:}"
  mount --bind "${pair%%:*}" "$root/${pair#*:}"
done
exec chroot "$root" env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "$command"
"""


class Root:
    """A folder with a release's essential packages and apt. As a context it is removed in the end."""

    def __init__(self, release, folder, cache):
        self.folder = pathlib.Path(folder)
        archive = pathlib.Path(cache) / f"{release}.tar"
        if not archive.exists():
            archive.parent.mkdir(parents=True, exist_ok=True)
            partial = archive.with_suffix(".partial")
            subprocess.run(["mmdebstrap", "--variant=minbase", "--mode=root", "--format=tar", release, partial],
                           check=True)
            partial.rename(archive)
        self.folder.mkdir(parents=True)
        subprocess.run(["tar", "-C", self.folder, "-xpf", archive], check=True)
        shutil.copy("/etc/resolv.conf", self.folder / "etc/resolv.conf")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def start(self, command, *, binds=None, loopback=False, **popen):
        """`binds`: {folder here: where it is seen inside}. `loopback`: in a network of its own, with nothing else."""
        pairs = [f"{here}:{there}" for here, there in (binds or {}).items()]
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *(["--net"] if loopback else [])]
        network = "loopback" if loopback else "shared"
        return subprocess.Popen([*unshare, "sh", "-c", ENTER, "sh", self.folder, network, command, *pairs],
                                stdin=subprocess.DEVNULL, **popen)

    def run(self, command, **options):
        """Runs it to its end. An exit status other than 0 is an error, with what the command wrote."""
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        output, _ = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"exit status {process.returncode} from: {command}\n{output}")
        return output
