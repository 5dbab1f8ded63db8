"""Preparation of a ratings file from other files: they are found, read, checked, split, shuffled and sorted.

`files` finds the files, `packed` unpacks them, `sources` finds how each is written, `load` reads them into a DuckDB
table, `complaints` says what is wrong with them, `arrange` numbers the entities and splits the ratings, and
`prepare` is the whole.
"""
