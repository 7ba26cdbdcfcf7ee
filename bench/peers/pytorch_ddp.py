"""The steps of //bench:data_parallel in PyTorch: DistributedDataParallel over Gloo, one process a rank, one thread each.

pytorch_ddp.py RANKS prints one JSON object: the median microseconds of a step (forward, cross-entropy, backward, SGD with
momentum) of the slowest rank, and of two ranks what all_reduce moves in a second. {"skipped": ...} where PyTorch is not installed.
"""

import json
import os
import statistics
import sys
import tempfile
import time
import warnings

try:
    import torch
    import torch.distributed as distributed
    from torch import nn
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    print(json.dumps({"skipped": "PyTorch is not installed for " + sys.executable}))
    sys.exit(0)

from pytorch_network import make_cnn

WARM_UP = 4
BLOCKS, FEWEST_BLOCKS = 41, 5
BLOCK_SECONDS, LONGEST_SECONDS = 5e-3, 4.0
SIZES = (("64k", 64 << 10), ("1m", 1 << 20), ("4m", 4 << 20), ("25m", 25 << 20))


def make_mlp():
    layers = []
    for i in range(6):
        layers += [nn.Linear(784 if i == 0 else 2048, 10 if i == 5 else 2048), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def slowest(seconds):
    """Of all ranks."""
    tensor = torch.tensor([seconds], dtype=torch.float64)
    distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
    return tensor.item()


def timed(work, count=1):
    distributed.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        work()
    return slowest(time.perf_counter() - begin) / count


def step_seconds(module, x, labels):
    model = DistributedDataParallel(module, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(x), labels).backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    once = timed(step)
    count = max(1, int(BLOCK_SECONDS / once))
    blocks = int(max(FEWEST_BLOCKS, min(BLOCKS, LONGEST_SECONDS / (once * count))))
    return statistics.median(timed(step, count) for _ in range(blocks))


def run_rank(rank, ranks, store, output):
    warnings.simplefilter("ignore", FutureWarning)  # older releases know broadcast_buffers alone
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    torch.manual_seed(13 + rank)
    labels = torch.randint(0, 10, (128,))
    figures = {"library": "PyTorch %s, DDP over Gloo" % torch.__version__}
    end = "%d_rank%s" % (ranks, "s" if ranks > 1 else "")
    mlp = step_seconds(make_mlp(), torch.rand(128, 784), labels)
    cnn = step_seconds(make_cnn(), torch.rand(32, 1, 28, 28), labels[:32])
    figures["T23_rival_pytorch_us_mlp_" + end] = round(mlp * 1e6, 2)
    figures["T23_rival_pytorch_us_cnn_" + end] = round(cnn * 1e6, 2)
    for name, size in SIZES if ranks == 2 else ():
        x = torch.randn(size // 4)

        def reduce():
            distributed.all_reduce(x, distributed.ReduceOp.AVG)

        seconds = statistics.median([timed(reduce) for _ in range(18)][3:])
        figures["T23_rival_pytorch_gbps_" + name] = round(size / seconds * 1e-9, 4)
    if rank == 0:
        with open(output, "w") as file:
            json.dump(figures, file)
            file.flush()
    distributed.barrier()
    os._exit(0)  # a Gloo whose peer has left first aborts


def main():
    ranks = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "figures")
        torch.multiprocessing.spawn(run_rank, (ranks, os.path.join(folder, "store"), output), nprocs=ranks)
        with open(output) as file:
            print(file.read())


if __name__ == "__main__":
    main()
