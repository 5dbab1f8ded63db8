"""Makes a process fail for real, from outside: functions of the product or of the system are
wrapped before they run.

A fault is ``POINT=ACTION[,rank=R][,at=N][,path=TEXT]``: process R (by default all) does ACTION when
it comes to POINT for the N-th time (by default the first; ``at=*`` every time), where only calls
with TEXT in a path count. Points are keys of `POINTS`; with ``.done`` the action comes after the
call, not before it. Actions:

``raise``       an unexpected exception
``kill``        SIGKILL to itself
``usr1``        SIGUSR1 to itself, and continues (also ``term``, ``int``)
``sleep:S``     S seconds of sleep
``ENOSPC``      the `OSError` of that name (any name of `errno`)

Faults of a started process are in ``DSGMCMC_TEST_FAULTS``, separated by ``;``, with this folder on
``PYTHONPATH``: `sitecustomize` installs them.
"""

import errno
import functools
import importlib
import importlib.machinery
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

VARIABLE = "DSGMCMC_TEST_FAULTS"

#: Functions that are wrapped, as module and name. Those of the system are called by whatever writes
#: files.
POINTS = {
    "load": [("dsgmcmc.model.blocks", "RatingBlocks._read_train")],
    "iteration": [("dsgmcmc.runs.chain", "Chain._iterate")],
    "start": [("dsgmcmc.runs.chain", "Chain.start")],
    "fall back": [("dsgmcmc.runs.chain", "Chain._fall_back")],
    "load model": [("dsgmcmc.runs.chain", "Chain._load_model")],
    "exchange": [
        ("dsgmcmc.parallel.ring", "Move.finish"),
        ("dsgmcmc.parallel.ring", "SharedTour._wait"),
    ],
    "reduce": [("dsgmcmc.parallel.ring", "Ring.reduce")],
    "snapshot": [("dsgmcmc.storage.store", "SnapshotWriter.make")],
    "shard": [("dsgmcmc.storage.store", "SnapshotWriter.shard")],
    "manifest": [("dsgmcmc.storage.store", "SnapshotWriter.commit")],
    "mkdir": [("os", "mkdir")],
    "write": [("os", "pwrite")],
    "sync": [("os", "fsync")],
    "rename": [("os", "rename"), ("os", "replace")],
    "remove": [("shutil", "rmtree")],
}

_SIGNALS = {
    "kill": signal.SIGKILL,
    "usr1": signal.SIGUSR1,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
}


class Fault:
    """A fault, and how often its point was passed."""

    def __init__(self, text: str) -> None:
        first, *options = text.split(",")
        self.point, self.action = first.split("=")
        settings = dict(option.split("=") for option in options)
        self.rank = settings.get("rank", "*")
        self.at = settings.get("at", "1")
        self.path = settings.get("path", "")
        self.passed = 0

    @property
    def functions(self) -> list[tuple[str, str]]:
        """Module and name of the functions that are wrapped."""
        return POINTS[self.point.removesuffix(".done")]

    def meet(self, arguments: tuple[Any, ...]) -> None:
        """Fail if it is time."""
        rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0"))
        if self.rank not in ("*", rank) or not any(
            self.path in str(argument) for argument in arguments
        ):
            return
        self.passed += 1
        if self.at not in ("*", str(self.passed)):
            return
        if self.action in _SIGNALS:
            os.kill(os.getpid(), _SIGNALS[self.action])
        elif self.action.startswith("sleep:"):
            time.sleep(float(self.action[6:]))
        elif self.action == "raise":
            raise RuntimeError(f"fault injected at {self.point}")
        else:
            number = getattr(errno, self.action)
            raise OSError(number, os.strerror(number))

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function that fails, before or after it does its work."""

        @functools.wraps(function)
        def failing(*args: Any, **kwargs: Any) -> Any:
            if not self.point.endswith(".done"):
                self.meet(args)
                return function(*args, **kwargs)
            result = function(*args, **kwargs)
            self.meet(args)
            return result

        return failing


def _owner(module: ModuleType, name: str) -> tuple[Any, str]:
    """Find the module or class that has a function, and its name there."""
    owner: Any = module
    *classes, last = name.split(".")
    for class_name in classes:
        owner = getattr(owner, class_name)
    return owner, last


def _wrap_in(module: ModuleType, name: str, fault: Fault) -> Callable[[], None]:
    """Wrap a function of a module; the result undoes it."""
    owner, last = _owner(module, name)
    before = getattr(owner, last)
    setattr(owner, last, fault.wrap(before))
    return lambda: setattr(owner, last, before)


@contextmanager
def injected_here(*texts: str) -> Iterator[None]:
    """Context in which these faults happen in this process."""
    undo = []
    for fault in map(Fault, reversed(texts)):  # the one wrapped last is met first
        for module, name in fault.functions:
            undo.append(_wrap_in(importlib.import_module(module), name, fault))
    try:
        yield
    finally:
        for back in reversed(undo):
            back()


class _WhenImported:
    """Finds modules of the product, and wraps their functions as soon as they are there."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults

    def find_spec(self, module_name: str, path: Any, target: Any = None) -> Any:
        wanted = [
            (name, fault)
            for fault in self._faults
            for module, name in fault.functions
            if module == module_name
        ]
        spec = importlib.machinery.PathFinder.find_spec(module_name, path) if wanted else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for name, fault in wanted:
                _wrap_in(module, name, fault)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Install the faults of ``DSGMCMC_TEST_FAULTS`` in a process that has just started."""
    faults = [Fault(text) for text in reversed(os.environ.get(VARIABLE, "").split(";")) if text]
    for fault in faults:
        for module, name in fault.functions:
            if not module.startswith("dsgmcmc."):
                _wrap_in(importlib.import_module(module), name, fault)
    if faults:
        sys.meta_path.insert(0, _WhenImported(faults))  # type: ignore[arg-type]
