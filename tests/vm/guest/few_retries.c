/*
 * Preloaded into a program: its queue pairs fail once the peer has not answered, or was not ready to receive, seven
 * times in a row. With the numbers that NCCL and perftest use, 7, soft-RoCE tries for ever.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int) = dlsym(RTLD_NEXT, "ibv_modify_qp");

	if (mask & IBV_QP_RETRY_CNT)
		attr->retry_cnt = 6;
	if (mask & IBV_QP_RNR_RETRY)
		attr->rnr_retry = 6;
	/* 164 ms, because an emulated receiver may be late. */
	if (mask & IBV_QP_MIN_RNR_TIMER)
		attr->min_rnr_timer = 28;
	return modify(qp, attr, mask);
}
