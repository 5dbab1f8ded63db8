#!/usr/bin/env bash
# Package: scipy 1.17.1, fast-matrix-market 1.7.6
# Expected: a fraction under the banner integer, as some tools write ratings, is read as it stands or refused
# Seen: 3.5 is read as 3 by both; mmwrite(field='integer') writes 2.5 as 2
# Hits: half stars in files whose banner says integer
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scipy==1.17.1 fast-matrix-market==1.7.6
python - <<'END' | expect "[3, 4] [3, 4] 1 1 2"
import io

import fast_matrix_market
import scipy.io
import scipy.sparse

text = b"%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 3.5\n2 2 4\n"
read = scipy.io.mmread(io.BytesIO(text), spmatrix=False), fast_matrix_market.mmread(io.BytesIO(text))
out = io.BytesIO()
scipy.io.mmwrite(out, scipy.sparse.coo_array([[2.5]]), field="integer")
print(*(matrix.data.tolist() for matrix in read), out.getvalue().decode().splitlines()[-1])
END
