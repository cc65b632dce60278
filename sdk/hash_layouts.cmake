# Writes worker/layout.h: for each kind of plugin the first 64 bits of the SHA-256 over its structs as the headers have
# them, without comments and spaces. CUDA modules are held to theirs; the others' only informs.
# Usage: cmake -D INCLUDE_DIR=... -D OUT=... -P hash_layouts.cmake
set(ARCH_HEADERS abi.h plugin.h arch.h)
set(QUANT_HEADERS abi.h plugin.h quant.h)
set(CUDA_HEADERS quant_cuda.h arch_cuda.h) # of abi.h they use what does not grow, and the note
set(text "/* worker/layout.h: made by the build from the structs of the other headers. */\n")
string(APPEND text "#ifndef WORKER_LAYOUT_H\n#define WORKER_LAYOUT_H\n")
foreach(kind ARCH QUANT CUDA)
  set(structs "")
  foreach(header IN LISTS ${kind}_HEADERS)
    file(READ ${INCLUDE_DIR}/worker/${header} source)
    string(REGEX REPLACE "/[*]([^*]|[*]+[^*/])*[*]+/" "" source "${source}")
    string(REGEX REPLACE "[ \t\n]+" " " source "${source}")
    string(REPLACE ";" "," source "${source}") # which separates the elements of a list
    # parts in braces become parts in <>, so that the first } ends a struct
    string(REGEX REPLACE "struct {([^{}]*)}" "struct <\\1>" source "${source}")
    string(REGEX MATCHALL "struct [a-z0-9_]+ {[^}]*}|typedef struct <[^>]*>" found "${source}")
    string(APPEND structs "${found}")
  endforeach()
  string(SHA256 digest "${structs}")
  string(SUBSTRING ${digest} 0 16 short)
  string(APPEND text "#define WK_LAYOUT_${kind} 0x${short}ull\n")
endforeach()
file(WRITE ${OUT} "${text}#endif\n")
