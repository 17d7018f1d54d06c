# cmake -DSCRATCH=DIR -P check_includes_test.cmake: check_includes.cmake accepts good rooms and reports every kind of fault.
cmake_minimum_required(VERSION 3.25)

set(good "// A header.\n#pragma once\n\n#include <vector>\n")

# expect(WANTED PATH TEXT): a tree with good rooms and this file gives an error that matches WANTED, or none when
# WANTED is empty.
function(expect wanted path text)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/megalith/base/error.h "${good}")
  file(WRITE ${SCRATCH}/megalith/train/trainer.h "${good}\n#include \"megalith/base/error.h\"\n")
  file(WRITE ${SCRATCH}/${path} "${text}")
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${SCRATCH} -P ${CMAKE_CURRENT_LIST_DIR}/check_includes.cmake
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(wanted STREQUAL "")
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "${path} is right, but the check says:\n${output}")
    endif()
  elseif(status EQUAL 0 OR NOT output MATCHES "${wanted}")
    message(FATAL_ERROR "for ${path} the check should say \"${wanted}\"; status ${status}, it says:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

expect("" megalith/train/good.cpp "#include \"megalith/base/error.h\"\n// #include \"megalith/cli/x.h\" is a comment\n")
expect("" megalith/infer/far.cpp "#include \"megalith/tensor/tensor.h\"\n")
expect("megalith/base/bad.h:5: base may not use nn, only base" megalith/base/bad.h
  "${good}#include \"megalith/nn/linear.h\"\n")
expect("megalith/ops/bad.cpp:2: ops may not use nn" megalith/ops/bad.cpp "\n  #  include \"megalith/nn/linear.h\"\n")
expect("megalith/text/bad.cpp:1: text may not use tensor" megalith/text/bad.cpp "#include \"megalith/tensor/tensor.h\"")
expect("megalith/cli/bad.cpp:1: cli may not use reference" megalith/cli/bad.cpp
  "#include \"megalith/reference/layers.h\"\n")
expect("megalith/nn/bad.cpp:1: there is no room \"nowhere\"" megalith/nn/bad.cpp
  "#include \"megalith/nowhere/zero.h\"\n")
expect("megalith/kitchen/sink.h: there is no room \"kitchen\"" megalith/kitchen/sink.h "${good}")
expect("megalith/nn/bad.cpp:1: own headers are included as" megalith/nn/bad.cpp "#include \"linear.h\"\n")
expect("megalith/nn/bad.h:1: the header lacks #pragma once" megalith/nn/bad.h "// A header.\n")
expect("megalith/nn/CMakeLists.txt:2: nn may not use train" megalith/nn/CMakeLists.txt
  "megalith_room(nn SOURCES linear.cpp\n  USES ops train\n  LINKS x)\n")

string(REPEAT "// a line\n" 501 long)
expect("" megalith/nn/long.cpp "${long}")
if(NOT output MATCHES "note: megalith/nn/long.cpp has 501 lines")
  message(FATAL_ERROR "a file of 501 lines is not noted: ${output}")
endif()

file(REMOVE_RECURSE ${SCRATCH})
