/* Which devices NCCL makes one NIC of. */
#ifndef NICS_H
#define NICS_H

#include <stdbool.h>

/* Lets NCCL make the NICs, of the devices that it has found; its log names them. For 2.24 and
 * later. */
int make_nics(void);

/* Whether a name is that of a PCI device: `0000:17:00.0`. */
bool is_pci_address(const char *name);

#endif
