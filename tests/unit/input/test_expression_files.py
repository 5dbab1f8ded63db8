"""Matrices of genes: GCT files and folders of 10x, whose columns are samples or cells."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from ingest_cases import everything
from science_cases import read, refused
from science_files import write_tenx
from support import typed

GCT = {
    "1.2": ["#1.2", "3\t2", "Name\tDescription\ts1\ts2"],
    "1.3": [
        "#1.3",
        "3\t2\t1\t2",
        "id\tsymbol\ts1\ts2",
        "dose\t-666\t1\t10",
        "cell\t-666\tA549\tMCF7",
    ],
}
ROWS = ["g1\tfirst\t123456789\t0.00004", "g2\t\t-666\tNaN", "g3\tlast\tNA\t2.5"]
RATINGS = {("s1", "g1"): np.float32(123456789), ("s2", "g1"): np.float32(0.00004)}


def write_gct(path: Path, version: str, rows: list[str]) -> Path:
    path.write_text("\n".join([*GCT[version], *rows]) + "\n")
    return path


@pytest.mark.parametrize("version", GCT)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_samples_are_users_and_minus_666_is_missing(
    tmp_path: Path, version: str, pack: object
) -> None:
    path = write_gct(tmp_path / "x.gct", version, ROWS)
    path.write_bytes(pack(path.read_bytes()))
    typed("prepare", path, tmp_path / "out.h5", "--test-fraction", "0").expect(0)
    assert everything(tmp_path / "out.h5") == {**RATINGS, ("s2", "g3"): 2.5}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[:2], "has 2 rows, but line 2 says 3"),
        ([*ROWS, ROWS[0]], "found 4 columns in row 4"),
        (["g1\tfirst\t1", *ROWS[1:]], "line 4: expected 3 rows of 4 columns"),
        (["g1\tfirst\tlow\t1", *ROWS[1:]], "line 4: 'low' is not a number"),
        (["g3\tfirst\t1\t1", *ROWS[1:]], "name(s) of items recur (g3)"),
    ],
)
def test_what_does_not_fit_the_sizes_is_named(
    tmp_path: Path, rows: list[str], message: str
) -> None:
    assert message in refused(write_gct(tmp_path / "x.gct", "1.2", rows))


@pytest.mark.parametrize("sizes", ["3", "3\tx", "99999999\t99999999"])
def test_wrong_sizes_are_refused(tmp_path: Path, sizes: str) -> None:
    path = tmp_path / "x.gct"
    path.write_text("\n".join(["#1.2", sizes, GCT["1.2"][2], *ROWS]))
    assert "line" in refused(path)


# ---------------------------------------------------------------------------------------------- 10x

MARKET = [
    "%%MatrixMarket matrix coordinate integer general",
    '%metadata_json: {"software_version": "cellranger"}',
    "3 2 3",
    "1 1 5",
    "3 1 1",
    "2 2 7",
]
FEATURES = ["ENSG1\tA\tGene Expression", "ENSG2\tB\tGene Expression", "ENSG3\tC\tGene Expression"]
COUNTS = {("AAC-1", "ENSG1"): 5, ("AAC-1", "ENSG3"): 1, ("CCA-1", "ENSG2"): 7}


def folder(path: Path, features: list[str] = FEATURES, *, old: bool = False) -> Path:
    return write_tenx(path, MARKET, barcodes=["AAC-1", "CCA-1"], features=features, old=old)


@pytest.mark.parametrize("old", [False, True])
def test_cells_are_users_and_genes_are_items(tmp_path: Path, old: bool) -> None:
    path = folder(tmp_path / "filtered", old=old)
    assert "does not store 3 of them" in refused(path)
    command = ("prepare", path, tmp_path / "out.h5", "--unstored", "missing")
    shown = typed(*command, "--test-fraction", "0").expect(0)
    assert "users are barcodes" in " ".join(shown.out.split())
    assert everything(tmp_path / "out.h5") == COUNTS
    found = read(path, unstored="zero")
    assert len(found) == 6
    assert {pair: count for pair, count in found.items() if count} == COUNTS


def test_one_of_several_types_of_features_is_chosen(tmp_path: Path) -> None:
    features = [*FEATURES[:2], "CD3\tCD3\tAntibody Capture"]
    path = folder(tmp_path / "filtered", features)
    assert "types Gene Expression and Antibody Capture" in refused(path, "--unstored", "zero")
    found = read(path, unstored="missing", variable="Gene Expression")
    assert found == {("AAC-1", "ENSG1"): 5, ("CCA-1", "ENSG2"): 7}


def test_names_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "filtered", FEATURES[:2])
    assert "3 rows and 2 columns, but there are 2 features" in refused(path)
    (path / "barcodes.tsv.gz").unlink()
    assert "has no barcodes.tsv" in refused(path)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    assert "is not a file" in refused(tmp_path / "store")
    (tmp_path / "store" / "zarr.json").write_text("{}")
    assert "xarray.open_zarr" in refused(tmp_path / "store")
