#include "../look.h"

#define D      100
#define ENTRIES 4096u
