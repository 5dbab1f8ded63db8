#!/usr/bin/env bash
# Package: CPython 3.11 and 3.14 on Linux
# Expected: ru_maxrss of a small program is what it needed: 20 MB
# Seen: it is 1 GB if the Python that starts it, by subprocess, once had 1 GB, given back or not
# Hits: memory that tests and benchmarks measure of programs that they start; VmHWM in /proc/PID/status is the program's own
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
python3 - <<'END' | expect "before: below 100 MB; then: above 1000 MB, VmHWM below 100 MB"
import subprocess
import sys

# the process's peak memory in KiB, by ru_maxrss and by VmHWM
PROGRAM = """
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def measured():
    output = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
    return ["below 100 MB" if int(peak) < 100_000 else "above 1000 MB" for peak in output.split()]


before = measured()[0]
bytearray(1 << 30)
after, own = measured()
print(f"before: {before}; then: {after}, VmHWM {own}")
END
