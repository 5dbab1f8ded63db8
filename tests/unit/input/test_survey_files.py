"""Files of SPSS and Stata: values, without those that the file declares missing."""

import struct
from pathlib import Path

import numpy as np
import pytest
from science_cases import read, refused
from support import typed

pandas = pytest.importorskip("pandas")
pyreadstat = pytest.importorskip("pyreadstat", reason="pyreadstat reads files of SPSS and Stata")

PEOPLE = [f"p{k}" for k in range(6)]
NAN = float("nan")


def answers(found: dict[tuple, float], question: str) -> dict[str, float]:
    """Return the answers to a question by user."""
    return {user: value for (user, item), value in found.items() if item == question}


def test_codes_that_spss_declares_missing_are_missing(tmp_path: Path) -> None:
    frame = pandas.DataFrame(
        {"user": PEOPLE, "q1": [1.0, 2, -9, 99, 98, NAN], "q2": [1.0, 2, 3, 1, 2, 3]}
    )
    path = tmp_path / "s.sav"
    ranges = {"q1": [-9, {"lo": 98, "hi": 99}]}
    pyreadstat.write_sav(frame, str(path), missing_ranges=ranges)
    found = read(path, matrix=True)
    assert answers(found, "q1") == {"p0": 1, "p1": 2}
    assert len(found) == 8


def test_labelled_answers_are_their_values(tmp_path: Path) -> None:
    """read_spss of pandas sorts labels by alphabet: 1 Never, 2 Sometimes, 3 Always are 1, 2, 0."""
    frame = pandas.DataFrame({"user": PEOPLE[:3], "q1": [1.0, 2, 3], "q2": [3.0, 3, 1]})
    path = tmp_path / "s.sav"
    labels = {"q1": {1: "Never", 2: "Sometimes", 3: "Always"}}
    pyreadstat.write_sav(frame, str(path), variable_value_labels=labels)
    found = read(path, matrix=True)
    assert [found[user, "q1"] for user in PEOPLE[:3]] == [1, 2, 3]


def test_extended_missing_values_of_stata_are_missing(tmp_path: Path) -> None:
    """A code that only a label calls missing stays, and is doubted."""
    frame = pandas.DataFrame(
        {"user": PEOPLE[:5], "q1": [1.0, 2, 1234.5, 1235.5, NAN], "q2": [1.0, 2, 3, 2, -9]}
    )
    path = tmp_path / "s.dta"
    pyreadstat.write_dta(frame, str(path), variable_value_labels={"q2": {-9: "missing"}})
    written = path.read_bytes()
    for number, word in ((1234.5, 0x7FE0010000000000), (1235.5, 0x7FE01A0000000000)):  # .a, .z
        written = written.replace(struct.pack("<d", number), struct.pack("<Q", word))
    path.write_bytes(written)
    found = read(path, matrix=True)
    assert answers(found, "q1") == {"p0": 1, "p1": 2}
    assert found["p4", "q2"] == -9
    assert "-9" in typed("prepare", path, tmp_path / "d.h5", "--matrix").expect(0).err


@pytest.mark.parametrize("version", [8, 10, 12, 13, 14, 15])
def test_versions_of_stata_are_recognised(tmp_path: Path, version: int) -> None:
    frame = pandas.DataFrame({"user": [1.0, 2], "item": [7.0, 8], "rating": [4.0, 2]})
    path = tmp_path / "s.dta"
    pyreadstat.write_dta(frame, str(path), version=version)
    assert read(path) == {(1, 7): 4, (2, 8): 2}


def test_a_survey_with_a_line_for_each_rating_is_a_table(tmp_path: Path) -> None:
    frame = pandas.DataFrame(
        {"who": ["a", "b", ""], "what": [1.0, 2, 3], "score": [4.5, NAN, 2], "wave": [1.0, 1, 1]}
    )
    path = tmp_path / "s.sav"
    pyreadstat.write_sav(frame, str(path))
    columns = "user=who,item=what,rating=score"
    assert "the rating is missing" in refused(path, "--columns", columns)
    frame.loc[1, "score"] = 3
    pyreadstat.write_sav(frame, str(path))
    assert "the user is missing" in refused(path, "--columns", columns)
    assert read(path, columns=columns, missing="") == {("a", 1): 4.5, ("b", 2): 3}


def test_a_survey_describes_users(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user,item,rating\np0,1,4\np1,2,3\np2,1,1\n")
    frame = pandas.DataFrame({"user": PEOPLE[:3], "age": [30.0, 40, NAN]})
    pyreadstat.write_sav(frame, str(tmp_path / "s.sav"))
    command = ("prepare", tmp_path / "r.csv", tmp_path / "out.h5")
    shown = typed(*command, "--user-features", tmp_path / "s.sav").expect(0)
    assert "age (number" in shown.out


def test_choices_of_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sav"
    pyreadstat.write_sav(pandas.DataFrame({"user": PEOPLE, "q": np.ones(6)}), str(path))
    assert "leave out --variable" in refused(path, "--variable", "q")
    assert "leave out --unstored" in refused(path, "--unstored", "zero")
    path.write_bytes(path.read_bytes()[:200])
    assert "cannot be read" in refused(path)
