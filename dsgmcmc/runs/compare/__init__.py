"""Which model suits some ratings: candidates are sampled shortly, scored on ratings held out, and one is chosen."""
