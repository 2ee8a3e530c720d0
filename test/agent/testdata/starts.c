/* Starts to use the GPU in several threads at once, and forks children. starts THREADS BEFORE AFTER: BEFORE children are
 * forked before the first use and use the GPU themselves; AFTER of them afterwards, and try it. Prints "done" alone. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static struct gpu gpu;
static pthread_barrier_t barrier;

static void *start(void *first) {
    pthread_barrier_wait(&barrier);
    CU(init, 0);
    if (first) {
        CUdeviceptr address;
        gpu_open(&gpu, 0, 1);
        CU(memory_alloc, &address, 32 << 20);
        gpu_spin(&gpu, 0, 1000);
        gpu_synchronize(&gpu);
        CU(memory_free, address);
    }
    return NULL;
}

static void run(int threads) {
    pthread_t list[64];
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (intptr_t i = 0; i < threads; i++)
        pthread_create(&list[i], NULL, start, (void *)(intptr_t)(i == 0));
    for (int i = 0; i < threads; i++)
        pthread_join(list[i], NULL);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1, before = argc > 2 ? atoi(argv[2]) : 0, after = argc > 3 ? atoi(argv[3]) : 0, bad = 0, status;
    driver_open("starts");
    for (int i = 0; i < before; i++)
        if (fork() == 0) {
            run(threads);
            _exit(0);
        }
    run(threads);
    for (int i = 0; i < after; i++)
        if (fork() == 0) {
            int count;
            cu.init(0); /* the driver refuses, as it does without weft */
            cu.device_count(&count);
            _exit(0);
        }
    while (wait(&status) > 0)
        bad |= status;
    if (!bad)
        printf("done\n");
    return bad != 0;
}
