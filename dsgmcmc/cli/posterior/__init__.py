"""Commands that use a run that has made draws."""
