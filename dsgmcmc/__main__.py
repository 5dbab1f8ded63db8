"""The ``dsgmcmc`` command, also ``python -m dsgmcmc``: what must happen before the heavy imports."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line with one compute thread a process, unless the environment says otherwise."""
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored: in the background
    if handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback from the first of our imports on
    from dsgmcmc.errors import EXIT_INTERRUPTED
    from dsgmcmc.parallel.signals import interrupt
    from dsgmcmc.parallel.streams import standard_streams

    with standard_streams():
        try:
            if handled:
                signal.signal(signal.SIGINT, interrupt)
            try:
                _main()
            finally:
                if signal.getsignal(signal.SIGINT) is interrupt:  # nor from what is tidied up after the last
                    signal.signal(signal.SIGINT, signal.SIG_DFL)
        except KeyboardInterrupt:
            print("dsgmcmc: interrupted", file=sys.stderr)
            sys.exit(EXIT_INTERRUPTED)
        finally:
            if "_duckdb" not in sys.modules:  # which complains of what is left
                gc.freeze()  # to look for garbage in what the system takes back anyhow takes a tenth of a second


def _main() -> None:
    from dsgmcmc.parallel.machine import THREAD_VARIABLES
    from dsgmcmc.parallel.signals import install_early

    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    if sys.argv[1:2] == ["sample"]:  # a batch system's warning may come while NumPy and Numba are still loading
        install_early()
    from dsgmcmc.parallel.comm import TELL, tell_status

    asked = os.environ.pop(TELL, None)  # of this process, not of those that it starts
    from dsgmcmc.cli.app import main as command_line

    try:
        command_line()
    except SystemExit as end:
        if asked:
            tell_status(end.code)
        raise


if __name__ == "__main__":
    main()
