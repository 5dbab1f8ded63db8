"""Tables of draws: labels, and a column for each draw."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from dsgmcmc.tables.result import Table
from dsgmcmc.types import Array, Float64


class Draws(Table):
    """Draws of a quantity: columns of labels, and then ``NAME_1``, ``NAME_2`` and so on.

    Parameters
    ----------
    labels : mapping of str to (n,) array
    name : str
    array : (draws, n) float64
        All draws, in units of `unit`.
    unit : str
        Unit of the values, such as ``logit``; ``rating`` is that of the ratings.
    """

    def __init__(self, labels: Mapping[str, Array], name: str, array: Float64, unit: str) -> None:
        super().__init__(labels)
        self.labels = dict(labels)
        self.name = name
        self.array = array
        self.unit = unit
        for number, values in enumerate(array, 1):
            self[f"{name}_{number}"] = values

    def to_xarray(self) -> Any:
        """Return an xarray.DataArray with the dimension ``draw``, and one for the rows.

        Rows are named by their label or, if they have several, called ``pair``, of which all labels
        are coordinates. The attribute ``unit`` is the unit.
        """
        rows = "pair"
        if len(self.labels) == 1:
            (rows,) = self.labels
        coords: dict[str, Any] = {"draw": 1 + np.arange(len(self.array))}
        for label, names in self.labels.items():
            if names.dtype == object:
                names = names.astype(np.str_)
            coords[label] = (rows, names)
        return import_module("xarray").DataArray(
            self.array, coords, ("draw", rows), self.name, {"unit": self.unit}
        )
