r"""Functions of time that serve as features: waves of periods, weekdays, and bumps.

A family of functions is a group of features, so that the chain learns its strength. Sines and
cosines of a period are divided into octaves of frequency: 1-2, 3-6, 7-14 periods a day. A bump is a
cubic B-spline with equally spaced knots; bumps of several widths together follow both slow and fast
changes, and few of them are not zero at a time.

Waves and weekdays use the time of the clock where a time was recorded, bumps the time since 1970.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pydantic
from pydantic import Field, FiniteFloat

from dsgmcmc.types import Float64, Int64

HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY
YEAR = 365.2425 * DAY
#: Names of the weekdays, Monday first; the first of January 1970 was a Thursday.
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_THURSDAY = 3
#: Factors by which values have a variance of about 1 over all times, like numbers that are
#: standardised: chains find strengths of groups sooner from effects that are too large.
_WAVE_SCALE = 2**0.5
_BUMP_SCALE = (151 / 315) ** -0.5  # squares of the values at a time add up to 151 / 315 on average
MIN_TIMES = 8  # different times, of which functions are learnt
_PERIODS = 2.0  # periods that the times must cover
_MAX_WAVES = {"hour": 24, "season": 6}  # of the highest frequency a period
_MAX_WEEKDAY_WAVES = 6  # the same, for waves that differ between weekdays
_MAX_BUMPS = 1000  # of one width
_SPACING = 2.0  # distance of the narrowest bumps, in units of the resolution
_FAR = 2.0**40  # bumps, from which on positions are all the same
_WIDER = 4  # ratio of the distances of bumps and of the next wider ones
#: Units of durations, from the longest one: seconds and name.
_UNITS = ((DAY, "days"), (HOUR, "hours"), (60.0, "minutes"), (1.0, "seconds"))


class Times(NamedTuple):
    """Times of some rows.

    Attributes
    ----------
    row : (n,) int64
        Rows, ascending.
    time : (n,) float64
        Seconds since 1970, in UTC.
    clock : (n,) float64
        The same of the clock at the place: `time` plus the offset from UTC.
    """

    row: Int64
    time: Float64
    clock: Float64


class Entries(NamedTuple):
    """Values of features that are stored, such as those of functions of time, (m,) each.

    Attributes
    ----------
    position : int64
        Positions of the rows, or of the times.
    feature : int64
        Numbers of the features, or of the functions.
    value : float64
    """

    position: Int64
    feature: Int64
    value: Float64


def _dense_entries(values: Float64) -> Entries:
    """Return the entries of the values (n, F) of all functions at n times."""
    position, feature = np.nonzero(values)
    return Entries(position, feature, values[position, feature])


def _weekday(clock: Float64) -> Int64:
    """Return the numbers of weekdays, from 0 for Monday."""
    return (np.floor(clock / DAY).astype(np.int64) + _THURSDAY) % 7


def _waves(clock: Float64, period: float, frequencies: Sequence[int]) -> Float64:
    """Return sines and cosines of each frequency, (n, 2 F)."""
    phase = 2 * np.pi * (clock % period) / period
    angles = phase[:, None] * np.array(frequencies)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(clock), -1)


def _wave_names(frequencies: Sequence[int]) -> list[str]:
    return [f"{wave} {k}" for k in frequencies for wave in ("sin", "cos")]


@pydantic.dataclasses.dataclass(frozen=True)
class Waves:
    """Sines and cosines of the hour of the day, or of the season.

    Attributes
    ----------
    of : {"hour", "season"}
    first, last : int
        The lowest and the highest frequency, in waves a day or a year.
    """

    of: Literal["hour", "season"]
    first: Annotated[int, Field(ge=1)]
    last: Annotated[int, Field(ge=1)]
    kind: Literal["waves"] = "waves"

    @property
    def name(self) -> str:
        """Name of the family."""
        if self.first == self.last:
            return f"{self.of} {self.first}"
        return f"{self.of} {self.first}-{self.last}"

    @property
    def features(self) -> list[str]:
        """Names of the functions."""
        return _wave_names(self._frequencies)

    @property
    def _frequencies(self) -> range:
        return range(self.first, self.last + 1)

    def entries(self, times: Times) -> Entries:
        """Return the values at times."""
        period = {"hour": DAY, "season": YEAR}[self.of]
        return _dense_entries(_waves(times.clock, period, self._frequencies) * _WAVE_SCALE)


@pydantic.dataclasses.dataclass(frozen=True)
class Weekdays:
    """Flags of weekdays, and waves of the hour that differ between weekdays.

    Attributes
    ----------
    days : tuple of int
        Weekdays that occur, from 0 for Monday.
    waves : int
        The highest frequency of the waves, in waves a day; 0: flags alone.
    """

    days: tuple[Annotated[int, Field(ge=0, le=6)], ...]
    waves: Annotated[int, Field(ge=0)] = 0
    kind: Literal["weekdays"] = "weekdays"

    @property
    def name(self) -> str:
        """Name of the family."""
        if self.waves:
            return "hour by weekday"
        return "weekday"

    @property
    def features(self) -> list[str]:
        """Names of the functions."""
        days = [WEEKDAYS[day] for day in self.days]
        if not self.waves:
            return days
        return [f"{day} {wave}" for day in days for wave in _wave_names(range(1, self.waves + 1))]

    def entries(self, times: Times) -> Entries:
        """Return the values at times."""
        number_of = np.full(7, -1)
        number_of[list(self.days)] = np.arange(len(self.days))
        number = number_of[_weekday(times.clock)]
        values = np.ones((len(number), 1))
        if self.waves:
            values = _waves(times.clock, DAY, range(1, self.waves + 1)) * _WAVE_SCALE
        values = values * np.sqrt(len(self.days))
        position, wave = np.nonzero(values * (number >= 0)[:, None])
        feature = number[position] * values.shape[1] + wave
        return Entries(position, feature, values[position, wave])


@pydantic.dataclasses.dataclass(frozen=True)
class Bumps:
    """Cubic B-splines with equally spaced knots.

    Attributes
    ----------
    start : float
        Centre of the bump at position 0, in seconds since 1970.
    spacing : float
        Distance of two neighbours, in seconds.
    positions : tuple of int
        Bumps that are not zero at some time, ascending.
    dated : bool
        Whether times were dates, and not numbers.
    """

    start: FiniteFloat
    spacing: Annotated[FiniteFloat, Field(gt=0)]
    positions: tuple[int, ...]
    dated: bool = True
    kind: Literal["bumps"] = "bumps"

    @property
    def end(self) -> float:
        """Centre of the last bump, in seconds since 1970."""
        return self.start + self.positions[-1] * self.spacing

    def shown(self, time: float) -> str:
        """Return a time as text: a date, or a number."""
        if self.dated:
            return written(time)
        return f"{time:.15g}"

    @property
    def name(self) -> str:
        """Name of the family."""
        return f"bumps {self.distance}"

    @property
    def distance(self) -> str:
        """Distance of two neighbours, as text."""
        if self.dated:
            return duration(self.spacing)
        return f"{self.spacing:g}"

    @property
    def features(self) -> list[str]:
        """Names of the functions: the times of their centres."""
        return [self.shown(self.start + position * self.spacing) for position in self.positions]

    def entries(self, times: Times) -> Entries:
        """Return the values at times; there are none far from all times that were learnt."""
        bumps, values = _splines(times.time, self.start, self.spacing)
        known = np.array(self.positions, np.int64)
        feature = np.minimum(np.searchsorted(known, bumps), len(known) - 1)
        position, which = np.nonzero((known[feature] == bumps) & (values > 0))
        scaled = values[position, which] * (_BUMP_SCALE * np.sqrt(len(known)))
        return Entries(position, feature[position, which], scaled)


Family = Annotated[Waves | Weekdays | Bumps, Field(discriminator="kind")]


def _splines(time: Float64, start: float, spacing: float) -> tuple[Int64, Float64]:
    """Return the positions of the four bumps around each time, and their values, (n, 4) each.

    Values at a time add up to 1 [de Boor 1978].
    """
    place = np.clip((time - start) / spacing, -_FAR, _FAR)
    cell = np.floor(place)
    t = (place - cell)[:, None]
    values = np.concatenate(
        [(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3], axis=1
    )
    return cell.astype(np.int64)[:, None] + np.arange(-1, 3), values / 6


def evaluate(families: Sequence[Family], times: Times) -> Entries:
    """Return the values of all functions at times."""
    pieces = []
    first = 0
    for family in families:
        entries = family.entries(times)
        pieces.append(entries._replace(feature=entries.feature + first))
        first += len(family.features)
    return Entries(*map(np.concatenate, zip(*pieces, strict=True)))


# ----------------------------------------------------------------------------------------- learning


def learn_families(times: Times, *, dated: bool) -> tuple[Family, ...]:
    """Return the functions that times can show, by their span and resolution; none of few times.

    The resolution is the median distance of successive times. A period shows if the times cover it
    twice, and its waves if they are at least twice as long as the resolution. The narrowest bumps
    are twice the resolution apart, so that there is one for two times.
    """
    distinct = np.unique(times.time)
    if len(distinct) < MIN_TIMES:
        return ()
    resolution = float(np.median(np.diff(distinct)))
    span = float(distinct[-1] - distinct[0]) + resolution
    families: list[Family] = []
    n_waves = 0
    if span >= _PERIODS * DAY:
        n_waves = _count_waves("hour", DAY, resolution)
        families += _octaves("hour", n_waves)
    days = tuple(np.unique(_weekday(times.clock)).tolist())
    if span >= _PERIODS * WEEK and resolution <= DAY and len(days) > 1:
        families.append(Weekdays(days))
        if n_waves:
            families.append(Weekdays(days, min(n_waves, _MAX_WEEKDAY_WAVES)))
    if span >= _PERIODS * YEAR:
        families += _octaves("season", _count_waves("season", YEAR, resolution))
    families += _learn_bumps(distinct, resolution, dated=dated)
    return tuple(families)


def _count_waves(of: str, period: float, resolution: float) -> int:
    """Return the highest frequency whose waves are at least twice as long as the resolution."""
    return min(_MAX_WAVES[of], int(period / (2 * resolution)))


def _octaves(of: Literal["hour", "season"], number: int) -> list[Family]:
    """Return the waves up to a frequency, in octaves."""
    families: list[Family] = []
    first = 1
    while first <= number:
        last = min(2 * first, number)
        families.append(Waves(of, first, last))
        first = last + 1
    return families


def _learn_bumps(distinct: Float64, resolution: float, *, dated: bool) -> list[Family]:
    """Return bumps of all widths up to half of the span of different times, the widest first."""
    start = float(distinct[0])
    span = float(distinct[-1]) - start
    spacing = _SPACING * resolution
    positions = _used_bumps(distinct, start, spacing)
    while len(positions) > _MAX_BUMPS:
        spacing *= 2
        positions = _used_bumps(distinct, start, spacing)
    families: list[Family] = []
    while spacing <= span / 2:
        positions = _used_bumps(distinct, start, spacing)
        families.insert(0, Bumps(start, spacing, positions, dated))
        spacing *= _WIDER
    return families


def _used_bumps(distinct: Float64, start: float, spacing: float) -> tuple[int, ...]:
    """Return the positions of the bumps that are not zero at some of the times."""
    positions, values = _splines(distinct, start, spacing)
    return tuple(np.unique(positions[values > 0]).tolist())


# --------------------------------------------------------------------------------------- describing


def describe_families(families: Sequence[Family]) -> str:
    """Say which functions of time are features."""
    texts = []
    for of, what, period in (("hour", "hour of day", "day"), ("season", "season", "year")):
        last = max((f.last for f in families if isinstance(f, Waves) and f.of == of), default=0)
        if last:
            texts.append(f"{what} (waves up to {last} a {period})")
    texts += [family.name for family in families if isinstance(family, Weekdays)]
    bumps = [family for family in families if isinstance(family, Bumps)]
    if bumps:
        number = sum(len(family.positions) for family in bumps)
        distances = [family.distance for family in reversed(bumps)]
        apart = distances[0]
        if len(distances) > 1:
            apart += f" to {distances[-1]}"
        texts.append(f"{number:,} bumps {apart} apart")
    return ", ".join(texts)


def narrowest_bumps(families: Sequence[Family]) -> Bumps:
    """Return the narrowest bumps; all times have some."""
    return next(family for family in reversed(families) if isinstance(family, Bumps))


def duration(seconds: float) -> str:
    """Return a duration as text, such as ``30 minutes``."""
    unit, name = next((size, name) for size, name in _UNITS if seconds >= size or size == 1)
    number = f"{seconds / unit:.3g}"
    if number == "1":
        name = name.removesuffix("s")
    return f"{number} {name}"


def written(seconds: float) -> str:
    """Return a time as an ISO date, to the second, in UTC."""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=round(seconds))
    text = moment.isoformat(" ")
    return text.removesuffix(" 00:00:00")
