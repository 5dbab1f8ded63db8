"""Features of a ratings file, from files that describe users or items.

`describe` says what is given, `table` and `matrix` read a file, `kinds` finds out what its columns are, `encode` makes
numbers of them, by an `encoding` that it learns or is told; `movielens` knows the files of that publisher, which have
no headers.
"""

from dsgmcmc.data.ingest.features.describe import Description, check_kinds, describe, load_description
from dsgmcmc.data.ingest.features.encode import Encoded, encode, encode_new
from dsgmcmc.data.ingest.features.encoding import Encoding

__all__ = [
    "Description",
    "Encoded",
    "Encoding",
    "check_kinds",
    "describe",
    "encode",
    "encode_new",
    "load_description",
]
