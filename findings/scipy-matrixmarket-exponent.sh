#!/usr/bin/env bash
# Package: scipy 1.17.1
# Expected: 1.5D+02, as Fortran writes 150 in double precision, is read as 150 or refused
# Seen: it is read as 1.5: the rest of the field is left out
# Hits: matrices that were written by Fortran programs
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scipy==1.17.1
python - <<'END' | expect "[1.5, 4.0]"
import io

import scipy.io

text = b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1.5D+02\n2 2 4.0D+00\n"
print(scipy.io.mmread(io.BytesIO(text), spmatrix=False).data.tolist())
END
