# cmake -D SOURCE=... -D WORK=... -D DRIVER=... -D C_COMPILER=... -P test_architectures.cmake: which GPUs a build is
# for, by a driver of the test's own, which architectures are refused, and which kernels are compiled for the others.
# SOURCE: gpu_probe; DRIVER: its libcuda.so.1.
get_filename_component(driver_folder ${DRIVER} DIRECTORY)

function(configure)
  cmake_parse_arguments(T "" "GPUS;FOR;SAYS" "" ${ARGN})
  set(environment LD_LIBRARY_PATH=${driver_folder} --unset=FAKE_GPUS)
  if(T_GPUS)
    list(APPEND environment "FAKE_GPUS=${T_GPUS}")
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E env ${environment} ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}
    -D CMAKE_C_COMPILER=${C_COMPILER} "-DFOR=${T_FOR}" OUTPUT_VARIABLE text ERROR_VARIABLE text)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  string(FIND "${text}" "${T_SAYS}" at)
  if(at LESS 0)
    message(SEND_ERROR "GPUs \"${T_GPUS}\", for \"${T_FOR}\": \"${T_SAYS}\" expected, said: ${text}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
configure(SAYS "found []") # a driver without a GPU
configure(GPUS "90" SAYS "found [90a-real]")
configure(GPUS "90 90 86" SAYS "found [90a-real;86-real]")
configure(GPUS "120" SAYS "found [120-real]")
configure(GPUS "75" SAYS "found []") # too old
configure(SAYS "found []")           # gone again
foreach(architecture 90 90-real 90-virtual)
  configure(FOR "80-real,${architecture}" SAYS "CUDA architecture ${architecture}: Hopper's")
  configure(FOR "${architecture}" SAYS "write 90a-real instead")
endforeach()
configure(FOR "native" SAYS "architectures by number are expected")
configure(FOR "all-major" SAYS "architectures by number are expected")
configure(FOR "75-real" SAYS "80 is the oldest")
configure(FOR "80-real,86,89-virtual,90a-real,90a,100f-real" GPUS "80" SAYS "found [80-real]")
configure(FOR "80,90a-real,120-real" SAYS "sets [probe-base 80,90a-real,120-real;probe-clusters 90a-real,120-real;")
configure(FOR "80,90a-real,120-real" SAYS ";probe-wgmma 90a-real;probe-large 90a-real;probe-8x 80]")
configure(FOR "120-virtual" SAYS "sets [probe-base 120-virtual;probe-clusters 120-virtual]")
configure(FOR "80,86-real" SAYS "sets [probe-base 80,86-real;probe-8x 80,86-real]")
