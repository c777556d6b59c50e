/* The network of the described host; see files.c. */
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

int getifaddrs(struct ifaddrs **list) {
    const struct host *host = described_host();
    if (!host) {
        int (*real)(struct ifaddrs **) = dlsym(RTLD_NEXT, "getifaddrs");
        return real(list);
    }
    *list = NULL;
    if (host->interface_count == 0) return 0;
    /* All entries are one block, because freeifaddrs() below frees it with one free(3). */
    *list = calloc(host->interface_count, sizeof **list);
    if (!*list) return -1;
    for (size_t i = 0; i < host->interface_count; i++) {
        struct interface *interface = &host->interfaces[i];
        struct ifaddrs *entry = *list + i;
        entry->ifa_next = i + 1 < host->interface_count ? entry + 1 : NULL;
        entry->ifa_name = interface->name;
        entry->ifa_flags = interface->flags;
        if (!interface->has_address) continue;
        entry->ifa_addr = (struct sockaddr *)&interface->address;
        if (interface->mask.ss_family) entry->ifa_netmask = (struct sockaddr *)&interface->mask;
    }
    return 0;
}

void freeifaddrs(struct ifaddrs *list) {
    if (described_host()) {
        free(list);
    } else {
        void (*real)(struct ifaddrs *) = dlsym(RTLD_NEXT, "freeifaddrs");
        real(list);
    }
}

unsigned if_nametoindex(const char *name) {
    const struct host *host = described_host();
    if (!host) {
        unsigned (*real)(const char *) = dlsym(RTLD_NEXT, "if_nametoindex");
        return real(name);
    }
    for (size_t i = 0; i < host->interface_count; i++) {
        if (strcmp(host->interfaces[i].name, name) == 0) return host->interfaces[i].index;
    }
    errno = ENODEV;
    return 0;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **list) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    if (!described_host()) return real(name, service, hints, list);
    /* The name servers of this machine do not belong to the described host, so names
     * are not looked up. */
    struct addrinfo numeric = {0};
    if (hints) numeric = *hints;
    numeric.ai_flags |= AI_NUMERICHOST;
    return real(name, service, &numeric, list);
}
