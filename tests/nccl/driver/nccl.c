#include "nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *base;
static char **known;
static int version;

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

void load_nccl(const char *path, char **symbols) {
    /* All symbols are bound now; each child would have to bind the others anew. */
    void *library = dlopen(path, RTLD_NOW);
    if (!library) fail(path, dlerror());
    int (*get_version)(int *) = dlsym(library, "ncclGetVersion");
    Dl_info info;
    if (!get_version || !dladdr(get_version, &info)) fail(path, "is not NCCL");
    get_version(&version);
    base = info.dli_fbase;
    known = symbols;
}

int nccl_version(void) {
    return version;
}

void *nccl_if_there(const char *name) {
    size_t length = strlen(name);
    for (char **symbol = known; *symbol; symbol++) {
        if (strncmp(*symbol, name, length) == 0 && (*symbol)[length] == '=') {
            return base + strtoul(*symbol + length + 1, NULL, 16);
        }
    }
    return NULL;
}

void *nccl(const char *name) {
    void *found = nccl_if_there(name);
    if (!found) fail(name, "is no symbol of this NCCL");
    return found;
}
