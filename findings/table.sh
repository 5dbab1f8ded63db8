#!/usr/bin/env bash
# Print the table of README.md from the heads of the scripts: findings/table.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
echo "| script | package | one would expect | seen | who is hit |"
echo "|---|---|---|---|---|"
for script in *.sh; do
  case $script in common.sh | table.sh) continue ;; esac
  cells=$(sed -n -E 's/^# (Package|Expected|Seen|Hits): (.*)/\2 |/p' "$script" | sed -E 's/([^ ])\|/\1\\|/g' | paste -sd' ')
  echo "| \`${script%.sh}\` | $cells"
done
