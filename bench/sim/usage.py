"""Runs a command and writes what it used to a file: "EXIT-STATUS USER-SECONDS SYSTEM-SECONDS PEAK-KIB".

A process inherits the peak memory of whoever started it, so this starts the command from a small process of its own:
python3 -I -S usage.py FILE COMMAND [ARGUMENTS...]. A command below about 10 MB is still shown as that.
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
