# shellcheck shell=bash
# Read by the scripts of this folder: installs packages in a temporary folder, and compares what they do with what is stated.

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 2

# install PACKAGES...: install them, at these versions, in an environment of their own, and put it first on the PATH
install() {
  python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" --quiet --disable-pip-version-check install "$@" || exit 2
  PATH=$folder/venv/bin:$PATH
}

# expect TEXT: print what standard input has, and end with 1 if it is not TEXT
expect() {
  local seen
  seen=$(cat)
  printf '%s\n' "$seen"
  [ "$seen" = "$1" ] || { printf 'This has changed. It was:\n%s\n' "$1" >&2 && exit 1; }
}
