"""The ratings file, which ``prepare`` writes; every process reads a range of its rows.

Format ``dsgmcmc-ratings``, version 2, an HDF5 file with

========================  =========================  ===========================================
``/train``, ``/test``     ``indptr``                 (I+1,) int64, compressed sparse rows
..                        ``indices``                (nnz,) int32, columns, ascending in each row
..                        ``values``                 (nnz,) float32, ratings
``/train``                ``column_counts``          (J,) int64, number of training ratings of each column
..                        ``age``                    (nnz,) uint8, for a temporal split: hundredth by time, 0 the latest
``/rows/ids``             ``/cols/ids``              int64, or UTF-8 of fixed length: original names
``/rows/features``        ``indptr indices values``  int64, int32, float32: compressed sparse rows
..                        ``names groups``           (F,) UTF-8 of fixed length (`Features`)
..                        ``encoding``               (bytes,) uint8: encoding of the features, JSON as UTF-8; optional
``/cols/features``                                   features of columns; both groups are optional
``/train``, ``/test``     ``times/SIDE/place``       int32, with SIDE rows and cols (`Times`)
..                        ``times/SIDE/page``
``/rows``, ``/cols``      ``times/place``            int32: number of places of each row or column
..                        ``times/page``             int32: number of pages; ``times`` are optional
attributes                ``format version``         text is UTF-8 of fixed length
..                        ``I J nnz nnz_test``       sizes
..                        ``mean min max``           mean and range of the training ratings
..                        ``seed transposed``        seed of shuffle and split; whether rows are items
..                        ``source``                 names of the input files
..                        ``content_sha256``         identifies the data: hash of the arrays without encoding and counts
========================  =========================  ===========================================

Rows and columns are in a seeded random order, so that contiguous ranges with equal nnz are statistically alike. The
rows are the longer side. The file does not depend on grids or processes.

Every data set is stored in chunks with HDF5's Fletcher32 checksum, which HDF5 checks for every chunk that it reads. A
process that reads a range of rows checks only the chunks of this range. Attributes and other metadata have separate
HDF5 checksums. ``prepare`` hashes the content, and ``verify`` reads the whole file and compares it with the hash.

Files may come from untrusted sources: a reader checks types, lengths and ranges before it allocates memory or uses
indices.
"""

from dsgmcmc.data.ratings.format import (
    MAX_ID_BYTES,
    MAX_SIDE,
    SIDES,
    SPLITS,
    Features,
    Side,
    Split,
    Times,
    row_slabs,
)
from dsgmcmc.data.ratings.reader import Ratings, open_ratings
from dsgmcmc.data.ratings.writer import Sizes, Slab, check_target, write_ratings, write_slabs

__all__ = [
    "MAX_ID_BYTES",
    "MAX_SIDE",
    "SIDES",
    "SPLITS",
    "Features",
    "Ratings",
    "Side",
    "Sizes",
    "Slab",
    "Split",
    "Times",
    "check_target",
    "open_ratings",
    "row_slabs",
    "write_ratings",
    "write_slabs",
]
