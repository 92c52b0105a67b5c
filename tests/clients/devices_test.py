"""Tests what programs that list devices see."""

import os
import pathlib
import sys
import tempfile

import unprivileged_test
from harness import TULLE, ClientTest, wait_until


def fields(output):
    """Returns ibv_devinfo's "name: value" lines by name, with a list of the GIDs."""
    found = {"GID": []}
    for line in output.splitlines():
        name, colon, value = line.strip().partition(":")
        if not colon:
            continue
        if name.startswith("GID["):
            found["GID"].append(value.strip())
        else:
            found.setdefault(name, value.strip())  # the first counts: tm_caps has a max_sge of its own
    return found


class Devices(ClientTest):
    def test_ibv_devices(self):
        output = self.run_program(*self.over_tulle(["ibv_devices"])).stdout
        self.assertRegex(output, r"(?m)^\s+tulle0\s+[0-9a-f]{16}$")

    def test_name(self):
        output = self.run_program(*self.over_tulle(["ibv_devices"], ["--device", "mlx5_7"])).stdout
        self.assertRegex(output, r"(?m)^\s+mlx5_7\s+[0-9a-f]{16}$")

    def test_tulle_devices(self):
        output = self.run_program(*self.over_tulle(["true"])).stdout
        self.assertEqual("", output)  # `tulle run` adds nothing to a program's output


PROGRAM = """
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  printf("%d device\\n", count);
  ibv_free_device_list(list);
  return 0;
}
"""


class Built(ClientTest):
    """Programs that GCC builds in a certain way."""

    def build(self, text, *options, libraries=("-libverbs",)):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        source, program = pathlib.Path(folder.name) / "program.c", pathlib.Path(folder.name) / "program"
        source.write_text(text)
        self.run_program("gcc", *options, "-o", program, source, *libraries)
        return program


class Sanitized(Built):
    """With AddressSanitizer, whose runtime wants to be the first library."""

    def test_it_starts(self):
        process = self.run_program(*self.over_tulle([self.build(PROGRAM, "-fsanitize=address", "-g")]))
        self.assertEqual("1 device\n", process.stdout, process.describe())
        self.assertEqual("", process.stderr, process.describe())

    def test_its_faults_are_found(self):
        faulty = PROGRAM.replace("ibv_free_device_list(list);", "char* volatile all = (char*)list; all[1 << 20] = 1;")
        process = self.run_program(*self.over_tulle([self.build(faulty, "-fsanitize=address", "-g")]), expect=None)
        self.assertIn("ERROR: AddressSanitizer", process.stderr, process.describe())


class Linked(Built):
    """So that LD_LIBRARY_PATH does not lead to Tulle's libraries."""

    def test_by_a_folder_that_comes_first(self):
        """DT_RPATH, as Spack's packages have it."""
        machine = self.run_program("gcc", "-print-multiarch").stdout.strip()
        for rpath in (f"/usr/lib/{machine}", "/nowhere:$ORIGIN/../../usr/lib:" + f"/usr/lib/{machine}"):
            program = self.build(PROGRAM, f"-Wl,--disable-new-dtags,-rpath,{rpath}")
            process = self.run_program(*self.over_tulle([program]))
            self.assertEqual(("1 device\n", ""), (process.stdout, process.stderr), process.describe())

    def warned(self, *command):
        """Returns the one line that a program gets which finds no Tulle device."""
        process = self.run_program(*self.over_tulle(command), expect=None)
        self.assertNotIn("1 device", process.stdout, process.describe())
        self.assertEqual(1, process.stderr.count("\n"), process.describe())
        self.assertIn("finds no Tulle device", process.stderr)
        return process.stderr

    def test_by_another_environment(self):
        """As wrapper scripts, module files and conda have it."""
        program = self.build(PROGRAM)
        for change in ("LD_LIBRARY_PATH=/nowhere", "--unset=LD_LIBRARY_PATH"):
            self.assertRegex(self.warned("env", change, program), "program uses /.*/libibverbs.so.1, and finds")
        self.assertIn("program uses /", self.warned("sh", "-c", f"LD_LIBRARY_PATH= {program}; true"))

    def test_by_a_folder_that_comes_first_in_a_script(self):
        machine = self.run_program("gcc", "-print-multiarch").stdout.strip()
        program = self.build(PROGRAM, f"-Wl,--disable-new-dtags,-rpath,/usr/lib/{machine}")
        self.assertIn("program uses /usr/lib", self.warned("sh", "-c", f"{program}; true"))

    def test_without_an_environment(self):
        program = self.build(PROGRAM.replace("ibv_free", "if (list) ibv_free"))  # there is none
        path = f"PATH={program.parent}"
        spawn = f"import os; os.waitpid(os.posix_spawn('{program}', ['a'], {{}}), 0)"
        starts = {"execvp": ["env", "-i", program], "execvp by PATH": ["env", "-i", path, program.name],
                  "execve": ["sh", "-c", f"LD_PRELOAD= LD_LIBRARY_PATH= {program}; true"],
                  "posix_spawn": [sys.executable, "-c", spawn],
                  "of a child": [sys.executable, "-c", f"import subprocess; subprocess.run(['{program}'], env={{}})"]}
        for name, command in starts.items():
            with self.subTest(start=name):
                self.assertRegex(self.warned(*command), "program starts without the LD_PRELOAD and LD_LIBRARY_PATH")
        for command in (["env", "-i", "true"], ["env", "-i", "sh", "-c", "true"], ["env", "-u", "LD_LIBRARY_PATH", "true"]):
            self.assertEqual("", self.run_program(*self.over_tulle(command)).stderr)

    def test_by_a_library_that_is_loaded_late(self):
        load = "import ctypes; ctypes.CDLL('libibverbs.so.1').ibv_get_device_list(ctypes.byref(ctypes.c_int()))"
        self.assertIn("uses /", self.warned("env", "LD_LIBRARY_PATH=/nowhere", sys.executable, "-c", load))

    def test_statically(self):
        program = self.build("int main(void) { return 3; }", "-static", libraries=())
        process = self.run_program(*self.over_tulle([program]), expect=3)
        self.assertIn("is statically linked, and finds no Tulle device", process.stderr)
        self.assertEqual(1, process.stderr.count("\n"), process.describe())

    def test_with_more_rights_than_its_starter(self):
        if os.geteuid() != 0 or not unprivileged_test.maps_all_users():
            self.skipTest("only root makes such programs")
        user = unprivileged_test.ORDINARY
        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        unprivileged_test.skip_out_of_reach(self, prefix)
        program = self.build(PROGRAM)
        os.chmod(program, 0o4755)
        self.assertEqual("", self.run_program(*self.over_tulle([program])).stderr)  # root's own
        process = self.run_program(*prefix, *self.over_tulle([program]), expect=None)
        self.assertIn("warning: " + str(program) + " gains privileges when it starts", process.stderr)


LOCKS = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  struct flock lock = {.l_type = F_WRLCK};
  const int own = open("locked", O_RDWR | O_CREAT, 0600);
  FILE* other = fopen("locked", "r");
  if (own < 0 || other == NULL || fcntl(own, F_SETLK, &lock) != 0) return 2;
  fopen("locked", "r");
  int status;
  if (fork() == 0) _exit(fcntl(open("locked", O_RDWR), F_SETLK, &lock) == 0);
  wait(&status);
  return WEXITSTATUS(status);
}
"""
CANCELLED = """
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static char* program;
static void leave(void* unused) { _exit(3); }
static void* start(void* unused) {
  char* const arguments[] = {program, "again", NULL};
  char* const none[] = {NULL};
  int status = 0, old;
  pthread_cleanup_push(leave, NULL);
  pthread_cancel(pthread_self());
  const pid_t child = vfork();
  if (child == 0) {
    execve(program, arguments, none);
    _exit(4);
  }
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
  waitpid(child, &status, 0);
  pthread_cleanup_pop(0);
  _exit(WEXITSTATUS(status));
}
int main(int count, char** words) {
  pthread_t thread;
  if (count > 1) return ibv_get_device_list(NULL) == NULL ? 7 : 8;
  program = words[0];
  pthread_create(&thread, NULL, start, NULL);
  pthread_join(thread, NULL);
  return 5;
}
"""


class Preloaded(Built):
    """What Tulle's preloaded library must not change."""

    def test_locks_of_records_stay(self):
        program = self.build(LOCKS, libraries=())
        process = self.start(*self.over_tulle([program]), cwd=program.parent)
        self.assertEqual(0, process.wait(), process.describe())

    def test_starting_a_program_is_no_cancellation_point(self):
        process = self.run_program(*self.over_tulle([self.build(CANCELLED, "-pthread")]), expect=7)
        self.assertIn("finds no Tulle device", process.stderr)


class Devinfo(ClientTest):
    def test_short(self):
        found = fields(self.run_program(*self.over_tulle(["ibv_devinfo"])).stdout)
        self.assertEqual("tulle0", found["hca_id"])
        self.assertEqual("InfiniBand (0)", found["transport"])
        self.assertEqual("PORT_ACTIVE (4)", found["state"])
        self.assertEqual("Ethernet", found["link_layer"])
        self.assertEqual("4096 (5)", found["max_mtu"])
        self.assertEqual("4096 (5)", found["active_mtu"])
        self.assertEqual("1", found["phys_port_cnt"])
        self.assertRegex(found["node_guid"], r"^([0-9a-f]{4}:){3}[0-9a-f]{4}$")
        self.assertNotEqual("0000:0000:0000:0000", found["node_guid"])

    def test_verbose(self):
        found = fields(self.run_program(*self.over_tulle(["ibv_devinfo", "-v"])).stdout)
        for name, least in [("max_qp", 1024), ("max_qp_wr", 4096), ("max_sge", 8), ("max_cq", 1024), ("max_cqe", 65536),
                            ("max_mr", 1024), ("max_pd", 1024), ("max_srq", 256), ("max_srq_wr", 4096), ("max_ah", 1024),
                            ("max_qp_rd_atom", 16), ("max_mw", 1)]:
            self.assertGreaterEqual(int(found[name]), least, name)
        self.assertRegex(found["atomic_cap"], r"^ATOMIC_(HCA|GLOB)")
        self.assertEqual("LINK_UP (5)", found["phys_state"])
        self.assertIn("::ffff:127.0.0.1, RoCE v2", found["GID"])

    def test_unknown_device(self):
        process = self.run_program(*self.over_tulle(["ibv_devinfo", "-d", "nothing0"]), expect=None)
        self.assertNotEqual(0, process.wait())
        self.assertIn("nothing0", process.stdout + process.stderr)

    def test_mtu_follows_the_interface(self):
        """The active MTU is a path MTU that fits: 1024 on Ethernet's 1500, 4096 on jumbo frames."""
        for interface_mtu, expected in [(1500, "1024 (3)"), (9000, "4096 (5)"), (2200, "2048 (4)")]:
            with self.subTest(interface_mtu=interface_mtu):
                first, _ = self.joined_namespaces(mtu=interface_mtu)
                found = fields(self.run_program(*self.over_tulle(["ibv_devinfo"]), net=first).stdout)
                self.assertEqual(expected, found["active_mtu"])

    def test_gids_of_an_interface(self):
        """Each IPv4 and IPv6 address is a RoCE v2 GID. The loopback's are not, where there is another interface."""
        first, _ = self.joined_namespaces()
        found = fields(self.run_program(*self.over_tulle(["ibv_devinfo", "-v"]), net=first).stdout)
        gids = found["GID"]
        self.assertEqual("::ffff:10.0.0.1, RoCE v2", gids[0])
        self.assertIn("fd00::1, RoCE v2", gids)
        self.assertTrue(any(gid.startswith("fe80::") for gid in gids), gids)
        self.assertFalse(any("127.0.0.1" in gid for gid in gids), gids)

    def test_gids_in_the_order_of_a_kernel(self):
        """Programs hard-code index 3: with both versions of RoCE, an adapter has its first IPv4 address there."""
        first, _ = self.joined_namespaces()
        for options in (("--gid-order", "link-local"), ("--like", "connectx-5")):
            with self.subTest(options=options):
                command = self.over_tulle(["ibv_devinfo", "-v"], ("--roce", "both", *options))
                gids = fields(self.run_program(*command, net=first).stdout)["GID"]
                self.assertRegex(gids[0], "^fe80:.*RoCE v1$")
                self.assertRegex(gids[1], "^fe80:.*RoCE v2$")
                self.assertRegex(gids[2], r"^[0:]+ffff:0a00:0001, RoCE v1$")
                self.assertEqual("::ffff:10.0.0.1, RoCE v2", gids[3])
                self.assertEqual("fd00::1, RoCE v2", gids[5])
        like = self.over_tulle(["ibv_devinfo", "-v"], ("--like", "connectx-5", "--gid-order", "ip"))
        self.assertEqual("::ffff:10.0.0.1, RoCE v2", fields(self.run_program(*like, net=first).stdout)["GID"][0])

    def test_interface_with_a_comma(self):
        first, _ = self.joined_namespaces()
        for change in (("down",), ("name", "a,b"), ("up",)):
            name = "veth0" if change != ("up",) else "a,b"
            self.run_program("ip", "link", "set", name, *change, net=first)
        command = self.over_tulle(["ibv_devinfo", "-v"], ["--interface", "a,b"])
        self.assertEqual("::ffff:10.0.0.1, RoCE v2", fields(self.run_program(*command, net=first).stdout)["GID"][0])

    def test_interface_option(self):
        first, _ = self.joined_namespaces()
        command = self.over_tulle(["ibv_devinfo", "-v"], ["--interface", "lo"])
        found = fields(self.run_program(*command, net=first).stdout)
        self.assertEqual("::ffff:127.0.0.1, RoCE v2", found["GID"][0])


class Files(ClientTest):
    """Tests files below /sys, as a kernel shows its devices."""

    def test_namespaces_do_not_meet(self):
        first, _ = self.joined_namespaces()
        go = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "go")
        look = f"until [ -e {go} ]; do sleep 0.01; done; cat /sys/class/infiniband/tulle0/ports/1/gids/0"
        process = self.start(*self.over_tulle(["sh", "-c", f"echo begun; {look}"]), net=first)
        wait_until(lambda: "begun" in process.stdout, "the program")
        self.run_program(*self.over_tulle(["true"]))  # in another namespace, which has other addresses
        go.touch()
        self.assertEqual(0, process.wait(), process.describe())
        self.assertIn("0a00:0001", process.stdout)  # 10.0.0.1


class Listing(ClientTest):
    def test_devices_command(self):
        process = self.run_program(TULLE, "devices")
        self.assertIn("tulle0", process.stdout)
        self.assertIn("127.0.0.1", process.stdout)
