"""Tables with a line for each rating, sparse arrays and several files are read right, or asked."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
from disguised_lines import DISGUISES, Lines, faults_in, files_faults, sparse_faults  # noqa: E402


@pytest.mark.parametrize("name", DISGUISES)
def test_each_disguise_is_seen_through(tmp_path, name):
    """From text, Parquet, JSON and frames."""
    rng = np.random.default_rng(7)
    made = Lines.random(rng)
    DISGUISES[name](made, rng)
    assert faults_in(made, tmp_path) == {}


def test_sparse_arrays_in_all_forms(tmp_path):
    """What is stored is rated, and not the zeros that fill blocks."""
    assert sparse_faults(0, tmp_path) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_of_two_files_with_one_name(tmp_path, seed):
    """They are asked for if cells have two values, and each rule makes of them what it says."""
    assert files_faults(seed, tmp_path) == []
