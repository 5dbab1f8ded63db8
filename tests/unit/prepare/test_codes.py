"""Values that probably mean "not rated" are named; those of scales, counts and amounts are not."""

import numpy as np
import pytest

from dsgmcmc.prepare.not_rated import find_codes

RNG = np.random.default_rng(3)
STARS = RNG.choice([1, 2, 3, 4, 5], 1000, p=[0.05, 0.1, 0.25, 0.35, 0.25])
JOKES = np.round(RNG.uniform(-10, 10, 1000), 2)
POISSON = RNG.poisson(0.7, 2000)
NORMAL = RNG.normal(size=1000)
#: Intensities of a mass spectrum, which begin where they can be measured.
SPECTRUM = np.floor(2.0 ** (25 + 2 * np.clip(NORMAL, -2.95, 4)))


def levels(counts, lowest=0):
    """Ratings of consecutive levels, five times as many of each as `counts` has."""
    return np.repeat(np.arange(len(counts)) + lowest, 5 * np.array(counts))


#: Ratings, and the values among them that probably mean "not rated".
CASES = {
    "stars": (STARS, []),
    "-1 below stars": ([*STARS, *[-1] * 30], [-1]),
    "-1 below levels from 0": ([*(STARS - 1), *[-1] * 30], [-1]),
    "99 above stars": ([*STARS, *[99] * 30], [99]),
    "both ends": ([*STARS, *[-9] * 30, *[99] * 30], [-9, 99]),
    "rare, but usual": ([*STARS, 99], [99]),
    "rare, and not usual": ([*STARS, 50], []),
    "0 below stars": ([*STARS, *[0] * 200], [0]),
    "0 below half stars": ([*(STARS / 2), *[0] * 200], [0]),
    "0 far below a measurement": ([*(JOKES + 30), *[0] * 50], [0]),
    "99 beyond jokes": ([*JOKES, *[99] * 200], [99]),
    "jokes": (JOKES, []),
    "nine points": (RNG.integers(1, 10, 1000), []),
    "answers": (RNG.integers(0, 2, 500), []),
    "answers and 9": ([*RNG.integers(0, 2, 500), *[9] * 20], [9]),
    "points of 0, 1 and 2": (RNG.choice(3, 500, p=[0.5, 0.1, 0.4]), []),
    "votes against, none and for": (RNG.integers(-1, 2, 500), []),
    "roll call, 9 for no vote": (RNG.choice([1, 6, 9], 500, p=[0.5, 0.4, 0.1]), [9]),
    "rain: two thirds are true zeros": ([*[0] * 660, *np.round(RNG.gamma(0.7, 9, 340), 1)], []),
    "counts": (POISSON, []),
    "counts from 1 with a tail": (np.ceil(RNG.lognormal(2, 1.5, 1000)), []),
    "measurements cut off": (np.maximum(RNG.normal(6, 1, 1000), 5), []),
    "all equal": ([1, 1, 1, 1, 1], []),
    "two thirds not rated": (levels([60, 1, 1, 2, 2, 4, 6, 8, 9, 6, 5]), [0]),
    "a bad film": (levels([2, 1, 3, 5, 4, 2]), []),
    "a scale whose worst level is frequent": (levels([12, 9, 8, 10, 14, 12]), []),
    "counts with many zeros": (levels([60, 9, 4, 2, 1]), []),
    "likes": (levels([60, 6]), []),
    "from 1 on": (levels([60, 1, 2, 6, 9], 1), []),
    "98 and 99 above stars": ([*STARS, *[98] * 50, *[99] * 50], [98, 99]),
    "77, 88 and 99 above stars": ([*STARS, *[77, 88, 99] * 50], [77, 88, 99]),
    "8 and 9 above stars": ([*STARS, *[8, 9] * 50], [8, 9]),
    "-8 and -9 below stars": ([*STARS, *[-8, -9] * 50], [-9, -8]),
    "-1 and -2 below stars": ([*STARS, *[-1, -2] * 50], [-2, -1]),
    "from -2 to 2": (STARS - 3, []),
    "several at both ends": ([*STARS, *[-9, -8, 98, 99] * 50], [-9, -8, 98, 99]),
    "rare 99 beyond a measurement": ([*NORMAL, *[99] * 5], [99]),
    "rare -999 below a measurement": ([*NORMAL, *[-999] * 5], [-999]),
    "rare 9 above stars": ([*STARS, *[9] * 5], [9]),
    "rare -1 below stars": ([*STARS, *[-1] * 5], [-1]),
    "counts of which one is 9": ([*POISSON, 9], []),
    "rounded measurements of which one is -1": ([*np.round(NORMAL * 2 + 7), -1], []),
    "zeros of a mass spectrum": ([*SPECTRUM, *[0] * 160], [0]),
    "a mass spectrum": (SPECTRUM, []),
    "amounts from near 0 on, and zeros": ([*RNG.gamma(0.7, 9, 340), *[0] * 660], []),
    "rounded durations and zeros": ([*np.round(np.exp(NORMAL), 1), *[0] * 200], []),
    "measurements cut off at 0": (np.maximum(NORMAL, 0), []),
    "from -5 to 5": (levels([1, 1, 1, 2, 2, 60, 1, 2, 8, 9, 5], -5), []),
}


@pytest.mark.parametrize("name", CASES)
def test_codes(name):
    """A code is at an end of the scale, frequent, and apart from the others."""
    ratings, expected = CASES[name]
    codes = find_codes(*np.unique(np.asarray(ratings, float), return_counts=True))
    assert codes.values == expected
    assert codes.ratings == np.isin(ratings, expected).sum()
    assert codes.share == codes.ratings / len(ratings)
    assert bool(str(codes)) == bool(expected)
