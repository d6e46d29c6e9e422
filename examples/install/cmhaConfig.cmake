# find_package(cmha), installed by `make install` into PREFIX/lib/cmake/cmha:
#     cmha::cmha       the folder of cmha.h, a CBLAS and OpenMP where there are any, the mathematics library
#     cmha::builtin    the same with the built-in matrix product, whatever BLAS is there
# Without a CBLAS cmha::cmha is cmha::builtin; COMPONENTS blas openmp refuse to do without. To choose a CBLAS, set
# CMHA_CBLAS_INCLUDE_DIR (the folder of its cblas.h) and CMHA_CBLAS_LIBRARY. All files of a program link the same target.
# One of them defines CMHA_IMPLEMENTATION.
cmake_policy(PUSH)
cmake_policy(VERSION 3.9...3.25)

get_filename_component(cmha_PREFIX "${CMAKE_CURRENT_LIST_DIR}" REALPATH) # /lib may be a link to /usr/lib
get_filename_component(cmha_PREFIX "${cmha_PREFIX}/../../.." ABSOLUTE)

find_package(OpenMP QUIET)
set(cmha_openmp_FOUND FALSE)
if(OpenMP_C_FOUND OR OpenMP_CXX_FOUND)
    set(cmha_openmp_FOUND TRUE)
endif()
if(APPLE)
    find_library(CMHA_CBLAS_LIBRARY Accelerate)
    set(cmha_blas_FOUND ${CMHA_CBLAS_LIBRARY})
else()
    find_path(CMHA_CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas)
    find_library(CMHA_CBLAS_LIBRARY NAMES openblas cblas)
    set(cmha_blas_FOUND FALSE)
    if(CMHA_CBLAS_INCLUDE_DIR AND CMHA_CBLAS_LIBRARY)
        set(cmha_blas_FOUND TRUE)
    endif()
endif()

foreach(target builtin cmha)
    if(NOT TARGET cmha::${target})
        add_library(cmha::${target} INTERFACE IMPORTED)
        set_property(TARGET cmha::${target} APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${cmha_PREFIX}/include")
        if(cmha_blas_FOUND AND target STREQUAL "cmha")
            set_property(TARGET cmha::cmha APPEND PROPERTY INTERFACE_LINK_LIBRARIES "${CMHA_CBLAS_LIBRARY}")
            if(NOT APPLE)
                set_property(TARGET cmha::cmha APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${CMHA_CBLAS_INCLUDE_DIR}")
            endif()
        else()
            set_property(TARGET cmha::${target} APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS CMHA_NO_CBLAS)
        endif()
        foreach(language C CXX)
            if(OpenMP_${language}_FOUND)
                set_property(TARGET cmha::${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES OpenMP::OpenMP_${language})
            endif()
        endforeach()
        if(NOT MSVC)
            set_property(TARGET cmha::${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES m)
        endif()
    endif()
endforeach()

foreach(component ${cmha_FIND_COMPONENTS})
    if(cmha_FIND_REQUIRED_${component} AND NOT cmha_${component}_FOUND)
        set(cmha_FOUND FALSE)
        set(cmha_NOT_FOUND_MESSAGE "cmha: there is no ${component} here (components: blas, openmp)")
    endif()
endforeach()
cmake_policy(POP)
