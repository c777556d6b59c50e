/* The host that a case describes. */
#ifndef HOST_H
#define HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* What reading the file with the type of a GID gives. */
enum type_file {
    /* The file does not exist. */
    TYPE_MISSING,
    /* The read fails with EINVAL, as the kernel answers for an empty slot. */
    TYPE_INVALID,
    TYPE_TEXT,
};

struct slot {
    int index;
    uint8_t gid[16];
    enum type_file file;
    char *text;
};

struct port {
    int number;
    int state;
    int link_layer;
    int table_size;
    struct slot *slots;
    size_t slot_count;
};

struct hca {
    char *name;
    /* The errno of opening the device; 0 if it can be opened. */
    int open_error;
    uint64_t guid;
    /* The target of /sys/class/infiniband/NAME/device. */
    char *pci_path;
    /* Where its Data Direct function is below /sys, if it has one. */
    char *data_direct;
    struct port *ports;
    size_t port_count;
};

/* An entry of getifaddrs(3). */
struct interface {
    char *name;
    unsigned index;
    unsigned flags;
    bool has_address;
    struct sockaddr_storage address;
    struct sockaddr_storage mask;
};

struct file {
    char *path;
    char *contents;
    size_t size;
};

struct host {
    struct hca *hcas;
    size_t hca_count;
    struct interface *interfaces;
    size_t interface_count;
    struct file *files;
    size_t file_count;
    /* The home directory in the user database. */
    char *home;
    char **environment;
    size_t variable_count;
    /* The user of the process; 0 if it stays that of the driver. */
    uid_t user;
};

/* The host on which a case runs. */
enum mode {
    DESCRIBED,
    /* This machine, with the variables of the case. */
    REAL,
    /* This machine, with the variables with which the driver was started. */
    STARTED,
};

/* Returns the described host; NULL where the machine itself is the host. The libibverbs
 * of this harness calls this function, too. */
const struct host *described_host(void);

/* Moves the GID of one entry to another, in each table. */
void move_gid(int from, int to);

/* Adds a line of a case to the host. Returns false if the line does not describe a host. */
bool describe(struct host *host, char **words, int count);

/* Puts this process on the host, with the host's variables, as far as the mode says
 * so. */
void move_to(struct host *host, enum mode mode);

#endif
