#include "connections.h"

#include <semaphore.h>
#include <stdlib.h>

#include "nccl.h"

/* At least NCCL_NET_HANDLE_MAXSIZE. */
enum { HANDLE = 1024 };

int connected_by[MOST_CONNECTED];
int connected;

/* For NCCL's thread and this program's. In glibc, these zeros are a semaphore with the value 0. */
static sem_t changed, reacted;

static int listen_on(void *context, void *handle, void **listener) {
    void *listen = nccl("ncclIbListen");
    if (nccl_version() < 22800) return ((int (*)(int, void *, void **))listen)(0, handle, listener);
    return ((int (*)(void *, int, void *, void **))listen)(context, 0, handle, listener);
}

static int connect_to(void *context, void *handle, void **sender) {
    void *connect = nccl("ncclIbConnect"), *of_device = NULL;
    if (nccl_version() < 22800) {
        return ((int (*)(int, void *, void *, void **, void **))connect)(0, NULL, handle, sender, &of_device);
    }
    return ((int (*)(void *, int, void *, void **, void **))connect)(context, 0, handle, sender, &of_device);
}

int connect_to_itself(void *context) {
    int (*accept)(void *, void **, void **) = nccl("ncclIbAccept");
    _Alignas(16) char handle[HANDLE];
    void *listener, *sender = NULL, *receiver = NULL, *of_device = NULL;
    connected = 0;
    int code = listen_on(context, handle, &listener);
    /* Each side returns where it would have to wait for the other one. */
    while (code == 0 && !(sender && receiver)) {
        if (!sender) code = connect_to(context, handle, &sender);
        if (code == 0 && !receiver) code = accept(listener, &receiver, &of_device);
    }
    return code;
}

void connect_by(int index) {
    if (connected == MOST_CONNECTED) abort();
    connected_by[connected++] = index;
}

/* A signal may interrupt the wait. */
static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0) continue;
}

void report_change(void) {
    sem_post(&changed);
    wait_for(&reacted);
}

void wait_for_change(void) {
    wait_for(&changed);
}

void reacted_to_change(void) {
    sem_post(&reacted);
}
