/* Ranks that train one model, in float: see ranks.h. */
#include "ranks.h"
