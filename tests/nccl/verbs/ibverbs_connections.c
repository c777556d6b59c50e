/* The functions of libibverbs that NCCL looks up at the start, and needs only to transfer
 * data. For memory registration, NCCL checks at the start that the function exists. */
#include <errno.h>
#include <stddef.h>

#define FAILS(function) \
    int function(void); \
    int function(void) { return errno = EOPNOTSUPP; }
#define MAKES_NOTHING(function) \
    void *function(void);       \
    void *function(void) {      \
        errno = EOPNOTSUPP;     \
        return NULL;            \
    }

FAILS(ibv_dereg_mr)
FAILS(ibv_destroy_cq)
FAILS(ibv_destroy_qp)
FAILS(ibv_query_ece)
FAILS(ibv_query_qp)
FAILS(ibv_set_ece)
MAKES_NOTHING(ibv_reg_dmabuf_mr)
MAKES_NOTHING(ibv_reg_mr_iova2)
