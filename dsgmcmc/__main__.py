"""Entry point of ``dsgmcmc`` and ``python -m dsgmcmc``: sets up signals, streams and threads before heavy imports."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line with one compute thread per process, unless the environment sets another number."""
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background process may ignore SIGINT
    if handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback during the first imports
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
                if signal.getsignal(signal.SIGINT) is interrupt:  # no traceback during cleanup
                    signal.signal(signal.SIGINT, signal.SIG_DFL)
        except KeyboardInterrupt:
            print("dsgmcmc: interrupted", file=sys.stderr)
            sys.exit(EXIT_INTERRUPTED)
        finally:
            if "_duckdb" not in sys.modules:  # DuckDB reports objects that are not freed
                gc.freeze()  # saves a tenth of a second of garbage collection at exit


def _main() -> None:
    from dsgmcmc.parallel.machine import THREAD_VARIABLES
    from dsgmcmc.parallel.signals import install_early

    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    if sys.argv[1:2] == ["sample"]:  # a batch system may send its signal while NumPy and Numba load
        install_early()
    from dsgmcmc.parallel.comm import TELL, tell_status

    asked = os.environ.pop(TELL, None)  # for this process, not for its children
    from dsgmcmc.cli.app import main as command_line

    try:
        command_line()
    except SystemExit as end:
        if asked:
            tell_status(end.code)
        raise


if __name__ == "__main__":
    main()
