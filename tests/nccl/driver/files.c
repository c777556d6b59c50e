/* Files of the described host. libnccl.so calls these functions instead of those of
 * the C library, because the program's symbols take precedence. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "host.h"
#include "nccl.h"
#include "nics.h"

/* Makes a descriptor from which these bytes can be read. */
static int readable(const char *contents, size_t size) {
    int fd = memfd_create("described", MFD_CLOEXEC);
    if (fd >= 0 && (write(fd, contents, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)) abort();
    return fd;
}

/* Makes a descriptor whose read(2) fails with EINVAL. */
static int unreadable(void) {
    sigset_t none;
    sigemptyset(&none);
    /* A read of a signalfd fails with EINVAL if the buffer is smaller than a
     * struct signalfd_siginfo. */
    return signalfd(-1, &none, SFD_CLOEXEC);
}

static const struct hca *hca_named(const struct host *host, const char *name) {
    for (size_t i = 0; i < host->hca_count; i++) {
        if (strcmp(host->hcas[i].name, name) == 0) return &host->hcas[i];
    }
    return NULL;
}

static int open_type(const struct host *host, const char *name, int number, int index) {
    const struct hca *hca = hca_named(host, name);
    for (size_t p = 0; hca && p < hca->port_count; p++) {
        const struct port *port = &hca->ports[p];
        if (port->number != number || index >= port->table_size) continue;
        for (size_t s = 0; s < port->slot_count; s++) {
            const struct slot *slot = &port->slots[s];
            if (slot->index != index || slot->file == TYPE_INVALID) continue;
            if (slot->file == TYPE_TEXT) return readable(slot->text, strlen(slot->text));
            errno = ENOENT;
            return -1;
        }
        return unreadable();
    }
    errno = ENOENT;
    return -1;
}

int open(const char *path, int flags, ...) {
    const struct host *host = described_host();
    char name[64 + 1];
    int number, index, end = 0;
    if (host && sscanf(path, "/sys/class/infiniband/%64[^/]/ports/%d/gid_attrs/types/%d%n", name, &number,
                       &index, &end) == 3 && !path[end]) {
        return open_type(host, name, number, index);
    }
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    return openat(AT_FDCWD, path, flags, mode);
}

static bool is_of_the_kernel(const char *path) {
    return !strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5) || !strncmp(path, "/dev/", 5);
}

FILE *fopen(const char *path, const char *mode) {
    const struct host *host = described_host();
    if (!host || is_of_the_kernel(path)) {
        FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
        return real(path, mode);
    }
    for (size_t i = 0; i < host->file_count; i++) {
        const struct file *file = &host->files[i];
        if (strcmp(file->path, path) == 0) return fdopen(readable(file->contents, file->size), mode);
    }
    errno = ENOENT;
    return NULL;
}

/* Returns whether the path is that of a device's parent, and the device's name. */
static bool is_parent(const char *path, char name[64 + 1]) {
    int end = 0;
    return sscanf(path, "/sys/class/infiniband/%64[^/]/device%n", name, &end) == 1 && end && !path[end];
}

/* From 2.20 to 2.23, NCCL compares the parents of two devices with strcmp(3) even if
 * it has found none, and crashes before it decides anything. A soft-RoCE device has no
 * parent, so a path is made up for it. The paths of two devices differ even without
 * the digits that NCCL drops to find the ports of one card. */
static bool crashes_without_parent(void) {
    return nccl_version() >= 22000 && nccl_version() < 22400;
}

/* Whether this asks what kind of device a described one is; NCCL wants to know PCI devices. */
static bool is_subsystem(const char *path, bool *is_pci) {
    const char *end = strstr(path, "/subsystem");
    if (!end || end[strlen("/subsystem")] || strncmp(path, "/sys/devices/", 13)) return false;
    char name[12 + 1] = "";
    if (end - path > 12) memcpy(name, end - 12, 12);
    *is_pci = is_pci_address(name) && end[-13] == '/';
    return true;
}

char *realpath(const char *path, char *resolved) {
    const struct host *host = described_host();
    char name[64 + 1], made_up[sizeof name + 64];
    bool is_pci = false;
    if (host && is_subsystem(path, &is_pci)) {
        if (!is_pci) {
            errno = ENOENT;
            return NULL;
        }
        return resolved ? strcpy(resolved, "/sys/bus/pci") : strdup("/sys/bus/pci");
    }
    bool is_parent_path = is_parent(path, name);
    if (!host || !is_parent_path) {
        char *(*real)(const char *, char *) = dlsym(RTLD_NEXT, "realpath");
        char *found = real(path, resolved);
        if (found || !is_parent_path || !crashes_without_parent()) return found;
        snprintf(made_up, sizeof made_up, "/sys/devices/none/%s/0000:00:00.0", name);
        return resolved ? strcpy(resolved, made_up) : strdup(made_up);
    }
    const struct hca *hca = hca_named(host, name);
    if (!hca || !hca->pci_path) {
        errno = ENOENT;
        return NULL;
    }
    return resolved ? strcpy(resolved, hca->pci_path) : strdup(hca->pci_path);
}

struct passwd *getpwuid(uid_t uid) {
    const struct host *host = described_host();
    static struct passwd user;
    if (!host) {
        struct passwd *(*real)(uid_t) = dlsym(RTLD_NEXT, "getpwuid");
        return real(uid);
    }
    user.pw_dir = host->home;
    return host->home ? &user : NULL;
}
