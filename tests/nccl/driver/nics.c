/* Asks NCCL which devices it makes one NIC of, as it does while it builds its topology. */
#include "nics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host.h"
#include "nccl.h"

enum {
    /* Of nodes and bytes; more than any case needs. */
    NODES = 256,
    TEXT = 1 << 16,
    MORE_THAN_A_COMMUNICATOR = 1 << 24,
    /* NCCL's, for what is not counted yet. */
    UNDEFINED = -1,
};

/* How far the devices are counted: of the hardware, and those made of several. */
static int physical, made = UNDEFINED;

static int get_count(int plugin, int *of_hardware, int *of_several) {
    (void)plugin;
    *of_hardware = physical;
    *of_several = made;
    return 0;
}

static int set_count(int plugin, int of_several) {
    (void)plugin;
    made = of_several;
    return 0;
}

static void add_device(FILE *xml, const char *address) {
    fprintf(xml, "<pci busid=\"%s\" class=\"0x020000\" vendor=\"0x15b3\" device=\"0x1021\""
                 " subsystem_vendor=\"0x15b3\" subsystem_device=\"0x0001\" link_speed=\"32.0 GT/s PCIe\""
                 " link_width=\"16\"/>\n", address);
}

bool is_pci_address(const char *name) {
    return strlen(name) == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.';
}

/* What NCCL would read of the bus: it finds the devices in a topology that is there already. */
static int topology(void) {
    int file = memfd_create("topology", MFD_CLOEXEC);
    FILE *xml = fdopen(dup(file), "w");
    const struct host *host = described_host();
    fprintf(xml, "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"1\" arch=\"x86_64\" vendor=\"GenuineIntel\""
                 " familyid=\"6\" modelid=\"143\">\n");
    char known[TEXT] = "";
    for (size_t i = 0; i < host->hca_count; i++) {
        const char *paths[] = {host->hcas[i].pci_path, host->hcas[i].data_direct};
        for (size_t p = 0; p < 2; p++) {
            const char *name = paths[p] ? strrchr(paths[p], '/') + 1 : "";
            if (!is_pci_address(name)) continue;
            /* The functions of a device, or the devices of a bus, are one for NCCL. */
            char address[13];
            for (int merged = 0; merged < 3; merged++) {
                strcpy(address, name);
                if (merged > 0) address[11] = '0';
                if (merged > 1) address[8] = address[9] = '0';
                if (strstr(known, address) || strlen(known) + sizeof address > sizeof known) continue;
                strcat(known, address);
                add_device(xml, address);
            }
        }
    }
    fprintf(xml, "</cpu>\n</system>\n");
    fclose(xml);
    return file;
}

/* `struct ncclXml` begins so, and its nodes follow. */
struct xml {
    int count, most;
};

static struct xml *read_topology(int file) {
    /* No release has larger nodes. */
    struct xml *xml = calloc(NODES, TEXT);
    if (!xml) abort();
    xml->most = NODES;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int (*read)(const char *, struct xml *, int) = nccl("ncclTopoGetXmlFromFile");
    if (read(path, xml, 1) != 0) abort();
    return xml;
}

/* `struct ncclTopoNetState` up to 2.27. */
struct state {
    int of_several, of_hardware;
    const char *name;
};

/* `struct ncclTopoNetInfo` of 2.28 and 2.29. */
struct info_of_2_28 {
    bool coll;
    int plugin;
    bool dmabuf;
    int level;
    const char *forced;
    int (*get_count)(int, int *, int *);
    int (*set_count)(int, int);
    const char *name;
    void *get_properties, *make_device, *devices;
};

/* The same since 2.30. */
struct info {
    bool coll, gin, rma, net;
    int plugin, most_devices;
    bool dmabuf;
    int level, policy;
    const char *forced;
    int (*get_count)(int, int *, int *);
    int (*set_count)(int, int);
    const char *name;
    void *get_properties, *make_device, *devices;
};

static int process(struct xml *xml) {
    void *process = nccl("ncclTopoProcessNet"), *properties = nccl("ncclIbGetProperties"),
         *make = nccl("ncclIbMakeVDevice"), *devices = nccl("ncclIbDevices");
    int version = nccl_version();
    if (version < 22700) {
        /* Of the communicator it looks at one flag. */
        void *communicator = calloc(1, MORE_THAN_A_COMMUNICATOR);
        struct state state = {UNDEFINED, UNDEFINED, "IB"};
        return ((int (*)(void *, struct xml *, int, const char *, struct state *, void *, void *, void *,
                         const char *))process)(communicator, xml, 0, NULL, &state, properties, make, devices, "IB");
    }
    if (version < 22800) {
        struct state state = {UNDEFINED, UNDEFINED, "IB"};
        return ((int (*)(struct xml *, int, const char *, struct state *, void *, void *, void *, const char *,
                         bool))process)(xml, 0, NULL, &state, properties, make, devices, "IB", false);
    }
    int level;
    const char *forced;
    /* Since 2.32 with the compute capability of the GPUs and the kind of CPU: Blackwell on Arm. */
    int (*environment)(int *, const char **, int, int) = nccl("ncclTopoGetFusionEnv");
    environment(&level, &forced, 100, 3);
    int (*run)(struct xml *, const char *, void *) = (int (*)(struct xml *, const char *, void *))process;
    if (version < 23000) {
        struct info_of_2_28 info = {.level = level, .forced = forced, .get_count = get_count,
                                    .set_count = set_count, .name = "IB", .get_properties = properties,
                                    .make_device = make, .devices = devices};
        return run(xml, NULL, &info);
    }
    const char *policy = getenv("NCCL_NET_MERGE_POLICY");
    struct info info = {.net = true, .most_devices = 8, .level = level, .forced = forced,
                        .policy = policy && strcasecmp(policy, "RAIL") == 0, .get_count = get_count,
                        .set_count = set_count, .name = "IB", .get_properties = properties,
                        .make_device = make, .devices = devices};
    return run(xml, NULL, &info);
}

int make_nics(void) {
    int (*count)(int *) = nccl("ncclIbDevices");
    count(&physical);
    /* NCCL does not come here without a device. */
    if (physical <= 0) return 0;
    int file = topology();
    struct xml *xml = read_topology(file);
    int code = process(xml);
    free(xml);
    close(file);
    return code;
}
