"""The ratings file, which ``prepare`` writes, and of which every process reads a range of rows.

Format ``dsgmcmc-ratings``, version 2, an HDF5 file with

========================  =========================  ===========================================
``/train``, ``/test``     ``indptr``                 (I+1,) int64, compressed sparse rows
..                        ``indices``                (nnz,) int32, columns, ascending in each row
..                        ``values``                 (nnz,) float32, ratings
``/train``                ``column_counts``          (J,) int64, training ratings of each column
..                        ``age``                    (nnz,) uint8, of a temporal split: hundredth by time, 0 the latest
``/rows/ids``             ``/cols/ids``              int64, or UTF-8 of fixed length: original names
``/rows/features``        ``indptr indices values``  int64, int32, float32: compressed sparse rows, one of each row
..                        ``names groups``           (F,) UTF-8 of fixed length, see `Features`
..                        ``encoding``               (bytes,) uint8: how they were made, JSON as UTF-8, if it is known
``/cols/features``                                   the same of columns; either side may have none
``/train``, ``/test``     ``times/SIDE/place``       int32, with SIDE rows and cols: see `Times`
..                        ``times/SIDE/page``
``/rows``, ``/cols``      ``times/place``            int32: how many each row, or column, has
..                        ``times/page``             all of ``times`` where the order in time was kept
attributes                ``format version``         text is UTF-8 of fixed length
..                        ``I J nnz nnz_test``       sizes
..                        ``mean min max``           of the training ratings
..                        ``seed transposed``        of the shuffle and split; whether rows are items
..                        ``source source_sha256``   where the ratings came from
..                        ``content_sha256``         hash of these arrays but the encoding: the data's identity
========================  =========================  ===========================================

Rows and columns lie in a seeded random order, so that contiguous ranges of equal nnz are alike, and the
rows are the longer side. The file knows nothing of grids or processes.

Every data set is stored in chunks with HDF5's Fletcher32 checksum, which HDF5 compares with each chunk that it reads. A
process that reads a range of rows checks the chunks that it touches, no more. Attributes and other metadata have HDF5's
own checksums. ``prepare`` hashes what it writes, and ``verify`` reads the whole file and compares it with this hash.

Files come from other people: a reader checks types, lengths and ranges before it allocates or indexes by them.
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
from dsgmcmc.data.ratings.writer import RatingsWriter, write_ratings

__all__ = [
    "MAX_ID_BYTES",
    "MAX_SIDE",
    "SIDES",
    "SPLITS",
    "Features",
    "Ratings",
    "RatingsWriter",
    "Side",
    "Split",
    "Times",
    "open_ratings",
    "row_slabs",
    "write_ratings",
]
