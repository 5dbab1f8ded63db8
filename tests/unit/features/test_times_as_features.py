"""Columns of times, and names that are times, become functions of time, or it is said why not."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from ingest_cases import features_of, prepare_typed
from scipy.sparse import csr_matrix, save_npz
from support import run, typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.features.encoding import Encoding
from dsgmcmc.ratings.file import Ratings

#: Three weeks of a value every six hours.
TIMES = pd.date_range("2021-03-01", periods=84, freq="6h")
TINY = {"iterations": 4, "burn_in": 1, "rank": 1}


def matrix(times=TIMES, silent=(5, 40)):
    """A wide frame of six stations, with times for columns; all stations are silent at some."""
    rng = np.random.default_rng(0)
    values = rng.normal(10, 1, (6, len(times)))
    values[:, list(silent)] = np.nan
    return pd.DataFrame(values, index=[f"s{k}" for k in range(6)], columns=times)


def encoding_of(path):
    """The encoding of the features in a ratings file."""
    with Ratings(path) as ratings:
        (stored,) = ratings.features.values()
        return Encoding.parse(stored.encoding)


def write_long(folder, times):
    """Write ratings of 20 users of as many items as there are times, and the items' times."""
    rng = np.random.default_rng(1)
    lines = [f"u{u},i{i},{rng.normal():.3f}" for u in range(20) for i in range(len(times))]
    (folder / "r.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    rows = [f'i{i},"{time}",{i % 5}' for i, time in enumerate(times)]
    (folder / "items.csv").write_text("item,measured,size\n" + "\n".join(rows) + "\n")


def test_dates_of_columns_are_features_by_one_word(tmp_path):
    """pandas, strings and the command agree; silent times belong to the model."""
    frame = matrix()
    texts = frame.set_axis([str(time) for time in TIMES], axis=1)
    found = {}
    for name, given in (("pandas", frame), ("strings", texts)):
        out = tmp_path / name
        model = BPMF(**TINY, item_features="names", out=out).fit(given)
        found[name] = features_of(f"{out}.ratings.h5", "item")
        assert "item: hour of day (waves up to 2 a day), weekday, hour by weekday" in repr(
            model.data_
        )
    texts.to_csv(tmp_path / "r.csv")
    done = prepare_typed(tmp_path, "--matrix", "--item-features", "names").expect(0)
    assert "item (time: hour of day (waves up to 2 a day), weekday" in done.out
    found["command"] = features_of(tmp_path / "x.h5", "item")
    assert set(found["pandas"]) == {str(time) for time in TIMES}
    assert all(features == found["pandas"] for features in found.values())


def test_dates_of_columns_in_polars(tmp_path):
    """Columns of polars have texts for names."""
    polars = pytest.importorskip("polars")
    texts = matrix().rename(columns=str).reset_index(names="user")
    frame = polars.DataFrame({name: texts[name].tolist() for name in texts})
    BPMF(**TINY, item_features="names", matrix=True, out=tmp_path / "run").fit(frame)
    assert set(features_of(tmp_path / "run.ratings.h5", "item")) == {str(time) for time in TIMES}


def test_rows_that_are_dates_are_features(tmp_path):
    """An index of dates, in nanoseconds too, names users as its dates are written."""
    frame = matrix().T
    frame.index = frame.index.astype("datetime64[ns]")
    BPMF(**TINY, user_features="names", out=tmp_path / "run").fit(frame)
    assert set(features_of(tmp_path / "run.ratings.h5")) == {str(time) for time in TIMES}


def test_functions_have_the_values_that_their_names_say(tmp_path):
    """Sines and cosines of the hour, flags of weekdays, and bumps around their centres.

    They are scaled to a variance of about 1: by the square roots of 2, of the number of weekdays,
    and of the number of bumps over the mean sum of their squares.
    """
    BPMF(**TINY, item_features="names", out=tmp_path / "run").fit(matrix())
    features = features_of(tmp_path / "run.ratings.h5", "item")["2021-03-03 06:00:00"]
    assert features["item hour 1-2=sin 1"] == pytest.approx(2**0.5)
    assert features["item hour 1-2=cos 2"] == pytest.approx(-(2**0.5))
    assert features["item weekday=Wednesday"] == pytest.approx(7**0.5)
    assert features["item hour by weekday=Wednesday sin 1"] == pytest.approx(14**0.5)
    assert not any("Monday" in name for name in features)
    scale = (45 * 315 / 151) ** 0.5  # 45 bumps, of which 42 have their centre among the times
    bumps = {name: value / scale for name, value in features.items() if "bumps 12 hours" in name}
    assert bumps == pytest.approx(
        {
            "item bumps 12 hours=2021-03-02 12:00:00": 1 / 48,
            "item bumps 12 hours=2021-03-03": 23 / 48,
            "item bumps 12 hours=2021-03-03 12:00:00": 23 / 48,
            "item bumps 12 hours=2021-03-04": 1 / 48,
        }
    )


def test_a_season_needs_two_years(tmp_path):
    """Months of three years show a season; those of one year do not. Bumps follow a trend."""
    for years, has_season in ((3, True), (1, False)):
        times = pd.date_range("2019-01-01", periods=12 * years, freq="MS").strftime("%Y-%m")
        frame = matrix(times, silent=())
        BPMF(**TINY, item_features="names", out=tmp_path / f"{years}").fit(frame)
        groups = set(encoding_of(tmp_path / f"{years}.ratings.h5").groups)
        assert ("item season 1-2" in groups) == has_season
        assert not any("hour" in group or "weekday" in group for group in groups)


def test_a_column_of_dates_is_a_time(tmp_path):
    """A table of features needs no word for dates; other columns stay what they are."""
    write_long(tmp_path, TIMES)
    done = prepare_typed(tmp_path, "--item-features", tmp_path / "items.csv").expect(0)
    assert "size (number), measured (time: hour of day" in done.out
    encoding = encoding_of(tmp_path / "x.h5")
    assert {column.name: column.kind for column in encoding.columns} == {
        "measured": "time",
        "size": "number",
    }
    frame = pd.read_csv(tmp_path / "items.csv", parse_dates=["measured"])
    model = BPMF(**TINY, item_features=frame, out=tmp_path / "run")
    model.fit(pd.read_csv(tmp_path / "r.csv"))
    assert features_of(tmp_path / "run.ratings.h5", "item") == features_of(
        tmp_path / "x.h5", "item"
    )


def test_numbers_are_times_only_if_declared(tmp_path):
    """Seconds and milliseconds since 1970 are dates; other numbers have bumps alone."""
    seconds = (TIMES - pd.Timestamp(0)) // pd.Timedelta("1s")
    write_long(tmp_path, seconds)
    items = ("--item-features", tmp_path / "items.csv")
    prepare_typed(tmp_path, *items).expect(0)
    assert encoding_of(tmp_path / "x.h5").columns[0].kind == "number"
    declared = (*items, "--feature-kinds", "measured=time")
    done = prepare_typed(tmp_path, *declared).expect(0)
    assert "measured: its numbers are taken for seconds" in done.err
    of_seconds = features_of(tmp_path / "x.h5", "item")
    assert any("hour by weekday" in name for name in of_seconds["i0"])
    write_long(tmp_path, seconds * 1000)
    done = prepare_typed(tmp_path, *declared).expect(0)
    assert "measured: its numbers are taken for milliseconds" in done.err
    assert features_of(tmp_path / "x.h5", "item") == of_seconds
    write_long(tmp_path, range(84))
    done = prepare_typed(tmp_path, *declared).expect(0)
    assert "measured (time: 65 bumps 2 to 32 apart)" in done.out


def test_names_that_are_numbers_need_a_word(tmp_path):
    """Columns with numbers may be codes; a kind says that they are times."""
    frame = matrix(range(84), silent=())
    with pytest.raises(InputError, match=r"numbers, not dates.*feature_kinds=\{'item': 'time'\}"):
        BPMF(**TINY, item_features="names", matrix=True).fit(frame)
    declared = {"item_features": "names", "feature_kinds": {"item": "time"}}
    BPMF(**TINY, **declared, matrix=True, out=tmp_path / "run").fit(frame)
    groups = encoding_of(tmp_path / "run.ratings.h5").groups
    assert set(groups) == {"item bumps 2", "item bumps 8", "item bumps 32"}


@pytest.mark.parametrize("word", ["item", "h"])
def test_names_have_a_kind_by_their_column_or_by_what_they_name(tmp_path, word):
    """The column of a table has its own name, and that of a matrix has none."""
    lines = [f"{u},{6 * h},{u * h % 7}" for u in range(9) for h in range(40)]
    (tmp_path / "r.csv").write_text("u,h,rating\n" + "\n".join(lines) + "\n")
    options = ("--columns", "user=u,item=h", "--item-features", "names")
    done = prepare_typed(tmp_path, *options).expect(2)
    assert "give --feature-kinds item=time" in done.err
    done = prepare_typed(tmp_path, *options, "--feature-kinds", f"{word}=time").expect(0)
    assert "h (time: " in done.out
    assert "bumps 12 to 48 apart)" in done.out
    sparse = csr_matrix(np.arange(1.0, 361).reshape(9, 40))
    save_npz(tmp_path / "m.npz", sparse)
    done = typed(
        *("prepare", tmp_path / "m.npz", tmp_path / "m.h5", "--item-features", "names"),
        *("--feature-kinds", "item=time"),
    ).expect(0)
    assert "item (time: " in done.out


def test_names_without_dates_are_refused_with_a_way_out(tmp_path):
    """To skip the column would be refused: there is no other one."""
    frame = matrix([f"g{k}" for k in range(84)], silent=())
    with pytest.raises(InputError, match="or leave out item_features names") as refused:
        BPMF(**TINY, item_features="names").fit(frame)
    assert "skip" not in str(refused.value)


WRONG = {
    "two orders": (
        [f"{day}/0{month}/2021" for month in (3, 4) for day in range(1, 9)],
        "may have the day first or the month first",
    ),
    "no date": ([*map(str, TIMES[:20]), "soon"], "cannot be read, such as 'soon'"),
    "offsets of some": (
        [*map(str, TIMES[:20]), "2021-05-01 10:00:00+02:00"],
        "1 of 21 times have an offset from UTC",
    ),
    "a time zone": (
        [f"{time} Europe/Berlin" for time in TIMES[:20]],
        "has a time zone: write its offset",
    ),
    "days without hyphens": ([*TIMES[::4].strftime("%Y%m%d")], "write 2021-03-01"),
    "few": ([*map(str, TIMES[:6])], "fewer than 8 different ones"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_declared_times_that_cannot_be_read_are_refused(tmp_path, fault):
    """The message says what was found, and how to leave the column out."""
    times, message = WRONG[fault]
    write_long(tmp_path, times)
    kinds = ("--feature-kinds", "measured=time")
    done = prepare_typed(tmp_path, "--item-features", tmp_path / "items.csv", *kinds).expect(2)
    assert message in done.err
    assert "measured=skip" in done.err


def test_dates_that_may_be_another_thing_are_left_as_they_were(tmp_path):
    """Nobody called the column a time: its dates have two orders, and each ends with a year."""
    write_long(tmp_path, WRONG["two orders"][0])
    done = prepare_typed(tmp_path, "--item-features", tmp_path / "items.csv").expect(0)
    assert "measured may be a time: the dates in column measured" in done.err
    assert encoding_of(tmp_path / "x.h5").columns[0].kind == "year"


def test_hours_are_those_of_the_clock(tmp_path):
    """Times across the change to summer time: bumps follow UTC, sines the hour on the wall."""
    times = pd.date_range("2021-03-15", periods=84, freq="6h", tz="Europe/Berlin")
    BPMF(**TINY, item_features="names", out=tmp_path / "run").fit(matrix(times))
    features = features_of(tmp_path / "run.ratings.h5", "item")
    winter = features["2021-03-20 06:00:00+01:00"]
    summer = features["2021-03-30 07:00:00+02:00"]
    assert winter["item hour 1-2=sin 1"] == pytest.approx(2**0.5)
    assert summer["item hour 1-2=sin 1"] == pytest.approx(2**0.5 * np.sin(2 * np.pi * 7 / 24))


def test_words_that_do_not_go_together_are_refused(tmp_path, monkeypatch):
    """A file with the name ``names``, names of several parts, another kind."""
    frame = matrix()
    with pytest.raises(InputError, match="are times, not category"):
        BPMF(**TINY, item_features="names", feature_kinds={"item": "category"}).fit(frame)
    long = pd.DataFrame({"s": ["a", "b"] * 2, "d": ["x", "y", "y", "x"], "h": list("ppqq")})
    long["rating"] = range(4)
    with pytest.raises(InputError, match="several parts"):
        BPMF(**TINY, user=["s", "d"], item="h", user_features="names").fit(long)
    (tmp_path / "names").write_text("user,age\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="the file names"):
        BPMF(**TINY, item_features="names").fit(frame)


def test_new_times_are_known_by_their_names(tmp_path):
    """A time that is not in the run is predicted from its features, and so is one of `fold_in`;
    beyond the times of the run, bumps say nothing, which is said.
    """
    hours = np.sin(2 * np.pi * TIMES.hour / 24)
    frame = matrix() * 0.02 + 3 * hours.to_numpy()
    model = BPMF(2, item_features="names", iterations=300, burn_in=100).fit(frame)
    between = ["2021-03-10 07:00:00", "2021-03-10 17:00:00"]
    early, late = model.predict([["s1", time] for time in between])
    assert early > late + 2
    folded = model.fold_in([["s1", between[0], 3.0]], kind="item")
    assert folded.predict([["s2", between[0]]])[0] > late + 2
    with pytest.warns(UserWarning, match="not from 2021-03-01 to 2021-03-2.*bumps say nothing"):
        after = model.predict([["s1", pd.Timestamp("2021-05-01 06:00")]])
    assert after[0] > late + 2


UNREADABLE = {
    "text": "soon",
    "two orders": "3/4/2021",
    "an offset": "2021-03-10 07:00:00+01:00",
    "a time zone": "2021-03-10 07:00:00 Europe/Berlin",
    "a number": "7",
}


@pytest.fixture(scope="module")
def run_path(tmp_path_factory):
    """A run that knows the hours of the day."""
    path = tmp_path_factory.mktemp("hours") / "run"
    frame = matrix() * 0.02 + 3 * np.sin(2 * np.pi * TIMES.hour / 24).to_numpy()
    BPMF(2, item_features="names", iterations=300, burn_in=100, out=path).fit(frame)
    return path


@pytest.mark.parametrize("fault", UNREADABLE)
def test_only_a_time_that_cannot_be_read_is_unknown(run_path, fault):
    """A time beside it is predicted as if it stood alone."""
    good = ["s1", "2021-03-10 07:00:00"]
    pairs = [good, ["s1", UNREADABLE[fault]], ["s1", "nothing"]]
    alone = list(BPMF.load(run_path).predict([good]))
    with pytest.warns(UserWarning, match="one item is unknown to the run: nothing"):
        alone += list(BPMF.load(run_path).predict(pairs[2:]))
    assert alone[0] != alone[1]
    with pytest.warns(
        UserWarning, match=r"2 item\(s\) have a time .* such as .*: these are unknown"
    ):
        together = BPMF.load(run_path).predict(pairs)
    np.testing.assert_array_equal(together, [alone[0], alone[1], alone[1]])


def test_the_command_names_only_times_that_cannot_be_read(run_path, tmp_path):
    """The other new time is not among the unknown items."""
    (tmp_path / "pairs.csv").write_text("user,item\ns1,2021-03-10 07:00:00\ns1,soon\n")
    paths = (run_path, tmp_path / "pairs.csv")
    done = run(sys.executable, "-m", "dsgmcmc", "predict", *paths).expect(2)
    assert "warning: 1 item(s) have a time in the column item that cannot be read" in done.err
    assert "one item is unknown to the run: soon." in done.err


def test_new_users_have_unknown_times_if_these_cannot_be_read(tmp_path):
    """Other features, and the times of other users, are used."""
    users = pd.DataFrame({"user": [f"s{k}" for k in range(9)], "age": range(9)})
    users["since"] = pd.date_range("2021-03-01", periods=9).astype(str)
    frame = matrix(range(30), silent=())
    more = pd.concat([frame, frame[:3].set_axis(["s6", "s7", "s8"])])
    model = BPMF(**TINY, user_features=users, matrix=True).fit(more)
    new = pd.DataFrame({"user": ["a", "b"], "age": [3, 3], "since": ["2021-03-05", "soon"]})
    with pytest.warns(UserWarning, match=r"1 user\(s\) .* since .* such as 'soon'"):
        folded = model.fold_in(features=new)
    blank = model.fold_in(features=new.assign(since=["2021-03-05", None]))
    pairs = [["a", 3], ["b", 3]]
    np.testing.assert_array_equal(folded.predict(pairs), blank.predict(pairs))
    with pytest.raises(InputError, match=r"cannot be read.*write them as those of the run"):
        model.fold_in(features=new[1:])


def test_another_spelling_of_a_known_time_is_refused(tmp_path):
    """It would be predicted as a new time, without the ratings of the known one."""
    model = BPMF(**TINY, item_features="names", out=tmp_path / "run").fit(matrix())
    refused = "2021-03-10T06:00 is unknown.*has the time of the item 2021-03-10 06:00:00"
    pairs = [["s1", "2021-03-10T06:00"], ["s1", "2021-03-10 07:00"]]
    with pytest.raises(InputError, match=refused):
        model.predict(pairs)
    with pytest.raises(InputError, match=refused):
        model.fold_in([[*pair, 3.0] for pair in pairs], kind="item")
    known = np.diff(model.predict([["s1", "2021-03-10 06:00:00"], ["s1", TIMES[37]]]))
    assert known == 0


def test_commands_say_warnings_as_their_own_messages(tmp_path):
    """A time beyond those of the run: no line of the program's code, and no path."""
    BPMF(**TINY, item_features="names", out=tmp_path / "run").fit(matrix())
    (tmp_path / "pairs.csv").write_text("user,item\ns1,2021-06-10 07:00\n")
    paths = (tmp_path / "run", tmp_path / "pairs.csv")
    done = run(sys.executable, "-m", "dsgmcmc", "predict", *paths).expect(0)
    assert done.err.startswith("dsgmcmc: warning: 1 item(s) have a time in the column item")
    assert "py" not in done.err.replace(str(tmp_path), "")


def test_files_without_times_keep_their_encoding():
    """Features without times are stored without fields of times."""
    text = json.dumps({"columns": [{"name": "age", "kind": "number"}]})
    stored = json.loads(Encoding.parse(text).dump())
    assert set(stored) == {"columns", "separator", "width"}
    assert set(stored["columns"][0]) == {"name", "kind", "atoms", "mean", "sd", "group"}
