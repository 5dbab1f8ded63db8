"""Machine code from generated source: the compiler, its cache, and vector instructions."""
