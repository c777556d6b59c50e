/* The library under test. */
#ifndef NCCL_H
#define NCCL_H

/* Loads the library. The symbols are NAME=OFFSET, of what it does not export. */
void load_nccl(const char *path, char **symbols);

/* 22703 for 2.27.3. */
int nccl_version(void);

/* A function or a variable of it, by the name of its source. */
void *nccl(const char *name);

#endif
