"""Classes by name, imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TypeVar

K = TypeVar("K")


class Registry(MutableMapping[str, type[K]]):
    """Classes by name, each imported when it is first asked for: a run needs the settings of its own sampler alone.

    Parameters
    ----------
    homes : mapping of str to str
        Module below `dsgmcmc`, and class in it.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes
        self._classes: dict[str, type[K] | None] = dict.fromkeys(homes)

    def __getitem__(self, name: str) -> type[K]:
        found = self._classes[name]
        if found is None:
            module, _, class_name = self._homes[name].rpartition(".")
            found = self._classes[name] = getattr(import_module(f"dsgmcmc.{module}"), class_name)
        return found

    def __setitem__(self, name: str, found: type[K]) -> None:
        self._classes[name] = found

    def __delitem__(self, name: str) -> None:
        del self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes
