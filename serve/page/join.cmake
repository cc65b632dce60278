# cmake -D FROM=DIR -D TO=FILE -P join.cmake: index.html with the other files of DIR in the places that name them.
file(READ ${FROM}/index.html page)
string(REGEX MATCHALL "@[a-z]+\\.(css|js)@" places "${page}")
foreach(place IN LISTS places)
  string(REPLACE "@" "" name ${place})
  file(READ ${FROM}/${name} part)
  string(REPLACE "${place}" "${part}" page "${page}")
endforeach()
file(WRITE ${TO} "${page}")
