"""Words for true and false in a matrix: they are numbers only where they can be nothing else."""

import numpy as np
import pandas
import pytest
from ingest_cases import everything, prepare
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import read_ratings
from dsgmcmc.ratings.reading import Reading

RNG = np.random.default_rng(2)
USERS = [f"d{i}" for i in range(9)]
ITEMS = [f"g{j}" for j in range(4)]
AMOUNTS = pandas.DataFrame(np.round(RNG.random((9, 4)), 2), USERS, ITEMS)
ANSWERS = pandas.DataFrame(RNG.integers(0, 2, (9, 4)), USERS, ITEMS)
ANSWERS.iloc[:2] = [[0, 1, 0, 1], [1, 0, 1, 1]]
#: A letter that stands for something else, and how it stands for it in a frame.
LETTERS = {"T": "trace", "n": "no answer", "Y": "a mark", "yes": "an answer in words"}


def with_letter(letter: str, column: bool) -> pandas.DataFrame:
    """Return amounts with a letter in some cells, or in all cells of a column."""
    frame = AMOUNTS.astype(object)
    frame.loc["d3", "g1"] = letter
    if column:
        frame["g1"] = [letter, None] * 4 + [letter]
    return frame


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("letter", LETTERS)
def test_a_letter_among_numbers(tmp_path, letter, column):
    """Refused with its cell in files and frames, by command and in Python; --missing takes it."""
    frame = with_letter(letter, column)
    path = tmp_path / "m.csv"
    frame.to_csv(path, index_label="day")
    failed = typed("prepare", path, tmp_path / "out.h5", "--matrix").expect(2)
    assert f"item g1: '{letter}'" in failed.err
    assert "line 2" in failed.err if column else "line 5" in failed.err
    for X in (path, frame):
        with pytest.raises(InputError, match=f"'{letter}'"):
            BPMF(rank=0, iterations=10, burn_in=5, matrix=True).fit(X)
    number = int((frame == letter).sum().sum())
    typed("prepare", path, tmp_path / "out.h5", "--matrix", "--missing", letter).expect(0)
    assert len(everything(tmp_path / "out.h5")) == int(frame.notna().sum().sum()) - number


@pytest.mark.parametrize("words", ["no yes", "F T", "False TRUE", "N y"])
def test_answers_in_words(tmp_path, words):
    """A matrix of words is one of 0 and 1, and so is a column of them beside numbers."""
    answers = ANSWERS.replace(dict(enumerate(words.split())))
    expected = {
        (user, item): float(x) for user, row in ANSWERS.iterrows() for item, x in row.items()
    }
    prepare(tmp_path, answers.to_csv(), matrix=True)
    assert everything(tmp_path / "out.h5") == expected
    mixed = AMOUNTS.astype(object)
    mixed["g2"] = answers["g2"]
    prepare(tmp_path, mixed.to_csv(), matrix=True)
    found = everything(tmp_path / "out.h5")
    assert {u: x for (u, i), x in found.items() if i == "g2"} == ANSWERS["g2"].to_dict()
    columns = read_ratings(mixed, form=Reading(matrix=True))
    of_column = columns["rating"][columns["item"] == "g2"]
    assert of_column.tolist() == ANSWERS["g2"].tolist()


def test_a_word_and_numbers_in_different_parts_of_a_file(tmp_path, monkeypatch):
    """Rows are read a few at a time; the words of one part stand among numbers of another."""
    monkeypatch.setattr("dsgmcmc.input.wide._CELLS", 10)
    text = AMOUNTS.astype(object)
    text.loc["d7", "g0"] = "n"
    with pytest.raises(InputError, match=r"1 cell\(s\) have a word .*\n  line 9, item g0: 'n'"):
        prepare(tmp_path, text.to_csv(), matrix=True)
