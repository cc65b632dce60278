# Writes worker/hash.h: the first 64 bits of the SHA-256 over the SDK's headers, in name order. Host and plugins of
# ABI 0.x run together only if both saw the same value.
# Usage: cmake -D INCLUDE_DIR=... -D OUT=... -P hash_headers.cmake
file(GLOB_RECURSE headers RELATIVE ${INCLUDE_DIR} ${INCLUDE_DIR}/worker/*.h)
list(FILTER headers EXCLUDE REGEX "worker/hash\\.h$")
list(SORT headers)
set(all "")
foreach(h IN LISTS headers)
  file(SHA256 ${INCLUDE_DIR}/${h} one)
  string(APPEND all "${h}:${one}\n")
endforeach()
string(SHA256 digest "${all}")
string(SUBSTRING ${digest} 0 16 short)
string(CONCAT text "/* worker/hash.h: made by the build from the other installed headers. */\n"
  "#ifndef WORKER_HASH_H\n#define WORKER_HASH_H\n#define WK_HEADER_HASH 0x${short}ull\n#endif\n")
file(WRITE ${OUT} "${text}")
