#!/usr/bin/env bash
# Package: scikit-learn 1.9.1
# Expected: one Gaussian process with noise of variance .25 has one standard deviation of a new observation, .537, however the noise is given
# Seen: return_std of GaussianProcessRegressor is .195 with alpha=.25, the function's, and .537 with WhiteKernel(.25), the observation's; the means are equal; sample_y differs alike
# Hits: 95 % intervals of ratings or measurements: with alpha they hold 52 % of new ones
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scikit-learn==1.9.1 numpy==2.4.6
python - <<'END' | expect "alpha: mean 0.217, sd 0.195, intervals hold 52 %
WhiteKernel: mean 0.217, sd 0.537, intervals hold 95 %
exact: of the function 0.195, of an observation 0.537"
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

rng = np.random.default_rng(0)
x = np.linspace(0, 5, 30)[:, None]
y = np.sin(x[:, 0]) + rng.normal(0, 0.5, 30)
at = np.array([[2.5]])
kernel = RBF(1.0, "fixed")
models = {
    "alpha": GaussianProcessRegressor(kernel, alpha=0.25),
    "WhiteKernel": GaussianProcessRegressor(kernel + WhiteKernel(0.25, "fixed"), alpha=1e-10),
}
joint = np.exp(-((x - x.T) ** 2) / 2) + 0.25 * np.eye(30)
cross = np.exp(-((x[:, 0] - 2.5) ** 2) / 2)
mean = cross @ np.linalg.solve(joint, y)
variance = 1 - cross @ np.linalg.solve(joint, cross)
new = mean + np.sqrt(variance + 0.25) * rng.normal(size=1_000_000)  # from the predictive law
for name, model in models.items():
    found, sd = (part[0] for part in model.fit(x, y).predict(at, return_std=True))
    held = 100 * np.mean(abs(new - found) < 1.96 * sd)
    print(f"{name}: mean {found:.3f}, sd {sd:.3f}, intervals hold {held:.0f} %")
print(f"exact: of the function {variance**0.5:.3f}, of an observation {(variance + 0.25) ** 0.5:.3f}")
END
