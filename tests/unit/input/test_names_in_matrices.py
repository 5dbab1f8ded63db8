"""Several matrices, second headers and equal names: whose rows and columns they are is asked."""

import itertools

import numpy as np
import pandas as pd
import pytest
from ingest_cases import everything
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.prepare.prepare import prepare_ratings

RNG = np.random.default_rng(3)
ITEMS = [f"g{j}" for j in range(5)]


def values(n=8):
    """Decimals without a hole."""
    return np.round(RNG.normal(8, 2, (n, 5)) + 0.001, 2) + 0.001


def people(prefix="p", n=8):
    """A matrix with names of rows and columns."""
    return pd.DataFrame(values(n), [f"{prefix}{i}" for i in range(n)], ITEMS).round(3)


def write(folder, name, frame, **options):
    """Write a frame as text or Parquet; return the path."""
    path = folder / name
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, **options)
    return path


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_of_two_files_with_the_same_names(tmp_path, suffix):
    """They may be the same users or others: both ways that the message names are followed."""
    frames = [people(), people()]
    paths = [write(tmp_path, f"{k}.{suffix}", frame) for k, frame in enumerate(frames)]
    out = tmp_path / "o.h5"
    failed = typed("prepare", *paths, out, "--matrix").expect(2)
    assert "40 cells of 0" in failed.err.replace("\n", " ")
    assert not out.exists()
    for rule, number in (("last", 40), ("mean", 40), ("keep", 80)):
        summary = prepare_ratings(paths, out, matrix=True, duplicates=rule, force=True)
        assert (summary.users, summary.ratings) == (8, number)
    others = [
        write(
            tmp_path, f"other{k}.{suffix}", frame.set_axis([f"{k} {name}" for name in frame.index])
        )
        for k, frame in enumerate(frames)
    ]
    assert prepare_ratings(others, out, matrix=True, force=True).users == 16


def test_a_matrix_cut_into_columns_is_one(tmp_path):
    """The same users with other items have one reading."""
    frame = people()
    paths = [
        write(tmp_path, "a.csv", frame.iloc[:, :2]),
        write(tmp_path, "b.csv", frame.iloc[:, 2:]),
    ]
    assert prepare_ratings(paths, tmp_path / "o.h5", matrix=True).ratings == 40


UNNAMED = {
    "no names": lambda folder, name: write(
        folder, f"{name}.csv", people(), header=False, index=False
    ),
    "an array": lambda folder, name: folder / f"{name}.npz",
    "counts first": lambda folder, name: write(
        folder,
        f"{name}.csv",
        people().mask(RNG.random((8, 5)) < 0.3).pipe(lambda f: f.set_axis(f.count(axis=1))),
        header=False,
        na_rep="99",
    ),
}


@pytest.mark.parametrize(
    ("first", "second"), [*itertools.combinations_with_replacement(UNNAMED, 2)]
)
def test_rows_without_names_in_two_files(tmp_path, first, second):
    """Row 1 of two files is not the same user."""
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", values())
    paths = [UNNAMED[first](tmp_path, "a"), UNNAMED[second](tmp_path, "b")]
    with pytest.raises(InputError, match="several matrices need names of rows"):
        prepare_ratings(paths, tmp_path / "o.h5", matrix=True, missing=99)


def test_a_second_part_without_a_header(tmp_path):
    """Its columns are not new items; the advice works."""
    frame = people(n=16)
    first = write(tmp_path, "a.csv", frame.iloc[:8])
    second = write(tmp_path, "b.csv", frame.iloc[8:], header=False)
    failed = typed("prepare", first, second, tmp_path / "o.h5", "--matrix").expect(2)
    assert "write the same names above it" in failed.err.replace("\n", " ")
    second.write_text(first.read_text().splitlines()[0] + "\n" + second.read_text())
    typed("prepare", first, second, tmp_path / "o.h5", "--matrix").expect(0)
    assert len(everything(tmp_path / "o.h5")) == 80


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_columns_with_the_same_name(tmp_path, suffix):
    """They are different items, or measure the same; neither is guessed."""
    frame = people().set_axis(["ctl", "ctl", "ctl", "t6", "t6"], axis=1)
    path = write(tmp_path, f"m.{suffix}", frame)
    failed = typed("prepare", path, tmp_path / "o.h5", "--matrix").expect(2)
    assert "3 columns are named ctl" in failed.err.replace("\n", " ")
    with pytest.raises(InputError, match="3 columns are named ctl"):
        BPMF(rank=0, iterations=10, burn_in=5, matrix=True).fit(path)
    kept = prepare_ratings([path], tmp_path / "o.h5", matrix=True, duplicates="keep")
    assert (kept.items, kept.ratings) == (2, 40)
    renamed = write(tmp_path, "m.csv", frame.set_axis(ITEMS, axis=1))
    assert prepare_ratings([renamed], tmp_path / "r.h5", matrix=True).items == 5


def test_a_second_header_of_numbers(tmp_path):
    """Hours or groups below the names are no user; a row of zeros is one."""
    frame = people()
    hours = pd.DataFrame([[0, 0, 6, 6, 24]], ["hour"], ITEMS)
    text = hours.to_csv() + frame.to_csv(header=False)
    path = tmp_path / "m.csv"
    path.write_text(text)
    failed = typed("prepare", path, tmp_path / "o.h5", "--matrix").expect(2)
    assert "remove line 2" in failed.err.replace("\n", " ")
    told = prepare_ratings([path], tmp_path / "o.h5", matrix=True, first_line="names")
    assert told.users == 9
    path.write_text(text.replace("hour,0,0,6,6,24\n", ""))
    assert prepare_ratings([path], tmp_path / "o.h5", matrix=True, force=True).users == 8
    path.write_text(text.replace("hour,0,0,6,6,24", "blank,0,0,0,0,0"))
    assert prepare_ratings([path], tmp_path / "o.h5", matrix=True, force=True).users == 9


def test_what_is_advised_of_texts(tmp_path):
    """A row of units and infinite cells have advice of their own, which works."""
    frame = people()
    path = tmp_path / "m.csv"
    units = "," + ",".join(["mg/L"] * 5) + "\n"
    head, _, rows = frame.to_csv().partition("\n")
    path.write_text(f"{head}\nunit{units}{rows}")
    failed = typed("prepare", path, tmp_path / "o.h5", "--matrix").expect(2).err.replace("\n", " ")
    assert "leave it out by --skip-rows 2" in failed
    typed("prepare", path, tmp_path / "u.h5", "--matrix", "--skip-rows", "2").expect(0)
    infinite = frame.copy()
    infinite.iloc[2, 1] = np.inf
    path.write_text(infinite.to_csv())
    failed = typed("prepare", path, tmp_path / "o.h5", "--matrix").expect(2).err.replace("\n", " ")
    assert "a bound, such as >2000" in failed
    path.write_text(infinite.replace(np.inf, ">9").to_csv())
    typed("prepare", path, tmp_path / "b.h5", "--matrix").expect(0)
    path.write_text(frame.to_csv(sep=";"))
    typed("prepare", path, tmp_path / "o.h5", "--matrix").expect(0)
