/* Ranks that train one model, in double, where rounding hides nothing: see ranks.h. */
#include "ranks.h"
