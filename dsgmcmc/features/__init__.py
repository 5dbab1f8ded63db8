"""Features of users and items: their tables are read and encoded as columns of numbers."""
