/* A libibverbs that has the devices of the described host. It has what NCCL calls before
 * it connects. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#include "../driver/host.h"

/* The header defines these functions as macros, too. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

struct device {
    struct ibv_device device;
    const struct hca *hca;
};

struct ibv_device **ibv_get_device_list(int *count) {
    const struct host *host = described_host();
    struct ibv_device **list = calloc(host->hca_count + 1, sizeof *list);
    struct device *devices = calloc(host->hca_count, sizeof *devices);
    for (size_t i = 0; i < host->hca_count; i++) {
        struct ibv_device *device = &devices[i].device;
        devices[i].hca = &host->hcas[i];
        device->node_type = IBV_NODE_CA;
        device->transport_type = IBV_TRANSPORT_IB;
        strncpy(device->name, host->hcas[i].name, sizeof device->name - 1);
        strcpy(device->dev_name, "uverbs0");
        list[i] = device;
    }
    if (count) *count = (int)host->hca_count;
    return list;
}

/* Only the list is freed, because contexts may refer to its devices. */
void ibv_free_device_list(struct ibv_device **list) {
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device) {
    return device->name;
}

static const struct hca *hca_of(const struct ibv_context *context) {
    return ((const struct device *)context->device)->hca;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    int error = ((struct device *)device)->hca->open_error;
    if (error) {
        errno = error;
        return NULL;
    }
    struct ibv_context *context = calloc(1, sizeof *context);
    context->device = device;
    context->cmd_fd = context->async_fd = -1;
    return context;
}

int ibv_close_device(struct ibv_context *context) {
    free(context);
    return 0;
}

/* Enough for NCCL to ask what a device can register. */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct ibv_pd *domain = calloc(1, sizeof *domain);
    domain->context = context;
    return domain;
}

int ibv_dealloc_pd(struct ibv_pd *domain) {
    free(domain);
    return 0;
}

static const struct port *port_of(const struct ibv_context *context, int number) {
    const struct hca *hca = hca_of(context);
    for (size_t i = 0; i < hca->port_count; i++) {
        if (hca->ports[i].number == number) return &hca->ports[i];
    }
    return NULL;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes) {
    const struct hca *hca = hca_of(context);
    memset(attributes, 0, sizeof *attributes);
    attributes->sys_image_guid = attributes->node_guid = hca->guid;
    attributes->max_qp = 1024;
    for (size_t i = 0; i < hca->port_count; i++) {
        int number = hca->ports[i].number;
        if (number > attributes->phys_port_cnt) attributes->phys_port_cnt = (uint8_t)number;
    }
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *room) {
    const struct port *port = port_of(context, number);
    if (!port) return EINVAL;
    struct ibv_port_attr *attributes = (struct ibv_port_attr *)room;
    /* The callers' structure may end before the later members. */
    memset(attributes, 0, offsetof(struct ibv_port_attr, port_cap_flags2));
    attributes->state = (enum ibv_port_state)port->state;
    attributes->max_mtu = attributes->active_mtu = IBV_MTU_4096;
    attributes->gid_tbl_len = port->table_size;
    attributes->max_msg_sz = 1u << 30;
    attributes->link_layer = (uint8_t)port->link_layer;
    /* These two values together mean 200 Gbit/s. */
    attributes->active_speed = 64;
    attributes->active_width = 2;
    attributes->pkey_tbl_len = 1;
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t number, int index, union ibv_gid *gid) {
    const struct port *port = port_of(context, number);
    memset(gid, 0, sizeof *gid);
    if (!port || index < 0 || index >= port->table_size) {
        errno = EINVAL;
        return -1;
    }
    for (size_t i = 0; i < port->slot_count; i++) {
        if (port->slots[i].index == index) memcpy(gid->raw, port->slots[i].gid, sizeof gid->raw);
    }
    return 0;
}

/* A port has only the default partition. */
int ibv_query_pkey(struct ibv_context *context, uint8_t number, int index, __be16 *pkey) {
    if (!port_of(context, number) || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htons(0xffff);
    return 0;
}

int ibv_fork_init(void) {
    return 0;
}
