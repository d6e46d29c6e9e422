/* build/convert's models against PyTorch in double, to 1e-9. */
#include "test_convert.c"
