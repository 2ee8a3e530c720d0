/* A process whose threads wait at a closed gate, because another job holds the GPU, and what may happen to it there.
 * closed HOW FILE. Makes FILE once its threads wait. Exit: 7 as foreseen, 8 the gate did not close, else what went wrong. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <dlfcn.h>
#include <unistd.h>

#include "driver.h"

enum { THREADS = 4, FORESEEN = 7, OPEN = 8 };

static struct gpu gpu;
static atomic_int launched; /* since they wait */
static atomic_bool enough;
static pthread_t threads[THREADS];

static void *launch(void *stream) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    CU(context_set, gpu.context);
    do {
        gpu_spin(&gpu, (int)(intptr_t)stream, 1000);
        launched++;
    } while (!enough);
    return NULL;
}

/* All threads launch, until they wait: the other job may let them pass between. */
static void wait_all(const char *file) {
    int before, tries = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, launch, (void *)(intptr_t)i))
            _exit(1);
    do {
        before = launched;
        usleep(200000);
        if (++tries > 25)
            _exit(OPEN);
    } while (launched != before);
    enough = true;
    launched = 0;
    int made = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (made < 0)
        _exit(1);
    close(made);
}

static int child_of(int how) {
    pid_t child = fork();
    if (child == 0) {
        alarm(5);
        if (how == 0)
            exit(0); /* with all that runs at exit */
        if (how == 1)
            execl("/bin/true", "true", (char *)NULL);
        uint64_t ns = 1000;
        void *parameters[] = {&ns};
        CUresult result = cu.launch(gpu.spin, 1, 1, 1, 1, 1, 1, 0, gpu.streams[0], parameters, NULL);
        _exit(result == CUDA_SUCCESS);
    }
    int status;
    waitpid(child, &status, 0);
    return status;
}

static void *leave(void *unused) {
    (void)unused;
    usleep(100000);
    exit(FORESEEN);
}

static void tick(int unused) { (void)unused; }

static void join_all(void) {
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* The gate opens when the other job ends. */
static int open_later(int least) {
    gpu_spin(&gpu, 0, 1000);
    gpu_synchronize(&gpu);
    return launched >= least ? FORESEEN : 1;
}

static int interrupted(void) {
    struct sigaction action = {.sa_handler = tick};
    struct itimerval each = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &each, NULL);
    join_all();
    setitimer(ITIMER_REAL, &never, NULL);
    return open_later(THREADS);
}

static int cancelled(void) {
    for (int i = 0; i < THREADS; i++)
        pthread_cancel(threads[i]);
    join_all();
    return open_later(0);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    driver_open("closed");
    CU(init, 0);
    gpu_open(&gpu, 0, THREADS);
    if (!strcmp(how, "unload")) { /* the driver's library goes and comes, as plugins do it */
        void *again = dlopen("libcuda.so.1", RTLD_NOW);
        for (int i = 0; again && i < 3; i++)
            dlclose(again);
        driver_open("closed");
    }
    wait_all(argc > 2 ? argv[2] : "");
    if (!strcmp(how, "exit"))
        exit(FORESEEN);
    if (!strcmp(how, "exit of a thread")) {
        pthread_t other;
        pthread_create(&other, NULL, leave, NULL);
        launch(NULL); /* waits, too */
    }
    if (!strcmp(how, "fork"))
        return child_of(0) || child_of(1) || child_of(2) ? 1 : FORESEEN;
    if (!strcmp(how, "signals"))
        return interrupted();
    if (!strcmp(how, "cancel"))
        return cancelled();
    if (!strcmp(how, "unload")) {
        join_all();
        return open_later(THREADS);
    }
    pause();
    return 1;
}
