/* An NCCL library in memory, and the functions of it that are replaced. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stddef.h>

/* Opens the library and replaces, for a machine without a GPU, what asks CUDA or NVML. */
void open_library(const char *path);

/* Returns a function that the library exports. */
void *exported(const char *name);

#endif
