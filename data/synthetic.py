#!/usr/bin/env python3
"""Make synthetic ratings: ``data/synthetic.py OUT ...`` is ``dsgmcmc synthetic OUT ...``."""

import sys

from dsgmcmc.cli.app import main

if __name__ == "__main__":
    sys.argv.insert(1, "synthetic")
    main()
