"""A first column of coordinates is no item; a second column that may be the rating is refused."""

import logging

import numpy as np
import pandas as pd
import pytest
from support import typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError

RNG = np.random.default_rng(11)
SHORT = {"rank": 1, "iterations": 4, "burn_in": 2, "options": {"grid": 1}}
SPECTRA = 0.6 + 0.1 * RNG.normal(size=(60, 8))
COUNTS = RNG.poisson(30, (60, 8))
YEARS = 1990 + np.arange(60) // 3
#: First columns, the other columns, and how the first one differs.
COORDINATES = {
    "wavelength": (np.round(400 + 1.7 * np.arange(60), 1), SPECTRA, "ascends or descends"),
    "depth": (-(np.linspace(0.5, 30, 60) ** 2), SPECTRA, "ascends or descends"),
    "repeated year": (YEARS, SPECTRA, "has whole numbers alone"),
    "repeated year beside counts": (YEARS, COUNTS, "has a quite different scale"),
    "hour": (np.arange(60) % 24, SPECTRA + 20, "has whole numbers alone"),
    "age": (RNG.integers(20, 80, 60), RNG.integers(1, 6, (60, 8)), "has a quite different scale"),
    "latitude": (np.round(RNG.uniform(45, 60, 60), 2), SPECTRA, "has a quite different scale"),
    "id": (RNG.permutation(60), COUNTS // 10, "has a different whole number in every row"),
}
#: Matrices whose first column is like the others.
MATRICES = {
    "spectra": SPECTRA,
    "stars": RNG.integers(1, 6, (60, 8)),
    "counts": COUNTS,
    "proteins of very different amounts": np.exp(RNG.normal(size=(60, 8)) + 1.2 * np.arange(8)),
    "first one larger, as others are": np.exp(RNG.normal(size=(60, 8)) - 1.2 * np.arange(8)),
    "half stars": RNG.integers(2, 11, (60, 8)) / 2,
}


@pytest.mark.parametrize("name", COORDINATES)
def test_coordinates_are_refused(tmp_path, name):
    """By command, from arrays and from data frames; named as users, or left out, they are read."""
    first, cells, reason = COORDINATES[name]
    frame = pd.DataFrame(cells).add_prefix("v")
    frame.insert(0, "x", first)
    frame.to_csv(tmp_path / "m.csv", index=False)
    command = ("prepare", tmp_path / "m.csv", tmp_path / "o.h5", "--matrix", "--force")
    error = typed(*command).expect(2).err
    assert f"m.csv: x {reason}" in error
    assert "--columns user=x" in error
    with pytest.raises(InputError, match=f"column x {reason}.*columns=.user=x"):
        BPMF(**SHORT).fit(frame)
    with pytest.raises(InputError, match=f"the first column {reason}"):
        BPMF(**SHORT).fit(frame.to_numpy(float))
    frame.iloc[:, 1:].to_csv(tmp_path / "m.csv", index=False)
    assert "8 columns the items" in " ".join(typed(*command).expect(0).out.split())


@pytest.mark.parametrize("name", MATRICES)
def test_a_first_column_like_the_others_is_an_item(tmp_path, name):
    """Nothing is refused without need."""
    frame = pd.DataFrame(MATRICES[name]).add_prefix("v")
    frame.to_csv(tmp_path / "m.csv", index=False)
    done = typed("prepare", tmp_path / "m.csv", tmp_path / "o.h5", "--matrix").expect(0)
    assert "8 columns the items" in " ".join(done.out.split())
    assert len(BPMF(**SHORT).fit(frame).items_) == 8


def test_python_says_how_a_matrix_was_read(caplog):
    """And which columns of a data frame were taken."""
    frame = pd.DataFrame(SPECTRA).add_prefix("v")
    named = frame.copy()
    named.insert(0, "name", [f"s{k}" for k in range(60)])
    long = pd.DataFrame({"who": [1, 1, 2], "item": [1, 2, 1], "stars": [1, 2, 3], "x": "a"})
    with caplog.at_level(logging.INFO):
        BPMF(**SHORT).fit(frame)
        BPMF(**SHORT, matrix=True).fit(named)
        BPMF(**SHORT, columns="user=who").fit(long)
    said = "\n".join(caplog.messages)
    assert "a row a user (numbered), 8 columns the items (named v0, v1, ...)" in said
    assert "a row a user (named by name), 8 columns the items (named v0, v1, ...)" in said
    assert "user who, item item, rating stars" in said


def test_a_pivot_of_two_levels_names_items_by_the_level_that_varies():
    """A level that is the same in all columns is no part of a name."""
    long = pd.DataFrame({"u": np.repeat([f"u{k}" for k in range(9)], 6), "i": [*"abcdef"] * 9})
    pivot = long.assign(rating=RNG.normal(size=54)).pivot(index="u", columns="i", values=["rating"])
    assert sorted(BPMF(**SHORT).fit(pivot).items_) == [*"abcdef"]


@pytest.mark.parametrize(
    "names", [("label", "weight"), ("correct", "hours"), ("bought", "clicks"), ("label", "visits")]
)
def test_two_columns_that_may_be_the_rating_are_refused(tmp_path, names):
    """With both names; by command and in Python, where one of them is chosen by its name."""
    frame = pd.DataFrame({"user": [1, 1, 2, 3], "item": [1, 2, 1, 2]})
    frame[names[0]] = [0, 1, 0, 1]
    frame[names[1]] = [3, 40, 5, 7]
    frame.to_csv(tmp_path / "r.csv", index=False)
    error = typed("prepare", tmp_path / "r.csv", tmp_path / "o.h5").expect(2).err
    assert f"the columns {names[0]} and {names[1]} may all be the ratings" in error
    assert f"--columns rating={names[0]} or rating={names[1]}" in error
    with pytest.raises(InputError, match=f"columns rating={names[0]} or rating={names[1]}"):
        BPMF(**SHORT).fit(frame)
    for name, high in zip(names, (1, 40), strict=True):
        model = BPMF(**SHORT, columns=f"rating={name}").fit(frame)
        assert model.run_.facts["maximum"] == high


def test_a_column_called_rating_is_the_rating(tmp_path):
    """Beside weights, counts and confidence; the weight is the rating if nothing else can be."""
    text = "user,item,weight,rating,count,confidence\n1,1,9,1,7,8\n1,2,8,2,7,8\n2,1,7,4,6,9\n"
    (tmp_path / "r.csv").write_text(text)
    done = typed("prepare", tmp_path / "r.csv", tmp_path / "o.h5").expect(0)
    assert "rating rating" in done.out
    (tmp_path / "r.csv").write_text("user,item,weight\n1,1,9\n1,2,8\n2,1,7\n")
    done = typed("prepare", tmp_path / "r.csv", tmp_path / "o.h5", "--force").expect(0)
    assert "rating weight" in done.out


def test_messages_in_python_name_parameters(tmp_path):
    """A matrix has no times, in a file as in an array."""
    path = tmp_path / "m.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 3\n2 2 4\n")
    for matrix in (None, True):
        with pytest.raises(InputError, match=r"leave out time_levels(,)? and split temporal"):
            BPMF(**SHORT, time_levels="user", matrix=matrix).fit(path)
