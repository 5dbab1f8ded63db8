"""The ``dsgmcmc`` command, also ``python -m dsgmcmc``: what must happen before the heavy imports."""

from __future__ import annotations

import os
import sys

from dsgmcmc.errors import EXIT_INTERRUPTED
from dsgmcmc.parallel.machine import THREAD_VARIABLES


def main() -> None:
    """Run the command line with one compute thread a process, unless the environment says otherwise."""
    try:
        _main()
    except KeyboardInterrupt:  # while libraries were loading, before a command could look after it
        print("dsgmcmc: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _main() -> None:
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    if sys.argv[1:2] == ["sample"]:  # a batch system's warning may come while NumPy and Numba are still loading
        from dsgmcmc.parallel.signals import install_early

        install_early()
    from dsgmcmc.cli.app import main as command_line

    command_line()


if __name__ == "__main__":
    main()
