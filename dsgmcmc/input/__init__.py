"""Reading: ratings, pairs and titles of any source become rows, which are checked."""
