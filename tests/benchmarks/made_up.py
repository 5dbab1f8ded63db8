"""``data/synthetic.py`` for benchmarks: ratings with a known truth."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "data"))

from synthetic import (
    FACTOR_SD,
    ITEM_SD,
    USER_SD,
    SyntheticOptions,
    Truth,
    best_prediction,
    generate,
    load_truth,
    truth_path,
)

__all__ = [
    "FACTOR_SD",
    "ITEM_SD",
    "USER_SD",
    "SyntheticOptions",
    "Truth",
    "best_prediction",
    "generate",
    "load_truth",
    "truth_path",
]
