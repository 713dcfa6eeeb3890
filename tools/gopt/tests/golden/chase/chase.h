#include "../look.h"

#define D      100
#define PLACES 4096u
