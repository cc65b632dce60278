#!/bin/sh
# check_format.sh [--fix]: does every file have the one form: C and CUDA as .clang-format says, Python as .ruff.toml
# says, nothing (CMake, shell and the page too) over 120 columns? --fix formats C, CUDA and Python. Then
# check_structure.py looks at includes, lengths of functions and equal blocks.
#
# The result depends on the formatters' versions, so each is pinned. If the one on PATH is another, the pinned one is
# installed from PyPI into build-tools/.
set -eu
cd "$(dirname "$0")/.."

# tool NAME VERSION PATH: the path of the formatter NAME of this version; PATH: where PyPI's package has it.
tool() {
    case "$("$1" --version 2>/dev/null)" in
    *" $2"*) command -v "$1" && return ;;
    esac
    folder=build-tools/$1-$2
    [ -x "$folder/$3" ] || python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        --no-deps --target "$folder" "$1==$2" >&2
    echo "$folder/$3"
}
clang_format=$(tool clang-format 18.1.8 clang_format/data/bin/clang-format)
ruff=$(tool ruff 0.8.6 bin/ruff)

code=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
python=$(git ls-files '*.py')
other=$(git ls-files serve/page '*CMakeLists.txt' '*.cmake' '*.cmake.in' '*.sh' quickstart .ci \
    CMakePresets.json systemd packaging)
# Lists of words on purpose from here on.
# shellcheck disable=SC2086
if [ "${1:-}" = --fix ]; then
    "$clang_format" -i $code
    exec "$ruff" format --quiet $python
fi
# shellcheck disable=SC2086
"$clang_format" --dry-run --Werror $code && "$ruff" format --quiet --diff $python ||
    { echo "run cmake/check_format.sh --fix" >&2; exit 1; }
# shellcheck disable=SC2086 # what the formatters cannot break
"$ruff" check --quiet --select E501 --output-format concise $python
# shellcheck disable=SC2086
awk 'length($0) > 120 { print FILENAME ":" FNR ": " length($0) " columns"; n++ } END { exit n > 0 }' $code $other
cmake/check_structure.py
