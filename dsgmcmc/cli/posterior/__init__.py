"""Commands that use the draws of a run."""
