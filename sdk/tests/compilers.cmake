# compilers: rows NAME:LANGUAGE:STANDARD of what a plugin may be written in, as far as they are here; compiler_NAME:
# their paths.
set(compilers "gcc:c:c11" "gcc:c:c17" "g++:c++:c++17" "g++:c++:c++20" "clang:c:c11" "clang:c:c17" "clang++:c++:c++17"
  "clang++:c++:c++20")
foreach(name gcc g++ clang clang++)
  find_program(compiler_${name} ${name})
  if(NOT compiler_${name})
    message(STATUS "no ${name}: skipped")
    string(REPLACE "+" "[+]" pattern ${name})
    list(FILTER compilers EXCLUDE REGEX "^${pattern}:")
  endif()
endforeach()

# Sets name, language and standard from a row.
macro(read_row row)
  string(REPLACE ":" ";" parts "${row}")
  list(GET parts 0 name)
  list(GET parts 1 language)
  list(GET parts 2 standard)
endmacro()
