#include "conformance_api.h"

#include <dlfcn.h>
#include <string.h>

struct api api;

_Bool api_open(void) {
	api.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!api.library)
		return 0;
#define API_FIND(symbol, arguments) \
	{ \
		void *address = dlsym(api.library, #symbol); \
		memcpy(&api.symbol, &address, sizeof address); \
	}
	API(API_FIND)
#undef API_FIND
	return 1;
}
