"""Classes by name, imported when they are first used."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

K = TypeVar("K")


class Registry(UserDict[str, "type[K]"], Generic[K]):
    """Classes by name, each imported when it is first looked up: a run needs only one sampler.

    Parameters
    ----------
    homes : mapping of str to str
        Module below `dsgmcmc` and class, as ``module.Class``, by name.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self.data: dict[str, Any] = dict(homes)

    def __getitem__(self, name: str) -> type[K]:
        if isinstance(home := self.data[name], str):
            module, _, class_name = home.rpartition(".")
            self.data[name] = getattr(import_module(f"dsgmcmc.{module}"), class_name)
        found: type[K] = self.data[name]
        return found
