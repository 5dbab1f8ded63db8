#!/usr/bin/env bash
# Package: libmf 0.9.2
# Expected: predict(pairs) with a row and a column in each line predicts these pairs, however the array lies in memory
# Seen: it reads column after column: (7, 1), (8, 2), (9, 3) in NumPy's usual order become (7, 2), (1, 9), (8, 3); only an array in Fortran's order is read as it looks
# Hits: every test error that is computed from predict(): fit() reads line by line, and p_factors() and q_factors() are right
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# pip compiles it: g++ is needed
install libmf==0.9.2 numpy==2.4.6 scipy==1.17.1
python - <<'END' | tail -n 2 | expect "usual order: [[7, 2], [1, 9], [8, 3]]
Fortran's order: [[7, 1], [8, 2], [9, 3]]"
import numpy as np
from libmf.mf import MF

rng = np.random.default_rng(0)
rows, columns = (index.ravel() for index in np.indices((30, 20)))
values = 3 + rng.normal(size=30)[rows] * rng.normal(size=20)[columns]
model = MF(k=4, nr_threads=1, quiet=True)
model.fit(np.stack([rows, columns, values], axis=1))
of_pairs = model.p_factors() @ model.q_factors().T  # (30, 20), all different

pairs = np.array([[7, 1], [8, 2], [9, 3]])
for order, asked in (("usual", pairs), ("Fortran's", np.asfortranarray(pairs))):
    predicted = [np.argwhere(np.isclose(of_pairs, one, atol=1e-5))[0].tolist() for one in model.predict(asked)]
    print(f"{order} order: {predicted}")
END
