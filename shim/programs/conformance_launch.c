/* The ways of making a GPU work, and what holds of launches, streams and events. */
#include <stdatomic.h>
#include <string.h>

#include "conformance_paths.h"
#include "driver.h"

#define ABSENT CUDA_ERROR_NOT_SUPPORTED
#define SHAPE 1, 1, 1, 1, 1, 1, 0

static CUresult go_cuLaunchKernel(struct launch *l) {
	void *parameters[] = {&l->ns};
	return api.cuLaunchKernel(l->spin, SHAPE, l->stream, parameters, NULL);
}
static CUresult go_cuLaunchKernel_ptsz(struct launch *l) {
	void *parameters[] = {&l->ns};
	return api.cuLaunchKernel_ptsz ? api.cuLaunchKernel_ptsz(l->spin, SHAPE, NULL, parameters, NULL) : ABSENT;
}

static CUlaunchConfig config_of(CUstream stream) {
	return (CUlaunchConfig){.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = stream};
}
static CUresult go_cuLaunchKernelEx(struct launch *l) {
	void *parameters[] = {&l->ns};
	CUlaunchConfig config = config_of(l->stream);
	return api.cuLaunchKernelEx ? api.cuLaunchKernelEx(&config, l->spin, parameters, NULL) : ABSENT;
}
static CUresult go_cuLaunchKernelEx_ptsz(struct launch *l) {
	void *parameters[] = {&l->ns};
	CUlaunchConfig config = config_of(NULL);
	return api.cuLaunchKernelEx_ptsz ? api.cuLaunchKernelEx_ptsz(&config, l->spin, parameters, NULL) : ABSENT;
}

static CUresult go_cuLaunchCooperativeKernel(struct launch *l) {
	void *parameters[] = {&l->ns};
	return api.cuLaunchCooperativeKernel ? api.cuLaunchCooperativeKernel(l->spin, SHAPE, l->stream, parameters) : ABSENT;
}
static CUresult go_cuLaunchCooperativeKernel_ptsz(struct launch *l) {
	void *parameters[] = {&l->ns};
	return api.cuLaunchCooperativeKernel_ptsz ? api.cuLaunchCooperativeKernel_ptsz(l->spin, SHAPE, NULL, parameters) : ABSENT;
}
static CUresult go_cuLaunchCooperativeKernelMultiDevice(struct launch *l) {
	void *parameters[] = {&l->ns};
	CUDA_LAUNCH_PARAMS list = {l->spin, 1, 1, 1, 1, 1, 1, 0, l->stream, parameters};
	return api.cuLaunchCooperativeKernelMultiDevice ? api.cuLaunchCooperativeKernelMultiDevice(&list, 1, 0) : ABSENT;
}

/* The launches of CUDA 3, whose parameters are set beforehand. */
static void ready_old(struct launch *l) {
	if (!api.cuLaunch || !api.cuParamSetSize || !api.cuParamSetv || !api.cuFuncSetBlockShape)
		check_skip("the driver has no launches of CUDA 3");
	check_supported(api.cuFuncSetBlockShape(l->spin, 1, 1, 1), "launches of CUDA 3");
	OK(api.cuParamSetSize(l->spin, sizeof l->ns));
	OK(api.cuParamSetv(l->spin, 0, &l->ns, sizeof l->ns));
}
static CUresult go_cuLaunch(struct launch *l) { return api.cuLaunch(l->spin); }
static CUresult go_cuLaunchGrid(struct launch *l) { return api.cuLaunchGrid ? api.cuLaunchGrid(l->spin, 1, 1) : ABSENT; }
static CUresult go_cuLaunchGridAsync(struct launch *l) {
	return api.cuLaunchGridAsync ? api.cuLaunchGridAsync(l->spin, 1, 1, l->stream) : ABSENT;
}

static void ready_graph(struct launch *l) {
	CUgraph graph;
	NEED(cuStreamBeginCapture_v2);
	NEED(cuGraphInstantiateWithFlags);
	OK(api.cuStreamBeginCapture_v2(l->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(spin_on(l->spin, l->stream, l->ns));
	OK(api.cuStreamEndCapture(l->stream, &graph));
	OK(api.cuGraphInstantiateWithFlags(&l->exec, graph, 0));
}
static CUresult go_cuGraphLaunch(struct launch *l) { return api.cuGraphLaunch(l->exec, l->stream); }
static CUresult go_cuGraphLaunch_ptsz(struct launch *l) { return api.cuGraphLaunch_ptsz ? api.cuGraphLaunch_ptsz(l->exec, NULL) : ABSENT; }

static void ready_memory(struct launch *l) {
	OK(api.cuMemAlloc_v2(&l->from, MIB));
	OK(api.cuMemAlloc_v2(&l->to, MIB));
}
static CUresult go_cuMemcpyDtoD_v2(struct launch *l) { return api.cuMemcpyDtoD_v2(l->to, l->from, MIB); }
static CUresult go_cuMemcpyDtoDAsync_v2(struct launch *l) { return api.cuMemcpyDtoDAsync_v2(l->to, l->from, MIB, l->stream); }
static CUresult go_cuMemsetD8_v2(struct launch *l) { return api.cuMemsetD8_v2(l->to, 0, MIB); }
static CUresult go_cuMemsetD32Async(struct launch *l) { return api.cuMemsetD32Async(l->to, 0, MIB / 4, l->stream); }

typedef CUresult(*launch_function) LAUNCH_ARGUMENTS;

static CUresult go_found(struct launch *l, void *found) {
	launch_function function;
	void *parameters[] = {&l->ns};
	memcpy(&function, &found, sizeof found);
	return function(l->spin, SHAPE, l->stream, parameters, NULL);
}
static CUresult go_cuGetProcAddress(struct launch *l) {
	void *found = NULL;
	if (!api.cuGetProcAddress)
		return ABSENT;
	OK(api.cuGetProcAddress("cuLaunchKernel", &found, 11030, 0));
	return go_found(l, found);
}
static CUresult go_cuGetProcAddress_v2(struct launch *l) {
	void *found = NULL;
	if (!api.cuGetProcAddress_v2)
		return ABSENT;
	OK(api.cuGetProcAddress_v2("cuLaunchKernel", &found, 12000, 0, NULL));
	return go_found(l, found);
}

static void ready_caller(struct launch *l, const char *library) {
	void *symbol = caller_symbol(library, "caller_launch");
	memcpy(&l->caller, &symbol, sizeof symbol);
}
static void ready_linked(struct launch *l) { ready_caller(l, "linked"); }
static void ready_next(struct launch *l) { ready_caller(l, "next"); }
static CUresult go_caller(struct launch *l) {
	void *parameters[] = {&l->ns};
	return l->caller(l->spin, l->stream, parameters);
}

#define PATH(name, ready, spins) [LAUNCH_PATH_##name] = {ready, go_##name, spins}
const struct launch_path launch_paths[LAUNCH_PATH_COUNT] = {
	PATH(cuLaunchKernel, NULL, true),
	PATH(cuLaunchKernel_ptsz, NULL, true),
	PATH(cuLaunchKernelEx, NULL, true),
	PATH(cuLaunchKernelEx_ptsz, NULL, true),
	PATH(cuLaunchCooperativeKernel, NULL, true),
	PATH(cuLaunchCooperativeKernel_ptsz, NULL, true),
	PATH(cuLaunchCooperativeKernelMultiDevice, NULL, true),
	PATH(cuLaunch, ready_old, true),
	PATH(cuLaunchGrid, ready_old, true),
	PATH(cuLaunchGridAsync, ready_old, true),
	PATH(cuGraphLaunch, ready_graph, true),
	PATH(cuGraphLaunch_ptsz, ready_graph, true),
	PATH(cuMemcpyDtoD_v2, ready_memory, false),
	PATH(cuMemcpyDtoDAsync_v2, ready_memory, false),
	PATH(cuMemsetD8_v2, ready_memory, false),
	PATH(cuMemsetD32Async, ready_memory, false),
	PATH(cuGetProcAddress, NULL, true),
	PATH(cuGetProcAddress_v2, NULL, true),
	[LAUNCH_PATH_linked] = {ready_linked, go_caller, true},
	[LAUNCH_PATH_next] = {ready_next, go_caller, true},
};

void launch_ready(int path, struct launch *launch, uint64_t ns) {
	*launch = (struct launch){.spin = use_spin(), .ns = ns};
	OK(api.cuStreamCreate(&launch->stream, CU_STREAM_NON_BLOCKING));
	if (launch_paths[path].ready)
		launch_paths[path].ready(launch);
}

enum { SPIN_NS = 5000000 };

/* A way works, and its kernel runs for as long as it should. */
static void launch_through(int path) {
	struct launch launch;
	launch_ready(path, &launch, SPIN_NS);
	OK(api.cuCtxSynchronize());
	uint64_t begin = clock_ns();
	CUresult result = launch_paths[path].go(&launch);
	check_supported(result, "this way to launch");
	OK(api.cuCtxSynchronize());
	if (api.cuStreamSynchronize_ptsz)
		OK(api.cuStreamSynchronize_ptsz(NULL));
	uint64_t spent = clock_ns() - begin;
	EXPECT(!launch_paths[path].spins || spent >= SPIN_NS * 9 / 10, "a kernel of 5 ms was done after %.3f ms", (double)spent / 1e6);
}

static void extra(void) {
	CUfunction spin = use_spin();
	uint64_t ns = 1000;
	size_t bytes = sizeof ns;
	void *buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &ns, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	OK(api.cuLaunchKernel(spin, SHAPE, NULL, NULL, buffer));
	OK(api.cuCtxSynchronize());
}

static void named_streams(void) {
	CUfunction spin = use_spin();
	OK(spin_on(spin, CU_STREAM_LEGACY, 1000));
	OK(spin_on(spin, CU_STREAM_PER_THREAD, 1000));
	OK(api.cuStreamSynchronize(CU_STREAM_PER_THREAD));
	OK(api.cuStreamSynchronize(CU_STREAM_LEGACY));
}

static void bad_shape(void) {
	CUfunction spin = use_spin();
	uint64_t ns = 1000;
	void *parameters[] = {&ns};
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuLaunchKernel(spin, 0, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuLaunchKernel(spin, 1, 1, 1, 4096, 1, 1, 0, NULL, parameters, NULL));
	OK(spin_on(spin, NULL, ns));
	OK(api.cuCtxSynchronize());
}

static void no_function(void) {
	use_gpu();
	uint64_t ns = 1000;
	EXPECT_CODE(CUDA_ERROR_INVALID_HANDLE, spin_on(NULL, NULL, ns));
}

static void no_kernel(void) {
	CUmodule module;
	CUfunction function;
	use_spin();
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuModuleLoadData(&module, NULL));
	OK(api.cuModuleLoadData(&module, "// weft-emu: kernel a cost_ns=1000\n.version 6.4\n.target sm_50\n.address_size 64\n.visible .entry a()\n{\n\tret;\n}\n"));
	EXPECT_CODE(CUDA_ERROR_NOT_FOUND, api.cuModuleGetFunction(&function, module, "b"));
	OK(api.cuModuleGetFunction(&function, module, "a"));
	OK(api.cuModuleUnload(module));
}

static void query(void) {
	CUfunction spin = use_spin();
	CUstream stream;
	OK(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(api.cuStreamQuery(stream));
	OK(spin_on(spin, stream, 500000000));
	EXPECT_CODE(CUDA_ERROR_NOT_READY, api.cuStreamQuery(stream));
	OK(api.cuStreamSynchronize(stream));
	OK(api.cuStreamQuery(stream));
}

static void event_time(void) {
	CUfunction spin = use_spin();
	CUstream stream;
	CUevent from, to;
	float ms;
	OK(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(api.cuEventCreate(&from, CU_EVENT_DEFAULT));
	OK(api.cuEventCreate(&to, CU_EVENT_DEFAULT));
	OK(api.cuEventRecord(from, stream));
	OK(spin_on(spin, stream, 500000000));
	OK(api.cuEventRecord(to, stream));
	EXPECT_CODE(CUDA_ERROR_NOT_READY, api.cuEventQuery(to));
	EXPECT_CODE(CUDA_ERROR_NOT_READY, api.cuEventElapsedTime(&ms, from, to));
	OK(api.cuEventSynchronize(to));
	OK(api.cuEventElapsedTime(&ms, from, to));
	EXPECT(ms >= 475 && ms < 20000, "a kernel of 500 ms lasted %.3f ms between its events", (double)ms);
}

static void event_without_time(void) {
	CUevent from, to;
	float ms;
	use_gpu();
	OK(api.cuEventCreate(&from, CU_EVENT_DISABLE_TIMING));
	OK(api.cuEventCreate(&to, CU_EVENT_DISABLE_TIMING));
	OK(api.cuEventRecord(from, NULL));
	OK(api.cuEventRecord(to, NULL));
	OK(api.cuEventSynchronize(to));
	EXPECT_CODE(CUDA_ERROR_INVALID_HANDLE, api.cuEventElapsedTime(&ms, from, to));
}

/* A stream that waits for another's event goes on after it. */
static void stream_waits(void) {
	CUfunction spin = use_spin();
	CUstream first, second;
	CUevent event;
	OK(api.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	OK(api.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	OK(api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(spin_on(spin, first, 500000000));
	OK(api.cuEventRecord(event, first));
	OK(api.cuStreamWaitEvent(second, event, 0));
	OK(spin_on(spin, second, 1000));
	EXPECT_CODE(CUDA_ERROR_NOT_READY, api.cuStreamQuery(second));
	OK(api.cuStreamSynchronize(second));
	OK(api.cuStreamQuery(first));
}

static _Atomic int called;

static void call(void *data) { called += *(int *)data; }

static void host_function(void) {
	CUfunction spin = use_spin();
	CUstream stream;
	int two = 2;
	NEED(cuLaunchHostFunc);
	OK(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(spin_on(spin, stream, 1000000));
	OK(api.cuLaunchHostFunc(stream, call, &two));
	OK(api.cuStreamSynchronize(stream));
	EXPECT(called == 2, "the host function ran %d times", called / 2);
}

#define THROUGH(name) \
	static void through_##name(void) { launch_through(LAUNCH_PATH_##name); }
LAUNCH_PATHS(THROUGH)
#define ROW(name) {"launch.path." #name, through_##name, CHECK_ALWAYS},
const struct check launch_checks[] = {
	LAUNCH_PATHS(ROW)
	{"launch.extra", extra, CHECK_ALWAYS},
	{"launch.named_streams", named_streams, CHECK_ALWAYS},
	{"launch.bad_shape", bad_shape, CHECK_ALWAYS},
	{"launch.no_function", no_function, CHECK_ALWAYS},
	{"launch.no_kernel", no_kernel, CHECK_ALWAYS},
	{"launch.host_function", host_function, CHECK_ALWAYS},
	{"stream.query", query, CHECK_ALWAYS},
	{"stream.waits", stream_waits, CHECK_ALWAYS},
	{"event.time", event_time, CHECK_ALWAYS},
	{"event.without_time", event_without_time, CHECK_ALWAYS},
	{0},
};
