// The socket to the broker of the emulated GPUs: one request and one reply at a time.
#ifndef EMU_LINK_H
#define EMU_LINK_H

#include <pthread.h>

#include "emu_wire.h"

struct emu_link {
    pthread_mutex_t lock; // held from a request to its reply
    int fd;               // -1: closed
};

// emu_link_open connects to WEFT_EMU_SOCKET and says hello. fds takes the four descriptors of a driver; NULL for an observer.
// False: there is no broker, it speaks another protocol, or it refused; one line on stderr says which, once.
bool emu_link_open(struct emu_link *link, enum emu_role role, struct emu_reply *hello, int *fds);
void emu_link_close(struct emu_link *link);

// emu_link_call sends a request, of which the caller has filled all but the magic, and returns the status of the reply. A status that
// is no CUresult, or the end of the connection, becomes EMU_GONE. fd, where not NULL, takes the reply's descriptor, or -1.
uint32_t emu_link_call(struct emu_link *link, struct emu_request *request, struct emu_reply *reply, int *fd);

// emu_map maps a descriptor of the broker's, and closes it. NULL where it cannot, or the first word is not EMU_MAGIC.
void *emu_map(int fd, size_t bytes, bool writable);

#endif
