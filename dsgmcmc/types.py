"""Types that several packages share: arrays, values of settings, factors, purposes of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, unique
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
UInt64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Array = NDArray[Any]
#: Arrays by name, and their shapes.
Named = Mapping[str, Float64]
Shapes = Mapping[str, tuple[int, ...]]
#: Function that only process 0 calls: from totals, by name or by factor, to the arrays that all
#: processes get.
Finish = Callable[[dict[Any, Float64]], Named]

#: Admitted values of settings, which `dsgmcmc.config` describes.
ScheduleName = Literal["shuffled", "cyclic", "random"]
PriorName = Literal["half-cauchy", "normal-gamma", "normal-wishart", "fixed"]
NoiseName = Literal["shared", "by-user", "by-item", "both"]
ImplicitName = Literal["no", "user", "item", "both"]
ThresholdsName = Literal["shared", "user", "item"]
FeaturesName = Literal["yes", "no", "user", "item"]


@unique
class Purpose(IntEnum):
    """Purposes of random numbers: different purposes never share random numbers.

    Values below HYPERPARAMETERS are parts of counters. HYPERPARAMETERS and larger values are parts
    of keys of NumPy's Philox generator, for random numbers that do not belong to elements of a
    factor.
    """

    STEP = 0
    START = 1
    MOMENTUM = 2
    NOISE_SCALE = 3
    IMPLICIT_FIT = 4
    IMPLICIT = 5
    IMPLICIT_UNKNOWN = 6
    IMPLICIT_START = 7
    TIME = 8
    GAP = 9
    TIME_ACCEPTED = 10
    OWN = 11  # for parts of a model that users write
    DIRECTION = 12
    RATING_WEIGHT = 13
    WINDOW = 14
    BOUNDED = 15
    METROPOLIS = 0x4D
    IMPUTATION = 0x1417
    REPLICATE = 0x4E9
    PICTURE = 0x91C7
    PLAUSIBLE = 0x9A5
    HYPERPARAMETERS = 0x147
    SUBSAMPLE = 0x5AB5
    NU = 0x6E75
    SCHEDULE = 0x5C4ED
    THRESHOLDS = 0x7E5
    TIME_PRECISION = 0x71E
    PROPOSAL = 0x94A7


class Factor(IntEnum):
    """The factors of a target, numbered as in the counters of random numbers.

    Plain vectors have only W.
    """

    W = 0
    H = 1
