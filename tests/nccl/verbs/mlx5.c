/* Replaces libmlx5, which would take the described devices for its own. Here, only devices with a
 * Data Direct function are devices of mlx5. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../driver/host.h"

bool mlx5dv_is_supported(struct ibv_device *device);
int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *context, char *path, size_t size);
struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *domain, uint64_t offset, size_t length, uint64_t iova, int fd,
                                    int access, int flags);

/* Where the function of a device is; NULL if it has none. */
static const char *data_direct_of(const struct ibv_device *device) {
    const struct host *host = described_host();
    for (size_t i = 0; host && i < host->hca_count; i++) {
        if (strcmp(host->hcas[i].name, device->name) == 0) return host->hcas[i].data_direct;
    }
    return NULL;
}

bool mlx5dv_is_supported(struct ibv_device *device) {
    return data_direct_of(device) != NULL;
}

/* The path without /sys. */
int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *context, char *path, size_t size) {
    const char *found = data_direct_of(context->device);
    if (!found) return ENODEV;
    snprintf(path, size, "%s", found + strlen("/sys"));
    return 0;
}

/* NCCL tries a file that is none: the kernel looks at it, so it could register a right one. */
struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *domain, uint64_t offset, size_t length, uint64_t iova, int fd,
                                    int access, int flags) {
    (void)domain, (void)offset, (void)length, (void)iova, (void)fd, (void)access, (void)flags;
    errno = EBADF;
    return NULL;
}
