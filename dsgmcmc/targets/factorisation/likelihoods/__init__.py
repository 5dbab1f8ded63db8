"""Laws of a rating given its linear predictor: one likelihood a file."""
