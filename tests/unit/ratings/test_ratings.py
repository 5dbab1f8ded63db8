"""The ratings file: what is written is read back, and a wrong file is refused whatever is wrong
with it.
"""

import itertools
from pathlib import Path

import h5py
import numpy as np
import pytest
from support import csr, write_ratings

from dsgmcmc.errors import InputError
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import CHUNK, Features
from dsgmcmc.ratings.writer import Sizes, Slab, write_slabs

TRAIN = (
    np.array([0, 2, 2, 5, 6], np.int64),
    np.array([0, 2, 0, 1, 2, 1], np.int32),
    np.array([1.5, 2, 3, 0.5, 5, 4], np.float32),
)
TEST = (
    np.array([0, 1, 2, 2, 2], np.int64),
    np.array([1, 0], np.int32),
    np.array([2.5, 4.5], np.float32),
)
ROW_IDS = np.array([10, -7, 2**62, 0], np.int64)
COL_IDS = np.array([b"a b", "Amélie".encode(), "七人の侍".encode()], "S12")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.h5"
    features = Features(
        np.arange(5),
        np.array([0, 1, 0, 1], np.int32),
        np.ones(4, np.float32),
        ("a", "b"),
        ("g", "g"),
    )
    more = {"seed": 5, "transposed": True, "source": "x.csv", "features": {"rows": features}}
    write_ratings(path, TRAIN, TEST, ROW_IDS, COL_IDS, **more)
    return path


def test_round_trip(file):
    """Everything written comes back: sizes, statistics, names, every row of both parts."""
    with Ratings(file) as ratings:
        assert (ratings.n_rows, ratings.n_cols, ratings.nnz, ratings.nnz_test) == (4, 3, 6, 2)
        assert (ratings.minimum, ratings.maximum, ratings.mean) == (0.5, 5.0, 16 / 6)
        assert (ratings.seed, ratings.orientation.transposed, ratings.source) == (5, True, "x.csv")
        assert ratings.ids("rows").tolist() == ROW_IDS.tolist()
        assert ratings.ids("rows").dtype == np.int64
        assert ratings.ids("cols").tolist() == ["a b", "Amélie", "七人の侍"]
        assert ratings.row_indptr.tolist() == TRAIN[0].tolist()
        assert ratings.column_counts.tolist() == [2, 2, 2]
        for part, (indptr, indices, values) in (("train", TRAIN), ("test", TEST)):
            for start, stop in itertools.combinations_with_replacement(range(5), 2):
                starts, columns, cells = ratings.slab(part, start, stop)[:3]
                assert starts.tolist() == (indptr[start : stop + 1] - indptr[start]).tolist()
                assert columns.tolist() == indices[indptr[start] : indptr[stop]].tolist()
                assert cells.tolist() == values[indptr[start] : indptr[stop]].tolist()
                assert (starts.dtype, columns.dtype, cells.dtype) == (
                    np.int64,
                    np.int32,
                    np.float32,
                )
        ratings.verify()
    assert [path.name for path in file.parent.iterdir()] == ["r.h5"]


def test_content_does_not_depend_on_slabs(tmp_path):
    """Digest and mean are functions of the ratings, not of how they were cut up on the way to the
    file.
    """
    rng = np.random.default_rng(0)
    n = 50
    j = 20
    rows, columns = np.nonzero(rng.random((n, j)) < 0.4)
    indptr, indices, values = csr(n, rows, columns, rng.normal(size=len(rows)))
    contents = set()
    for step in (1, 7, 50):
        path = tmp_path / f"{step}.h5"
        cuts = [(start, min(start + step, n)) for start in range(0, n, step)]
        slabs = []
        for start, stop in cuts:
            cells = slice(indptr[start], indptr[stop])
            slabs.append(
                Slab(
                    "train", indptr[start : stop + 1] - indptr[start], indices[cells], values[cells]
                )
            )
            slabs.append(
                Slab("test", np.zeros(stop - start + 1, np.int64), indices[:0], values[:0])
            )
        ids = {"rows": [np.arange(*cut) for cut in cuts], "cols": [np.arange(j)]}
        write_slabs(path, Sizes(n, j, len(indices), 0), ids, slabs)
        with Ratings(path) as ratings:
            ratings.verify()
            contents.add((ratings.digest, ratings.mean, ratings.nnz_test))
    assert len(contents) == 1


# --------------------------------------------------------------------- other people's files


def replace(file, name, array, checked=True):
    """Put other data in the place of a data set, with the checksums that belong to them."""
    del file[name]
    file.create_dataset(name, data=array, chunks=checked or None, fletcher32=checked)


def set_attribute(name, value):
    def change(file, folder):
        del file.attrs[name]
        file.attrs[name] = value

    return change


def external_link(file, folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["train/values"] = TRAIN[2]
        other["train/indices"] = TRAIN[1]
        other["train/indptr"] = TRAIN[0]
        other["train/column_counts"] = np.array([2, 2, 2])
    del file["train"]
    file["train"] = h5py.ExternalLink("other.h5", "/train")


def terabyte(file, folder):
    for name, dtype in (("train/indices", "i4"), ("train/values", "f4")):
        del file[name]
        file.create_dataset(name, (10**12,), dtype, chunks=(CHUNK,), fletcher32=True)
    file.attrs["nnz"] = 10**12
    file["train/indptr"][-1] = 10**12


OVERFLOW = np.array([0, 2**63 - 1, -(2**63), -5, 6])
WRONG_STRUCTURE = {
    "format": (set_attribute("format", np.bytes_(b"something")), "its format is 'something'"),
    "text of variable length": (
        set_attribute("format", "dsgmcmc-ratings"),
        "'format' is not one str",
    ),
    "version": (
        set_attribute("version", 1),
        "version 1, but this program reads 'dsgmcmc-ratings' versions 2 and 3",
    ),
    "mean NaN": (set_attribute("mean", np.nan), "mean=nan"),
    "I too small": (set_attribute("I", 3), "/train/indptr has shape"),
    "indptr wraps around": (lambda f, d: replace(f, "train/indptr", OVERFLOW), "does not rise"),
    "column counts": (lambda f, d: f["train/column_counts"].__setitem__(0, 3), "does not add up"),
    "dtype": (lambda f, d: replace(f, "train/values", TRAIN[2].astype("f8")), "type float64"),
    "no test": (lambda f, d: f.__delitem__("test"), "/test is missing"),
    "external link": (external_link, "link elsewhere"),
    "a terabyte in 8 kB": (terabyte, "declares"),
    "no checksums": (
        lambda f, d: replace(f, "train/values", TRAIN[2], checked=False),
        "in chunks with checksums",
    ),
}


@pytest.mark.parametrize("name", WRONG_STRUCTURE)
def test_wrong_structure_is_refused_on_opening(file, tmp_path, name):
    """A file that lies about itself is refused with its name and what is wrong, before anything is
    allocated.
    """
    change, message = WRONG_STRUCTURE[name]
    with h5py.File(file, "r+") as opened:
        change(opened, tmp_path)
    with pytest.raises(InputError) as caught:
        Ratings(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("train/indices", 1, 3, "indices outside 0..2"),
        ("train/indices", 0, 2, "do not ascend"),
        ("train/values", 3, np.nan, "not finite"),
        ("train/values", 2, 3.5, "content_sha256"),
        ("train/indices", 5, 2, "column_counts"),
        ("cols/ids", 0, b"a c", "content_sha256"),
        ("train/column_counts", slice(0, 2), [1, 3], "column_counts"),
        ("rows/features/indices", 0, 99, "indices outside"),
        ("rows/features/values", 0, np.nan, "not finite"),
        ("rows/features/indptr", 1, 10**9, "indptr does not rise"),
        ("rows/features/values", 0, 7.0, "content_sha256"),
    ],
)
def test_changed_content_is_refused(file, name, index, value, message):
    """Readers refuse bad indices and numbers; `verify` finds any change, also to content that is
    valid in itself.
    """
    with h5py.File(file, "r+") as opened:
        opened[name][index] = value
    if message not in ("content_sha256", "column_counts"):
        with pytest.raises(InputError, match=message), Ratings(file) as ratings:
            _ = ratings.slab("train", 0, 4), ratings.feature_slab("rows", 0, 4)
    with pytest.raises(InputError, match=message), Ratings(file) as ratings:
        ratings.verify()


def test_not_a_ratings_file(tmp_path, file):
    """A missing file, a folder, text and a file cut short each get their own reason."""
    with pytest.raises(InputError, match="does not exist"):
        Ratings(tmp_path / "none.h5")
    with pytest.raises(InputError, match="is not a file"):
        Ratings(tmp_path)
    text = tmp_path / "text.h5"
    text.write_text("1,2,3\n")
    with pytest.raises(InputError, match=r"dsgmcmc prepare .*text\.h5 OUT\.h5"):
        Ratings(text)
    cut = tmp_path / "cut.h5"
    cut.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="opened as HDF5"):
        Ratings(cut)


def test_only_what_is_read_is_checked(tmp_path):
    """Damage in one chunk does not matter to a process that reads others."""
    n = 5 * CHUNK
    train = np.arange(n + 1), np.zeros(n, np.int32), np.ones(n, np.float32)
    path = tmp_path / "r.h5"
    write_ratings(
        path,
        train,
        (np.zeros(n + 1, np.int64), train[1][:0], train[2][:0]),
        np.arange(n),
        np.arange(2),
    )
    with h5py.File(path) as opened:
        offset = opened["train/values"].id.get_chunk_info_by_coord((3 * CHUNK,)).byte_offset
    with path.open("r+b") as raw:
        raw.seek(offset)
        raw.write(np.float32(2).tobytes())
    with Ratings(path) as ratings:
        for start in (0, 17, CHUNK, 3 * CHUNK - 9, 4 * CHUNK):
            assert ratings.slab("train", start, start + 9).values.tolist() == [1.0] * 9
        for start, stop in ((3 * CHUNK, 3 * CHUNK + 1), (0, n), (4 * CHUNK - 1, n)):
            with pytest.raises(InputError, match="/train/values is damaged in entries"):
                ratings.slab("train", start, stop)
