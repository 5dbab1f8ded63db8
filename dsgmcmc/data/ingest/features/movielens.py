"""Columns of MovieLens' own files, which have no headers [Harper & Konstan 2015]."""

from __future__ import annotations

_GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)

#: By the file's name: its delimiter, and the kinds of its columns, by their names.
FILES: dict[str, tuple[str, dict[str, str]]] = {
    "users.dat": (
        "::",  # ages are codes of ranges here
        {"user": "id", "gender": "category", "age": "category", "occupation": "category", "zip": "skip"},
    ),
    "movies.dat": ("::", {"item": "id", "year": "year", "genres": "list"}),
    "u.user": (
        "|",
        {"user": "id", "age": "number", "gender": "category", "occupation": "category", "zip": "skip"},
    ),
    "u.item": (
        "|",
        {"item": "id", "year": "year", "released": "skip", "video": "skip", "url": "skip"}
        | {f"genres={genre}": "flag" for genre in _GENRES},
    ),
}
