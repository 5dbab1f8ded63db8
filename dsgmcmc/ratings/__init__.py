"""The ratings file: its format, how it is read and written, and what its names and values say."""
