"""Runs a command and writes what it used to a file: "EXIT-STATUS USER-SECONDS SYSTEM-SECONDS PEAK-KIB".

A process inherits the peak memory of the process that started it, so this script starts the command from a small
process of its own: python3 -I -S usage.py FILE COMMAND [ARGUMENTS...]. A command that needs less than about 10 MB is
still shown with that.
"""

import os
import sys

child = os.fork()
if child == 0:
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        os.write(2, f"{sys.argv[2]}: {error.strerror}\n".encode())
        os._exit(127)
_, status, used = os.wait4(child, 0)
with open(sys.argv[1], "w") as out:
    print(os.waitstatus_to_exitcode(status), used.ru_utime, used.ru_stime, used.ru_maxrss, file=out)
