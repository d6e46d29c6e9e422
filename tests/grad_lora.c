/* test_lora in double: adapters are merged, decoded and packed to 1e-12 of the same numbers. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "test_lora.c"
