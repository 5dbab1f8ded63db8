"""Matrices as people have them are read right, or refused with an option that leads there."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ingest_cases import everything, prepare

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
from disguised_tables import DISGUISES, Matrix, faults_in  # noqa: E402


@pytest.mark.parametrize("name", DISGUISES)
def test_each_disguise_is_seen_through(tmp_path, name):
    """From text, Parquet, and frames with names in the index or in a column."""
    rng = np.random.default_rng(7)
    made = Matrix.random(rng)
    DISGUISES[name](made, rng)
    assert faults_in(made, tmp_path) == {}


def test_a_second_header_above_decimals_in_doubt(tmp_path):
    """1,234 may be a thousand, and 2000 above it a header: one is asked for after the other."""
    rng = np.random.default_rng(7)
    made = Matrix.random(rng)
    made.cells = [[f"{float(text):.3f}" if text else "" for text in row] for row in made.cells]
    made.read_again()
    for name in ("second_header", "commas"):
        DISGUISES[name](made, rng)
    assert faults_in(made, tmp_path) == {}


def test_words_in_the_first_column_are_no_names(tmp_path):
    """A word where nothing was measured does not make a column of numbers one of names."""
    values = np.random.default_rng(0).normal(5, 1, (20, 4)).round(2).astype(object)
    values[3, 0] = "ND"
    frame = pd.DataFrame(values, columns=[*"abcd"])
    with pytest.raises(InputError, match="item a: 'ND'"):
        BPMF(0, matrix=True, iterations=6, burn_in=2).fit(frame)
    frame.to_csv(tmp_path / "m.csv", index=False)
    text = (tmp_path / "m.csv").read_text()
    assert prepare(tmp_path, text, matrix=True, missing="ND").ratings == 79
    assert everything(tmp_path / "out.h5")[4, "b"] == np.float32(values[3, 1])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_few_rows_beside_many_columns(tmp_path, seed):
    """Seven rows tell a year from measurements, if there are many columns of these."""
    rng = np.random.default_rng([5, seed])
    made = Matrix.random(rng)
    for name in ("turned", "other_column"):
        DISGUISES[name](made, rng)
    assert len(made.users) < 12
    assert faults_in(made, tmp_path) == {}
