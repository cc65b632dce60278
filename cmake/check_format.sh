#!/bin/sh
# check_format.sh [--fix]: is every C and CUDA file formatted as .clang-format says, with no line over 120 columns?
# --fix formats them.
#
# The result depends on clang-format's version, so one version is pinned. If the one on PATH is another, the pinned one
# is installed from PyPI into build-tools/.
set -eu
cd "$(dirname "$0")/.."
version=18.1.8
tool=clang-format
case "$($tool --version 2>/dev/null)" in
*" $version"*) ;;
*)
    folder=build-tools/clang-format-$version
    tool=$folder/clang_format/data/bin/clang-format
    [ -x "$tool" ] || python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
        --target "$folder" "clang-format==$version"
    ;;
esac
files=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
# shellcheck disable=SC2086 # a list of words on purpose
if [ "${1:-}" = --fix ]; then
    exec "$tool" -i $files
fi
# shellcheck disable=SC2086
"$tool" --dry-run --Werror $files || { echo "run cmake/check_format.sh --fix" >&2; exit 1; }
# shellcheck disable=SC2086 # what clang-format could not break
awk 'length($0) > 120 { print FILENAME ":" FNR ": " length($0) " columns"; n++ } END { exit n > 0 }' $files
