/* Capture, and the graphs that come of it. */
#include "conformance.h"
#include "driver.h"

static CUstream new_stream(void) {
	CUstream stream;
	OK(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static CUstreamCaptureStatus status_of(CUstream stream) {
	CUstreamCaptureStatus status;
	OK(api.cuStreamIsCapturing(stream, &status));
	return status;
}

/* Launches of a capture are recorded, not run. */
static void capture_records(void) {
	CUfunction spin = use_spin();
	CUstream stream = new_stream();
	CUgraph graph;
	size_t nodes = 0;
	EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE, "a new stream captures");
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the stream does not capture");
	uint64_t begin = clock_ns();
	for (int i = 0; i < 3; i++)
		OK(spin_on(spin, stream, 100000000));
	OK(api.cuStreamEndCapture(stream, &graph));
	OK(api.cuStreamSynchronize(stream));
	EXPECT(clock_ns() - begin < 250000000, "kernels of a capture ran");
	OK(api.cuGraphGetNodes(graph, NULL, &nodes));
	EXPECT(nodes == 3, "three launches became %zu nodes", nodes);
	OK(api.cuGraphDestroy(graph));
}

static void capture_synchronize(void) {
	CUfunction spin = use_spin();
	CUstream stream = new_stream();
	CUgraph graph;
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(spin_on(spin, stream, 1000));
	EXPECT_CODE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api.cuStreamSynchronize(stream));
	EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED, "the capture goes on after a synchronisation");
	EXPECT_CODE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api.cuStreamEndCapture(stream, &graph));
	OK(spin_on(spin, stream, 1000));
	OK(api.cuStreamSynchronize(stream));
}

/* An allocation may synchronise: a capture that guards against that forbids it, a relaxed one does not. */
static void capture_alloc(void) {
	CUfunction spin = use_spin();
	CUstream stream = new_stream();
	CUdeviceptr address;
	CUgraph graph;
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(spin_on(spin, stream, 1000));
	OK(api.cuMemAlloc_v2(&address, MIB));
	OK(api.cuStreamEndCapture(stream, &graph));
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(spin_on(spin, stream, 1000));
	EXPECT_CODE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api.cuMemAlloc_v2(&(CUdeviceptr){0}, MIB));
	EXPECT_CODE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api.cuStreamEndCapture(stream, &graph));
	OK(api.cuMemFree_v2(address));
}

/* The legacy stream waits for all blocking streams, which a capture cannot. */
static void capture_legacy(void) {
	CUfunction spin = use_spin();
	CUstream stream;
	CUgraph graph;
	OK(api.cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(spin_on(spin, stream, 1000));
	EXPECT_CODE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, spin_on(spin, CU_STREAM_LEGACY, 1000));
	EXPECT_CODE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api.cuStreamEndCapture(stream, &graph));
}

static void capture_of_legacy(void) {
	use_gpu();
	EXPECT_CODE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api.cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

/* A stream joins a capture by waiting for an event of it, and must come back. */
static void capture_fork(void) {
	CUfunction spin = use_spin();
	CUstream stream = new_stream(), other = new_stream();
	CUevent out, back;
	CUgraph graph;
	size_t nodes = 0;
	OK(api.cuEventCreate(&out, CU_EVENT_DISABLE_TIMING));
	OK(api.cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(spin_on(spin, stream, 1000));
	OK(api.cuEventRecord(out, stream));
	OK(api.cuStreamWaitEvent(other, out, 0));
	EXPECT(status_of(other) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the other stream did not join");
	OK(spin_on(spin, other, 1000));
	OK(api.cuEventRecord(back, other));
	OK(api.cuStreamWaitEvent(stream, back, 0));
	OK(api.cuStreamEndCapture(stream, &graph));
	OK(api.cuGraphGetNodes(graph, NULL, &nodes));
	EXPECT(nodes == 2, "two launches became %zu nodes", nodes);
}

static void capture_unjoined(void) {
	CUfunction spin = use_spin();
	CUstream stream = new_stream(), other = new_stream();
	CUevent out;
	CUgraph graph;
	OK(api.cuEventCreate(&out, CU_EVENT_DISABLE_TIMING));
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(spin_on(spin, stream, 1000));
	OK(api.cuEventRecord(out, stream));
	OK(api.cuStreamWaitEvent(other, out, 0));
	OK(spin_on(spin, other, 1000));
	EXPECT_CODE(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, api.cuStreamEndCapture(stream, &graph));
}

/* Other streams work on during a capture, and its thread may do what can synchronise once it says so. */
static void capture_beside(void) {
	CUfunction spin = use_spin();
	CUstream stream = new_stream(), other = new_stream();
	CUgraph graph;
	CUdeviceptr address;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(spin_on(spin, stream, 1000));
	OK(spin_on(spin, other, 1000));
	OK(api.cuStreamSynchronize(other));
	OK(api.cuThreadExchangeStreamCaptureMode(&mode));
	OK(api.cuMemAlloc_v2(&address, MIB));
	OK(api.cuThreadExchangeStreamCaptureMode(&mode));
	OK(api.cuStreamEndCapture(stream, &graph));
	OK(api.cuMemFree_v2(address));
}

static void replay(void) {
	CUfunction spin = use_spin();
	CUstream stream = new_stream();
	CUgraph graph;
	CUgraphExec exec;
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (int i = 0; i < 4; i++)
		OK(spin_on(spin, stream, 2000000));
	OK(api.cuStreamEndCapture(stream, &graph));
	OK(api.cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(api.cuGraphDestroy(graph));
	uint64_t begin = clock_ns();
	for (int i = 0; i < 5; i++)
		OK(api.cuGraphLaunch(exec, stream));
	OK(api.cuStreamSynchronize(stream));
	uint64_t spent = clock_ns() - begin;
	EXPECT(spent >= 36000000, "five graphs of 8 ms were done after %.3f ms", (double)spent / 1e6);
	OK(api.cuGraphExecDestroy(exec));
}

/* A capture that allocates and frees on its stream becomes a graph that can be launched again and again. */
static void captured_memory(void) {
	CUfunction spin = use_spin();
	CUstream stream = new_stream();
	CUdeviceptr address;
	CUgraph graph;
	CUgraphExec exec;
	NEED(cuMemAllocAsync);
	size_t before = free_bytes();
	OK(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	check_supported(api.cuMemAllocAsync(&address, 16 * MIB, stream), "allocations in a capture");
	OK(spin_on(spin, stream, 1000));
	OK(api.cuMemFreeAsync(address, stream));
	OK(api.cuStreamEndCapture(stream, &graph));
	OK(api.cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 3; i++)
		OK(api.cuGraphLaunch(exec, stream));
	OK(api.cuStreamSynchronize(stream));
	OK(api.cuGraphExecDestroy(exec));
	OK(api.cuGraphDestroy(graph));
	NEED(cuDeviceGraphMemTrim);
	OK(api.cuDeviceGraphMemTrim(0));
	size_t after = free_bytes();
	EXPECT(after == before, "%zu bytes were free before the graph, and %zu after", before, after);
}

const struct check graph_checks[] = {
	{"capture.records", capture_records, CHECK_ALWAYS},
	{"capture.synchronize", capture_synchronize, CHECK_ALWAYS},
	{"capture.alloc", capture_alloc, CHECK_ALWAYS},
	{"capture.legacy", capture_legacy, CHECK_ALWAYS},
	{"capture.of_legacy", capture_of_legacy, CHECK_ALWAYS},
	{"capture.fork", capture_fork, CHECK_ALWAYS},
	{"capture.unjoined", capture_unjoined, CHECK_ALWAYS},
	{"capture.beside", capture_beside, CHECK_ALWAYS},
	{"graph.replay", replay, CHECK_ALWAYS},
	{"graph.captured_memory", captured_memory, CHECK_ALWAYS},
	{0},
};
