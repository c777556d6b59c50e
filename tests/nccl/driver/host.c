/* Reads the lines of a case that describe the host. */
#include "host.h"

#include <arpa/inet.h>
#include <grp.h>
#include <netpacket/packet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "words.h"

static const struct host *current;

const struct host *described_host(void) {
    return current;
}

/* Adds an element, all zero, at the end of an array. */
static void *added(void *array, size_t *count, size_t size) {
    char **items = array;
    *items = reallocarray(*items, *count + 1, size);
    if (!*items) abort();
    void *item = *items + *count * size;
    ++*count;
    return memset(item, 0, size);
}

#define ADDED(array, count) added(&(array), &(count), sizeof *(array))

static void add_hca(struct host *host, char **words) {
    struct hca *hca = ADDED(host->hcas, host->hca_count);
    hca->name = text(words[1]);
    hca->open_error = (int)number(words[2]);
    hca->guid = (uint64_t)number(words[3]);
    hca->pci_path = text(words[4]);
    hca->data_direct = text(words[5]);
}

static void add_port(struct host *host, char **words) {
    struct hca *hca = &host->hcas[host->hca_count - 1];
    struct port *port = ADDED(hca->ports, hca->port_count);
    port->number = (int)number(words[1]);
    port->state = (int)number(words[2]);
    port->link_layer = (int)number(words[3]);
    port->table_size = (int)number(words[4]);
}

static void add_slot(struct host *host, char **words) {
    struct hca *hca = &host->hcas[host->hca_count - 1];
    struct port *port = &hca->ports[hca->port_count - 1];
    struct slot *slot = ADDED(port->slots, port->slot_count);
    slot->index = (int)number(words[1]);
    if (inet_pton(AF_INET6, words[2], slot->gid) != 1) misread(words[2]);
    if (strcmp(words[3], "missing") == 0) {
        slot->file = TYPE_MISSING;
    } else if (strcmp(words[3], "invalid") == 0) {
        slot->file = TYPE_INVALID;
    } else {
        slot->file = TYPE_TEXT;
        slot->text = text(words[3]);
    }
}

/* Sets the first `length` bits of a mask. */
static void set_bits(uint8_t *bytes, long length) {
    for (long bit = 0; bit < length; bit++) bytes[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
}

static void set_address(struct interface *interface, const char *address, const char *prefix) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)&interface->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&interface->address;
    struct sockaddr_ll *link = (struct sockaddr_ll *)&interface->address;
    interface->has_address = true;
    if (strcmp(address, "link") == 0) {
        link->sll_family = AF_PACKET;
        link->sll_ifindex = (int)interface->index;
    } else if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
        struct sockaddr_in *mask = (struct sockaddr_in *)&interface->mask;
        v4->sin_family = mask->sin_family = AF_INET;
        set_bits((uint8_t *)&mask->sin_addr, number(prefix));
    } else if (inet_pton(AF_INET6, address, &v6->sin6_addr) == 1) {
        struct sockaddr_in6 *mask = (struct sockaddr_in6 *)&interface->mask;
        v6->sin6_family = mask->sin6_family = AF_INET6;
        if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) v6->sin6_scope_id = interface->index;
        set_bits(mask->sin6_addr.s6_addr, number(prefix));
    } else {
        misread(address);
    }
}

static void add_interface(struct host *host, char **words) {
    struct interface *interface = ADDED(host->interfaces, host->interface_count);
    interface->name = text(words[1]);
    interface->index = (unsigned)number(words[2]);
    interface->flags = (unsigned)number(words[3]);
    if (strcmp(words[4], "none") != 0) set_address(interface, words[4], words[5]);
}

static void add_file(struct host *host, char **words) {
    struct file *file = ADDED(host->files, host->file_count);
    file->path = text(words[1]);
    file->contents = bytes(words[2], &file->size);
}

/* What the driver itself was started with stays where execve(2) has put it. */
static void add_variable(struct host *host, char **words) {
    char **variable = ADDED(host->environment, host->variable_count);
    *variable = text(words[1]);
    for (char **own = environ; *own; own++) {
        if (strcmp(*own, *variable) == 0) *variable = *own;
    }
}

static void set_home(struct host *host, char **words) {
    host->home = text(words[1]);
}

static void set_user(struct host *host, char **words) {
    host->user = (uid_t)number(words[1]);
}

bool describe(struct host *host, char **words, int count) {
    static const struct {
        const char *word;
        int count;
        void (*add)(struct host *, char **);
    } kinds[] = {
        {"environment", 2, add_variable}, {"home", 2, set_home}, {"file", 3, add_file},
        {"interface", 6, add_interface},  {"hca", 6, add_hca},   {"port", 5, add_port},
        {"slot", 4, add_slot},           {"user", 2, set_user},
    };
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        if (strcmp(words[0], kinds[kind].word) != 0) continue;
        if (count != kinds[kind].count) misread(words[0]);
        kinds[kind].add(host, words);
        return true;
    }
    return false;
}

/* Makes the process the same as one that this user has started. The kernel has it forget that it ends with its parent,
 * and keeps its files in /proc for root. */
static void become(uid_t user) {
    if (setgroups(0, NULL) != 0 || setgid(user) != 0 || setuid(user) != 0) abort();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 1);
}

void move_gid(int from, int to) {
    for (size_t i = 0; i < current->hca_count; i++) {
        const struct hca *hca = &current->hcas[i];
        for (size_t p = 0; p < hca->port_count; p++) {
            for (size_t s = 0; s < hca->ports[p].slot_count; s++) {
                struct slot *slot = &hca->ports[p].slots[s];
                if (slot->index == from) slot->index = to;
            }
        }
    }
}

void move_to(struct host *host, enum mode mode) {
    if (host->user) become(host->user);
    if (mode == STARTED) return;
    /* The environment is laid out as by execve(2), so names may come twice. */
    (void)ADDED(host->environment, host->variable_count);
    environ = host->environment;
    if (mode == DESCRIBED) current = host;
}
