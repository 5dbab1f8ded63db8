#!/usr/bin/env bash
# Package: scipy 1.17.1
# Expected: curve_fit(sigma=s) with the known standard deviation s of each measurement returns the covariance at that noise, s^2 (X'X)^-1: a slope's sd is .0316 for s = .1, and 3.16 for s = 10
# Seen: it is .0346 for both: by default only ratios of sigma matter, and the noise is estimated from the residuals
# Hits: few measurements with stated errors: with three points intervals of 95 % by these sds hold 69 % for a straight line; absolute_sigma=True uses what is known
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scipy==1.17.1 numpy==2.4.6
python -W ignore - <<'END' | expect "sigma 0.1: 0.0346, absolute 0.0316
sigma 10.0: 0.0346, absolute 3.16
default: intervals hold 0.69
absolute: intervals hold 0.95"
import numpy as np
from scipy.optimize import curve_fit


def line(x, intercept, slope):
    return intercept + slope * x


def slope_and_sd(y, sigma, **settings):
    x = np.arange(float(len(y)))
    found, covariance = curve_fit(line, x, y, sigma=np.full(len(y), sigma), **settings)
    return found[1], np.sqrt(covariance[1, 1])


measured = np.array([0.0, 1.1, 1.9, 3.1, 3.9])
for sigma in (0.1, 10.0):
    default = slope_and_sd(measured, sigma)[1]
    known = slope_and_sd(measured, sigma, absolute_sigma=True)[1]
    print(f"sigma {sigma}: {default:.3g}, absolute {known:.3g}")
rng = np.random.default_rng(0)
tables = rng.normal(size=(2000, 3))
for name, settings in (("default", {}), ("absolute", {"absolute_sigma": True})):
    results = np.array([slope_and_sd(table, 1.0, **settings) for table in tables])
    print(f"{name}: intervals hold {np.mean(abs(results[:, 0]) < 1.96 * results[:, 1]):.2f}")
END
