"""The version of the package, which everything may know."""

__version__ = "0.1.0"
