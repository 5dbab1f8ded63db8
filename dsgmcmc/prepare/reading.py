"""How ratings are read, as users say it: by settings of `prepare`, or parameters of a model."""

from __future__ import annotations

from dsgmcmc.input.odd_columns import parse_ignored
from dsgmcmc.input.values import parse_missing
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.tables.usual import Columns


def reading_of(said: object, columns: Columns) -> Reading:
    """Return how ratings are read in these columns by role.

    Further fields of `Reading` are the attributes of `said`; those that it lacks are not said.
    To refuse repeated ratings changes the meaning of none.
    """
    given = {name: getattr(said, name, None) for name in Reading._fields}
    if given["duplicates"] == "error":
        given["duplicates"] = None
    return Reading(
        **given
        | {
            "columns": columns,
            "missing": parse_missing(given["missing"]),
            "ignore": parse_ignored(given["ignore"]),
            "skip_rows": given["skip_rows"] or "",
            "skipped": "",
            "remembered": False,
        }
    )
