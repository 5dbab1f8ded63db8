#!/usr/bin/env bash
# Package: pandas 2.3.3, pyreadstat 1.3.7
# Expected: answers 1 Never, 2 Sometimes, 3 Always keep their order as categories
# Seen: read_spss sorts the labels by alphabet: Always, Never, Sometimes, with the codes 1, 2, 0, and the values are gone
# Hits: levels of questionnaires; convert_categoricals=False keeps 1, 2, 3
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install pandas==2.3.3 pyreadstat==1.3.7 numpy==2.4.6
python -W ignore - <<'END' | expect "['Always', 'Never', 'Sometimes'] [1, 2, 0] [1.0, 2.0, 3.0]"
import pandas as pd
import pyreadstat

labels = {"answer": {1: "Never", 2: "Sometimes", 3: "Always"}}
frame = pd.DataFrame({"answer": [1.0, 2.0, 3.0]})
pyreadstat.write_sav(frame, "answers.sav", variable_value_labels=labels)
seen = pd.read_spss("answers.sav")["answer"]
values = pd.read_spss("answers.sav", convert_categoricals=False)["answer"]
print(list(seen.cat.categories), seen.cat.codes.tolist(), values.tolist())
END
