"""The interface of scikit-learn's estimators, without a dependency on scikit-learn."""

from __future__ import annotations

import inspect
import operator
import os
from typing import Any, Self

import numpy as np


class Estimator:
    """A regressor whose parameters are the arguments of its constructor, stored as attributes."""

    _estimator_type = "regressor"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` has no effect, and is required by scikit-learn."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        ValueError
            If there is no such parameter.
        """
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = {k: v for k, v in self.get_params().items() if v is not defaults[k].default}
        return f"{type(self).__name__}({', '.join(f'{name}={brief(value)}' for name, value in given.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags  # only scikit-learn calls this

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=False),
            input_tags=InputTags(categorical=True, string=True, sparse=True),
            regressor_tags=RegressorTags(),
            requires_fit=True,
        )


def brief(value: Any) -> str:
    """Representation of a value; only the class name for data."""
    plain = isinstance(value, (str, int, float, dict, os.PathLike, type(None)))
    return repr(str(value) if isinstance(value, os.PathLike) else value) if plain else f"<{type(value).__name__}>"


def seed_of(random_state: Any) -> int:
    """Seed from scikit-learn's `random_state`: an int, a `RandomState`, or None for a random seed."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 1
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    try:
        return operator.index(random_state)
    except TypeError:
        raise ValueError(f"random_state {random_state!r}: expected an int, a RandomState or None") from None
