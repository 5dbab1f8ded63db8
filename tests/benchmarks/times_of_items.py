"""Measures the figures of docs/time.md: matrices whose columns are times, three kinds of holes.

    python tests/benchmarks/times_of_items.py [--set passengers ...]

prints the RMSE of hidden cells: by linear interpolation along each row, by `BPMF()`, and by
`BPMF(item_features="names")`; and the CPU seconds of the two. A fifth of the cells is hidden, or
blocks of 36 successive times of single rows (a sixth of the row), or whole times (a fifth).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from bench import arguments, say, say_head
from measured_sets import stations

from dsgmcmc import BPMF

BLOCK = 36


def smooth(rng: np.random.Generator, hours: np.ndarray, width: float, number: int) -> np.ndarray:
    """Smooth functions of the time of unit variance, (number, times)."""
    distance = (hours[:, None] - hours) / width
    covariance = np.exp(-0.5 * distance**2) + 1e-8 * np.eye(len(hours))
    return rng.normal(size=(number, len(hours))) @ np.linalg.cholesky(covariance).T


def passengers() -> pd.DataFrame:
    """Counts at 60 stations in 25 days of 36 half-hours: weekends differ, crowds come and go."""
    rng = np.random.default_rng(1)
    n = 60
    day = np.arange(25 * 36) // 36
    hour = 6 + 0.5 * (np.arange(25 * 36) % 36)
    free = np.isin((day + 1) % 7, [5, 6]) | (day == 0)
    shapes = [(8, 1.2), (18, 2.5), (14, 25), (21, 6), (13, 10)]
    profiles = np.stack([np.exp(-((hour - centre) ** 2) / width) for centre, width in shapes])
    at_work = rng.gamma(0.8, 1, (n, 5)) * [1, 1, 0.6, 0.4, 0.1]
    at_leisure = at_work * rng.uniform(0.1, 1.2, (n, 5)) * [0.15, 0.3, 1.2, 1.0, 3]
    base = np.where(free, at_leisure @ profiles, at_work @ profiles)
    loads = rng.normal(size=(n, 3)) * [1, 0.5, 0.5] + [1, 0, 0]
    change = loads @ (0.08 * smooth(rng, day * 24 + hour, 2, 3))
    change += 0.06 * rng.normal(size=25)[day] + 0.06 * smooth(rng, day * 24 + hour, 3, n)
    mean = rng.lognormal(5.3, 0.8, (n, 1)) * base * np.exp(change) + 0.5
    values = rng.negative_binomial(300, 300 / (300 + mean)).astype(float)
    times = pd.Timestamp("2019-01-01") + pd.to_timedelta(day * 24 + hour, unit="h")
    return pd.DataFrame(values, columns=times)


def temperatures() -> pd.DataFrame:
    """Temperatures of 25 places in 40 days of 24 hours, some of which nobody recorded."""
    rng = np.random.default_rng(2)
    n = 25
    hours = np.flatnonzero(rng.random(40 * 24) < 0.9).astype(float)
    coast = rng.uniform(0.2, 1, (n, 1))
    daily = 5 * coast * np.sin(2 * np.pi * (hours - 9) / 24)
    fronts = smooth(rng, hours, 30, 3)
    weather = 3 * fronts[0] + rng.normal(0, 1, (n, 2)) @ fronts[1:]
    own = 0.5 * smooth(rng, hours, 6, n)
    values = rng.normal(12, 3, (n, 1)) + daily + weather + own
    values += rng.normal(0, 0.3, values.shape)
    times = pd.Timestamp("2022-07-04") + pd.to_timedelta(hours, unit="h")
    return pd.DataFrame(values, columns=times)


def stations_with_dates() -> pd.DataFrame:
    """The made-up stations of other benchmarks: nothing is smooth but the profile of a day."""
    cells = stations(0)
    values = np.full((cells.user.max() + 1, cells.item.max() + 1), np.nan)
    values[cells.user, cells.item] = cells.value
    number = np.arange(values.shape[1])
    hours = number // 36 * 24 + 6 + number % 36 / 2
    times = pd.Timestamp("2019-01-01") + pd.to_timedelta(hours, unit="h")
    return pd.DataFrame(values, columns=times)


SETS: dict[str, Callable[[], pd.DataFrame]] = {
    "passengers": passengers,
    "temperatures": temperatures,
    "stations": stations_with_dates,
}


def holes(shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Masks of hidden cells by the kind of holes."""
    rng = np.random.default_rng(0)
    rows, columns = shape
    n_blocks = columns // BLOCK
    blocks = np.zeros(shape, bool)
    for row in range(rows):
        for block in rng.choice(n_blocks, n_blocks // 6, replace=False):
            blocks[row, block * BLOCK : (block + 1) * BLOCK] = True
    silent = np.broadcast_to(rng.random(columns) < 0.2, shape)
    return {"gaps": rng.random(shape) < 0.2, "blocks": blocks, "silent times": silent}


def interpolated(frame: pd.DataFrame) -> np.ndarray:
    """The frame with its holes filled linearly in time, (rows, times)."""
    at = frame.columns.to_numpy().astype("datetime64[s]").astype(float)
    rows = []
    for row in frame.to_numpy():
        known = ~np.isnan(row)
        rows.append(np.interp(at, at[known], row[known]))
    return np.array(rows)


def main() -> int:
    """Print a line for each set and kind of holes."""
    parser = arguments(__doc__)
    parser.add_argument("--set", nargs="*", choices=[*SETS], default=[*SETS])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    say_head("set", "hidden", "interpolation", "BPMF()", 'item_features="names"', "CPU seconds")
    for name in options.set:
        whole = SETS[name]()
        for kind, hidden in holes(whole.shape).items():
            frame = whole.mask(hidden)
            truth = whole.to_numpy()[hidden]
            filled = [interpolated(frame)]
            seconds = []
            for features in (None, "names"):
                start = time.process_time()
                model = BPMF(item_features=features, matrix=True).fit(frame)
                filled.append(model.complete().to_numpy())
                seconds.append(f"{time.process_time() - start:.0f}")
            errors = [np.sqrt(np.mean((values[hidden] - truth) ** 2)) for values in filled]
            say(name, kind, *(f"{error:.3g}" for error in errors), ", ".join(seconds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
