"""A rank of two that add a number over Gloo, and tell it."""

import datetime
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=float(sys.argv[1])))
number = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(number)
print("sum", int(number.item()), flush=True)
dist.destroy_process_group()
