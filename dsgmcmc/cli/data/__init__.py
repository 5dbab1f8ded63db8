"""Commands that make ratings files."""
