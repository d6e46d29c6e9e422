#!/bin/sh
# tests/numpy.sh: prints a python3 that has NumPy; ends with 1 where there is none.
for python in python3 /usr/bin/python3; do
    if "$python" -c 'import numpy' 2> /dev/null; then
        echo "$python"
        exit 0
    fi
done
exit 1
