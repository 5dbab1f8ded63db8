"""Single ratings: their predictive distributions, and scores of predictions."""
