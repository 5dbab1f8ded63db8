"""Makes a ratings file: rows are merged, split, numbered, sorted and written."""
