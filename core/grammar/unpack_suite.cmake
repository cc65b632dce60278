# Run with -DFROM=<archive> -DTO=<build folder>: unpacks the JSON-Schema-Test-Suite there, and lists its files in
# tests/files.
file(MAKE_DIRECTORY ${TO})
file(ARCHIVE_EXTRACT INPUT ${FROM} DESTINATION ${TO})
file(GLOB_RECURSE files RELATIVE ${TO}/tests ${TO}/tests/*.json)
list(SORT files)
list(JOIN files "\n" lines)
file(WRITE ${TO}/tests/files "${lines}\n")
