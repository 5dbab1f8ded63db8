"""Ratings made up from known factors: the factors and noise, who rates what, and numbers without repetition."""
