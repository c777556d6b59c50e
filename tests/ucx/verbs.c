/* A libibverbs that has the devices of a made-up host, and of theirs what `ucx_info` asks for. It is
 * preloaded, so it comes before the real one, and stands before the kernel's files, too. The host is a
 * directory as /sys/class/infiniband, whose name is in MADE_UP_HOST. Beside what the kernel has there, a
 * device has the files `node` if it has a device node, `closed` if that cannot be opened, and `rnic` if
 * it speaks iWARP, and each `gids` has a file `size`. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The header defines these functions as macros, too. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define KERNEL "/sys/class/infiniband/"
#define NODES "/dev/infiniband/"
#define UNUSED __attribute__((unused))
/* Callers look at what lies behind these structures, and find zeros. */
#define NEW(type) ((type *)calloc(1, 4096))

static const char *host(void) {
    return getenv("MADE_UP_HOST");
}

/* The path of a file of the host: that of the kernel's file of the same name. */
static const char *of_host(const char *path, char *room, size_t size) {
    if (host() && strncmp(path, KERNEL, strlen(KERNEL)) == 0) {
        snprintf(room, size, "%s/%s", host(), path + strlen(KERNEL));
        return room;
    }
    /* A node is named like its device. */
    if (host() && strncmp(path, NODES, strlen(NODES)) == 0) {
        snprintf(room, size, "%s/%s/node", host(), path + strlen(NODES));
        return syscall(SYS_access, room, F_OK) == 0 ? "/dev/null" : room;
    }
    return path;
}

int open(const char *path, int flags, ...) {
    char room[512];
    va_list list;
    va_start(list, flags);
    int mode = va_arg(list, int);
    va_end(list);
    return openat(AT_FDCWD, of_host(path, room, sizeof room), flags, mode);
}

/* There is no ucx.conf, whatever this machine has. */
FILE *fopen(const char *path, const char *mode) {
    const char *name = strrchr(path, '/');
    if (name && strcmp(name, "/ucx.conf") == 0) {
        errno = ENOENT;
        return NULL;
    }
    FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
    return next(path, mode);
}

int stat(const char *path, struct stat *result) {
    char room[512];
    return fstatat(AT_FDCWD, of_host(path, room, sizeof room), result, 0);
}

int access(const char *path, int mode) {
    char room[512];
    return (int)syscall(SYS_access, of_host(path, room, sizeof room), mode);
}

/* Reads the first line of a file of the host. */
__attribute__((format(printf, 3, 4)))
static int read_line(char *line, size_t size, const char *format, ...) {
    char path[512], name[256];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    snprintf(path, sizeof path, "%s/%s", host(), name);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    if (!fgets(line, (int)size, file)) *line = 0;
    fclose(file);
    line[strcspn(line, "\n")] = 0;
    return 0;
}

static int has(const char *device, const char *file) {
    char line[8];
    return read_line(line, sizeof line, "%s/%s", device, file) == 0;
}

static int by_name(const void *one, const void *other) {
    return strcmp((*(struct ibv_device *const *)one)->name, (*(struct ibv_device *const *)other)->name);
}

struct ibv_device **ibv_get_device_list(int *count) {
    struct ibv_device **list = calloc(65, sizeof *list);
    int found = 0;
    DIR *folder = opendir(host());
    for (struct dirent *entry; folder && found < 64 && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        struct ibv_device *device = list[found++] = NEW(struct ibv_device);
        int rnic = has(entry->d_name, "rnic");
        device->node_type = rnic ? IBV_NODE_RNIC : IBV_NODE_CA;
        device->transport_type = rnic ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
        strncpy(device->name, entry->d_name, sizeof device->name - 1);
        strncpy(device->dev_name, entry->d_name, sizeof device->dev_name - 1);
        snprintf(device->ibdev_path, sizeof device->ibdev_path, KERNEL "%.40s", entry->d_name);
    }
    if (folder) closedir(folder);
    qsort(list, (size_t)found, sizeof *list, by_name);
    if (count) *count = found;
    return list;
}

/* Only the list is freed, because contexts may refer to its devices. */
void ibv_free_device_list(struct ibv_device **list) {
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device) {
    return device->name;
}

static int receive(UNUSED struct ibv_srq *queue, UNUSED struct ibv_recv_wr *first,
                   UNUSED struct ibv_recv_wr **bad) {
    return 0;
}

static int receive_on_pair(UNUSED struct ibv_qp *pair, UNUSED struct ibv_recv_wr *first,
                           UNUSED struct ibv_recv_wr **bad) {
    return 0;
}

static int nothing_done(UNUSED struct ibv_cq *queue, UNUSED int most, UNUSED struct ibv_wc *done) {
    return 0;
}

static int notify(UNUSED struct ibv_cq *queue, UNUSED int solicited) {
    return 0;
}

/* A descriptor on which nothing ever happens. */
static int silence(void) {
    int ends[2];
    return pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0 ? ends[0] : -1;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    if (has(device->name, "closed")) {
        errno = EPERM;
        return NULL;
    }
    struct ibv_context *context = NEW(struct ibv_context);
    context->device = device;
    context->ops.post_srq_recv = receive;
    context->ops.post_recv = receive_on_pair;
    context->ops.poll_cq = nothing_done;
    context->ops.req_notify_cq = notify;
    context->cmd_fd = -1;
    context->async_fd = silence();
    return context;
}

int ibv_close_device(struct ibv_context *context) {
    close(context->async_fd);
    free(context);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes) {
    char line[64];
    memset(attributes, 0, sizeof *attributes);
    attributes->max_mr_size = ~0ull;
    attributes->max_qp = attributes->max_cq = attributes->max_srq = attributes->max_mr = 1024;
    attributes->max_qp_wr = attributes->max_srq_wr = 8192;
    attributes->max_cqe = 65536;
    attributes->max_sge = attributes->max_srq_sge = 16;
    attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 16;
    for (uint8_t number = 1; number <= 8; number++) {
        if (read_line(line, sizeof line, "%s/ports/%d/state", context->device->name, number) == 0)
            attributes->phys_port_cnt = number;
    }
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *room) {
    const char *name = context->device->name;
    char state[64], layer[64], size[64];
    if (read_line(state, sizeof state, "%s/ports/%d/state", name, number) ||
        read_line(layer, sizeof layer, "%s/ports/%d/link_layer", name, number) ||
        read_line(size, sizeof size, "%s/ports/%d/gids/size", name, number))
        return EINVAL;
    struct ibv_port_attr *attributes = (struct ibv_port_attr *)room;
    /* The callers' structure may end before the later members. */
    memset(attributes, 0, offsetof(struct ibv_port_attr, port_cap_flags2));
    attributes->state = (enum ibv_port_state)atoi(state);
    attributes->max_mtu = attributes->active_mtu = IBV_MTU_4096;
    attributes->gid_tbl_len = atoi(size);
    attributes->max_msg_sz = 1u << 30;
    attributes->lid = 1;
    attributes->link_layer =
        strcmp(layer, "Ethernet") == 0 ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    /* These two values together mean 200 Gbit/s. */
    attributes->active_speed = 64;
    attributes->active_width = 2;
    attributes->pkey_tbl_len = 1;
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t number, int index, union ibv_gid *gid) {
    const char *name = context->device->name;
    char line[64];
    memset(gid, 0, sizeof *gid);
    if (read_line(line, sizeof line, "%s/ports/%d/gids/size", name, number) || index < 0 ||
        index >= atoi(line)) {
        errno = EINVAL;
        return -1;
    }
    if (read_line(line, sizeof line, "%s/ports/%d/gids/%d", name, number, index) == 0)
        inet_pton(AF_INET6, line, gid->raw);
    return 0;
}

/* A port has only the default partition. */
int ibv_query_pkey(UNUSED struct ibv_context *context, UNUSED uint8_t number, int index, __be16 *pkey) {
    *pkey = htons(index == 0 ? 0xffff : 0);
    return 0;
}

int ibv_fork_init(void) {
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct ibv_pd *domain = NEW(struct ibv_pd);
    domain->context = context;
    return domain;
}

int ibv_dealloc_pd(struct ibv_pd *domain) {
    free(domain);
    return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *domain, void *start, size_t length, UNUSED uint64_t iova,
                                UNUSED unsigned access) {
    struct ibv_mr *region = NEW(struct ibv_mr);
    region->context = domain->context;
    region->pd = domain;
    region->addr = start;
    region->length = length;
    return region;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *start, size_t length, UNUSED int access) {
    return ibv_reg_mr_iova2(domain, start, length, 0, 0);
}

int ibv_dereg_mr(struct ibv_mr *region) {
    free(region);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    struct ibv_comp_channel *channel = NEW(struct ibv_comp_channel);
    channel->context = context;
    channel->fd = silence();
    return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    close(channel->fd);
    free(channel);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, UNUSED void *own,
                             struct ibv_comp_channel *channel, UNUSED int vector) {
    struct ibv_cq *queue = NEW(struct ibv_cq);
    queue->context = context;
    queue->channel = channel;
    queue->cqe = entries;
    return queue;
}

int ibv_destroy_cq(struct ibv_cq *queue) {
    free(queue);
    return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *domain, UNUSED struct ibv_srq_init_attr *attributes) {
    struct ibv_srq *queue = NEW(struct ibv_srq);
    queue->context = domain->context;
    queue->pd = domain;
    return queue;
}

int ibv_destroy_srq(struct ibv_srq *queue) {
    free(queue);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *domain, struct ibv_qp_init_attr *attributes) {
    struct ibv_qp *pair = NEW(struct ibv_qp);
    pair->context = domain->context;
    pair->pd = domain;
    pair->qp_num = 17;
    pair->qp_type = attributes->qp_type;
    return pair;
}

int ibv_modify_qp(UNUSED struct ibv_qp *pair, UNUSED struct ibv_qp_attr *attributes, UNUSED int mask) {
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *pair) {
    free(pair);
    return 0;
}

/* UCX asks like this whether a GID can be used. */
struct ibv_ah *ibv_create_ah(struct ibv_pd *domain, UNUSED struct ibv_ah_attr *attributes) {
    struct ibv_ah *handle = NEW(struct ibv_ah);
    handle->context = domain->context;
    handle->pd = domain;
    return handle;
}

int ibv_destroy_ah(struct ibv_ah *handle) {
    free(handle);
    return 0;
}

/* None of the devices is one of mlx5's, whose library knows them by their own parts. */
_Bool mlx5dv_is_supported(UNUSED struct ibv_device *device) {
    return 0;
}
