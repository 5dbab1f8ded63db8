"""Tables outside of files of ratings: DuckDB, data frames, usual names of columns, results."""
