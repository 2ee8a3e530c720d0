/* The ways in which programs and libraries find the driver's functions. */
#include <dlfcn.h>
#include <string.h>

#include "conformance.h"

/* A library that preloads must not make it look as if there were a driver. */
static void absent(void) {
	EXPECT(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL, "the driver is loaded before anybody asked for it");
	EXPECT(dlsym(RTLD_DEFAULT, "cuLaunchKernel") == NULL, "cuLaunchKernel is found where no driver is loaded");
}

static void unknown(void) {
	use_driver();
	dlerror();
	EXPECT(dlsym(api.library, "cuNoSuchFunction") == NULL, "found a function that is not there");
	const char *text = dlerror();
	EXPECT(text && strstr(text, "cuNoSuchFunction"), "dlerror says \"%s\"", text ? text : "nothing");
}

/* What other libraries' names begin with "cu" too. */
static void other_names(void) {
	use_driver();
	EXPECT(dlsym(api.library, "cublasCreate_v2") == NULL, "cublasCreate_v2 is found in the driver");
	EXPECT(dlsym(api.library, "cudnnCreate") == NULL, "cudnnCreate is found in the driver");
}

static void same_twice(void) {
	use_driver();
	EXPECT(dlsym(api.library, "cuLaunchKernel") == (void *)api.cuLaunchKernel, "two answers of dlsym differ");
	void *again = dlopen("libcuda.so.1", RTLD_NOW);
	EXPECT(again && dlsym(again, "cuMemAlloc_v2") == (void *)api.cuMemAlloc_v2, "a second handle answers otherwise");
}

static void versioned(void) {
	use_driver();
	EXPECT(dlvsym(api.library, "cuLaunchKernel", "NO_SUCH_VERSION") == NULL, "dlvsym found a version that is not there");
}

/* The address that cuGetProcAddress gives, with either of its symbols. */
static void *address_of(int which, const char *name, int version, uint64_t flags) {
	void *found = NULL;
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	CUresult result = which == 1 ? api.cuGetProcAddress(name, &found, version, flags)
	                             : api.cuGetProcAddress_v2(name, &found, version, flags, &status);
	EXPECT(found || result != CUDA_SUCCESS || status != CU_GET_PROC_ADDRESS_SUCCESS, "cuGetProcAddress says that it found %s, and gives null", name);
	EXPECT(!found || result == CUDA_SUCCESS, "cuGetProcAddress gives %s, and answers %d", name, (int)result);
	return found;
}

/* What both symbols have in common. Which function a name stands for depends on the version that the caller knows. */
static void proc_address(int which) {
	static const struct {
		const char *name, *symbol;
		int version;
		uint64_t flags;
	} rows[] = {
		{"cuMemAlloc", "cuMemAlloc_v2", 11030, CU_GET_PROC_ADDRESS_DEFAULT},
		{"cuMemAlloc", "cuMemAlloc", 2000, CU_GET_PROC_ADDRESS_DEFAULT},
		{"cuMemFree", "cuMemFree_v2", 11030, CU_GET_PROC_ADDRESS_DEFAULT},
		{"cuMemGetInfo", "cuMemGetInfo_v2", 11030, CU_GET_PROC_ADDRESS_DEFAULT},
		{"cuDeviceTotalMem", "cuDeviceTotalMem_v2", 11030, CU_GET_PROC_ADDRESS_DEFAULT},
		{"cuLaunchKernel", "cuLaunchKernel", 11030, CU_GET_PROC_ADDRESS_DEFAULT},
		{"cuLaunchKernel", "cuLaunchKernel", 11030, CU_GET_PROC_ADDRESS_LEGACY_STREAM},
		{"cuLaunchKernel", "cuLaunchKernel_ptsz", 11030, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
		{"cuMemAllocAsync", "cuMemAllocAsync_ptsz", 11030, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
		{"cuInit", "cuInit", 11030, CU_GET_PROC_ADDRESS_DEFAULT},
	};
	for (size_t i = 0; i < COUNT(rows); i++) {
		void *found = address_of(which, rows[i].name, rows[i].version, rows[i].flags);
		EXPECT(found && found == dlsym(api.library, rows[i].symbol), "%s of version %d, flags %d, is not %s", rows[i].name, rows[i].version,
			(int)rows[i].flags, rows[i].symbol);
	}
	EXPECT(!address_of(which, "cuNoSuchFunction", 11030, 0), "cuGetProcAddress found a function that is not there");
	EXPECT(!address_of(which, "cuMemAllocAsync", 10000, 0), "cuGetProcAddress gave a function that is newer than its caller");
	EXPECT(!address_of(which, "cuMemAlloc_v2", 11030, 0), "cuGetProcAddress took a symbol for a name");
}

static void proc_address_v1(void) {
	use_driver();
	NEED(cuGetProcAddress);
	OK(api.cuInit(0));
	proc_address(1);
}

static void proc_address_v2(void) {
	use_driver();
	NEED(cuGetProcAddress_v2);
	OK(api.cuInit(0));
	proc_address(2);
}

static void proc_address_status(void) {
	void *found;
	CUdriverProcAddressQueryResult status;
	use_driver();
	NEED(cuGetProcAddress_v2);
	OK(api.cuInit(0));
	OK(api.cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, &status));
	EXPECT(status == CU_GET_PROC_ADDRESS_SUCCESS, "status %d of a function that is there", (int)status);
	api.cuGetProcAddress_v2("cuNoSuchFunction", &found, 12000, 0, &status);
	EXPECT(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "status %d of an unknown name", (int)status);
	api.cuGetProcAddress_v2("cuMemAllocAsync", &found, 10000, 0, &status);
	EXPECT(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, "status %d of a newer function", (int)status);
}

/* cuGetProcAddress is itself looked up by cuGetProcAddress; from 12.0 on the second form is meant. */
static void proc_address_itself(void) {
	use_driver();
	NEED(cuGetProcAddress_v2);
	OK(api.cuInit(0));
	EXPECT(address_of(2, "cuGetProcAddress", 12000, 0) == (void *)api.cuGetProcAddress_v2, "cuGetProcAddress of 12.0 is not its second form");
	EXPECT(address_of(2, "cuGetProcAddress", 11030, 0) == (void *)api.cuGetProcAddress, "cuGetProcAddress of 11.3 is not its first form");
}

typedef CUresult (*total_caller)(size_t *bytes);

/* The memory of device 0 as a library sees it that calls the driver in its own way. */
static void seen_by(const char *library) {
	size_t ours, theirs = 0;
	use_gpu();
	OK(api.cuDeviceTotalMem_v2(&ours, 0));
	void *symbol = caller_symbol(library, "caller_total");
	total_caller total;
	memcpy(&total, &symbol, sizeof total);
	OK(total(&theirs));
	EXPECT(ours == theirs, "a %s library sees %zu bytes, and we %zu", library, theirs, ours);
}

static void linked(void) { seen_by("linked"); }
static void next(void) { seen_by("next"); }

const struct check lookup_checks[] = {
	{"lookup.absent", absent, CHECK_ALWAYS},
	{"lookup.unknown", unknown, CHECK_ALWAYS},
	{"lookup.other_names", other_names, CHECK_ALWAYS},
	{"lookup.same_twice", same_twice, CHECK_ALWAYS},
	{"lookup.versioned", versioned, CHECK_ALWAYS},
	{"lookup.proc_address_v1", proc_address_v1, CHECK_ALWAYS},
	{"lookup.proc_address_v2", proc_address_v2, CHECK_ALWAYS},
	{"lookup.proc_address_status", proc_address_status, CHECK_ALWAYS},
	{"lookup.proc_address_itself", proc_address_itself, CHECK_ALWAYS},
	{"lookup.linked", linked, CHECK_ALWAYS},
	{"lookup.next", next, CHECK_ALWAYS},
	{0},
};
