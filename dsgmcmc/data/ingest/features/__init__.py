"""Files that describe users or items become features of a ratings file.

`table` and `matrix` read a file, `kinds` finds out what its columns are, `encode` makes numbers of them; `movielens`
knows the files of that publisher, which have no headers.
"""

from dsgmcmc.data.ingest.features.encode import (
    Description,
    Encoded,
    check_kinds,
    describe,
    encode,
    load_description,
)

__all__ = ["Description", "Encoded", "check_kinds", "describe", "encode", "load_description"]
