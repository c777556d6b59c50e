/* What NCCL connects, and the changes that the kernel reports to it. The libibverbs of this harness calls these functions, too. */
#ifndef CONNECTIONS_H
#define CONNECTIONS_H

enum { MOST_CONNECTED = 16 };

/* The GID index of each queue pair of the latest connection. */
extern int connected_by[MOST_CONNECTED];
extern int connected;

/* Connects NCCL's first device to itself, with the context of NCCL's initialization. */
int connect_to_itself(void *context);

/* A queue pair is connected by this entry. */
void connect_by(int index);

/* Reports to NCCL that the GIDs have changed, and returns when it has reacted. NCCL has a thread for each port, and only
 * one thread gets the report: the host must have only one port. */
void report_change(void);

/* Waits for a change, and says that NCCL has reacted to it. */
void wait_for_change(void);
void reacted_to_change(void);

#endif
