"""Sources of tables: text, JSON, Parquet, sparse matrices, and files of the sciences."""
