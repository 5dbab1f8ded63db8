"""Words in place of ratings and names: for what is not known, and for true and false."""

import json

import numpy as np
import pandas as pd
import pytest
from ingest_cases import everything, prepare
from support import typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import ratings_source
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.reading import Reading

KNOWN = {("a", "x"): 1, ("a", "y"): 2, ("b", "x"): 3, ("c", "y"): 5}
WORDS = ["NULL", "\\N", "", "n.d."]


def table(word: str) -> str:
    """A file in which a word stands for a rating, for a user and for an item."""
    known = "".join(f"{user},{item},{rating}\n" for (user, item), rating in KNOWN.items())
    return f"user,item,rating\nb,y,{word}\n{known}{word},x,4\nc,{word},4\n"


@pytest.mark.parametrize("word", WORDS)
def test_lines_with_a_word_are_left_out(tmp_path, word):
    """Named by the user, and counted; without the option the lines are named."""
    (tmp_path / "r.csv").write_text(table(word))
    command = ("prepare", tmp_path / "r.csv", tmp_path / "out.h5", "--force")
    error = typed(*command).expect(2).err
    assert "line 2: " in error
    assert "--missing WORD" in error
    done = typed(*command, "--missing", word).expect(0)
    assert everything(tmp_path / "out.h5") == KNOWN
    shown = word or "an empty field"
    assert f"3 lines or cells with {shown}" in " ".join(done.out.split())
    as_json = typed(*command, f"--missing={word},77", "--json").expect(0)
    assert json.loads(as_json.out)["missing"] == 3


@pytest.mark.parametrize("form", ["json", "parquet", "frame", "frame and y", "lists"])
@pytest.mark.parametrize("word", ["NULL", ""])
def test_words_in_other_forms(tmp_path, form, word):
    """Missing values of JSON, Parquet and data frames are empty fields."""
    rows = [line.split(",") for line in table(word).splitlines()]
    frame = pd.DataFrame(rows[1:], columns=rows[0], dtype=object)
    if not word:
        frame = frame.replace("", None)
    source: object = tmp_path / f"r.{form}"
    if form == "json":
        frame.to_json(source, orient="records", lines=True)
    elif form == "parquet":
        frame.to_parquet(source)
    elif form == "frame":
        source = ratings_source(frame, form=Reading(missing=(word,)))
    elif form == "frame and y":
        y = frame.pop("rating")
        source = ratings_source(frame, y, Reading(missing=(word,)))
    else:
        source = ratings_source(frame.to_numpy().tolist(), form=Reading(missing=(word,)))
    summary = prepare_ratings([source], tmp_path / "out.h5", missing=word)
    assert everything(tmp_path / "out.h5") == KNOWN
    assert summary.missing == 3


def test_other_lines_are_still_refused(tmp_path):
    """With their numbers: lines that are left out count; numbers are no words of names."""
    text = table("NULL") + "c,x,abc\n"
    with pytest.raises(InputError, match="line 9: the rating is missing or not a number"):
        prepare(tmp_path, text, missing="NULL")
    summary = prepare(
        tmp_path, "user,item,rating\n0,1,0\n0,2,5\n1,0,3\n0,0,NULL\n", missing="0,null"
    )
    assert everything(tmp_path / "out.h5") == {(0, 2): 5, (1, 0): 3}
    assert summary.missing == 2


def test_empty_times_leave_lines_out_where_times_are_needed(tmp_path):
    """Without need of times the ratings stay."""
    text = "user,item,rating,time\n1,1,2,10\n1,2,3,\n2,1,4,20\n2,2,1,30\n"
    assert prepare(tmp_path, text, missing="").ratings == 4
    assert prepare(tmp_path, text, missing="", timestamps=True).ratings == 3
    assert (1, 2) not in everything(tmp_path / "out.h5")


def test_names_beside_left_out_lines_are_trimmed(tmp_path):
    """Float ids, as pandas writes them where one is missing, are integers."""
    text = "user,item,rating\n,7,2\n1.0,7,3\n2.0,8,4\n1.0,8,5\n"
    prepare(tmp_path, text, missing="")
    assert everything(tmp_path / "out.h5") == {(1, 7): 3, (2, 8): 4, (1, 8): 5}


def test_users_and_items_without_names_in_a_matrix(tmp_path):
    """An empty name of a row or a column is refused, or left out; a word in a cell is not rated."""
    text = "name,x,y,\na,1,2,9\n,3,4,9\nb,3,n.d.,9\nc,,5,9\n"
    with pytest.raises(InputError, match=r"no name of a user or an item.*'' for an empty name"):
        prepare(tmp_path, text, matrix=True, missing="n.d.")
    summary = prepare(tmp_path, text, matrix=True, missing="n.d.,")
    assert everything(tmp_path / "out.h5") == KNOWN
    assert summary.missing == 7
    frame = pd.DataFrame({"name": [*"abc"], "x": [1, 3, None], "y": [2, "n.d.", 5]})
    source = ratings_source(frame, form=Reading({"user": "name"}, True, ("n.d.",)))
    prepare_ratings([source], tmp_path / "out.h5", force=True)
    assert everything(tmp_path / "out.h5") == KNOWN


TRUTHS = [("TRUE", "FALSE"), ("True", "False"), ("T", "F"), ("yes", "no"), ("Y", "N")]


@pytest.mark.parametrize("words", TRUTHS)
def test_true_and_false_are_two_levels(tmp_path, words):
    """In files of text, JSON and Parquet, data frames and matrices."""
    expected = {(u, i): (u * i + u) % 2 for u in range(8) for i in range(5)}
    cells = [words[1 - value] for value in expected.values()]
    users, items = np.array(list(expected)).T
    frame = pd.DataFrame({"user": users, "item": items, "rating": cells})
    frame.to_csv(tmp_path / "r.csv", index=False)
    frame.to_json(tmp_path / "r.json", orient="records", lines=True)
    frame.to_parquet(tmp_path / "r.parquet")
    wide = frame.pivot(index="user", columns="item", values="rating")
    wide.to_csv(tmp_path / "m.csv")
    sources = [tmp_path / name for name in ("r.csv", "r.json", "r.parquet")]
    for source in (
        *sources,
        ratings_source(frame),
        ratings_source(frame.iloc[:, :2], frame.rating),
    ):
        prepare_ratings([source], tmp_path / "out.h5", force=True)
        assert everything(tmp_path / "out.h5") == expected
    prepare_ratings([tmp_path / "m.csv"], tmp_path / "out.h5", force=True, matrix=True)
    read = {(u, int(i)): x for (u, i), x in everything(tmp_path / "out.h5").items()}
    assert read == expected
    prepare_ratings(
        [ratings_source(wide, form=Reading(matrix=True))], tmp_path / "out.h5", force=True
    )
    assert everything(tmp_path / "out.h5") == expected


def test_words_among_numbers_are_refused(tmp_path):
    """`n` beside 1 to 5 means something else, and so may a word beside true and false."""
    rows = [f"{k % 9},{k // 9},{1 + k % 5}" for k in range(80)]
    for last in ("9,9,n", "9,9,yes"):
        with pytest.raises(InputError, match=r"line 82: "):
            prepare(tmp_path, "user,item,rating\n" + "\n".join([*rows, last]) + "\n")
    words = [f"{k % 9},{k // 9},{'yes' if k % 2 else 'no'}" for k in range(80)]
    with pytest.raises(InputError, match="line 82: the rating is missing or not a number"):
        prepare(tmp_path, "user,item,rating\n" + "\n".join([*words, "9,9,maybe"]) + "\n")
    frame = pd.DataFrame({"user": [1, 2, 3], "item": [1, 2, 1], "rating": [1, 2, "yes"]})
    with pytest.raises(InputError, match=r"row 2 .*not a number \(.*, rating yes\)"):
        BPMF().fit(frame)


def test_python_says_how_to_leave_out_rows():
    """As the command says `--missing`: of words, empty ratings and users, not of other faults."""
    frame = pd.DataFrame({"user": [1, 1, 2, 2], "item": [1, 2, 1, 2], "rating": [1.0, 2, 3, 4]})
    ratings = frame["rating"].astype(object)
    faults = {
        r"row 3 .*not a number \(.*NULL\)": frame.assign(rating=[*ratings[:3], "NULL"]),
        "row 3 .*rating is missing": frame.assign(rating=[*ratings[:3], None]),
        "row 0 .*user is missing": frame.assign(user=[None, 1, 2, 2]),
    }
    for fault, table in faults.items():
        with pytest.raises(InputError, match=fault) as error:
            BPMF().fit(table)
        assert "leave out lines that have WORD" in str(error.value)
        assert "by missing=['WORD'] ([''] for an empty field)" in str(error.value)
    with pytest.raises(InputError, match="names of users must be integers or text") as error:
        BPMF().fit(frame.assign(user=frame["user"] + 0.5))
    assert "missing=" not in str(error.value)
