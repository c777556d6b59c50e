/* The NCCL library that is tested. */
#ifndef NCCL_H
#define NCCL_H

/* Loads the library. The symbols are NAME=OFFSET, for those that it does not export. */
void load_nccl(const char *path, char **symbols);

/* Returns the release as NCCL counts it: 22703 for 2.27.3. */
int nccl_version(void);

/* Returns a function or variable of the library, by its name in the source. */
void *nccl(const char *name);

/* The same, or NULL. */
void *nccl_if_there(const char *name);

#endif
