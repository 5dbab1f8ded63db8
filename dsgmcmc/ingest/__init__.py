"""Other people's rating files become a ratings file: found, read, checked, split, shuffled and sorted.

`files` finds the files, `sources` how each is written, `load` reads them into a DuckDB table, `complaints` says
what is wrong with them, `arrange` numbers the entities and splits the ratings, `session` keeps DuckDB within its
memory, `watch` shows progress and ends queries, and `prepare` is the whole.
"""

from dsgmcmc.ingest.prepare import Summary, prepare_ratings
from dsgmcmc.ingest.session import default_memory, parse_bytes
from dsgmcmc.ingest.watch import Report

__all__ = ["Report", "Summary", "default_memory", "parse_bytes", "prepare_ratings"]
