// Several processes: memory shared by handle, who is charged for it, fork, and the end of a process.
#include <signal.h>
#include <sys/socket.h>

#include "test.h"

// ---- A process of its own: the program again, with a part to play

static pid_t play(const char *part, int in, int out)
{
    pid_t pid = fork();
    if (pid == 0) {
        char a[16], b[16];
        setpgid(0, 0); // so that all it forks can be ended with it
        snprintf(a, sizeof a, "%d", in);
        snprintf(b, sizeof b, "%d", out);
        execl("/proc/self/exe", "test_process", part, a, b, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void pass_fd(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {"x", 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    EXPECT(sendmsg(socket, &m, 0), 1);
}

static int take_fd(int socket)
{
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd;
    EXPECT(recvmsg(socket, &m, 0), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static void wait_byte(int fd)
{
    char byte;
    weftEmuBlock();
    EXPECT(read(fd, &byte, 1), 1);
    weftEmuUnblock();
}

static void send_byte(int fd)
{
    EXPECT(write(fd, "x", 1), 1);
}

// The child opens what the parent sends, and keeps it until the parent says so.
static int child_ipc(int socket)
{
    CUipcMemHandle h;
    CUdeviceptr p, q;
    size_t free;
    test_context();
    free = test_free();
    EXPECT(recv(socket, &h, sizeof h, MSG_WAITALL), sizeof h);
    OK(cuIpcOpenMemHandle_v2(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT(test_free(), free); // the exporter stays charged
    OK(cuMemsetD8_v2(p, 1, 16 * MIB));
    EXPECT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE); // closed, not freed
    send_byte(socket);
    wait_byte(socket);
    EXPECT(test_free(), free); // the exporter has freed it: it lives on by this process
    OK(cuIpcCloseMemHandle(p));
    EXPECT(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
    EXPECT(test_free() - free, 16 * MIB);
    EXPECT(cuIpcOpenMemHandle_v2(&q, h, 0), CUDA_ERROR_INVALID_HANDLE); // gone
    return 0;
}

static void ipc(void)
{
    int pair[2];
    CUipcMemHandle h;
    CUdeviceptr p, q;
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    OK(cuMemAlloc_v2(&p, 16 * MIB));
    EXPECT(cuIpcGetMemHandle(&h, 0x1000), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcGetMemHandle(&h, p));
    EXPECT(cuIpcOpenMemHandle_v2(&q, h, 0), CUDA_ERROR_INVALID_CONTEXT); // not in the process that made it
    pid_t pid = play("ipc", pair[1], -1);
    EXPECT(write(pair[0], &h, sizeof h), sizeof h);
    wait_byte(pair[0]);
    OK(cuMemFree_v2(p));
    send_byte(pair[0]);
    test_child(pid);
    OK(cuMemAllocAsync(&p, MIB, NULL));
    EXPECT(cuIpcGetMemHandle(&h, p), CUDA_ERROR_INVALID_VALUE); // of a pool
    OK(cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
}

static int child_fd(int socket)
{
    CUmemGenericAllocationHandle h;
    CUexternalMemory m;
    CUdeviceptr p;
    test_context();
    size_t free = test_free();
    int fd = take_fd(socket);
    OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EXPECT(test_free(), free);
    OK(cuMemRelease(h));
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = 4 * MIB};
    OK(cuImportExternalMemory(&m, &desc));
    OK(cuExternalMemoryGetMappedBuffer(&p, m, &(CUDA_EXTERNAL_MEMORY_BUFFER_DESC){.offset = MIB, .size = MIB}));
    OK(cuMemsetD8_v2(p, 1, MIB));
    OK(cuMemFree_v2(p));
    EXPECT(cuExternalMemoryGetMappedBuffer(&p, m, &(CUDA_EXTERNAL_MEMORY_BUFFER_DESC){.offset = MIB, .size = 4 * MIB}),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuDestroyExternalMemory(m));
    EXPECT(cuDestroyExternalMemory(m), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuMemImportFromShareableHandle(&h, (void *)0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), CUDA_ERROR_INVALID_VALUE);
    EXPECT(test_free(), free);
    return 0;
}

static void shareable(void)
{
    int pair[2], fd;
    CUmemGenericAllocationHandle h, plain;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    OK(cuMemCreate(&plain, 4 * MIB, &prop, 0));
    EXPECT(cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(plain));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    pid_t pid = play("fd", pair[1], -1);
    pass_fd(pair[0], fd);
    test_child(pid);
    close(fd);
    OK(cuMemRelease(h));
}

static int child_pool(int socket)
{
    CUmemPoolPtrExportData data;
    CUmemoryPool p;
    CUdeviceptr a;
    test_context();
    size_t free = test_free();
    int fd = take_fd(socket);
    OK(cuMemPoolImportFromShareableHandle(&p, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT(recv(socket, &data, sizeof data, MSG_WAITALL), sizeof data);
    OK(cuMemPoolImportPointer(&a, p, &data));
    OK(cuMemsetD8_v2(a, 1, 5 * MIB));
    EXPECT(cuMemAllocFromPoolAsync(&a, MIB, p, NULL), CUDA_ERROR_INVALID_VALUE); // the exporter's alone
    EXPECT(test_free(), free);
    OK(cuMemFreeAsync(a, NULL));
    OK(cuMemPoolDestroy(p));
    return 0;
}

static void pool(void)
{
    int pair[2], fd;
    CUmemPoolPtrExportData data;
    CUmemoryPool p;
    CUdeviceptr a;
    size_t free = test_free();
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    OK(cuMemPoolCreate(&p, &props));
    EXPECT(cuMemPoolExportToShareableHandle(&fd, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolDestroy(p));
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemPoolCreate(&p, &props));
    OK(cuMemPoolExportToShareableHandle(&fd, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT(test_free(), free);
    OK(cuMemAllocFromPoolAsync(&a, 5 * MIB, p, NULL));
    OK(cuMemPoolExportPointer(&data, a));
    pid_t pid = play("pool", pair[1], -1);
    pass_fd(pair[0], fd);
    EXPECT(write(pair[0], &data, sizeof data), sizeof data);
    test_child(pid);
    close(fd);
    OK(cuMemFreeAsync(a, NULL));
    OK(cuMemPoolDestroy(p));
    OK(cuCtxSynchronize());
    EXPECT(test_free(), free);
}

// A child of fork has nothing of the driver, and harms nothing of its parent's.
static void forked(void)
{
    CUstream s;
    OK(cuStreamCreate(&s, 0));
    OK(test_spin(s, 20000000));
    pid_t pid = fork();
    if (pid == 0) {
        CUcontext c;
        CUdeviceptr p;
        int n;
        EXPECT(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
        EXPECT(cuCtxGetCurrent(&c), CUDA_ERROR_NOT_INITIALIZED);
        EXPECT(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
        EXPECT(cuStreamSynchronize(s), CUDA_ERROR_NOT_INITIALIZED);
        EXPECT(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
        exit(0); // runs destructors as well
    }
    test_child(pid);
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
}

static int child_holder(int out)
{
    CUdeviceptr p;
    test_context();
    OK(cuMemAlloc_v2(&p, 512 * MIB));
    OK(test_spin(NULL, 3600000000000ull));
    if (fork() == 0) { // lives on, and holds what it inherited
        alarm(60);
        pause();
        _exit(0);
    }
    send_byte(out);
    pause();
    return 0;
}

// What a killed process held is free again, though a child of its fork lives on.
static void killed(void)
{
    int pipes[2];
    size_t free = test_free();
    EXPECT(pipe(pipes), 0);
    pid_t pid = play("holder", -1, pipes[1]);
    wait_byte(pipes[0]);
    EXPECT(free - test_free(), 512 * MIB + 256 * MIB);
    kill(pid, SIGKILL);
    weftEmuBlock();
    waitpid(pid, NULL, 0);
    weftEmuUnblock();
    for (int i = 0; i < 2000 && test_free() != free; i++)
        usleep(10000);
    EXPECT(test_free(), free);
    kill(-pid, SIGKILL); // the orphan
}

int main(int count, char **words)
{
    if (count == 4) {
        int in = atoi(words[2]), out = atoi(words[3]);
        const char *part = words[1];
        return strcmp(part, "ipc") == 0    ? child_ipc(in)
               : strcmp(part, "fd") == 0   ? child_fd(in)
               : strcmp(part, "pool") == 0 ? child_pool(in)
                                           : child_holder(out);
    }
    test_context();
    test_function("given");
    ipc();
    shareable();
    pool();
    forked();
    killed();
    test_done("process");
}
