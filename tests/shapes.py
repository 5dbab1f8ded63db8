"""Synthetic ratings of many shapes, made by NumPy alone: imitations of public data sets, and
extremes.

Every function takes a seed and returns `Ratings`. The first three, `half_stars`, `book_ratings` and
`check_ins`, imitate public sets in their shape, their shares of levels, the numbers of ratings of
users and items, and differences of users. `SHAPES` has the shapes of at most 20,000 ratings by
name.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

GENRES = (
    *(
        "Action",
        "Adventure",
        "Animation",
        "Children",
        "Comedy",
        "Crime",
        "Documentary",
        "Drama",
        "Fantasy",
    ),
    *(
        "Film-Noir",
        "Horror",
        "Musical",
        "Mystery",
        "Romance",
        "Sci-Fi",
        "Thriller",
        "War",
        "Western",
    ),
)


@dataclass(frozen=True)
class Ratings:
    """Ratings (n,): users and items by numbers from 0, values, times and features.

    Parameters
    ----------
    user, item : (n,) int64
        No pair occurs twice.
    value : (n,) float64
    time : (n,) int64, optional
        Seconds.
    genres : (number of items,) str, optional
        Features of the items: names separated by ``|``.
    test : (n,) bool, optional
        Which ratings are held out; if None a tenth, drawn by `prepare`.
    """

    user: np.ndarray
    item: np.ndarray
    value: np.ndarray
    time: np.ndarray | None = None
    genres: np.ndarray | None = None
    test: np.ndarray | None = None

    def prepare(self, path: Path, seed: int = 0) -> Path:
        """Write a ratings file, as ``dsgmcmc prepare --timestamps --item-features`` does with
        tables of these.
        """
        import pandas as pd

        from dsgmcmc.prepare.prepare import prepare_ratings

        folder = path.with_suffix(".tables")
        folder.mkdir(parents=True, exist_ok=True)
        table = pd.DataFrame({"user": self.user, "item": self.item, "rating": self.value})
        more: dict[str, object] = {}
        if self.time is not None:
            table["timestamp"] = self.time
            more["timestamps"] = True
        if self.test is not None:
            table[self.test].to_csv(folder / "test.csv", index=False)
            table = table[~self.test]
            more["test"] = str(folder / "test.csv")
        if self.genres is not None:
            pd.Series(self.genres, name="genres").to_csv(folder / "items.csv", index_label="item")
            more["item_features"] = folder / "items.csv"
        table.to_csv(folder / "train.csv", index=False)
        prepare_ratings([str(folder / "train.csv")], path, seed=seed, **more)
        return path


# ---------------------------------------------------------------------- pairs that are rated


def generator(name: str, seed: int) -> np.random.Generator:
    """Random numbers of a shape and a seed."""
    return np.random.default_rng([zlib.crc32(name.encode()), seed])


def pairs(
    rng: np.random.Generator,
    users: np.ndarray,
    items: np.ndarray,
    n: int,
    liking: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `n` different pairs, in proportion to the weights of users and items, by user and item.

    With `liking`, a function of users and items, pairs of which it is large come more often.
    Everybody and everything occurs at least once, if `n` is large enough.
    """
    users = users / users.sum()
    items = items / items.sum()
    numbers = np.zeros(0, np.int64)
    if n >= len(users) + len(items):
        of_items = rng.choice(len(users), len(items), p=users) * len(items) + np.arange(len(items))
        of_users = np.arange(len(users)) * len(items) + rng.choice(len(items), len(users), p=items)
        numbers = np.unique(np.concatenate([of_items, of_users]))
    while len(numbers) < n:
        i = rng.choice(len(users), n, p=users)
        j = rng.choice(len(items), n, p=items)
        kept = rng.random(n) < (1.0 if liking is None else 1 / (1 + np.exp(-liking(i, j))))
        new = np.setdiff1d((i * len(items) + j)[kept], numbers)
        numbers = np.concatenate([numbers, rng.permutation(new)[: n - len(numbers)]])
    numbers = np.sort(numbers)
    return numbers // len(items), numbers % len(items)


def taste(
    rng: np.random.Generator, users: int, items: int, rank: int, sd: float
) -> Callable[..., np.ndarray]:
    """Make a function of users and items: inner products of this rank and standard deviation."""
    w = rng.normal(size=(users, rank))
    h = rng.normal(size=(items, rank))
    return lambda i, j: sd / np.sqrt(rank) * np.einsum("nk,nk->n", w[i], h[j])


# ---------------------------------------------------------------------- three public sets


def half_stars(seed: int, users: int = 610, items: int = 9700, n: int = 101_000) -> Ratings:
    """Half stars 0.5 to 5 of films, with timestamps and genres; a tenth held out leaves 91,000 by
    default.

    A user has from some twenty to two thousand ratings, most films have few, and a third of them
    one. Users like some genres, and rate more of what they like. Four in ten users give whole stars
    alone. Every user has a mean, a spread, and his own noise; one in ten stays at the ends of the
    scale, one in thirty rates without regard to the film, and one in a hundred gives the same
    rating always. His ratings come in few sessions with moods, several in a second.
    """
    rng = generator("half stars", seed)
    genres = rng.random((items, len(GENRES))) < rng.beta(1, 8, len(GENRES))
    preferred = rng.normal(0, 0.35, (users, len(GENRES)))
    liked = taste(rng, users, items, 6, 0.5)

    def liking(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return liked(i, j) + np.einsum("nk,nk->n", preferred[i], genres[j])

    popular = rng.lognormal(0, 1.9, items)
    i, j = pairs(
        rng, 20 + rng.lognormal(4.0, 1.3, users), popular, n, lambda i, j: 3 * liking(i, j) - 1
    )
    time, mood = sessions(rng, i)
    quality = (
        0.12 * np.log(popular)
        + rng.normal(0, 0.35, items)
        + genres @ rng.normal(0, 0.2, len(GENRES))
    )
    mean = rng.normal(3.65, 0.45, users)
    spread = rng.lognormal(-0.25, 0.4, users)
    noise = 0.6 * rng.lognormal(0, 0.3, users)
    worth = quality[j] + 0.6 * liking(i, j)
    x = mean[i] + spread[i] * (worth - worth.mean()) + 0.4 * mood + noise[i] * rng.normal(size=n)
    quantile = rng.permutation(users) / users  # of the user; it decides how the user rates
    uses_whole_stars = quantile < 0.4
    uses_extremes = (quantile >= 0.4) & (quantile < 0.5)
    is_careless = (quantile >= 0.5) & (quantile < 0.53)
    rates_all_alike = (quantile >= 0.53) & (quantile < 0.54)
    stars = np.where(uses_whole_stars[i], np.round(x), np.round(2 * x) / 2)
    extremes = np.where(x < mean[i] - 0.5, rng.choice([0.5, 1.0], n, p=[0.7, 0.3]), 5.0)
    stars = np.where(uses_extremes[i], extremes, stars)
    careless = rng.choice([0.5, 1, 3, 4, 5], n, p=[0.15, 0.05, 0.1, 0.2, 0.5])
    stars = np.where(is_careless[i], careless, stars)
    stars = np.where(rates_all_alike[i], np.round(mean[i]), stars)
    lowest = np.where(uses_whole_stars[i], 1, 0.5)
    return Ratings(i, j, np.clip(stars, lowest, 5), time, named(genres))


def named(genres: np.ndarray) -> np.ndarray:
    """Names of the genres of every item."""
    return np.array(["|".join(np.array(GENRES)[has]) for has in genres])


def sessions(rng: np.random.Generator, user: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times of ratings in seconds, and a standard normal number that those of one session share.

    A user rates in few sessions; three ratings in ten come with others in the same second.
    """
    first = rng.integers(1_000_000_000, 1_500_000_000, user.max() + 1)
    many = rng.geometric(0.3, user.max() + 1)  # sessions of the user
    session = np.floor(rng.random(len(user)) * many[user]).astype(np.int64)
    within = np.floor(rng.exponential(600, len(user)))
    within = np.where(rng.random(len(user)) < 0.3, np.floor(within / 60) * 60, within).astype(
        np.int64
    )
    _, which = np.unique(user * (many.max() + 1) + session, return_inverse=True)
    return first[user] + session * 86_400 * 40 + within, rng.normal(size=which.max() + 1)[which]


def book_ratings(seed: int, users: int = 5157, items: int = 44_133, n: int = 101_000) -> Ratings:
    """Ratings 0 to 10, two thirds of them 0, which may mean "not rated"; very few an item.

    Some users only give 0, some never, and users rate the books that they like. Of other ratings 1
    to 4 hardly occur, and 8 is the most frequent; some users give the highest and the lowest alone,
    without regard to the book.
    """
    rng = generator("book ratings", seed)
    i, j = pairs(rng, 1 + rng.pareto(1.1, users) * 4, 0.2 + rng.pareto(1.2, items), n)
    rated = rng.beta(0.3, 0.8, users)  # share of a user's books that he rates
    quality = rng.normal(0, 0.7, items)
    liked = taste(rng, users, items, 2, 1.0)(i, j)
    x = rng.normal(7.7, 1.1, users)[i] + quality[j] + 0.5 * liked
    x = np.clip(np.round(x + rng.lognormal(0.1, 0.4, users)[i] * rng.normal(size=n)), 1, 10)
    x = np.where((x < 5) & (rng.random(n) < 0.5), 5, x)
    ends = rng.random(users) < 0.1
    x = np.where(ends[i], np.where(rng.random(n) < 0.85, 10, 1), x)
    utility = np.log(rated / (1 - rated))[i] + 0.5 * quality[j] + 2 * liked + rng.logistic(size=n)
    return Ratings(i, j, np.where(utility > np.quantile(utility, 2 / 3), x, 0.0))


def check_ins(seed: int, users: int = 2318, items: int = 5574, n: int = 69_000) -> Ratings:
    """Numbers of visits to places, 1 to 95, of mean 1.4: a few users go to a few places very often.

    The tail of counts is that of a power law of exponent 3, heavier for some users and places.
    """
    rng = generator("check-ins", seed)
    i, j = pairs(rng, 5 + rng.pareto(1.5, users) * 10, 1 + rng.pareto(1.2, items) * 3, n)
    regular = rng.normal(0, 0.5, users)[i] + rng.normal(0, 0.4, items)[j]
    exponent = np.clip(2.6 * np.exp(-0.35 * regular), 1.0, 6.0)
    return Ratings(i, j, np.minimum(np.floor(rng.random(n) ** (-1 / exponent)), 95.0))


# ---------------------------------------------------------------------- known distributions


@dataclass(frozen=True)
class Size:
    """How many users, items and ratings; `active` and `popular` are sds of the logarithms of their
    weights.
    """

    users: int = 400
    items: int = 250
    n: int = 12_000
    active: float = 0.8
    popular: float = 1.0


def planted_by(
    rng: np.random.Generator, size: Size, rank: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Users, items and predictors of variance 1, of which biases are a half and factors of that
    rank the other.
    """
    weights = rng.lognormal(0, size.active, size.users), rng.lognormal(0, size.popular, size.items)
    i, j = pairs(rng, *weights, size.n)
    of_factors = taste(rng, size.users, size.items, rank, np.sqrt(0.5))(i, j)
    return i, j, rng.normal(0, 0.5, size.users)[i] + rng.normal(0, 0.5, size.items)[j] + of_factors


def planted(name: str, seed: int, size: Size = Size(), rank: int = 3) -> tuple:
    """Random numbers of a shape and a seed, and what `planted_by` makes of them."""
    rng = generator(name, seed)
    return rng, *planted_by(rng, size, rank)


def normal(seed: int, size: Size = Size(), scale: float = 1.0, offset: float = 0.0) -> Ratings:
    """Measurements with normal noise of variance 1, times `scale` and plus `offset`."""
    rng, i, j, eta = planted("normal", seed, size)
    return Ratings(i, j, offset + scale * (eta + rng.normal(size=len(i))))


def own_noise(seed: int) -> Ratings:
    """Measurements with normal noise, whose precision is a Gamma variable of every user times one
    of every item.
    """
    rng, i, j, eta = planted("own noise", seed)
    precision = rng.gamma(4, 0.25, Size.users)[i] * rng.gamma(4, 0.25, Size.items)[j]
    return Ratings(i, j, eta + rng.normal(size=len(i)) / np.sqrt(precision))


def student(seed: int) -> Ratings:
    """Measurements with Student-t noise of 2.5 degrees of freedom: some are hundreds of sds
    away.
    """
    rng, i, j, eta = planted("Student", seed)
    return Ratings(i, j, eta + 0.5 * rng.standard_t(2.5, len(i)))


def amounts(seed: int) -> Ratings:
    """Amounts of money in cents: log-normal, of users and items whose logarithms vary by 2 and
    1.5.
    """
    rng, i, j, eta = planted("amounts", seed)
    return Ratings(i, j, np.round(20 * np.exp(2 * eta + 0.5 * rng.normal(size=len(i))), 2) + 0.01)


def amounts_of(amount: str, seed: int) -> Ratings:
    """Amounts of a kind of `synthetic.AMOUNTS`, whose logarithms have predictors of sd 1 about
    2.
    """
    from synthetic import AMOUNTS

    rng, i, j, eta = planted(amount, seed)
    return Ratings(i, j, AMOUNTS[amount](2 + eta, rng))


def stars(seed: int) -> Ratings:
    """Stars 1 to 5 by thresholds that all share, with a scale of every user and every item."""
    rng, i, j, eta = planted("stars", seed)
    scale = rng.lognormal(0, 0.2, Size.users)[i] * rng.lognormal(0, 0.2, Size.items)[j]
    x = 1.5 * eta + rng.logistic(size=len(i)) / scale
    return Ratings(i, j, 1.0 + np.searchsorted([-3.0, -1.5, 0.0, 2.0], x))


def counts(seed: int, dispersion: float = 5.0) -> Ratings:
    """Counts from 0 on with a negative binomial law: their variance is m + m^2 / dispersion."""
    rng, i, j, eta = planted("counts", seed)
    return Ratings(
        i,
        j,
        rng.poisson(3 * np.exp(0.7 * eta) * rng.gamma(dispersion, 1 / dispersion, len(i))) * 1.0,
    )


def large_counts(seed: int) -> Ratings:
    """Counts 1 to 10,000, whose logarithms vary by 1.5 between pairs, and by more than Poisson's
    law within.
    """
    rng, i, j, eta = planted("large counts", seed)
    x = rng.poisson(np.minimum(8 * np.exp(1.5 * eta) * rng.gamma(1, 1, len(i)), 1e6))
    return Ratings(i, j, np.clip(x, 1.0, 10_000.0))


# ---------------------------------------------------------------------- extremes


def giant_user(seed: int) -> Ratings:
    """One user has rated all 3,000 items, and 1,500 users have rated four each on average."""
    rng = generator("giant user", seed)
    i, j = pairs(rng, np.ones(1500), rng.lognormal(0, 1, 3000), 6000)
    i = np.concatenate([np.full(3000, 1500), i])
    j = np.concatenate([np.arange(3000), j])
    x = 3.5 + rng.normal(0, 0.5, 1501)[i] + rng.normal(0, 0.6, 3000)[j] + rng.normal(0, 0.8, len(i))
    return Ratings(i, j, np.clip(np.round(x), 1, 5))


def giant_item(seed: int) -> Ratings:
    """All 3,000 users have rated one item, and four of 1,500 others on average."""
    transposed = giant_user(seed)
    return Ratings(transposed.item, transposed.user, transposed.value)


def two_blocks(seed: int) -> Ratings:
    """Two halves of users have rated two halves of items, and on two scales: 0 to 1, and 90 to
    110.
    """
    rng = generator("two blocks", seed)
    half = Size(150, 100, 5000)
    first = planted_by(rng, half)
    second = planted_by(rng, half)
    low = np.clip(0.5 + 0.2 * first[2] + rng.normal(0, 0.1, half.n), 0, 1)
    i, j = (
        np.concatenate([a, b + b.max() + 1]) for a, b in zip(first[:2], second[:2], strict=True)
    )
    return Ratings(i, j, np.concatenate([low, 100 + 3 * second[2] + rng.normal(0, 1, half.n)]))


def dense(seed: int) -> Ratings:
    """Jokes: 150 users have rated nearly all of 100, from -10 to 10 in hundredths."""
    rng, i, j, eta = planted("dense", seed, Size(150, 100, 14_000, 0.1, 0.1), rank=5)
    return Ratings(i, j, np.clip(np.round(1 + 3 * eta + 4 * rng.normal(size=len(i)), 2), -10, 10))


def ten_users(seed: int) -> Ratings:
    """Ten users and 1,500 items, in half stars."""
    rng, i, j, eta = planted("ten users", seed, Size(10, 1500, 6000, 0.3, 0.5))
    return Ratings(
        i, j, np.clip(np.round(2 * (3.3 + 0.8 * eta + 0.5 * rng.normal(size=len(i)))) / 2, 0.5, 5)
    )


def constant_users(seed: int) -> Ratings:
    """Two thirds of the users always give the same of five stars, most of them the highest; there
    are few others.
    """
    size = Size(500, 200, 10_000)
    rng, i, j, eta = planted("constant users", seed, size)
    usual = rng.choice([1.0, 4.0, 5.0], size.users, p=[0.2, 0.1, 0.7])
    always = rng.random(size.users) < 2 / 3
    return Ratings(
        i,
        j,
        np.where(always[i], usual[i], np.clip(np.round(3.5 + eta + rng.normal(size=len(i))), 1, 5)),
    )


def nearly_all_alike(seed: int) -> Ratings:
    """Five stars but for ten ratings of four, and one of one."""
    rng, i, j, _ = planted("nearly all alike", seed, Size(300, 200, 5000))
    value = np.full(len(i), 5.0)
    value[rng.choice(len(i), 11, replace=False)] = [1.0] + [4.0] * 10
    return Ratings(i, j, value)


def yes_or_no(seed: int) -> Ratings:
    """Ones, and zeros that are one in twenty, nearly all of items that have few ones."""
    rng, i, j, eta = planted("yes or no", seed, Size(500, 300, 12_000))
    return Ratings(i, j, (3 * eta + rng.logistic(size=len(i)) > np.quantile(3 * eta, 0.05)) * 1.0)


def one_each(seed: int) -> Ratings:
    """4,000 users, nine tenths of whom have one rating, in ten stars."""
    rng, i, j, eta = planted("one each", seed, Size(4000, 300, 5500, 2.0, 1.5))
    return Ratings(i, j, np.clip(np.round(7 + 1.5 * eta + rng.normal(size=len(i))), 1, 10))


def new_items(seed: int) -> Ratings:
    """Nine in ten items of the test part have no training rating, and come with no features."""
    size = Size(400, 600, 12_000, 0.8, 0.3)
    rng, i, j, eta = planted("new items", seed, size)
    new = rng.random(size.items) < 0.1
    known = ~new[j] & (rng.random(size.n) < new[j].sum() / 9 / size.n)
    return Ratings(
        i, j, np.clip(np.round(3.5 + eta + rng.normal(size=len(i))), 1, 5), test=new[j] | known
    )


def few(seed: int) -> Ratings:
    """Sixty ratings of 15 users and 12 items, in five stars."""
    rng, i, j, eta = planted("few", seed, Size(15, 12, 60))
    return Ratings(i, j, np.clip(np.round(3.5 + eta + 0.5 * rng.normal(size=len(i))), 1, 5))


def two_camps(seed: int) -> Ratings:
    """Users of two camps like items of one kind each: 180 ratings in five stars, nearly
    separable.
    """
    rng = generator("two camps", seed)
    i, j = (side.ravel() for side in np.indices((18, 15)))
    rated = (i + j) % 3 > 0
    i = i[rated]
    j = j[rated]
    return Ratings(i, j, 1.0 + rng.binomial(4, np.where(i % 2 == j % 2, 0.95, 0.05)))


@dataclass(frozen=True)
class Shape:
    """Ratings of one kind: a function of a seed, and the models of `robust.py` whose law they have
    by construction.
    """

    make: Callable[[int], Ratings]
    true: tuple[str, ...] = ()


#: Shapes of at most 20,000 ratings by their names.
SHAPES: dict[str, Shape] = {
    "half stars": Shape(lambda seed: half_stars(seed, 250, 2500, 16_000)),
    "book ratings": Shape(lambda seed: book_ratings(seed, 900, 7500, 17_000)),
    "check-ins": Shape(lambda seed: check_ins(seed, 600, 1500, 17_000)),
    "normal": Shape(normal, ("plain", "noise")),
    "own noise": Shape(own_noise, ("noise",)),
    "stars": Shape(stars, ("ordinal-logit",)),
    "Student-t": Shape(student, ("student-t",)),
    "amounts": Shape(amounts),
    "log-normal": Shape(partial(amounts_of, "log-normal"), ("log", "log noise")),
    "log-Student-t": Shape(partial(amounts_of, "log-Student-t"), ("log tails",)),
    **{
        amount: Shape(partial(amounts_of, amount))
        for amount in ("gamma", "Pareto, cut", "heavy counts", "sums")
    },
    "counts": Shape(counts, ("negative-binomial",)),
    "large counts": Shape(large_counts),
    "giant user": Shape(giant_user),
    "giant item": Shape(giant_item),
    "two blocks": Shape(two_blocks),
    "dense": Shape(dense),
    "ten users": Shape(ten_users),
    "constant users": Shape(constant_users),
    "nearly all alike": Shape(nearly_all_alike),
    "yes or no": Shape(yes_or_no),
    "one each": Shape(one_each),
    "values of 1e-6": Shape(lambda seed: normal(seed, scale=1e-6), ("plain",)),
    "values of 1e6": Shape(lambda seed: normal(seed, scale=1e6, offset=3e6), ("plain",)),
    "new items": Shape(new_items),
    "few": Shape(few),
    "two camps": Shape(two_camps),
}
