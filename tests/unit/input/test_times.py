"""Times in many forms order ratings, in files and data frames alike, or it is said that they
do not.
"""

import datetime
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from ingest_cases import everything, prepare, read_back
from support import typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import ratings_source
from dsgmcmc.prepare.prepare import prepare_ratings

#: Days and ratings of one user and item: the latest day comes first.
DAYS = [datetime.date(2021, 3, day) for day in (28, 15, 4)]
FORMS = {
    "ISO": "{0:%Y-%m-%d}",
    "slashes": "{0:%d/%m/%Y}",
    "month first": "{0:%m/%d/%Y}",
    "month first, without zeros": "{0.month}/{0.day}/{0.year}",
    "points": "{0.day}.{0.month}.{0.year}",
    "points, the year first": "{0:%Y.%m.%d}",
    "a name": "{0:%d-%b-%Y}",
    "a long name": '"{0:%B %d, %Y}"',
    "a weekday": '"{0:%a, %d %b %Y} 10:20:30 GMT"',
    "a time of day": "{0:%d/%m/%Y} 22:30",
    "AM and PM": "{0:%m/%d/%Y} 10:30 PM",
    "an old year of two digits": "{0.day}/{0.month}/99",
}


def dated(form: str, days: list[datetime.date] = DAYS) -> str:
    """A file with the newest line first, in which user 1 rates item 1 three times: 5, 3 and 1."""
    rows = [f"1,1,{5 - 2 * k},{form.format(day)}" for k, day in enumerate(days)]
    rows += [f"{u},{i},2,{form.format(days[1])}" for u in (2, 3) for i in (1, 2)]
    return "user,item,rating,date\n" + "\n".join(rows) + "\n"


@pytest.mark.parametrize("form", FORMS)
def test_the_last_rating_is_the_latest(tmp_path, form):
    """Dates are read in every form; a temporal split holds out the latest ratings."""
    text = dated(FORMS[form])
    assert prepare(tmp_path, text).doubts == []
    assert everything(tmp_path / "out.h5")[1, 1] == 5
    prepare(tmp_path, text, duplicates="first")
    assert everything(tmp_path / "out.h5")[1, 1] == 1
    prepare(tmp_path, text, split="temporal", test_fraction=0.2)
    assert read_back(tmp_path / "out.h5")["test"] == {(1, 1): 5}


EARLY = [datetime.date(2021, 3, day) for day in (8, 5, 4)]
UNREAD = {
    "two orders": (
        dated("{0:%d/%m/%Y}", EARLY),
        "may have the day first or the month first",
        "may have the day first or the month first",
    ),
    "two orders of years with two digits": (
        dated("{0:%d-%m-%y}"),
        "may have the day first or the year first",
        "may have the day first or the year first",
    ),
    "no date": (
        dated("day {0.day}"),
        "7 of 7 times in column date cannot be read, such as 'day 28'",
        "line 2: the timestamp is missing or not a time",
    ),
}


@pytest.mark.parametrize("case", UNREAD)
def test_dates_that_cannot_be_read_are_said(tmp_path, case):
    """Then the last rating is that of the last line; where times are needed, they are refused."""
    text, doubt, error = UNREAD[case]
    doubts = prepare(tmp_path, text).doubts
    assert any(doubt in said and "in the order of their lines" in said for said in doubts)
    assert everything(tmp_path / "out.h5")[1, 1] == 1
    with pytest.raises(InputError, match=error):
        prepare(tmp_path, text, timestamps=True)
    without_repeats = "user,item,rating,date\n1,1,5,x\n1,2,3,y\n2,1,1,z\n"
    assert prepare(tmp_path, without_repeats).doubts == []


def test_the_summary_says_what_last_means(tmp_path):
    """By the column of times, or by line."""
    for text, order in ((dated("{0:%d.%m.%Y}"), "column date"), ("1,1,5\n1,1,3\n2,2,1\n", "line")):
        (tmp_path / "r.csv").write_text(text)
        options = (tmp_path / "r.csv", tmp_path / "o.h5", "--force")
        assert f"the last rating by {order} is used" in typed("prepare", *options).err
        assert json.loads(typed("prepare", *options, "--json").out)["order"] == order


ROWS = pd.DataFrame(
    {
        "user": [1, 1, 1, 2, 2, 3, 3],
        "item": [1, 1, 1, 1, 2, 1, 2],
        "rating": [5.0, 3.0, 1.0, 2.0, 2.0, 2.0, 2.0],
        "date": pd.to_datetime([*DAYS, *DAYS[1:2] * 4]),
    }
)
COLUMNS = {
    "datetime": lambda dates: dates,
    "text": lambda dates: dates.dt.strftime("%d.%m.%Y"),
    "with a time zone": lambda dates: dates.dt.tz_localize("Asia/Tokyo"),
    "of datetime.date": lambda dates: dates.dt.date,
    "seconds": lambda dates: dates.astype("datetime64[s]").astype("int64"),
    "with gaps": lambda dates: dates.where(np.arange(7) != 2),
}


@pytest.mark.parametrize("form", COLUMNS)
def test_the_last_rating_of_a_frame_is_that_of_the_same_file(tmp_path, form):
    """A column of times orders repeated ratings in data frames, too, of any type."""
    frame = ROWS.assign(date=COLUMNS[form](ROWS.date))
    frame.to_csv(tmp_path / "r.csv", index=False)
    hashes = {
        prepare_ratings([source], tmp_path / "o.h5", force=True).content_sha256
        for source in (ratings_source(frame), tmp_path / "r.csv")
    }
    assert len(hashes) == 1
    assert everything(tmp_path / "o.h5")[1, 1] == 5
    y = frame.pop("rating")
    prepare_ratings([ratings_source(frame, y)], tmp_path / "o.h5", force=True)
    assert everything(tmp_path / "o.h5")[1, 1] == 5


def test_python_warns_of_dates_that_it_cannot_read():
    """As the command does."""
    settings = {
        "duplicates": "last",
        "rank": 1,
        "iterations": 4,
        "burn_in": 2,
        "options": {"grid": 1},
    }
    frame = ROWS.assign(date="some day")
    with pytest.warns(UserWarning, match="7 of 7 times in column date cannot be read"):
        BPMF(**settings).fit(frame)


TRIED = {  # a column `date` of any rows, and whether models with time effects are compared
    "dates": (lambda n: pd.date_range("2021-01-01", periods=n, freq="h"), True),
    "text": (lambda n: pd.date_range("2021-01-01", periods=n, freq="h").astype(str), True),
    "of a time zone": (lambda n: pd.date_range("2021-01-01", periods=n, freq="h", tz="UTC"), True),
    "datetime.date": (lambda n: [DAYS[k % 3] for k in range(n)], True),
    "with gaps": (lambda n: pd.Series(range(n)).where(np.arange(n) != 2), False),
    "words": (lambda n: ["some day"] * n, False),
    "two orders": (lambda n: ["01/02/2021"] * n, False),
}


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("form", TRIED)
def test_time_effects_are_compared_if_times_can_be_read(tmp_path, form, is_file):
    """A column named date neither stops a comparison nor counts for frames alone."""
    make, is_read = TRIED[form]
    n = 300
    cells = np.random.default_rng(0).choice(30 * 20, n, replace=False)
    frame = pd.DataFrame({"user": cells // 20, "item": cells % 20, "rating": cells % 5 + 1.5})
    frame["date"] = make(n)
    ratings = frame
    if is_file:
        ratings = tmp_path / "r.csv"
        frame.to_csv(ratings, index=False)
    model = BPMF(rank=1, iterations=40, burn_in=20, options={"grid": 2})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compared = model.compare(ratings)
    assert any(each.name.endswith(" + time") for each in compared.models) == is_read
    said = [
        str(each.message) for each in caught if "time effects are left out" in str(each.message)
    ]
    assert len(said) == (not is_read)
