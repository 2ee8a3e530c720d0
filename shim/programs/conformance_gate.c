/* With --expect-gated: while another job holds the GPU, no way of launching passes, and what does not launch does. */
#include "conformance_paths.h"

static void held_back(int path) {
	struct launch launch;
	launch_ready(path, &launch, 1000);
	check_armed();
	check_supported(launch_paths[path].go(&launch), "this way to launch");
}

#define THROUGH(name) \
	static void through_##name(void) { held_back(LAUNCH_PATH_##name); }
LAUNCH_PATHS(THROUGH)
#define ROW(name) {"gate.path." #name, through_##name, CHECK_GATED},
const struct check gate_checks[] = {
	LAUNCH_PATHS(ROW)
	{0},
};
