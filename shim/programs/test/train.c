/* Tests of what weft-train and the others compute without a driver. Prints what is wrong and exits with 1. */
#include "../train.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../samples.h"

static int faults;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			faults++; \
		} \
	} while (0)

static void test_bytes(void) {
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"0", 0}, {"1024", 1024}, {"1B", 1}, {"2KiB", 2048}, {"512MiB", 512u << 20}, {"1.5GiB", 3ull << 29}, {"1TiB", 1ull << 40}};
	static const char *const bad[] = {"", "-1", "x", "1GB", "1 GiB", "nan", "inf", "1e30", "9000000TiB", "1GiBs"};
	uint64_t bytes;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		CHECK(options_bytes(good[i].text, &bytes) && bytes == good[i].bytes);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		CHECK(!options_bytes(bad[i], &bytes));
}

static void test_samples(void) {
	struct samples samples = {0};
	CHECK(samples_at(&samples, 0.5) == 0);
	for (uint64_t i = 0; i < 10000; i++)
		samples_add(&samples, (i * 7919) % 10000 + 1); /* 1 to 10000 in some order */
	samples_sort(&samples);
	CHECK(samples_at(&samples, 0) == 1 && samples_at(&samples, 1) == 10000);
	CHECK(samples_at(&samples, 0.5) == 5000 && samples_at(&samples, 0.99) == 9900 && samples_at(&samples, 0.99995) == 10000);
	samples_free(&samples);
}

static struct load model(const char *name, const char *batch, const char *gpu) {
	char *arguments[] = {"weft-train", "--model", (char *)name, "--batch", (char *)batch, "--gpu", (char *)gpu, NULL};
	struct settings settings;
	settings_read(&settings, 7, arguments);
	return load_of(&settings);
}

/* ResNet-50 at batch 50 on a P100: 4.43 iterations per second, 4008.2 MiB at its peak. */
static void test_model(void) {
	struct load load = model("ResNet50", "50", "P100");
	double iteration_s = ((double)(load.kernels * load.kernel_ns) + (double)load.gap_ns) / 1e9;
	double peak_mib = (double)(load.persistent + load.ephemeral) / 0x1p20;
	CHECK(iteration_s > 0.99 / 4.43 && iteration_s < 1.01 / 4.43);
	CHECK(peak_mib > 4008 && peak_mib < 4009);
	CHECK(load.persistent * 9 > load.ephemeral - 100 && load.persistent * 9 < load.ephemeral + 100);
}

/* Memory rises, falls, and ends as it began; without a gap the shares of time are those of the shape, to a phase. */
static void test_levels(void) {
	struct load load = model("resnet50", "50", "p100");
	int peaks = 0;
	for (int phase = 0; phase < PHASES; phase++) {
		uint64_t level = memory_level(&load, phase);
		CHECK(level > 0 && level <= load.ephemeral);
		CHECK(level == memory_level(&load, PHASES - 1 - phase));
		CHECK(phase == 0 || phase >= PHASES / 2 || level >= memory_level(&load, phase - 1));
		peaks += level == load.ephemeral;
	}
	CHECK(peaks == 2); /* 15 % of an iteration are at the top, which is 1.5 phases with the gap's fifth taken off */
	CHECK(memory_level(&load, 0) == load.ephemeral / LEVELS);
	load.shape = NULL;
	CHECK(memory_level(&load, 0) == load.ephemeral);
}

static void test_checkpoint(void) {
	char path[64];
	snprintf(path, sizeof path, "/tmp/weft-train-test.%d", (int)getpid());
	CHECK(checkpoint_read(path) == 0);
	checkpoint_write(path, 41);
	checkpoint_write(path, 123456789012);
	CHECK(checkpoint_read(path) == 123456789012);
	unlink(path);
}

int main(void) {
	test_bytes();
	test_samples();
	test_model();
	test_levels();
	test_checkpoint();
	return faults > 0;
}
