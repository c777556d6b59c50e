/* Replaces libmlx5, which would take the described devices for its own. */
#include <stdbool.h>

struct ibv_device;

bool mlx5dv_is_supported(struct ibv_device *device);

bool mlx5dv_is_supported(struct ibv_device *device) {
    (void)device;
    return false;
}
