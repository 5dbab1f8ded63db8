#!/usr/bin/env python3
"""Fetch a MovieLens data set: ``data/movielens.py ml-1m --out DIR`` is ``dsgmcmc fetch ml-1m --out DIR``."""

import sys

from dsgmcmc.cli.app import main

if __name__ == "__main__":
    sys.argv.insert(1, "fetch")
    main()
