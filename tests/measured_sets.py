"""Synthetic measurements and votes in the shapes of real sets, made by NumPy alone.

Every function takes a seed and returns `Ratings` of `shapes`. They differ from ratings by people:
most pairs are known, and of measurements the noise is small, and many values recur.
"""

from collections.abc import Callable

import numpy as np
from shapes import Ratings, generator


def sensors(seed: int) -> Ratings:
    """Whole numbers of cars in 30 car parks at 1,000 times, all known but a few per cent."""
    rng = generator("sensors", seed)
    n_parks = 30
    n_times = 1000
    hour = np.arange(n_times) % 18
    is_weekend = np.arange(n_times) // 18 % 7 >= 5
    profiles = peaks(hour, [(6, 12), (9, 30), (11, 8), (14, 20)])
    use = rng.gamma(1.5, 0.4, (n_parks, 4))
    shift = np.where(is_weekend, rng.uniform(0.3, 1.0, (n_parks, 1)), 1.0)
    size = rng.lognormal(6.2, 0.8, (n_parks, 1))
    drift = np.exp(0.03 * rng.normal(size=(n_parks, 1)).cumsum(axis=0))
    wave = 1 + 0.05 * np.sin(np.arange(n_times) / 40 + rng.uniform(0, 6, (n_parks, 1)))
    level = size * shift * (use @ profiles) * drift * wave
    value = np.rint(level + rng.normal(0, 6, level.shape))
    return cells(value, (value > 0) & (rng.random(value.shape) < 0.97))


def stations(seed: int) -> Ratings:
    """Counts of passengers of 60 stations at 900 times, zeros at night included, all known."""
    rng = generator("stations", seed)
    n_stations = 60
    n_times = 900
    profiles = peaks(np.arange(n_times) % 36, [(6, 6), (24, 10), (15, 60)])
    size = rng.lognormal(4.3, 0.8, (n_stations, 1))
    use = rng.gamma(0.8, 1, (n_stations, 3)) * size
    mean = use @ profiles * rng.gamma(60, 1 / 60, (1, n_times)) + 0.02
    value = rng.negative_binomial(25, 25 / (25 + mean)).astype(float)
    return cells(value, np.ones(value.shape, bool))


def parks(seed: int) -> Ratings:
    """Cars in 30 car parks of 20 to 3,000 places on 50 days each, by hour: two cells in five are
    held out.

    Users are hours, items pairs of a park and a day, whose feature is the park. Noise grows with
    the power 0.7 of the places.
    """
    rng = generator("parks", seed)
    n_parks = 30
    n_days = 50
    hour = np.arange(18)
    profiles = peaks(hour, [(6, 12), (9, 30), (11, 8), (14, 20)])
    use = rng.dirichlet([1.5] * 4, n_parks) @ profiles
    places = np.exp(rng.uniform(np.log(20), np.log(3000), n_parks))
    is_weekend = np.arange(n_days) % 7 >= 5
    share = np.where(is_weekend, rng.uniform(0.3, 1.0, (n_parks, 1)), 1.0)
    share = share * rng.gamma(60, 1 / 60, (n_parks, n_days))
    late = rng.normal(0, 0.15, (n_parks, n_days, 1)) * np.gradient(use, axis=1)[:, None]
    level = places[:, None, None] * (share[:, :, None] * use[:, None] + late)
    noise = 0.12 * places[:, None, None] ** 0.7 * rng.normal(size=level.shape)
    value = np.rint(np.maximum(level + noise, 0)).reshape(n_parks * n_days, len(hour))
    item, user = (index.ravel() for index in np.indices(value.shape))
    return Ratings(
        user.astype(np.int64),
        item.astype(np.int64),
        value.ravel(),
        genres=np.repeat([f"park {k}" for k in range(n_parks)], n_days),
        test=rng.random(value.size) < 0.4,
    )


def rounded(seed: int) -> Ratings:
    """Affinities of 500 compounds for 80 targets: half are inactive, at a value of the target.

    The others have a long tail upwards. Nine values in ten are recorded to one decimal, others to
    six.
    """
    rng = generator("rounded", seed)
    shape = (500, 80)
    rank = 5
    base = rng.choice([11.1, 11.2, 11.3, 11.5, 11.8, 11.9, 12.0], shape[1])
    compounds = rng.normal(size=(shape[0], rank))
    targets = rng.normal(size=(shape[1], rank))
    score = compounds @ targets.T / np.sqrt(rank) + rng.normal(0, 0.4, shape)
    activity = np.maximum(score - 0.1, 0.0)
    exact = base + 0.9 * activity**1.3 - 0.3 * (rng.random(shape) < 0.05)
    has_decimals = (activity > 0) & (rng.random(shape) < 0.2)
    value = np.where(has_decimals, np.round(exact, 6), np.round(exact, 1))
    return cells(value, rng.random(shape) < 0.3)


def flows(seed: int) -> Ratings:
    """Trade between 120 countries: 12,000 amounts over nine orders of magnitude, zeros left out."""
    rng = generator("flows", seed)
    n = 120
    size = rng.normal(0, 2.2, n)
    place = rng.normal(size=(n, 3))
    exporting = rng.normal(0, 0.7, n)
    importing = rng.normal(0, 0.7, n)
    distance = np.sqrt(np.square(place[:, None] - place).sum(axis=2)) + 0.3
    logs = (size + exporting)[:, None] + size + importing - 1.3 * np.log(distance)
    tails = np.clip(rng.standard_t(4, (n, n)), -10, 10)
    value = np.exp(logs + 1.1 * tails)
    return cells(value, ~np.eye(n, dtype=bool) & (rng.random((n, n)) < 0.85))


def votes(seed: int) -> Ratings:
    """Yes and no of 100 members in 540 motions: two parties, and a dimension across them."""
    rng = generator("votes", seed)
    n_members = 100
    n_motions = 540
    party = np.where(rng.random(n_members) < 0.54, 1.0, -1.0)
    across = rng.normal(0, 1, n_members)
    members = np.column_stack([party + rng.normal(0, 0.08, n_members), across])
    motions = rng.normal(0, [8.0, 0.8], (n_motions, 2))
    score = members @ motions.T + rng.normal(0, 1.5, n_motions)
    value = (rng.random(score.shape) < 1 / (1 + np.exp(-score))).astype(float)
    return cells(value, rng.random(value.shape) < 0.95)


def peaks(hour: np.ndarray, shapes: list[tuple[int, int]]) -> np.ndarray:
    """Daily profiles, (profiles, times): bells about an hour, of a width."""
    return np.stack([np.exp(-((hour - centre) ** 2) / width) for centre, width in shapes])


def cells(value: np.ndarray, known: np.ndarray) -> Ratings:
    """Ratings of the known cells of a matrix."""
    user, item = np.nonzero(known)
    return Ratings(user.astype(np.int64), item.astype(np.int64), value[known])


SETS: dict[str, Callable[[int], Ratings]] = {
    "sensors": sensors,
    "stations": stations,
    "parks": parks,
    "rounded": rounded,
    "flows": flows,
    "votes": votes,
}
